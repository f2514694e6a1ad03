# SPDX-License-Identifier: Apache-2.0
"""Asks plugins for the events that follow from recorded ones, each isolated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fencepath._engine.load import Loaded, check_lengths
from fencepath._engine.view import EngineEvents
from fencepath._loader import LoadedPlugin, Registry
from fencepath.events import HEAD_COLUMNS, Batch
from fencepath.joins import Derived, GraphRule
from fencepath.modules import Modules
from fencepath.recording import Recording

__all__ = ["DerivedRules", "derive"]

DerivedRules = Sequence[tuple[LoadedPlugin, GraphRule]]
"""Rules over derived events, with the plugins that they are of."""


def derive(loaded: Loaded, registry: Registry, recording: Recording, modules: Modules) -> DerivedRules:
    """Add the derived kinds of every plugin of which something was recorded to `loaded`, and return their rules."""
    rules: list[tuple[LoadedPlugin, GraphRule]] = []
    events = EngineEvents(loaded.batches, registry.events, recording.loss, modules, recording.facts())
    for plugin, maker in registry.collect("fencepath_derived"):
        if not any(kind in loaded.infos for kind in plugin.kinds):
            continue
        make = partial(_made, plugin, maker, events, loaded)
        batches: list[Batch] | None = registry.guard(plugin, "derive", make, None)
        if batches is None:
            continue
        loaded.infos.update({kind: plugin.kinds[kind].info for kind in _kinds(plugin, maker)})
        loaded.batches.update({batch.kind: batch for batch in batches if len(batch)})
        rules += [(plugin, rule) for rule in registry.guard(plugin, "derived rules", partial(_rules, maker), [])]
    return rules


def _kinds(plugin: LoadedPlugin, maker: Derived) -> Iterator[str]:
    yield from (kind for kind in maker.kinds if kind in plugin.kinds and plugin.kinds[kind].info.derived)


def _made(plugin: LoadedPlugin, maker: Derived, events: EngineEvents, loaded: Loaded) -> list[Batch]:
    batches = list(maker.derive(events, loaded.entities))
    allowed = set(_kinds(plugin, maker))
    if len({batch.kind for batch in batches}) != len(batches):
        raise ValueError("two batches of one kind were derived; make them one")
    for batch in batches:
        if batch.kind not in allowed:
            raise ValueError(f"{batch.kind} is no derived kind of the layer {plugin.name}")
        missing = [name for name in (*HEAD_COLUMNS, "process", "thread") if name not in batch]
        if missing:
            raise ValueError(f"derived events of {batch.kind} lack the columns {', '.join(missing)}")
        check_lengths(batch)
        if (batch["time_ns"][1:] < batch["time_ns"][:-1]).any():
            raise ValueError(f"derived events of {batch.kind} are not sorted by time_ns")
    return batches


def _rules(maker: Derived) -> list[GraphRule]:
    return list(maker.rules())
