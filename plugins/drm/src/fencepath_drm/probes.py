# SPDX-License-Identifier: Apache-2.0
"""Probe sets: jobs with fences, system calls on DRM devices, vertical blanks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepath.plugin import Alternative, BpfSource, ProbeSet, SyscallProbes, TracepointProbe
from fencepath.system import System
from fencepath.tracepoints import TracepointRecord
from fencepath_drm import tracepoints
from fencepath_drm.ioctls import ioctl_table
from fencepath_drm.layouts import LAYOUTS
from fencepath_drm.structures import structure_defines

__all__ = ["blocked_is_safe", "names_are_old", "probe_sets"]

_BPF = Path(__file__).parent / "bpf"

_RAW = {
    "on_done": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED"},
    "on_signaled": {"DRM_FENCE_CONTEXT"},
}
"""Programs of events that come in interrupts, with what they need to read the tracepoint's arguments."""

_RAW_OLD = {"on_dependency": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED", "DRM_JOB_FENCE"}}
"""Likewise, of an old event that names its job in its arguments only."""

RAW_OFFERED = "raw" in TracepointProbe.__struct_fields__
"""Whether programs can be attached to a tracepoint itself. The kernel skips one on its record that interrupts another."""

_JOBS = {
    "on_queue": tracepoints.QUEUE,
    "on_run": tracepoints.RUN,
    "on_done": tracepoints.DONE,
    "on_dependency": tracepoints.DEPENDENCY,
}
_BLOCKED = {"on_blocked": tracepoints.BLOCKED}
_FENCES = {
    "on_init": tracepoints.INIT,
    "on_signaled": tracepoints.SIGNALED,
    "on_wait_start": tracepoints.WAIT_START,
    "on_wait_end": tracepoints.WAIT_END,
}
_VBLANK = {
    "on_queued": tracepoints.QUEUED,
    "on_vblank": tracepoints.VBLANK,
    "on_delivered": tracepoints.DELIVERED,
}


def probe_sets(system: System) -> Sequence[ProbeSet]:
    """Return the layer's probe sets for a machine and the detail asked for."""
    ioctls = ioctl_table(system.detail)
    return (
        ProbeSet(name="jobs", detail="sync", alternatives=_job_alternatives(system)),
        ProbeSet(
            name="ioctls",
            detail="sync",
            alternatives=(Alternative(probes=(SyscallProbes(table=ioctls),), gives=ioctls.kinds),),
        ),
        ProbeSet(name="vblank", detail="launch", alternatives=(_alternative("vblank.c", _VBLANK, {}),)),
    )


def names_are_old(system: System) -> bool:
    """Whether the scheduler's events are there, and name a job by the address of its fence."""
    source = system.tracepoints
    return source.format("gpu_scheduler", "drm_sched_job_queue") is None and bool(source.events("gpu_scheduler"))


def blocked_is_safe(release: str) -> bool:
    """Whether a kernel can raise ``drm_sched_job_unschedulable`` without a risk, by its release.

    It came with 6.17 (commit 76d97c870f29) and could read a fence that its own callback had just given back, which ends in
    a NULL dereference; the repair moved it (dri-devel, 1 September 2025, "drm/sched: Fix racy access to
    drm_sched_entity.dependency"). Neither leaves a trace that can be looked for: the function that changed is inlined and
    the format is the same. So this is the one place that goes by the version. What older kernels have of it is a backport of
    unknown state.
    """
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match[1]), int(match[2])) >= (6, 18)


def _job_alternatives(system: System) -> tuple[Alternative, ...]:
    old = names_are_old(system)
    defines = {"DRM_INITS": int(system.detail == "full"), **(structure_defines() if system.live else {})}
    raw = _attached_raw(defines, old=old)
    ways = (
        _alternative("jobs.c", {**_JOBS, **_BLOCKED, **_FENCES}, {**defines, "DRM_JOBS": 1, "DRM_BLOCKED": 1}, raw),
        # Before 6.17 no event says so, and the times of signals do.
        _alternative(
            "jobs.c",
            {**_JOBS, **_FENCES},
            {**defines, "DRM_JOBS": 1, "DRM_BLOCKED": 0},
            raw,
            loses="" if old else "which dependency holds a job up: told by the times of signals instead",
        ),
        _alternative(
            "jobs.c",
            _FENCES,
            {**defines, "DRM_JOBS": 0, "DRM_BLOCKED": 0},
            raw,
            loses="no jobs, as no driver that uses the GPU scheduler was loaded",
        ),
    )
    return ways[1:] if system.live and not blocked_is_safe(system.kernel) else ways


def _attached_raw(defines: Mapping[str, int], *, old: bool) -> frozenset[str]:
    """Programs that are attached to the tracepoint itself, as core and the kernel's BTF allow it."""
    if not RAW_OFFERED:
        return frozenset()
    needs = {**_RAW, **(_RAW_OLD if old else {})}
    return frozenset(program for program, names in needs.items() if names <= set(defines))


def _alternative(
    source: str,
    programs: Mapping[str, TracepointRecord],
    defines: Mapping[str, str | int],
    raw: frozenset[str] = frozenset(),
    loses: str = "",
) -> Alternative:
    kinds = dict.fromkeys(record.kind for record in programs.values())
    if defines.get("DRM_INITS") == 0:
        del kinds[tracepoints.INIT.kind]
    return Alternative(
        probes=tuple(
            _raw_probe(record, program) if program in raw else TracepointProbe(record=record, program=program)
            for program, record in programs.items()
        ),
        gives=tuple(kinds),
        layouts=tuple(LAYOUTS[kind] for kind in kinds),
        bpf=BpfSource(path=_BPF / source, defines=defines, tracepoints=tuple(programs.values())),
        loses=loses,
    )


def _raw_probe(record: TracepointRecord, program: str) -> TracepointProbe:
    raw: dict[str, Any] = {"raw": True}
    return TracepointProbe(record=record, program=f"{program}_raw", **raw)
