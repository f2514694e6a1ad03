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
from fencepath_drm.symbols import symbol_defines

__all__ = ["blocked_is_safe", "names_are_old", "probe_sets"]

_BPF = Path(__file__).parent / "bpf"

_RAW = {
    "on_done": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED"},
    "on_signaled": {"DRM_FENCE_CONTEXT"},
}
"""Programs of events that come in interrupts, with what they need to read the tracepoint's arguments."""

_RAW_OLD = {"on_dependency": {"DRM_FENCE_CONTEXT", "DRM_FENCE_FINISHED", "DRM_JOB_FENCE"}}
"""Likewise, of an old event that names its job in its arguments only."""

_PARTS = {
    *("DRM_FENCE_CONTEXT", "DRM_FENCE_OPS", "DRM_OPS_NAME", "DRM_CHAIN_NAME", "DRM_CHAIN_FENCE"),
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

_NEARNESS = "which signal woke a thread: told by nearness"

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
_WAKES = {"on_waking": tracepoints.WAKE}
_PARTS_RECORDS = {
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
    old, live = names_are_old(system), system.live
    known: dict[str, str | int] = dict(_TYPICAL)
    if live:
        known = {**structure_defines(), **symbol_defines(system.symbols)}
    raw = _attached_raw(known, old=old)
    inits, parts = int(system.detail == "full"), int("on_part" in raw)
    common: dict[str, str | int] = {**known, "DRM_INITS": inits, "DRM_PARTS": parts}
    # on_members before on_signaled, which forgets a fence
    fences = {**{program: record for program, record in _PARTS_RECORDS.items() if program in raw}, **_FENCES}
    with_wakes = [{**fences, **_WAKES}] if "on_waking" in raw else []
    ways: list[Alternative] = []
    for programs in (*with_wakes, fences):
        wakes = "on_waking" in programs
        blind = "" if wakes else _NEARNESS
        defines: dict[str, str | int] = {**common, "DRM_WAKES": int(wakes)}
        if not live or blocked_is_safe(system.kernel):
            every = {**_JOBS, **_BLOCKED, **programs}
            ways.append(_alternative("jobs.c", every, {**defines, "DRM_JOBS": 1, "DRM_BLOCKED": 1}, raw, blind))
        # Before 6.17 no event says what holds a job up, and the times of signals do.
        loses = "" if old else "which dependency holds a job up: told by the times of signals instead"
        jobs = {**defines, "DRM_JOBS": 1, "DRM_BLOCKED": 0}
        ways.append(_alternative("jobs.c", {**_JOBS, **programs}, jobs, raw, _and(loses, blind)))
    for programs in (*with_wakes, fences):
        wakes = "on_waking" in programs
        blind = "" if wakes else _NEARNESS
        defines = {**common, "DRM_WAKES": int(wakes)}
        loses = "no jobs, as no driver that uses the GPU scheduler was loaded"
        ways.append(
            _alternative("jobs.c", programs, {**defines, "DRM_JOBS": 0, "DRM_BLOCKED": 0}, raw, _and(loses, blind))
        )
    return tuple(ways)


def _and(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def _attached_raw(defines: Mapping[str, str | int], *, old: bool) -> frozenset[str]:
    """Programs that are attached to the tracepoint itself, as core and the kernel's BTF allow it."""
    if not RAW_OFFERED:
        return frozenset()
    needs = {**_RAW, **_RAW_ONLY, **(_RAW_OLD if old else {})}
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
