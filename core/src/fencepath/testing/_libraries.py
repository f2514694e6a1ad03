# SPDX-License-Identifier: Apache-2.0
"""Whether the functions of a call table are in its library: what is misspelt would be recorded by nobody."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fencepath._libraries import ElfImage, NotElfError, find_known
from fencepath._loader import LoadedPlugin
from fencepath._record.uprobes import SITE_GLOBS
from fencepath.calls import CallTable, Function
from fencepath.errors import UsageError
from fencepath.plugin import CallProbe, Check
from fencepath.system import SavedSymbols, System
from fencepath.testing._declared import ways

__all__ = ["functions_are_in_libraries"]

_NAME = "functions are in the library"
_NAMED = 8
_LISTS = (".txt", ".txt.gz")
_NEAR = 3
"""Names whose lengths differ by more are not meant; a library may have a hundred thousand."""


def functions_are_in_libraries(plugin: LoadedPlugin, system: System, libraries: Sequence[Path] = ()) -> Iterator[Check]:
    """Look the functions of the layer's call table up; nothing if it has none.

    Args:
        plugin: whose table.
        system: what its probes are asked for.
        libraries: files to look in; by default what the loader of this machine would find by the table's file names.

    Raises:
        UsageError: one of `libraries` is no ELF file.
    """
    tables = {
        probe.table.recorded: probe.table
        for way in ways(plugin, system)
        for probe in way.alternative.probes
        if isinstance(probe, CallProbe)
    }
    for table in tables.values():
        yield _look_up(table, [_Library(path) for path in libraries] or list(_installed(table)))


class _Library:
    """Names of the functions of a library, or those in a list of them (``nm -D --defined-only``) called ``.txt`` or ``.txt.gz``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.name.endswith(_LISTS):
            try:
                self.names, self.ifuncs = SavedSymbols(path).names, frozenset[str]()
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error}") from error
            return
        try:
            with ElfImage(path) as image:
                self.names = frozenset(symbol.name for symbol in image.functions())
                self.ifuncs = frozenset(name for table in image.tables.values() for name in table.ifuncs)
        except (OSError, NotElfError) as error:
            raise UsageError(f"{path} cannot be looked into: {error}") from error


def _installed(table: CallTable) -> Iterator[_Library]:
    found = find_known(table.libraries, command=sys.executable, environ=os.environ, site_globs=SITE_GLOBS)
    yield from (_Library(Path(library.path)) for library in found)


def _look_up(table: CallTable, libraries: Sequence[_Library]) -> Check:
    if not libraries:
        evidence = (
            f"there is no {' or '.join(table.libraries)} here, so they were not looked up; name one by --library PATH"
        )
        return Check(name=_NAME, verdict="warn", evidence=evidence)
    names = frozenset[str]().union(*(library.names for library in libraries))
    places = " or ".join(str(library.path) for library in libraries)
    there = [function for function in table.functions if names.intersection(function.symbols)]
    apis = {function.api for function in there}
    lacking = [function for function in table.functions if function not in there and function.api in apis]
    elsewhere = sorted({function.api for function in table.functions} - apis)
    if not there:
        lacking, elsewhere = list(table.functions), []
    said = [f"{len(there)} of {len(table)} functions are in {places}"]
    if lacking:
        more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        said.append(
            f"not there: {', '.join(_lacking(function, libraries, names) for function in lacking[:_NAMED])}{more}"
        )
    if elsewhere:
        said.append(
            f"nothing of the API {', '.join(elsewhere)} is there, so it was not looked up; name its library by --library PATH"
        )
    return Check(
        name=_NAME,
        verdict="degrade" if lacking else "warn" if elsewhere else "ok",
        evidence="; ".join(said),
        cost="calls of these functions are not recorded" if lacking else "",
        remedy="correct the symbol, or add the one that this version has as an alias" if lacking else "",
    )


def _lacking(function: Function, libraries: Sequence[_Library], names: frozenset[str]) -> str:
    if any(library.ifuncs.intersection(function.symbols) for library in libraries):
        return f"{function.name} (an IFUNC, which has no one place to probe)"
    near = [name for name in names if abs(len(name) - len(function.name)) <= _NEAR]
    close = difflib.get_close_matches(function.name, near, 1, 0.8)
    return f"{function.name} (did you mean {close[0]}?)" if close else function.name
