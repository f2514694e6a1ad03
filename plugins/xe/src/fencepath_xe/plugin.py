# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D103 - hooks are documented where they are specified
"""The layer ``xe``: jobs, queues and memory of Intel's driver for Xe GPUs."""

from __future__ import annotations

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
    Detail,
    FindingRule,
    LayerInfo,
    ProbeSet,
    TableRule,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.system import System
from fencepath.tracepoints import Missing, Resolved, TracepointRecord, TracepointSource
from fencepath_xe.decoder import XeDecoder
from fencepath_xe.entities import Fences
from fencepath_xe.events import EVENTS
from fencepath_xe.kinds import LAYOUTS
from fencepath_xe.memory import ErrorFinding, EvictionFinding, MemoryTable, MovesTable
from fencepath_xe.rules import RULES
from fencepath_xe.stacks import LINKS
from fencepath_xe.tracepoints import BOS, EXTRA_JOBS, EXTRA_QUEUES, EXTRA_VMS, JOBS, MOVES, QUEUES, TLB, VMS

_BPF = Path(__file__).parent / "bpf"

Programs = Mapping[str, TracepointRecord]


@hookimpl
def fencepath_layer() -> LayerInfo:
    return LayerInfo(
        name="xe",
        title="jobs, queues and memory of Intel's xe driver",
        version=__version__,
        api=API_VERSION,
        seen="not on hardware: by the formats of three kernels, and with events that a process makes up",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    return EVENTS


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    kernel = system.tracepoints
    return (
        ProbeSet(name="jobs", detail="launch", alternatives=(_own("jobs.c", JOBS, EXTRA_JOBS, kernel),)),
        ProbeSet(name="queues", detail="launch", alternatives=(_own("queues.c", QUEUES, EXTRA_QUEUES, kernel),)),
        ProbeSet(name="moves", detail="sync", alternatives=(_own("moves.c", MOVES, {}, kernel),)),
        ProbeSet(name="address spaces", detail="launch", alternatives=(_own("vms.c", VMS, EXTRA_VMS, kernel),)),
        *(_generated(record, "launch") for record in BOS),
        *(_generated(record, "full") for record in TLB),
    )


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    group = "tracepoints of xe"
    if not system.tracepoints.events("xe"):
        yield Check(name=group, verdict="ok", evidence="the module xe is not loaded", cost="nothing of xe is recorded")
        return
    records = (*JOBS.values(), *QUEUES.values(), *MOVES.values(), *VMS.values(), *BOS, *TLB)
    found = [record.resolve(system.tracepoints) for record in records]
    lacking = [str(each) for each in found if isinstance(each, Missing)]
    yield Check(
        name=group,
        verdict="degrade" if lacking else "ok",
        evidence="; ".join(lacking) or f"{len(records)} events have what is needed",
        cost="what they would tell is not recorded" if lacking else "",
    )


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> XeDecoder:
    del layouts, functions
    return XeDecoder()


@hookimpl
def fencepath_entities() -> EntityTracker:
    return Fences()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    return RULES


@hookimpl
def fencepath_findings() -> Sequence[FindingRule]:
    return (EvictionFinding(), ErrorFinding())


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    return (MemoryTable(), MovesTable())


def _generated(record: TracepointRecord, detail: Detail) -> ProbeSet:
    alternative = Alternative(probes=(TracepointProbe(record=record),), gives=(record.kind,))
    return ProbeSet(name=record.kind.removeprefix("xe."), detail=detail, alternatives=(alternative,))


def _own(source: str, programs: Programs, extra: Programs, kernel: TracepointSource) -> Alternative:
    """One BPF source of the layer's own, with those of its further programs whose events are there.

    Where the driver is not there at all, every program is named, so that everything the layer knows is declared.
    """
    loaded = bool(kernel.events("xe"))
    there = {
        name: record for name, record in extra.items() if not loaded or isinstance(record.resolve(kernel), Resolved)
    }
    absent = sorted(record.event for name, record in extra.items() if name not in there)
    every = {**programs, **there}
    kinds = tuple(dict.fromkeys(record.kind for record in every.values()))
    return Alternative(
        probes=tuple(TracepointProbe(record=record, program=program) for program, record in every.items()),
        gives=kinds,
        layouts=tuple(LAYOUTS[kind] for kind in kinds),
        bpf=BpfSource(
            path=_BPF / source,
            defines={f"XE_HAS_{name.removeprefix('on_').upper()}": 1 for name in there},
            tracepoints=tuple(every.values()),
        ),
        loses=f"this kernel has no {', '.join(absent)}" if absent else "",
    )
