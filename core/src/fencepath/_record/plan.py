# SPDX-License-Identifier: Apache-2.0
"""Decides what to attach: for each probe set of each layer the first alternative that this machine has in full."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fencepath._loader import LoadedPlugin, Registry
from fencepath.calls import CallTable
from fencepath.errors import MachineError, UsageError
from fencepath.events import KindInfo
from fencepath.kernel_functions import NoFunctions, ResolvedFunctions
from fencepath.plugin import (
    Alternative,
    CallProbe,
    Detail,
    FunctionProbe,
    ProbeSet,
    SyscallProbes,
    TracepointProbe,
)
from fencepath.records import Layouts, RecordLayout
from fencepath.syscalls import SyscallTable, syscall_layout
from fencepath.system import System
from fencepath.tracepoints import Missing, Resolved

__all__ = ["DETAILS", "MissingSet", "Plan", "PlannedProgram", "PlannedSet", "make_plan", "resolve_alternative"]

DETAILS: tuple[Detail, ...] = ("sync", "launch", "full")


class PlannedProgram(msgspec.Struct, frozen=True):
    """A BPF function and the tracepoint it is attached to; the name is "" for the generated program.

    `raw`: it is attached to the tracepoint itself, and not to its record.
    """

    program: str
    resolved: Resolved
    raw: bool = False


class PlannedSet(msgspec.Struct, frozen=True):
    """One probe set as it will be attached.

    Attributes:
        plugin: whose it is.
        probe_set: what the plugin asked for.
        alternative: the one that was chosen.
        programs: tracepoint programs.
        accessors: events whose fields its source reads.
        tables: call tables.
        syscalls: system calls, None if it wants none.
        functions: kernel functions.
        layouts: of every kind it records.
    """

    plugin: LoadedPlugin
    probe_set: ProbeSet
    alternative: Alternative
    programs: tuple[PlannedProgram, ...]
    accessors: tuple[Resolved, ...]
    tables: tuple[CallTable, ...]
    layouts: tuple[RecordLayout, ...]
    syscalls: SyscallTable | None = None
    functions: tuple[ResolvedFunctions, ...] = ()

    @property
    def name(self) -> str:
        """``layer/set``, as in the manifest."""
        return f"{self.plugin.name}/{self.probe_set.name}"


class MissingSet(msgspec.Struct, frozen=True):
    """A probe set, or an alternative of one, that is not attached, and why."""

    layer: str
    probe: str
    why: str


class Plan:
    """Everything that will be attached.

    Attributes:
        sets: to be attached.
        missing: what was wanted and is not possible.
        layouts: of all kinds, with their numbers in this recording.
        infos: of all kinds.
        registry: where the plugins came from.
    """

    def __init__(self, registry: Registry, sets: Iterable[PlannedSet], missing: Iterable[MissingSet]) -> None:
        self.registry = registry
        self.sets = tuple(sets)
        self.missing = list(missing)
        layouts = {layout.kind: layout for planned in self.sets for layout in planned.layouts}
        self.layouts = Layouts(layouts, {kind: number for number, kind in enumerate(layouts, 1)})
        self.infos: dict[str, KindInfo] = {kind: registry.kinds[kind] for kind in layouts}

    def layer_of(self, kind: str) -> str:
        """Layer that records a kind."""
        return next(
            planned.plugin.name for planned in self.sets if any(kind == layout.kind for layout in planned.layouts)
        )

    def without(self, planned: PlannedSet, why: str) -> None:
        """Give up a set that could not be attached. Its kinds keep their numbers."""
        self.sets = tuple(other for other in self.sets if other is not planned)
        self.missing.append(MissingSet(planned.plugin.name, planned.probe_set.name, why))


def make_plan(registry: Registry, system: System, layers: Iterable[str] | None = None) -> Plan:
    """Ask every plugin for its probe sets and choose.

    Args:
        registry: plugins.
        system: this machine, with the asked detail.
        layers: names to record; None means all.

    Raises:
        UsageError: a layer that no plugin has.
        MachineError: processes cannot be followed, without which nothing could be told apart.
    """
    if layers is not None:
        unknown = sorted(set(layers) - set(registry.plugins))
        if unknown:
            raise UsageError(f"no layer {', '.join(unknown)}; there are {', '.join(sorted(registry.plugins))}")
        registry = registry.only(layers)
    sets: list[PlannedSet] = []
    missing: list[MissingSet] = []
    for plugin, probe_sets in registry.collect("fencepath_probes", system=system):
        for probe_set in probe_sets:
            if DETAILS.index(probe_set.detail) > DETAILS.index(system.detail):
                continue
            planned = _choose(plugin, probe_set, system, missing)
            if planned is None:
                continue
            if planned.tables and any(other.plugin is plugin and other.tables for other in sets):
                why = "another probe set of the layer has a call table; put all functions into one"
                missing.append(MissingSet(plugin.name, probe_set.name, why))
                continue
            sets.append(planned)
    if not any(planned.plugin.name == "process" for planned in sets):
        why = "; ".join(item.why for item in missing if item.layer == "process") or "; ".join(
            map(str, registry.problems)
        )
        raise MachineError(f"processes cannot be followed here: {why}")
    missing += [MissingSet(problem.plugin, problem.stage, problem.message) for problem in registry.problems]
    return Plan(registry, sets, missing)


def _choose(plugin: LoadedPlugin, probe_set: ProbeSet, system: System, missing: list[MissingSet]) -> PlannedSet | None:
    whys: list[str] = []
    for alternative in probe_set.alternatives:
        planned = resolve_alternative(plugin, probe_set, alternative, system)
        if isinstance(planned, PlannedSet):
            if alternative.loses:
                missing.append(MissingSet(plugin.name, probe_set.name, f"by its second best way: {alternative.loses}"))
            return planned
        whys.append(planned)
    missing.append(
        MissingSet(plugin.name, probe_set.name, "; ".join(dict.fromkeys(whys)) or "the plugin offers no way")
    )
    return None


def resolve_alternative(
    plugin: LoadedPlugin, probe_set: ProbeSet, alternative: Alternative, system: System
) -> PlannedSet | str:
    """Resolve an alternative against the machine, or say why it is not possible."""
    programs: list[PlannedProgram] = []
    functions: list[ResolvedFunctions] = []
    layouts = {layout.kind: layout for layout in alternative.layouts}
    tables = tuple(probe.table for probe in alternative.probes if isinstance(probe, CallProbe))
    if len(tables) > 1:
        return "a layer has one call table; put all functions into it"
    for table in tables:
        layouts.update({layout.kind: layout for layout in table.layouts()})
    syscalls = next((probe.table for probe in alternative.probes if isinstance(probe, SyscallProbes)), None)
    if syscalls is not None:
        if len(alternative.probes) > 1:
            return "system calls cannot be mixed with other probes in one alternative"
        layouts.update({kind: syscall_layout(kind) for kind in syscalls.kinds})
    for probe in alternative.probes:
        if isinstance(probe, TracepointProbe):
            resolved = probe.record.resolve(system.tracepoints)
            if isinstance(resolved, Missing):
                return str(resolved)
            programs.append(PlannedProgram(probe.program, resolved, probe.raw))
            if not probe.program:
                layouts[probe.record.kind] = probe.record.layout
        elif isinstance(probe, FunctionProbe):
            there = probe.record.resolve(system.symbols)
            if isinstance(there, NoFunctions):
                return str(there)
            if system.no_functions:
                return system.no_functions
            functions.append(there)
            layouts[probe.record.kind] = probe.record.layout
    accessors = [planned.resolved for planned in programs]
    for record in alternative.bpf.tracepoints if alternative.bpf else ():
        resolved = record.resolve(system.tracepoints)
        if isinstance(resolved, Missing):
            return str(resolved)
        if resolved not in accessors:
            accessors.append(resolved)
    unknown = [kind for kind in layouts if kind not in plugin.kinds]
    if unknown:
        return f"it records {', '.join(unknown)}, which the plugin does not declare"
    return PlannedSet(
        plugin=plugin,
        probe_set=probe_set,
        alternative=alternative,
        programs=tuple(programs),
        accessors=tuple(accessors),
        tables=tables,
        layouts=tuple(layouts.values()),
        syscalls=syscalls,
        functions=tuple(functions),
    )
