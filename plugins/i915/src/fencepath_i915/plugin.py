# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D103 - hooks are documented where they are specified
"""The layer ``i915``: requests and memory of Intel's driver."""

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
from fencepath_i915.decoder import I915Decoder
from fencepath_i915.entities import Fences
from fencepath_i915.events import EVENTS
from fencepath_i915.kinds import LAYOUTS
from fencepath_i915.memory import MemoryTable, PressureFinding
from fencepath_i915.rules import RULES
from fencepath_i915.stacks import LINKS
from fencepath_i915.tracepoints import (
    GUC,
    GUC_CONTEXTS,
    LOW_LEVEL,
    OBJECTS,
    PRESSURE,
    REQUESTS,
    SHRINKS,
    SLABS,
)

_BPF = Path(__file__).parent / "bpf"

Programs = Mapping[str, TracepointRecord]


@hookimpl
def fencepath_layer() -> LayerInfo:
    return LayerInfo(
        name="i915",
        title="requests and memory of Intel's i915 driver",
        version=__version__,
        api=API_VERSION,
        seen="not on hardware: by the formats of four kernels, and with events that a process makes up",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    return EVENTS


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    low_level = {**REQUESTS, **LOW_LEVEL}
    without = "when requests run: the kernel was built without CONFIG_DRM_I915_LOW_LEVEL_TRACEPOINTS"
    return (
        ProbeSet(
            name="requests",
            detail="launch",
            alternatives=(
                _own("requests.c", {**low_level, **GUC}, {"I915_LOW_LEVEL": 1, "I915_GUC": 1}),
                _own("requests.c", low_level, {"I915_LOW_LEVEL": 1, "I915_GUC": 0}, loses="submission to the GuC"),
                _own("requests.c", REQUESTS, {"I915_LOW_LEVEL": 0, "I915_GUC": 0}, loses=without),
            ),
        ),
        ProbeSet(name="objects", detail="launch", alternatives=(_own("objects.c", OBJECTS, {}),)),
        ProbeSet(name="pressure", detail="sync", alternatives=(_own("pressure.c", PRESSURE, {}),)),
        ProbeSet(
            name="shrinks",
            detail="sync",
            alternatives=(
                _own("shrinks.c", {**SHRINKS, **SLABS}, {"I915_SLABS": 1}),
                _own("shrinks.c", SHRINKS, {"I915_SLABS": 0}, loses="how much memory was given back"),
            ),
        ),
        ProbeSet(name="contexts at the GuC", detail="full", alternatives=(_guc_contexts(system.tracepoints),)),
    )


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    group = "tracepoints of i915"
    # where only xe is loaded, its display events can be in a group of this name
    if system.tracepoints.format("i915", "i915_request_add") is None:
        yield Check(
            name=group, verdict="ok", evidence="the module i915 is not loaded", cost="nothing of i915 is recorded"
        )
        return
    records = (*REQUESTS.values(), *OBJECTS.values(), *PRESSURE.values(), *SHRINKS.values())
    found = [record.resolve(system.tracepoints) for record in records]
    lacking = [str(each) for each in found if isinstance(each, Missing)]
    yield Check(
        name=group,
        verdict="degrade" if lacking else "ok",
        evidence="; ".join(lacking) or f"{len(records)} events have what is needed",
        cost="what they would tell is not recorded" if lacking else "",
    )
    low = LOW_LEVEL["on_in"].resolve(system.tracepoints)
    yield Check(
        name="low-level tracepoints of i915",
        verdict="ok" if isinstance(low, Resolved) else "degrade",
        evidence=low.name if isinstance(low, Resolved) else str(low),
        cost="" if isinstance(low, Resolved) else "when a request runs is not seen, only when it is added and done",
        remedy="" if isinstance(low, Resolved) else "use a kernel with CONFIG_DRM_I915_LOW_LEVEL_TRACEPOINTS",
    )


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> I915Decoder:
    del layouts, functions
    return I915Decoder()


@hookimpl
def fencepath_entities() -> EntityTracker:
    return Fences()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    return RULES


@hookimpl
def fencepath_findings() -> Sequence[FindingRule]:
    return (PressureFinding(),)


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    return (MemoryTable(),)


def _guc_contexts(kernel: TracepointSource) -> Alternative:
    """Those of the events that are there; all of them if none is, so that the reason is said."""
    there = {name: record for name, record in GUC_CONTEXTS.items() if isinstance(record.resolve(kernel), Resolved)}
    programs = there or GUC_CONTEXTS
    absent = [record.event for name, record in GUC_CONTEXTS.items() if name not in programs]
    defines = {f"I915_HAS_{name.removeprefix('on_').upper()}": 1 for name in programs}
    return _own("guc_contexts.c", programs, defines, loses=", ".join(absent))


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
