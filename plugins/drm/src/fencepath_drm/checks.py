# SPDX-License-Identifier: Apache-2.0
"""What ``fencepath doctor`` says of the layer."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath.plugin import Check
from fencepath.system import System
from fencepath.tracepoints import Missing, TracepointRecord
from fencepath_drm import tracepoints
from fencepath_drm.probes import blocked_is_safe, names_are_old
from fencepath_drm.structures import structure_defines

__all__ = ["checks"]

_SCHEDULER = "gpu_scheduler"
_NO_JOBS = "no jobs: what a GPU does is not observed"
_WANTED: tuple[tuple[TracepointRecord, str], ...] = (
    (tracepoints.QUEUE, _NO_JOBS),
    (tracepoints.RUN, _NO_JOBS),
    (tracepoints.DONE, _NO_JOBS),
    (tracepoints.DEPENDENCY, _NO_JOBS),
    (tracepoints.SIGNALED, "nothing of the layer but system calls"),
    (tracepoints.WAIT_START, "nothing of the layer but system calls"),
    (tracepoints.VBLANK, "no vertical blanks"),
)


def checks(system: System) -> Iterator[Check]:
    """Yield a finding for each event, and for how jobs are named."""
    scheduler = bool(system.tracepoints.events(_SCHEDULER))
    if not scheduler:
        yield _no_scheduler()
    for record, cost in _WANTED:
        if scheduler or record.group != _SCHEDULER:
            yield _event(record, system, cost)
    yield _blocked(system)
    if names_are_old(system) and system.live:
        yield _names()


def _no_scheduler() -> Check:
    return Check(
        name="GPU scheduler",
        verdict="degrade",
        evidence=f"no driver that uses the kernel's GPU scheduler is loaded: there is no group {_SCHEDULER}",
        cost=_NO_JOBS,
        remedy="load the driver (amdgpu, xe, nouveau and others) before recording; i915 and NVIDIA's own do not use the"
        " scheduler, and the layers i915 and nvidia show what they do",
    )


def _event(record: TracepointRecord, system: System, cost: str) -> Check:
    found = record.resolve(system.tracepoints)
    name = f"tracepoint {record.group}:{record.event}"
    if isinstance(found, Missing):
        return Check(name=name, verdict="degrade", evidence=str(found), cost=cost)
    other = f", as {found.name}" if found.choice else ""
    return Check(name=name, verdict="ok", evidence=f"is there{other}")


def _blocked(system: System) -> Check:
    name = "tracepoint gpu_scheduler:drm_sched_job_unschedulable"
    if isinstance(tracepoints.BLOCKED.resolve(system.tracepoints), Missing):
        evidence = "this kernel does not have it; times of signals say what held a job up"
        return Check(name=name, verdict="ok", evidence=evidence)
    if blocked_is_safe(system.kernel):
        return Check(name=name, verdict="ok", evidence=f"is there, and kernel {system.kernel} has its repair")
    return Check(
        name=name,
        verdict="warn",
        evidence=f"kernel {system.kernel} may be one of those that a race in this event can crash",
        cost="it is not used; times of signals say what held a job up",
        remedy="use kernel 6.18 or later",
    )


def _names() -> Check:
    name = "names of jobs"
    defines = structure_defines()
    if "DRM_FENCE_CONTEXT" not in defines:
        return Check(
            name=name,
            verdict="warn",
            evidence="the kernel's BTF does not say where a fence keeps its context",
            cost="jobs are told apart by the addresses of their fences, and have 32 bits of their names",
            remedy="use a kernel with CONFIG_DEBUG_INFO_BTF",
        )
    if "DRM_SCHEDULER_DEVICE" not in defines:
        return Check(
            name=name,
            verdict="warn",
            evidence="there is no BTF of the module gpu_sched",
            cost="the device of a job is known only by the ioctl it came by, and dependencies of two devices can be mixed up",
            remedy="use a kernel with CONFIG_DEBUG_INFO_BTF_MODULES",
        )
    return Check(name=name, verdict="ok", evidence="BTF says where fences, schedulers and devices keep their names")
