# SPDX-License-Identifier: Apache-2.0
"""What plugins say of a machine, live or captured: which probe sets are possible, and their own checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fencepath._doctor.state import MachineState, Tracepoints
from fencepath._doctor.verdicts import degrade, fine, warn
from fencepath._loader import Registry
from fencepath._record.plan import Plan, PlannedSet, make_plan
from fencepath._text import absent_groups, absent_modules
from fencepath.errors import MachineError
from fencepath.plugin import Check, Detail
from fencepath.system import KernelSymbols, Spans, System
from fencepath.tracepoints import LiveTracepoints, TextTracepoints, TracepointFormat

__all__ = ["Asked", "Noted", "layer_checks", "live_layer_checks", "system_of"]


class Noted:
    """The running kernel's tracepoints and symbols, which notes what it was asked."""

    def __init__(self, kernel: LiveTracepoints, symbols: KernelSymbols) -> None:
        self._kernel = kernel
        self._symbols = symbols
        self._formats: dict[str, str] = {}
        self._has: dict[str, bool] = {}
        self._modules: dict[str, bool] = {}
        self._traceable: dict[str, bool] = {}

    @property
    def root(self) -> Path:
        """As of the kernel's."""
        return self._kernel.root

    def format(self, group: str, event: str) -> TracepointFormat | None:
        """As of the kernel."""
        name = f"{group}:{event}"
        if name not in self._formats:
            try:
                self._formats[name] = (self.root / group / event / "format").read_text(errors="replace")
            except OSError:
                self._formats[name] = ""
        return self._kernel.format(group, event)

    def groups(self) -> tuple[str, ...]:
        """As of the kernel."""
        return self._kernel.groups()

    def events(self, group: str) -> tuple[str, ...]:
        """As of the kernel."""
        return self._kernel.events(group)

    def has(self, name: str) -> bool:
        """Whether the kernel, or a module of it, has the function or variable `name`."""
        self._has[name] = self._symbols.has(name)
        return self._has[name]

    def module_of(self, name: str) -> str:
        """As of the kernel."""
        return self._symbols.module_of(name)

    def has_module(self, name: str) -> bool:
        """Whether the module is loaded."""
        self._modules[name] = self._symbols.has_module(name)
        return self._modules[name]

    def traceable(self, name: str) -> bool | None:
        """Whether ftrace lists the function."""
        found = self._symbols.traceable(name)
        if found is not None:
            self._traceable[name] = found
        return found

    def traced(self) -> dict[str, bool]:
        """What was asked for so far, as far as it is known."""
        return dict(sorted(self._traceable.items()))

    def modules(self) -> dict[str, bool]:
        """What was asked for so far."""
        return dict(sorted(self._modules.items()))

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        """As of the kernel; addresses are this boot's and not noted."""
        return self._symbols.spans(names)

    def tracepoints(self) -> Tracepoints:
        """What was asked for so far."""
        groups = sorted({name.partition(":")[0] for name in self._formats})
        names = {group: self._kernel.events(group) for group in groups}
        return Tracepoints(root=str(self.root), formats=dict(sorted(self._formats.items())), groups=names)

    def symbols(self) -> dict[str, bool]:
        """What was asked for so far."""
        return dict(sorted(self._has.items()))


class _Told:
    """Symbols of a captured machine."""

    def __init__(self, state: MachineState) -> None:
        self._symbols = state.symbols
        self._modules = state.modules
        self._traceable = state.traceable

    def has(self, name: str) -> bool:
        return self._symbols.get(name, False)

    def module_of(self, name: str) -> str:
        del name
        return ""

    def has_module(self, name: str) -> bool:
        return self._modules.get(name, False)

    def traceable(self, name: str) -> bool | None:
        return self._traceable.get(name)

    def spans(self, names: Collection[str]) -> Mapping[str, Spans]:
        del names
        return {}


def system_of(state: MachineState, detail: Detail = "full") -> System:
    """Return a captured machine as plugins see it."""
    return System(
        tracepoints=TextTracepoints(state.tracepoints.formats, state.tracepoints.groups),
        architecture=state.architecture,
        kernel=state.kernel,
        detail=detail,
        symbols=_Told(state),
        no_functions=""
        if state.kernel_functions is None or state.kernel_functions.works
        else state.kernel_functions.why,
    )


class Asked(NamedTuple):
    """What layers say of this machine, and what they looked at for it.

    Attributes:
        checks: with the layer of each.
        tracepoints: that were asked for.
        symbols: by name, whether the kernel has it.
        modules: by name, whether it is loaded.
        traceable: functions, whether ftrace lists them.
    """

    checks: list[tuple[str, Check]]
    tracepoints: Tracepoints
    symbols: dict[str, bool]
    modules: dict[str, bool]
    traceable: dict[str, bool]


def live_layer_checks(registry: Registry) -> Asked:
    """Ask every layer about this machine.

    Raises:
        MachineError: tracefs cannot be read.
    """
    here = System.here("full")
    assert isinstance(here.tracepoints, LiveTracepoints)
    noted = Noted(here.tracepoints, here.symbols)
    system = System(
        tracepoints=noted,
        architecture=here.architecture,
        kernel=here.kernel,
        detail="full",
        live=True,
        symbols=noted,
        no_functions=here.no_functions,
    )
    checks = list(layer_checks(registry, system))
    return Asked(checks, noted.tracepoints(), noted.symbols(), noted.modules(), noted.traced())


def layer_checks(registry: Registry, system: System) -> Iterator[tuple[str, Check]]:
    """Yield (layer, check) for each plugin that failed, each probe set, and each check of a plugin's own."""
    for problem in registry.problems:
        yield problem.plugin, warn("plugin", str(problem), "its layer is not recorded")
    try:
        plan = make_plan(registry, system)
    except MachineError as error:
        yield "process", degrade("life", str(error), "nothing can be recorded", error.remedy)
        return
    yield from _planned(plan, system.symbols)
    for plugin, check in registry.items("fencepath_checks", system=system):
        yield plugin.name, check


def _planned(plan: Plan, symbols: KernelSymbols) -> Iterator[tuple[str, Check]]:
    for planned in plan.sets:
        lesser = [
            item for item in plan.missing if item.layer == planned.plugin.name and item.probe == planned.probe_set.name
        ]
        if not lesser:
            by = _functions(planned, symbols)
            yield planned.plugin.name, fine(planned.probe_set.name, f"{len(planned.layouts)} kinds can be recorded{by}")
    absent: dict[tuple[str, str], list[str]] = {}
    lacking: dict[tuple[str, str], list[str]] = {}
    for missing in plan.missing:
        if why := _not_loaded(missing.why):
            absent.setdefault((missing.layer, why), []).append(missing.probe)
        else:
            lacking.setdefault((missing.layer, missing.why), []).append(missing.probe)
    for (layer, why), probes in lacking.items():
        yield layer, degrade(", ".join(probes), why, "these events are not recorded")
    for (layer, why), probes in absent.items():
        yield layer, fine(", ".join(probes), why)


def _functions(planned: PlannedSet, symbols: KernelSymbols) -> str:
    """Which kernel functions a set would probe, and which of them not by fentry; "" if it wants none."""
    names = [name for resolved in planned.functions for name in resolved.present]
    if not names:
        return ""
    others = [name for name in names if symbols.traceable(name) is False]
    kprobes = f"; ftrace does not list {', '.join(others)}: by kprobes" if others else ""
    return f", by functions of the kernel: {', '.join(names)}{kprobes}"


def _not_loaded(why: str) -> str:
    """What is said where a probe set is missing only since there is nothing to record; "" if there may be."""
    groups, modules = absent_groups(why), absent_modules(why)
    if len(groups) == 1:
        return f"its module is not loaded: there are no tracepoints of the group {groups[0]}, so that nothing is lost"
    if modules:
        return f"not loaded: {', '.join(modules)}, so that nothing is lost"
    return ""
