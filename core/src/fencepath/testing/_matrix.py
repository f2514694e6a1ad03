# SPDX-License-Identifier: Apache-2.0
"""What a plugin would do on each of several kernels, by their saved tracepoint formats and symbols."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from fencepath._loader import LoadedPlugin, Registry, load_plugins
from fencepath._record.plan import PlannedSet
from fencepath._text import absent_groups, absent_modules, no_group
from fencepath.errors import FencepathError, LoadError, UsageError
from fencepath.system import System
from fencepath.testing._declared import Way, layouts_of, number, ways
from fencepath.testing._programs import load_planned
from fencepath.tracepoints import bundle_name

__all__ = ["Cell", "Matrix", "Result", "check_matrix", "saved_kernels", "shipped_kernels"]

Result: TypeAlias = Literal["full", "less", "missing", "not_saved", "refused"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One probe set on one kernel.

    Attributes:
        kernel: name of the saved formats.
        probe_set: the plugin's.
        result: ``full``; ``less``: by an alternative that loses something, or without fields that it takes where they are;
            ``missing``; ``not_saved``: the formats have nothing of a group that it needs, which the kernel may have or not; ``refused``:
            its programs do not compile, or the verifier refuses them.
        alternative: which one is taken, from 1; 0 if none is.
        alternatives: how many there are.
        events: tracepoints that it would be attached to, and kernel functions, as ``name()``.
        absent: fields that stay 0, as ``group:event.field``; some of them are what other events give in place of these.
        lacks: what the alternatives before it lack, or all of them.
        loses: what one does not get by it.
        programs: BPF programs that were loaded here; None if that was not tried.
    """

    kernel: str
    probe_set: str
    result: Result
    alternative: int = 0
    alternatives: int = 1
    events: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    loses: str = ""
    programs: int | None = None


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin on several kernels.

    Attributes:
        layer: the plugin's.
        kernels: names, in order.
        probe_sets: names, in the plugin's order.
        cells: one a probe set and kernel that has it.
    """

    schema: str = "fencepath.matrix/1"
    layer: str
    kernels: tuple[str, ...]
    probe_sets: tuple[str, ...]
    cells: tuple[Cell, ...]

    def cell(self, probe_set: str, kernel: str) -> Cell | None:
        """The cell of a probe set and a kernel; None if the plugin has no such probe set there."""
        found = (cell for cell in self.cells if (cell.probe_set, cell.kernel) == (probe_set, kernel))
        return next(found, None)


def shipped_kernels() -> Path:
    """Folder with the formats that come with fencepath."""
    return Path(str(resources.files("fencepath.testing") / "kernels"))


def saved_kernels(folder: Path) -> list[System]:
    """Return the kernels that were saved in a folder, by name: bundles, and folders of formats.

    Raises:
        UsageError: there is none, or no folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"no folder {folder}; it should hold NAME.formats files, or folders of <group>/<event>.format files"
        )
    found = [path for path in folder.iterdir() if bundle_name(path) or next(path.glob("*/*.format"), None)]
    if not found:
        raise UsageError(
            f"nothing is saved in {folder}; fencepath check-plugin LAYER --save-formats {folder}/NAME.formats does"
        )
    systems = [System.from_formats(path, detail="full") for path in found]
    return sorted(
        systems,
        key=lambda system: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", system.kernel)],
    )


def check_matrix(
    layer: str, systems: Iterable[System], *, load: bool | None = None, registry: Registry | None = None
) -> Matrix:
    """Say what an installed plugin would do on each kernel.

    Args:
        layer: the plugin's.
        systems: the kernels.
        load: compile and load the programs here, with the formats of the one and the verifier of this machine; None: as root.
        registry: where the plugin is; None for those that are installed.

    Raises:
        UsageError: no such layer.
    """
    registry = load_plugins() if registry is None else registry
    if layer not in registry.plugins:
        raise UsageError(f"no layer {layer} was loaded; there are {', '.join(sorted(registry.plugins))}")
    plugin = registry.plugins[layer]
    loads = os.geteuid() == 0 if load is None else load
    machines = list(systems)
    cells = [cell for system in machines for cell in _cells(plugin, system, load=loads)]
    names = tuple(dict.fromkeys(cell.probe_set for cell in cells))
    return Matrix(
        layer=layer, kernels=tuple(system.kernel for system in machines), probe_sets=names, cells=tuple(cells)
    )


def _cells(plugin: LoadedPlugin, system: System, *, load: bool) -> Iterator[Cell]:
    by_set: dict[str, list[Way]] = {}
    for way in ways(plugin, system):
        by_set.setdefault(way.probe_set.name, []).append(way)
    for name, alternatives in by_set.items():
        yield _cell(plugin, system, name, alternatives, load=load)


def _cell(plugin: LoadedPlugin, system: System, name: str, alternatives: list[Way], *, load: bool) -> Cell:
    lacks: list[str] = []
    for index, way in enumerate(alternatives, 1):
        planned = way.resolve(plugin, system)
        if planned_lacks := planned if isinstance(planned, str) else _unsaved(planned, system):
            lacks.append(planned_lacks)
            continue
        assert not isinstance(planned, str)
        events = [program.resolved for program in planned.programs]
        functions = [f"{name}()" for resolved in planned.functions for name in resolved.present]
        absent = tuple(dict.fromkeys(f"{event.name}.{field}" for event in events for field in event.absent))
        optional = [binding for event in events for binding in event.bindings if binding.field is None]
        cell = Cell(
            kernel=system.kernel,
            probe_set=name,
            result="less" if way.alternative.loses or optional else "full",
            alternative=index,
            alternatives=len(alternatives),
            events=tuple(dict.fromkeys([*(event.name for event in events), *functions])),
            absent=absent,
            lacks=tuple(dict.fromkeys([*lacks, *(why for event in events for why in event.why_not)])),
            loses=way.alternative.loses,
        )
        return _loaded(cell, way, planned, system) if load else cell
    nothing = all(absent_groups(why) or absent_modules(why) for why in lacks)
    return Cell(
        kernel=system.kernel,
        probe_set=name,
        result="not_saved" if nothing else "missing",
        alternatives=len(alternatives),
        lacks=tuple(dict.fromkeys(lacks)),
    )


def _unsaved(planned: PlannedSet, system: System) -> str:
    """Why system calls cannot be recorded by these formats, "" if they can: any kernel has them."""
    if planned.syscalls is None or system.tracepoints.events("syscalls"):
        return ""
    return no_group("syscalls")


def _loaded(cell: Cell, way: Way, planned: PlannedSet, system: System) -> Cell:
    try:
        count = load_planned(planned, number(layouts_of(way.alternative)), system)
    except LoadError as error:
        why = error.log.strip().splitlines()[-1:] or [str(error)]
        return msgspec.structs.replace(
            cell, result="refused", lacks=(f"{error.program or 'source'}: {why[0]}",), programs=0
        )
    except FencepathError as error:
        return msgspec.structs.replace(cell, result="refused", lacks=(str(error),), programs=0)
    return msgspec.structs.replace(cell, programs=count)
