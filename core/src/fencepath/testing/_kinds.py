# SPDX-License-Identifier: Apache-2.0
"""Requirements on what a plugin declares: kinds, probe sets, rules, README."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fencepath._loader import LoadedPlugin, Registry
from fencepath._record.plan import DETAILS
from fencepath.events import HEAD_COLUMNS, Event, Role, columns_of
from fencepath.joins import GraphRule, JoinRule, Select
from fencepath.plugin import Alternative, CallProbe, LayerInfo, ProbeSet, SyscallProbes
from fencepath.system import System
from fencepath.testing._declared import Way, probe_sets, ways

__all__ = [
    "README_SECTIONS",
    "kinds_are_well_formed",
    "probes_are_data",
    "readme_has_sections",
    "readme_names_kinds",
    "rules_name_known_kinds",
]

README_SECTIONS = ("What it sees", "Needs", "Costs", "Caveats", "Join keys")

_ROLE_COLUMNS: Mapping[Role, tuple[str, ...]] = {
    Role.RUN_STATE: ("prev_tid", "prev_state", "next_tid"),
    Role.WAKE: ("wakee_tid",),
}
_ENGINE_KEYS = ("thread", "process")


def kinds_are_well_formed(plugin: LoadedPlugin) -> None:
    """Event classes have fixed-width columns and a docstring, and no key is taken already."""
    for kind, event in plugin.kinds.items():
        try:
            columns = columns_of(event)
        except TypeError as error:
            raise AssertionError(f"{kind}: {error}") from error
        assert tuple(columns)[: len(HEAD_COLUMNS)] == HEAD_COLUMNS, (
            f"{kind}: derive the class from fencepath.events.Event"
        )
        assert hasattr(event, "info"), f"{kind}: the class says nothing of its role; give it info = KindInfo(role=...)"
        assert event.info.version >= 1, f"{kind}: versions begin with 1"
        assert event.__dict__.get("__doc__"), f"{kind}: say in a docstring what one event is; the docs are made of it"
        names = [key.column for key in event.info.keys]
        assert len(set(names)) == len(names), f"{kind}: a key is named twice"
        clash = set(names).intersection(_ENGINE_KEYS)
        assert not clash, f"{kind}: the keys {', '.join(sorted(clash))} are every event's already"
        lacking = set(_ROLE_COLUMNS.get(event.info.role, ())) - set(columns)
        assert not lacking, (
            f"{kind}: a kind with the role {event.info.role} needs the columns {', '.join(sorted(lacking))}"
        )


def probes_are_data(plugin: LoadedPlugin, system: System) -> None:
    """``fencepath_probes`` returns probe sets whose alternatives give only declared kinds, with a layout for each.

    And every declared kind that is not derived is given by one of them.
    """
    assert isinstance(plugin.info, LayerInfo)
    sets = probe_sets(plugin, system)
    for probe_set in sets:
        assert isinstance(probe_set, ProbeSet), f"fencepath_probes returned {probe_set!r}, not a ProbeSet"
        assert probe_set.detail in DETAILS, (
            f"{probe_set.name}: unknown detail {probe_set.detail!r}; use {', '.join(DETAILS)}"
        )
        assert probe_set.alternatives, f"{probe_set.name}: a probe set needs at least one alternative"
    names = [probe_set.name for probe_set in sets]
    assert len(set(names)) == len(names), "two probe sets have one name; the manifest tells them apart by it"
    every = ways(plugin, system)
    for way in every:
        _check_way(plugin, way)
    given = {kind for way in every for kind in way.alternative.gives}
    recorded = {kind for kind, event in plugin.kinds.items() if not event.info.derived}
    never = sorted(recorded - given)
    assert not never, f"no probe set gives {', '.join(never)}, which fencepath_event_kinds lists"
    derived = sorted((given & set(plugin.kinds)) - recorded)
    assert not derived, f"a probe set gives {', '.join(derived)}, which fencepath_event_kinds calls derived"
    _check_tables(alternative for way in every for alternative in (way.alternative,))


def _check_way(plugin: LoadedPlugin, way: Way) -> None:
    alternative, gives = way.alternative, set(way.alternative.gives)
    unknown = sorted(gives - set(plugin.kinds))
    assert not unknown, f"{way.name}: gives {', '.join(unknown)}, which fencepath_event_kinds does not list"
    bare = sorted(gives - set(way.layouts))
    assert not bare, f"{way.name}: gives {', '.join(bare)}, but there is no layout for it; add one to layouts"
    silent = sorted(set(way.layouts) - gives)
    assert not silent, f"{way.name}: records {', '.join(silent)}, which is not in gives"
    if alternative.bpf is not None:
        assert alternative.bpf.path.is_file(), (
            f"{way.name}: there is no BPF source {alternative.bpf.path}; is it in the wheel?"
        )
    calls = any(isinstance(probe, CallProbe) for probe in alternative.probes)
    needs = calls or any(getattr(probe, "program", "") for probe in alternative.probes)
    assert alternative.bpf is not None or not needs, (
        f"{way.name}: it has no BPF source; give it one that includes {'fp_calls.h' if calls else 'fp_records.h'}"
    )
    mixed = len(alternative.probes) > 1 and any(isinstance(probe, SyscallProbes) for probe in alternative.probes)
    assert not mixed, f"{way.name}: system calls cannot be mixed with other probes; make them a probe set of their own"


def _check_tables(alternatives: Iterable[Alternative]) -> None:
    tables = {probe.table.recorded for each in alternatives for probe in each.probes if isinstance(probe, CallProbe)}
    assert len(tables) <= 1, "two call tables: a recording keeps the functions of one table a layer, so make them one"


def rules_name_known_kinds(plugin: LoadedPlugin, registry: Registry) -> None:
    """Rules are named for the layer; kinds they name are its own or in ``requires``; the keys they join on exist."""
    names: list[str] = []
    for rule in plugin.call("fencepath_rules") or ():
        assert isinstance(rule, JoinRule | GraphRule), f"{rule!r} is neither a JoinRule nor a GraphRule"
        assert rule.name.startswith(plugin.name + "."), f"rule {rule.name}: call it {plugin.name}.<noun>"
        names.append(rule.name)
        _check_requires(rule, registry)
        if isinstance(rule, JoinRule):
            _check_join(rule, plugin, registry)
    assert len(set(names)) == len(names), "two rules have one name; the report counts what each found by it"


def _check_requires(rule: JoinRule | GraphRule, registry: Registry) -> None:
    for requirement in rule.requires:
        kind, _, version = requirement.partition(">=")
        assert not version or version.isdigit(), f"rule {rule.name}: write {requirement} as kind>=version"
        layer = kind.split(".")[0]
        if layer not in registry.plugins:
            continue  # the rule is off until it is installed
        assert kind in registry.kinds, (
            f"rule {rule.name} requires {kind}, which the layer {layer} does not have; it has "
            f"{', '.join(sorted(registry.plugins[layer].kinds)) or 'no kinds'}"
        )
        newest = registry.kinds[kind].version
        assert int(version or 1) <= newest, (
            f"rule {rule.name} requires {requirement}, but version {newest} is the newest"
        )


def _check_join(rule: JoinRule, plugin: LoadedPlugin, registry: Registry) -> None:
    required = {requirement.partition(">=")[0] for requirement in rule.requires}
    for side, select in (("cause", rule.cause), ("effect", rule.effect)):
        if select.kind is not None and select.kind not in plugin.kinds:
            assert select.kind in required, (
                f"rule {rule.name}: its {side} {select.kind} is not a kind of this layer; if it is another layer's, add "
                f'"{select.kind}>=1" to requires'
            )
    for item in rule.on:
        cause, effect = (item, item) if isinstance(item, str) else item
        _check_key(rule, "cause", rule.cause, cause, registry.events)
        _check_key(rule, "effect", rule.effect, effect, registry.events)


def _check_key(rule: JoinRule, side: str, select: Select, column: str, events: Mapping[str, type[Event]]) -> None:
    """A column that is not there names nothing, so that the rule would match nothing and say no word."""
    event = events.get(select.kind or "")
    if event is None or column in _ENGINE_KEYS:
        return
    columns = columns_of(event)
    keys = [key.column for key in event.info.keys]
    assert column in columns or column in keys, (
        f"rule {rule.name}: {select.kind} ({side}) has no column {column}; it has {', '.join((*_ENGINE_KEYS, *keys, *columns))}"
    )
    assert columns.get(column) != np.dtype("O"), f"rule {rule.name}: {column} is text; join on numbers or entities"


def readme_has_sections(readme: Path) -> None:
    """The README has the sections that users look for, each with something in it."""
    assert readme.is_file(), f"there is no README at {readme}; users look there for {', '.join(README_SECTIONS)}"
    text = readme.read_text()
    for section in README_SECTIONS:
        match = re.search(rf"^## {re.escape(section)}[ ]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert match, f"{readme.name} has no section '## {section}'"
        assert match[1].strip(), f"{readme.name}: the section '{section}' is empty"


def readme_names_kinds(readme: Path, plugin: LoadedPlugin) -> None:
    """The README names every kind of the layer, and where it says what the layer sees, nothing that is none.

    Names are looked for in backticks; rules and types of entities are the layer's too and may stand there.
    """
    text = readme.read_text()
    lacking = sorted(set(plugin.kinds) - set(_quoted(text, plugin.name)))
    assert not lacking, f"{readme.name} does not name {', '.join(lacking)}; say in backticks what each kind is"
    seen = re.search(r"^## What it sees[ ]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    entities = {key.entity for event in plugin.kinds.values() for key in event.info.keys}
    rules = {rule.name for rule in plugin.call("fencepath_rules") or ()}
    unknown = sorted(set(_quoted(seen[1] if seen else "", plugin.name)) - set(plugin.kinds) - entities - rules)
    assert not unknown, (
        f"{readme.name} names {', '.join(unknown)} under 'What it sees', which is no kind of this layer; it has "
        f"{', '.join(sorted(plugin.kinds)) or 'none'}"
    )


def _quoted(text: str, layer: str) -> list[str]:
    return re.findall(rf"`({re.escape(layer)}\.[a-z0-9_.]+)`", text)
