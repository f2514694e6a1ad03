# SPDX-License-Identifier: Apache-2.0
"""From a recording to batches by kind: decoded, sorted, with threads, processes and handles named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from fencepath._engine.processes import EXEC, FORK, ProcessTable
from fencepath._loader import LoadedPlugin, Registry
from fencepath.bus import EventBus, Sorter
from fencepath.entities import Entities, EntityTracker
from fencepath.events import Batch, KindInfo, Role, concatenate
from fencepath.plugin import Decoder
from fencepath.recording import Recording
from fencepath.records import Flags, Layouts, Records

__all__ = ["Loaded", "check_lengths", "load", "without_superseded"]

_ROLE_COLUMNS: Mapping[Role, tuple[str, ...]] = {
    Role.RUN_STATE: ("prev_tid", "prev_state", "next_tid"),
    Role.WAKE: ("wakee_tid",),
}


class Loaded:
    """Everything of a recording, in columns.

    Attributes:
        batches: by kind, sorted by ``time_ns``; kinds without events are absent.
        infos: by kind, for all kinds of the recording that a plugin owns.
        entities: the entity table.
        processes: who a pid was.
        problems: what could not be read, as sentences.
    """

    def __init__(self, entities: Entities, processes: ProcessTable) -> None:
        self.batches: dict[str, Batch] = {}
        self.infos: dict[str, KindInfo] = {}
        self.entities = entities
        self.processes = processes
        self.problems: list[str] = []


def load(recording: Recording, registry: Registry, without: Sequence[str] = ()) -> Loaded:
    """Decode a recording.

    Args:
        recording: open recording.
        registry: plugins; kinds that none of them owns are left out and named in ``problems``.
        without: layers to leave out as if they had not been recorded.
    """
    entities = Entities(recording.loss)
    loaded = Loaded(entities, ProcessTable(recording.manifest.boot_id, _process_facts(recording), entities))
    collected: dict[str, list[Batch]] = defaultdict(list)
    bus = EventBus()
    bus.subscribe("*", lambda batch: collected[batch.kind].append(batch))
    sorter = Sorter(bus.publish)
    for plugin, kinds in _by_plugin(recording, registry, without, loaded).items():
        _decode(recording, registry, plugin, kinds, sorter)
    sorter.finish()
    loaded.batches = {kind: concatenate(batches) for kind, batches in sorted(collected.items())}
    _identify(loaded, registry)
    return loaded


def _process_facts(recording: Recording) -> list[dict[str, object]]:
    return [{**fact.data, "type": name} for name in ("process", "thread") for fact in recording.facts(name)]


def _by_plugin(
    recording: Recording, registry: Registry, without: Sequence[str], loaded: Loaded
) -> dict[LoadedPlugin, list[str]]:
    owners: dict[LoadedPlugin, list[str]] = defaultdict(list)
    for kind in recording.manifest.kinds:
        layer = recording.manifest.kinds[kind].layer
        if layer in without:
            continue
        plugin = registry.of_kind(kind)
        if plugin is None:
            loaded.problems.append(
                f"kind {kind} belongs to layer {layer}, for which no plugin is installed; its events are left out"
            )
            continue
        owners[plugin].append(kind)
        loaded.infos[kind] = registry.kinds[kind]
    return owners


def _decode(recording: Recording, registry: Registry, plugin: LoadedPlugin, kinds: list[str], sorter: Sorter) -> None:
    layouts = recording.layouts
    mine = Layouts({kind: layouts[kind] for kind in kinds}, {kind: layouts.number(kind) for kind in kinds})
    functions = {
        name: texts
        for name, texts in recording.manifest.functions.items()
        if name == plugin.name or name in plugin.kinds
    }
    make = partial(plugin.call, "fencepath_decoder", layouts=mine, functions=functions)
    decoder: Decoder | None = registry.guard(plugin, "fencepath_decoder", make, None)
    if decoder is None:
        return
    for kind in kinds:
        records = without_superseded(recording.records(kind))
        if len(records):
            decode = partial(_decoded, decoder, registry.kinds[kind], kind, records)
            batch = registry.guard(plugin, f"decode {kind}", decode, None)
            if batch is not None:
                sorter.add(batch)


def _decoded(decoder: Decoder, info: KindInfo, kind: str, records: Records) -> Batch:
    """Decode, and refuse what would break the engine later, when nobody could tell whose fault it was."""
    batch = decoder.decode(kind, records)
    if batch.kind != kind:
        raise ValueError(f"the decoder returned a batch of {batch.kind}")
    missing = [column for column in _ROLE_COLUMNS.get(info.role, ()) if column not in batch]
    if missing:
        raise ValueError(f"a kind with the role {info.role} needs the columns {', '.join(missing)}")
    check_lengths(batch)
    return batch


def check_lengths(batch: Batch) -> None:
    """Refuse a batch whose columns differ in length.

    Raises:
        ValueError: with their names.
    """
    uneven = [name for name, column in batch.columns.items() if len(column) != len(batch)]
    if uneven:
        raise ValueError(f"the columns {', '.join(uneven)} do not have one row an event")


def without_superseded(records: Records) -> Records:
    """Leave out OPEN records of calls that were written again: when they returned, or later while still open."""
    still_open = (records["flags"] & np.uint32(Flags.OPEN)) != 0
    if not still_open.any() or "begin_ns" not in (records.dtype.names or ()):
        return records
    identity = [name for name in ("begin_ns", "function", "tid") if name in (records.dtype.names or ())]
    order = np.lexsort([records["time_ns"], ~still_open, *(records[name] for name in identity)])
    ordered = records[order]
    again = np.ones(len(records) - 1, np.bool_)
    for name in identity:
        again &= ordered[name][1:] == ordered[name][:-1]
    drop = np.zeros(len(records), np.bool_)
    drop[order[:-1]] = again & still_open[order[:-1]]
    return records[~drop]


def _identify(loaded: Loaded, registry: Registry) -> None:
    """Name processes and threads, then the handles of each layer, creations and ends first."""
    loaded.processes.build(loaded.batches.get(FORK), loaded.batches.get(EXEC))
    for batch in loaded.batches.values():
        loaded.processes.identify(batch)
    for plugin, tracker in registry.collect("fencepath_entities"):
        mine = [loaded.batches[kind] for kind in plugin.kinds if kind in loaded.batches]
        # a stable sort: among the early ones the plugin's own order decides
        for batch in sorted(mine, key=lambda batch: not _early(loaded.infos[batch.kind])):
            update = partial(_track, tracker, batch, loaded.entities)
            registry.guard(plugin, f"entities {batch.kind}", update, None)


def _track(tracker: EntityTracker, batch: Batch, entities: Entities) -> None:
    """Add the tracker's columns; those of one that raises are taken away again."""
    before = dict(batch.columns)
    try:
        tracker.update(batch, entities)
        check_lengths(batch)
    except Exception:
        batch.columns = before
        raise


def _early(info: KindInfo) -> bool:
    return info.keep or info.role is Role.LIFE
