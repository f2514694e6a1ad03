# SPDX-License-Identifier: Apache-2.0
"""Probe sets: jobs with fences, system calls on DRM devices, vertical blanks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepath.plugin import Alternative, BpfSource, ProbeSet, SyscallProbes, TracepointProbe
from fencepath.system import System
from fencepath.tracepoints import TracepointRecord
from fencepath_drm import tracepoints
from fencepath_drm.ioctls import ioctl_table
from fencepath_drm.layouts import LAYOUTS
from fencepath_drm.structures import structure_defines
from fencepath_drm.symbols import symbol_defines

__all__ = ["blocked_is_safe", "names_are_old", "probe_sets"]

_BPF = Path(__file__).parent / "bpf"

_RAW = {
    "on_done": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED"},
    "on_signaled": {"DRM_FENCE_CONTEXT"},
}
"""Programs of events that come in interrupts, with what they need to read the tracepoint's arguments: the kernel skips one on
the event's record that interrupts another."""

_RAW_OLD = {"on_dependency": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED", "DRM_JOB_FENCE"}}
"""Likewise, of an old event that names its job in its arguments only."""

_PARTS = {
    *("DRM_FENCE_CONTEXT", "DRM_FENCE_OPS", "DRM_OPS_NAME"),
    *("DRM_CHAIN_NAME", "DRM_CHAIN_FENCE", "DRM_CHAIN_PREV", "DRM_CHAIN_PREV_SEQNO"),
    *("DRM_ARRAY_NAME", "DRM_ARRAY_COUNT", "DRM_ARRAY_FENCES"),
}
_RAW_ONLY = {
    "on_waking": {"DRM_FENCE_CONTEXT", "DRM_SIGNAL_RANGES", "DRM_TASK_PID"},
    "on_part": _PARTS,
    "on_part_again": _PARTS,
    "on_members": _PARTS,
}
"""Likewise, of what no record says."""

_TYPICAL: Mapping[str, str | int] = {
    "DRM_FENCE_CONTEXT": 32,
    "DRM_FENCE_SEQNO": 40,
    "DRM_FENCE_OPS": 8,
    "DRM_OPS_NAME": 0,
    "DRM_CHAIN_FENCE": 80,
    "DRM_CHAIN_PREV": 64,
    "DRM_CHAIN_PREV_SEQNO": 72,
    "DRM_ARRAY_COUNT": 68,
    "DRM_ARRAY_FENCES": 80,
    "DRM_TASK_PID": 1264,
    "DRM_FENCE_FINISHED": 64,
    "DRM_FENCE_TO_SCHEDULER": 80,
    "DRM_SCHEDULER_DEVICE": 504,
    "DRM_DEVICE_NAME": 0,
    "DRM_JOB_FENCE": 24,
    "DRM_SIGNAL_RANGES": "IN_RANGE(0xffffffff81000010ULL,0x60)",
    "DRM_CHAIN_NAME": "0xffffffff81000100ULL",
    "DRM_ARRAY_NAME": "0xffffffff81000200ULL",
}
"""In place of what a saved machine's type information would say: programs are the same in form whatever the numbers are."""

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
_WAKES = {"on_waking": tracepoints.WAKE}
_STANDING = {
    "on_part": tracepoints.PART,
    "on_part_again": tracepoints.PART,
    "on_members": tracepoints.MEMBERS,
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
    """With jobs before without, then with wake-ups before without, then with blocked jobs before without."""
    old = names_are_old(system)
    known = _known(system)
    needs = {**_RAW, **_RAW_ONLY, **(_RAW_OLD if old else {})}
    raw = frozenset(program for program, names in needs.items() if names <= set(known))
    # on_members before on_signaled, which forgets a fence
    fences = {**{program: record for program, record in _STANDING.items() if program in raw}, **_FENCES}
    may_block = not system.live or blocked_is_safe(system.kernel)
    ways: list[Alternative] = []
    for jobs, wakes, blocked in ((j, w, b) for j in (1, 0) for w in (1, 0) for b in (1, 0)):
        if (blocked and not (jobs and may_block)) or (wakes and "on_waking" not in raw):
            continue
        loses = [
            "" if jobs else "no jobs, as no driver that uses the GPU scheduler was loaded",
            # before 6.17 no event says so
            ""
            if blocked or old or not jobs
            else "which dependency holds a job up: told by the times of signals instead",
            "" if wakes else "which signal woke a thread: told by nearness",
        ]
        switches = {"DRM_JOBS": jobs, "DRM_BLOCKED": blocked, "DRM_WAKES": wakes}
        switches |= {"DRM_INITS": int(system.detail == "full"), "DRM_PARTS": int("on_part" in raw)}
        programs = {**(_JOBS if jobs else {}), **(_BLOCKED if blocked else {}), **fences, **(_WAKES if wakes else {})}
        ways.append(_alternative("jobs.c", programs, {**known, **switches}, raw, "; ".join(filter(None, loses))))
    return tuple(ways)


def _known(system: System) -> Mapping[str, str | int]:
    return {**structure_defines(), **symbol_defines(system.symbols)} if system.live else _TYPICAL


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
            TracepointProbe(record=record, program=f"{program}_raw" if program in raw else program, raw=program in raw)
            for program, record in programs.items()
        ),
        gives=tuple(kinds),
        layouts=tuple(LAYOUTS[kind] for kind in kinds),
        bpf=BpfSource(path=_BPF / source, defines=defines, tracepoints=tuple(programs.values())),
        loses=loses,
    )
