# SPDX-License-Identifier: Apache-2.0
"""What plugins say of a machine, live or captured: which probe sets are possible, and their own checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fencepath._doctor.state import MachineState, Tracepoints
from fencepath._doctor.verdicts import degrade, fine, warn
from fencepath._loader import Registry
from fencepath._record.plan import Plan, make_plan
from fencepath._text import absent_groups
from fencepath.errors import MachineError
from fencepath.plugin import Check, Detail
from fencepath.system import KernelSymbols, Spans, System
from fencepath.tracepoints import LiveTracepoints, TextTracepoints, TracepointFormat

__all__ = ["Noted", "layer_checks", "live_layer_checks", "system_of"]


class Noted:
    """The running kernel's tracepoints and symbols, which notes what it was asked."""

    def __init__(self, kernel: LiveTracepoints, symbols: KernelSymbols) -> None:
        self._kernel = kernel
        self._symbols = symbols
        self._formats: dict[str, str] = {}
        self._has: dict[str, bool] = {}

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

    def __init__(self, symbols: dict[str, bool]) -> None:
        self._symbols = symbols

    def has(self, name: str) -> bool:
        return self._symbols.get(name, False)

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
        symbols=_Told(state.symbols),
    )


def live_layer_checks(registry: Registry) -> tuple[list[tuple[str, Check]], Tracepoints, dict[str, bool]]:
    """Ask every layer about this machine; return its checks, and what it looked at, for the state.

    Raises:
        MachineError: tracefs cannot be read.
    """
    here = System.here("full")
    assert isinstance(here.tracepoints, LiveTracepoints)
    noted = Noted(here.tracepoints, here.symbols)
    system = System(
        tracepoints=noted, architecture=here.architecture, kernel=here.kernel, detail="full", live=True, symbols=noted
    )
    checks = list(layer_checks(registry, system))
    return checks, noted.tracepoints(), noted.symbols()


def layer_checks(registry: Registry, system: System) -> Iterator[tuple[str, Check]]:
    """Yield (layer, check) for each plugin that failed, each probe set, and each check of a plugin's own."""
    for problem in registry.problems:
        yield problem.plugin, warn("plugin", str(problem), "its layer is not recorded")
    try:
        plan = make_plan(registry, system)
    except MachineError as error:
        yield "process", degrade("life", str(error), "nothing can be recorded", error.remedy)
        return
    yield from _planned(plan)
    for plugin, check in registry.items("fencepath_checks", system=system):
        yield plugin.name, check


def _planned(plan: Plan) -> Iterator[tuple[str, Check]]:
    for planned in plan.sets:
        lesser = [
            item for item in plan.missing if item.layer == planned.plugin.name and item.probe == planned.probe_set.name
        ]
        if not lesser:
            yield planned.plugin.name, fine(planned.probe_set.name, f"{len(planned.layouts)} kinds can be recorded")
    absent: dict[tuple[str, str], list[str]] = {}
    for missing in plan.missing:
        groups = absent_groups(missing.why)
        if len(groups) == 1:
            absent.setdefault((missing.layer, groups[0]), []).append(missing.probe)
        else:
            yield missing.layer, degrade(missing.probe, missing.why, "these events are not recorded")
    for (layer, group), probes in absent.items():
        why = f"its module is not loaded: there are no tracepoints of the group {group}, so that nothing is lost"
        yield layer, fine(", ".join(probes), why)
