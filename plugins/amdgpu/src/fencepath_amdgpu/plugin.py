# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D103 - hooks are documented where they are specified
"""The layer ``amdgpu``: submissions, memory and faults of AMD's kernel drivers."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fencepath import __version__
from fencepath.entities import EntityTracker
from fencepath.events import Event
from fencepath.joins import GraphRule, JoinRule
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    BpfSource,
    Check,
    FindingRule,
    LayerInfo,
    ProbeSet,
    SyscallProbes,
    TableRule,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.system import System
from fencepath.tracepoints import Missing, TracepointRecord
from fencepath_amdgpu.decoder import AmdgpuDecoder
from fencepath_amdgpu.entities import Fences
from fencepath_amdgpu.events import EVENTS
from fencepath_amdgpu.kfd import TABLE
from fencepath_amdgpu.kfd_events import KFD_EVENTS
from fencepath_amdgpu.kinds import LAYOUTS
from fencepath_amdgpu.memory import EvictionFinding, FaultFinding, MemoryTable, MovesTable
from fencepath_amdgpu.rules import RULES
from fencepath_amdgpu.stacks import LINKS
from fencepath_amdgpu.tracepoints import (
    EVICTIONS,
    INTERRUPTS,
    ISOLATION_RECORDS,
    JOB_STEPS,
    JOBS,
    MEMORY,
    PASID_NOTES,
    PASIDS,
    USER_QUEUES,
)

_BPF = Path(__file__).parent / "bpf"

Programs = Mapping[str, TracepointRecord]


@hookimpl
def fencepath_layer() -> LayerInfo:
    return LayerInfo(
        name="amdgpu",
        title="submissions, memory and faults of amdgpu and amdkfd",
        version=__version__,
        api=API_VERSION,
        status="SMI events of ROCm",
        seen="not on hardware: by the formats of four kernels, and with events that a process makes up",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    return (*EVENTS, *KFD_EVENTS)


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    del system
    return (
        ProbeSet(
            name="jobs",
            detail="launch",
            alternatives=(
                _own("jobs.c", {**JOBS, **JOB_STEPS}, {"AMDGPU_STEPS": 1}),
                _own("jobs.c", JOBS, {"AMDGPU_STEPS": 0}, loses="flushes and pipeline waits of jobs"),
            ),
        ),
        ProbeSet(
            name="memory", detail="sync", alternatives=(_own("memory.c", MEMORY, {"AMDGPU_PAGE_BYTES": mmap.PAGESIZE}),)
        ),
        ProbeSet(name="address spaces", detail="launch", alternatives=(_own("pasids.c", PASIDS, _pasids(spaces=1)),)),
        ProbeSet(
            name="interrupts",
            detail="full",
            alternatives=(
                _own("pasids.c", {**INTERRUPTS, **PASID_NOTES}, _pasids(interrupts=1, notes=1)),
                _own("pasids.c", INTERRUPTS, _pasids(interrupts=1), loses="which interrupts are other processes'"),
            ),
        ),
        *(
            ProbeSet(name=record.event, detail="full", alternatives=(_generated(record),))
            for record in ISOLATION_RECORDS
        ),
        ProbeSet(name="user queues", detail="launch", alternatives=(_own("user_queues.c", USER_QUEUES, {}),)),
        ProbeSet(
            name="evictions of ROCm processes", detail="launch", alternatives=(_own("evictions.c", EVICTIONS, {}),)
        ),
        ProbeSet(
            name="/dev/kfd",
            detail="sync",
            alternatives=(Alternative(probes=(SyscallProbes(table=TABLE),), gives=TABLE.kinds),),
        ),
    )


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    group = "tracepoints of amdgpu"
    if not system.tracepoints.events("amdgpu"):
        yield Check(
            name=group, verdict="ok", evidence="the module amdgpu is not loaded", cost="nothing of AMD's is recorded"
        )
        return
    records = (*JOBS.values(), *JOB_STEPS.values(), *MEMORY.values(), *PASIDS.values(), *INTERRUPTS.values())
    lacking = [
        str(found) for found in (record.resolve(system.tracepoints) for record in records) if isinstance(found, Missing)
    ]
    yield Check(
        name=group,
        verdict="degrade" if lacking else "ok",
        evidence="; ".join(lacking) or f"{len(records)} events have what is needed",
        cost="what they would tell is not recorded" if lacking else "",
    )
    yield Check(
        name="dispatches of ROCm",
        verdict="warn",
        evidence="compute queues are started by the program itself; the kernel has no event for it",
        cost="jobs of ROCm are not seen, only their queues, memory, waits and evictions",
    )


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> AmdgpuDecoder:
    del layouts
    return AmdgpuDecoder(functions)


@hookimpl
def fencepath_entities() -> EntityTracker:
    return Fences()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    return RULES


@hookimpl
def fencepath_findings() -> Sequence[FindingRule]:
    return (EvictionFinding(), FaultFinding())


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    return (MemoryTable(), MovesTable())


def _own(source: str, programs: Programs, defines: Mapping[str, int], loses: str = "") -> Alternative:
    """One BPF source of the layer's own, with its programs by name."""
    kinds = tuple(dict.fromkeys(record.kind for record in programs.values()))
    return Alternative(
        probes=tuple(TracepointProbe(record=record, program=program) for program, record in programs.items()),
        gives=kinds,
        layouts=tuple(LAYOUTS[kind] for kind in kinds),
        bpf=BpfSource(path=_BPF / source, defines=defines, tracepoints=tuple(programs.values())),
        loses=loses,
    )


def _pasids(*, spaces: int = 0, interrupts: int = 0, notes: int = 0) -> dict[str, int]:
    return {"AMDGPU_SPACES": spaces, "AMDGPU_INTERRUPTS": interrupts, "AMDGPU_NOTES": notes}


def _generated(record: TracepointRecord) -> Alternative:
    return Alternative(probes=(TracepointProbe(record=record),), gives=(record.kind,))
