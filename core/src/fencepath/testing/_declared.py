# SPDX-License-Identifier: Apache-2.0
"""What a plugin says it can record, whether or not this machine has it.

Most requirements are about all of it: a layout of an alternative that is only taken on another kernel must be right too.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fencepath._loader import LoadedPlugin

# asked alternative by alternative: a plan takes the first that is possible, and only together with the layer `process`
from fencepath._record.plan import PlannedSet, resolve_alternative
from fencepath.plugin import Alternative, CallProbe, FunctionProbe, ProbeSet, SyscallProbes, TracepointProbe
from fencepath.records import Layouts, RecordLayout
from fencepath.syscalls import syscall_layout
from fencepath.system import System
from fencepath.tracepoints import Resolved, TracepointFormat, TracepointRecord, TracepointSource

__all__ = ["Way", "layouts_of", "number", "probe_sets", "records_of", "ways", "without_events"]


class Way(msgspec.Struct, frozen=True):
    """One way to get the events of a probe set.

    Attributes:
        probe_set: which one.
        alternative: which of its alternatives.
        layouts: of the kinds that it records, by kind.
    """

    probe_set: ProbeSet
    alternative: Alternative
    layouts: dict[str, RecordLayout]

    @property
    def name(self) -> str:
        """``doorbells``, or ``doorbells (alternative 2)`` where there are several."""
        several = self.probe_set.alternatives
        return (
            f"{self.probe_set.name} (alternative {several.index(self.alternative) + 1})"
            if len(several) > 1
            else self.probe_set.name
        )

    @property
    def functions(self) -> dict[str, tuple[str, ...]]:
        """What a manifest keeps of its call tables, by layer, and of its system calls and kernel functions, by kind."""
        found: dict[str, tuple[str, ...]] = {}
        for probe in self.alternative.probes:
            if isinstance(probe, CallProbe):
                found[probe.table.layer] = probe.table.recorded
            elif isinstance(probe, SyscallProbes):
                found.update({kind: probe.table.recorded(kind) for kind in probe.table.kinds})
            elif isinstance(probe, FunctionProbe):
                found[probe.record.kind] = tuple(function.names[0] for function in probe.record.functions)
        return found

    @property
    def written_by_core(self) -> frozenset[str]:
        """Kinds whose C struct is in core's own headers: calls and system calls."""
        tables = [probe.table for probe in self.alternative.probes if isinstance(probe, CallProbe | SyscallProbes)]
        return frozenset(kind for table in tables for kind in table.kinds)

    def resolve(self, plugin: LoadedPlugin, system: System) -> PlannedSet | str:
        """Resolve it against a machine, or say why it is not possible there."""
        return resolve_alternative(plugin, self.probe_set, self.alternative, system)

    def variants(self, plugin: LoadedPlugin, system: System) -> Iterator[PlannedSet]:
        """Yield it as planned, then as it would be if the events it then uses were not there, as long as others are."""
        missing: set[str] = set()
        while True:
            planned = self.resolve(plugin, without_events(system, *missing))
            if isinstance(planned, str):
                return
            yield planned
            used = {program.resolved.name for program in planned.programs if _has_others(self, program.resolved)}
            if not used:
                return
            missing |= used


def _has_others(way: Way, resolved: Resolved) -> bool:
    return any(
        record.kind == resolved.kind and resolved.name in [source.name for source in record.sources[:-1]]
        for record in records_of(way.alternative)
    )


def probe_sets(plugin: LoadedPlugin, system: System) -> tuple[ProbeSet, ...]:
    """Probe sets of a plugin; none if it has no such hook."""
    return tuple(plugin.call("fencepath_probes", system=system) or ())


def ways(plugin: LoadedPlugin, system: System) -> list[Way]:
    """Every alternative of every probe set."""
    return [
        Way(probe_set, alternative, layouts_of(alternative))
        for probe_set in probe_sets(plugin, system)
        for alternative in probe_set.alternatives
    ]


def layouts_of(alternative: Alternative) -> dict[str, RecordLayout]:
    """Layouts of what an alternative records: its own, and those that come by themselves."""
    layouts = {layout.kind: layout for layout in alternative.layouts}
    for probe in alternative.probes:
        if isinstance(probe, CallProbe):
            layouts.update({layout.kind: layout for layout in probe.table.layouts()})
        elif isinstance(probe, SyscallProbes):
            layouts.update({kind: syscall_layout(kind) for kind in probe.table.kinds})
        elif isinstance(probe, FunctionProbe) or not probe.program:
            layouts[probe.record.kind] = probe.record.layout
    return layouts


def records_of(alternative: Alternative) -> Iterator[TracepointRecord]:
    """Every tracepoint record that an alternative attaches to or reads."""
    yield from (probe.record for probe in alternative.probes if isinstance(probe, TracepointProbe))
    yield from alternative.bpf.tracepoints if alternative.bpf is not None else ()


def number(layouts: dict[str, RecordLayout]) -> Layouts:
    """Number kinds as a recording would."""
    return Layouts(layouts, {kind: index for index, kind in enumerate(layouts, 1)})


class _Hidden:
    """A kernel without some of its events."""

    def __init__(self, kernel: TracepointSource, names: frozenset[str]) -> None:
        self._kernel = kernel
        self._names = names

    def format(self, group: str, event: str) -> TracepointFormat | None:
        return None if f"{group}:{event}" in self._names else self._kernel.format(group, event)

    def groups(self) -> tuple[str, ...]:
        return self._kernel.groups()

    def events(self, group: str) -> tuple[str, ...]:
        return tuple(event for event in self._kernel.events(group) if f"{group}:{event}" not in self._names)


def without_events(system: System, *names: str) -> System:
    """Return the machine as it would be without some tracepoints.

    Args:
        system: a machine.
        names: ``group:event`` each.
    """
    return System(
        tracepoints=_Hidden(system.tracepoints, frozenset(names)),
        architecture=system.architecture,
        kernel=system.kernel,
        detail=system.detail,
        live=system.live,
        symbols=system.symbols,
        no_functions=system.no_functions,
    )
