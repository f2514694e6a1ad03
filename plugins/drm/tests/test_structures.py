# SPDX-License-Identifier: Apache-2.0
"""The macros of what the kernel's types say, and of what they do not."""

from __future__ import annotations

import pytest

from fencepath_drm.structures import defines_of

KERNEL = {"dma_fence.context": 32, "dma_fence.seqno": 40, "device.kobj": 16, "kobject.name": 0}
MODULE = {
    "drm_sched_fence.finished": 64,
    "drm_sched_fence.sched": 144,
    "drm_gpu_scheduler.dev": 504,
    "drm_sched_job.s_fence": 24,
}
ALL = {
    "DRM_FENCE_CONTEXT": 32,
    "DRM_FENCE_SEQNO": 40,
    "DRM_FENCE_FINISHED": 64,
    "DRM_FENCE_TO_SCHEDULER": 80,
    "DRM_SCHEDULER_DEVICE": 504,
    "DRM_DEVICE_NAME": 16,
    "DRM_JOB_FENCE": 24,
}


def test_all_that_there_is() -> None:
    assert defines_of({**KERNEL, **MODULE}) == ALL


def test_without_the_module_there_are_fences() -> None:
    assert defines_of(KERNEL) == {"DRM_FENCE_CONTEXT": 32, "DRM_FENCE_SEQNO": 40}


@pytest.mark.parametrize(
    ("lacking", "macros"),
    [
        # of no use one without the other
        ("dma_fence.context", {"DRM_FENCE_CONTEXT", "DRM_FENCE_SEQNO"}),
        ("dma_fence.seqno", {"DRM_FENCE_CONTEXT", "DRM_FENCE_SEQNO"}),
        ("drm_gpu_scheduler.dev", {"DRM_SCHEDULER_DEVICE", "DRM_DEVICE_NAME"}),
        ("kobject.name", {"DRM_SCHEDULER_DEVICE", "DRM_DEVICE_NAME"}),
        # of what is read from several members
        ("drm_sched_fence.finished", {"DRM_FENCE_FINISHED", "DRM_FENCE_TO_SCHEDULER"}),
        ("drm_sched_fence.sched", {"DRM_FENCE_TO_SCHEDULER"}),
        ("drm_sched_job.s_fence", {"DRM_JOB_FENCE"}),
    ],
)
def test_what_is_lacking_takes_with_it_what_needs_it(lacking: str, macros: set[str]) -> None:
    found = defines_of({member: at for member, at in {**KERNEL, **MODULE}.items() if member != lacking})
    assert found == {name: value for name, value in ALL.items() if name not in macros}


def test_without_types_there_is_nothing() -> None:
    assert defines_of({}) == {}
