# SPDX-License-Identifier: Apache-2.0
"""Looks the functions of call tables up in the library copies of a process, or in those that the search finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch

from fencepath._doctor.state import Library
from fencepath._libraries import (
    ElfImage,
    InstructionClass,
    MappedLibrary,
    NotElfError,
    cheapest_offset,
    executable_mappings,
    find_known,
    first_of_each,
)
from fencepath._loader import Registry
from fencepath._record.uprobes import SITE_GLOBS
from fencepath.calls import CallTable
from fencepath.errors import FencepathError, MachineError
from fencepath.plugin import Detail

__all__ = ["call_tables", "count_functions", "installed_libraries", "mapped_libraries"]


def call_tables(registry: Registry) -> tuple[CallTable, ...]:
    """Return the call tables of all layers."""
    return tuple(table for _, table in registry.items("fencepath_call_tables"))


def count_functions(tables: Iterable[CallTable], detail: Detail) -> tuple[int, int]:
    """Return how many functions are on at a detail, and how many of them get a return probe."""
    selected = [function for table in tables for function in table.selected(detail)]
    return len(selected), sum(not function.entry_only for function in selected)


def mapped_libraries(tables: Iterable[CallTable], pid: int, detail: Detail) -> Iterator[Library]:
    """Yield what a process has mapped of the tables' libraries, and itself if it has their functions in it."""
    try:
        mapped = first_of_each(executable_mappings(pid))
    except FencepathError:
        return  # said by the rule on its mappings
    for table in tables:
        for library in mapped:
            named = _is_named(library.name, table)
            if named or ".so" not in library.name:
                found = _mapped(table, library, detail)
                if found is not None and (named or found.linked_in):
                    yield found


def installed_libraries(tables: Iterable[CallTable], detail: Detail) -> Iterator[Library]:
    """Yield the copies of the tables' libraries that a Python program started here may load."""
    for table in tables:
        known = find_known(table.libraries, command=sys.executable, environ=os.environ, site_globs=SITE_GLOBS)
        for library in known:
            try:
                with ElfImage(library.path) as image:
                    yield _look(table, image, library.path, detail)
            except (OSError, NotElfError) as error:
                yield Library(layer=table.layer, path=library.path, problem=str(error))


def _mapped(table: CallTable, library: MappedLibrary, detail: Detail) -> Library | None:
    try:
        fd = library.open()
    except MachineError as error:
        return Library(layer=table.layer, path=library.shown, problem=str(error))
    try:
        with ElfImage(f"/proc/self/fd/{fd}") as image:
            linked_in = not _is_named(library.name, table)
            if linked_in and not image.is_executable:
                return None
            found = _look(table, image, library.shown, detail, linked_in=linked_in)
            return found if found.found or not linked_in else None
    except NotElfError as error:
        return Library(layer=table.layer, path=library.shown, problem=str(error))
    finally:
        os.close(fd)


def _look(table: CallTable, image: ElfImage, path: str, detail: Detail, *, linked_in: bool = False) -> Library:
    selected = table.selected(detail)
    there = {function.name: symbols for function in selected if (symbols := image.defined(function.symbols))}
    apis = {function.api for function in selected if function.name in there}
    points = [cheapest_offset(image, symbol) for symbols in there.values() for symbol in symbols]
    return Library(
        layer=table.layer,
        path=path,
        build_id=image.build_id or "",
        found=len(there),
        missing=tuple(function.name for function in selected if function.api in apis and function.name not in there),
        lacks_apis=tuple(sorted({function.api for function in selected} - apis)),
        stepped=sum(point.instruction is InstructionClass.STEPPED for point in points),
        linked_in=linked_in,
    )


def _is_named(name: str, table: CallTable) -> bool:
    return any(fnmatch(name, pattern) for pattern in table.libraries)
