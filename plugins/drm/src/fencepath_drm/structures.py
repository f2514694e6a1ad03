# SPDX-License-Identifier: Apache-2.0
"""Where kernel structures keep what events do not say, from the kernel's own type information (BTF).

Before 6.17 the scheduler's events name a job by the address of its finished fence. Context and seqno are read through it,
and by way of the scheduler the device's name. The arguments of raw tracepoints are such addresses on every kernel. ``struct
dma_fence`` is in the kernel's own BTF, the scheduler's structures in that of the module ``gpu_sched``, whose numbers and texts
go on where the kernel's end.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepath.kernel_types import KernelTypes

__all__ = ["defines_of", "structure_defines"]

_KERNEL = (
    "dma_fence.context",
    "dma_fence.seqno",
    "dma_fence.ops",
    "dma_fence_ops.get_driver_name",
    "dma_fence_chain.fence",
    "dma_fence_chain.prev",
    "dma_fence_chain.prev_seqno",
    "dma_fence_array.num_fences",
    "dma_fence_array.fences",
    "task_struct.pid",
    "device.kobj",
    "kobject.name",
)
_MODULE = ("drm_sched_fence.finished", "drm_sched_fence.sched", "drm_gpu_scheduler.dev", "drm_sched_job.s_fence")

Offsets = Mapping[str, int]
"""Bytes by ``structure.member``."""


def structure_defines() -> dict[str, int]:
    """Return the macros of bpf/jobs.c that this kernel's BTF gives; fewer where it lacks some, none without BTF."""
    return defines_of({**KernelTypes().offsets(_KERNEL), **KernelTypes("gpu_sched").offsets(_MODULE)})


def defines_of(found: Offsets) -> dict[str, int]:
    """Return the macros, as :func:`structure_defines`, of the members that there are."""
    named = {
        "DRM_FENCE_CONTEXT": _sum(found, "dma_fence.context"),
        "DRM_FENCE_SEQNO": _sum(found, "dma_fence.seqno"),
        "DRM_FENCE_OPS": _sum(found, "dma_fence.ops"),
        "DRM_OPS_NAME": _sum(found, "dma_fence_ops.get_driver_name"),
        "DRM_CHAIN_FENCE": _sum(found, "dma_fence_chain.fence"),
        "DRM_CHAIN_PREV": _sum(found, "dma_fence_chain.prev"),
        "DRM_CHAIN_PREV_SEQNO": _sum(found, "dma_fence_chain.prev_seqno"),
        "DRM_ARRAY_COUNT": _sum(found, "dma_fence_array.num_fences"),
        "DRM_ARRAY_FENCES": _sum(found, "dma_fence_array.fences"),
        "DRM_TASK_PID": _sum(found, "task_struct.pid"),
        "DRM_FENCE_FINISHED": _sum(found, "drm_sched_fence.finished"),
        "DRM_FENCE_TO_SCHEDULER": _sum(found, "drm_sched_fence.sched", less="drm_sched_fence.finished"),
        "DRM_SCHEDULER_DEVICE": _sum(found, "drm_gpu_scheduler.dev"),
        "DRM_DEVICE_NAME": _sum(found, "device.kobj", "kobject.name"),
        "DRM_JOB_FENCE": _sum(found, "drm_sched_job.s_fence"),
    }
    known = {name: value for name, value in named.items() if value is not None}
    # of no use one without the other
    for pair in (("DRM_FENCE_CONTEXT", "DRM_FENCE_SEQNO"), ("DRM_SCHEDULER_DEVICE", "DRM_DEVICE_NAME")):
        if not set(pair) <= set(known):
            known = {name: value for name, value in known.items() if name not in pair}
    return known


def _sum(found: Offsets, *members: str, less: str = "") -> int | None:
    needed = (*members, less) if less else members
    if any(member not in found for member in needed):
        return None
    return sum(found[member] for member in members) - (found[less] if less else 0)
