# SPDX-License-Identifier: Apache-2.0
"""A small plugin that satisfies every requirement, with parts that a test may replace by faulty ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from fencepath._loader import LoadedPlugin, Registry, load_plugins
from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import U32, Batch, Event, Key, KindInfo, Role
from fencepath.joins import JoinRule, Relation, Select
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    AttributeValue,
    BpfSource,
    Decoder,
    LayerInfo,
    ProbeSet,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import HEADER, Field, Layouts, RecordLayout, Records
from fencepath.system import System
from fencepath.tracepoints import Take, TracepointRecord

__all__ = ["PING", "PROGRAM", "RING", "Ping", "alternative", "hooks", "loaded", "registry_of", "rule"]

PING = "planted.ping"
RING = TracepointRecord(kind=PING, group="signal", event="signal_generate", fields=(Take("pid", "u32", as_="to"),))
LAYOUT = RecordLayout(PING, (*HEADER, Field("to", "u32")))

PROGRAM = """
#include "fp_records.h"
#include "fp_tracepoints.h"

int on_ping(void *ctx) {
    struct fp_planted_ping *r = FP_RESERVE(struct fp_planted_ping, FP_KIND_PLANTED_PING);

    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_PLANTED_PING, 0);
    r->to = FP_FIELD_signal_generate_to(ctx);
    fp_submit(r);
    return 0;
}
"""


class Ping(Event, frozen=True, kw_only=True, tag=PING):
    """Somebody is pinged."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAKE, keys=(Key("door", "planted.door"),))

    to: U32
    wakee_tid: U32


class PingDecoder:
    def decode(self, kind: str, records: Records) -> Batch:
        batch = Batch.from_records(kind, records)
        batch.columns["wakee_tid"] = batch.columns["to"]
        return batch


class Doors:
    def update(self, batch: Batch, entities: Entities) -> None:
        where = batch["process"] != NO_ENTITY
        batch.columns["door"] = entities.intern_columns(
            "planted.door", [batch["to"]], lambda to: f"planted.door:{to}", where
        )


def alternative(**changed: Any) -> Alternative:
    """The generated program; `changed` replaces parts."""
    parts: dict[str, Any] = {"probes": (TracepointProbe(record=RING),), "gives": (PING,), "layouts": (), "bpf": None}
    return Alternative(**(parts | changed))


def written(folder: Path, source: str = PROGRAM) -> Alternative:
    """A program of its own, from a file."""
    path = folder / "ping.c"
    path.write_text(source)
    probes = (TracepointProbe(record=RING, program="on_ping"),)
    return alternative(probes=probes, layouts=(LAYOUT,), bpf=BpfSource(path=path, tracepoints=(RING,)))


def rule(**changed: Any) -> JoinRule:
    """A rule from a ping to a ping; `changed` replaces parts."""
    parts: dict[str, Any] = {
        "name": "planted.again",
        "cause": Select(kind=PING),
        "effect": Select(kind=PING),
        "on": ("door",),
        "relation": Relation.LAST_BEFORE,
    }
    return JoinRule(**(parts | changed))


def hooks(
    *,
    kinds: Sequence[type[Event]] = (Ping,),
    alternatives: Sequence[Alternative] | None = None,
    rules: Sequence[object] = (),
    decoder: object | None = None,
    tracker: object | None = None,
    attributes: Mapping[str, object] | None = None,
    others: Mapping[str, object] | None = None,
) -> ModuleType:
    """The plugin as a module with hooks."""
    ways = (alternative(),) if alternatives is None else tuple(alternatives)

    @hookimpl
    def fencepath_layer() -> LayerInfo:
        return LayerInfo(name="planted", title="planted", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds() -> Sequence[type[Event]]:
        return kinds

    @hookimpl
    def fencepath_probes(system: System) -> Sequence[ProbeSet]:
        return (ProbeSet(name="pings", detail="sync", alternatives=ways),)

    @hookimpl
    def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Decoder | object:
        return PingDecoder() if decoder is None else decoder

    @hookimpl
    def fencepath_entities() -> object:
        return Doors() if tracker is None else tracker

    @hookimpl
    def fencepath_rules() -> Sequence[object]:
        return rules

    @hookimpl
    def fencepath_span_attributes(kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, object]:
        return {"planted.to": row["to"]} if attributes is None else attributes

    module = ModuleType("planted")
    vars(module).update({name: value for name, value in locals().items() if name.startswith("fencepath_")})
    vars(module).update(others or {})
    return module


def registry_of(plugin: object) -> Registry:
    """A registry of it and core's own layers."""
    return load_plugins({"planted": plugin}, entry_points=False)


def loaded(plugin: object) -> LoadedPlugin:
    """The plugin, loaded."""
    registry = registry_of(plugin)
    assert not registry.problems, registry.problems
    return registry.plugins["planted"]


def ids(rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A key column that names nothing."""
    return np.full(rows, NO_ENTITY, np.int64)
