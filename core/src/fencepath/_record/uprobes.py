# SPDX-License-Identifier: Apache-2.0
"""Attaches call tables to every copy of their libraries: known ones before a command starts, others when they are mapped."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

import msgspec

from fencepath._bpf.attach import attach_uprobes, uprobe_attach_method
from fencepath._bpf.sys import ProgramType
from fencepath._libraries import (
    ElfImage,
    ImageCache,
    InstructionClass,
    MappedLibrary,
    NotElfError,
    ProbePoint,
    cheapest_offset,
    find_known,
    interpreter_of,
    mapped_libraries,
)
from fencepath._record.plan import MissingSet
from fencepath._record.programs import LoadedSet
from fencepath.calls import CallTable
from fencepath.errors import FencepathError, MachineError, UsageError
from fencepath.plugin import Detail
from fencepath.records import Layouts

__all__ = ["AttachedImage", "UprobeAttacher"]

SITE_GLOBS = ("nvidia/*/lib", "torch/lib", "*.libs")

class AttachedImage(msgspec.Struct, frozen=True):
    """A library file with its probes.

    Attributes:
        path: by which it was found, for display.
        layer: whose functions.
        build_id: hex or "".
        functions: how many of the table are there and attached.
        emulated: how many probes lie on an instruction that the kernel emulates.
        stepped: how many on one that it steps.
        entry_only: how many functions have no return probe.
        absent: how many functions of the table the file does not have.
        attached_ns: CLOCK_MONOTONIC when the last probe was attached.
    """

    path: str
    layer: str
    build_id: str
    functions: int
    emulated: int
    stepped: int
    entry_only: int
    absent: int
    attached_ns: int

class UprobeAttacher:
    """Puts the call programs of loaded sets into library files, each file once.

    Args:
        sets: loaded sets with call tables.
        layouts: of the recording.
        detail: which functions are on.
        exact: record the end of hot asynchronous calls too.
        returns: whether return probes may be used at all.
        note: called with a fact's type and data.
        gap: called with the begin and end, CLOCK_MONOTONIC in ns, of a time in which a library was mapped without probes.
    """

    def __init__(
        self,
        sets: list[LoadedSet],
        layouts: Layouts,
        detail: Detail,
        *,
        exact: bool,
        returns: bool,
        note: Callable[[str, Mapping[str, Any]], None],
        gap: Callable[[int, int], None],
    ) -> None:
        self._sets = [loaded for loaded in sets if loaded.planned.tables]
        self._layouts = layouts
        self._detail = detail
        self._exact = exact
        self._returns = returns
        self._note = note
        self._gap = gap
        self._images = ImageCache()
        self._attached: dict[tuple[str, str], AttachedImage] = {}
        self._seen: set[tuple[int, tuple[int, int, int], str]] = set()
        self.missing: list[MissingSet] = []
        self._method = uprobe_attach_method() if self._sets else None
        self._load_ahead()

    def _load_ahead(self) -> None:
        """Load the programs now: a library that is mapped later has no probes until they are."""
        for loaded, table in self._tables():
            for program in table.programs(self._detail):
                for function in (program.exit, program.entry, program.once):
                    with contextlib.suppress(FencepathError):  # said when it is to be attached
                        self._load(loaded, function)

    def _load(self, loaded: LoadedSet, program: str) -> int:
        assert self._method is not None
        return loaded.bpf.load(program, ProgramType.UPROBE, self._method.attach_type)

    @property
    def images(self) -> tuple[AttachedImage, ...]:
        """Files with probes."""
        return tuple(self._attached.values())

    def attach_known(self, command: str, environ: Mapping[str, str]) -> None:
        """Attach to the library files that a command will probably load, and to itself if it has their functions in it."""
        for loaded, table in self._tables():
            try:
                found = find_known(table.libraries, command=command, environ=environ, site_globs=SITE_GLOBS)
                executable = str(interpreter_of(command, environ))
            except UsageError:
                return
            for path in (executable, *(library.path for library in found)):
                try:
                    with ElfImage(path) as image:
                        if path != executable or self._is_inside(image, table):
                            self._attach(loaded, table, image, path, path)
                except (OSError, NotElfError) as error:
                    if path != executable:
                        self._miss(table, f"{path}: {error}")

    def attach_process(self, pid: int, since_ns: int) -> None:
        """Attach to the libraries that a process has mapped and that have no probes yet.

        Args:
            pid: process.
            since_ns: CLOCK_MONOTONIC before which it has mapped nothing that was not looked at. What it called from then on
                in a library without probes is not recorded: that is the gap.
        """
        if not self._sets:
            return
        try:
            mapped = mapped_libraries(pid)
        except (UsageError, MachineError):
            return
        new = [library for library in mapped if (pid, library.identity, library.path_text) not in self._seen]
        self._seen.update((pid, library.identity, library.path_text) for library in new)
        # those told by their names come first, as each of the others has to be read
        for wanted in (_is_named, self._is_static):
            for library in new:
                for loaded, table in self._tables():
                    if wanted(library, table):
                        self._attach_mapped(loaded, table, library, since_ns)

    def forget(self, pid: int) -> None:
        """Look at all mappings of a process again, after it became another program."""
        self._seen = {key for key in self._seen if key[0] != pid}

    def close(self) -> None:
        """Close files; attachments belong to the loaded sets."""
        self._images.close()

    def _tables(self) -> Iterator[tuple[LoadedSet, CallTable]]:
        for loaded in self._sets:
            for table in loaded.planned.tables:
                yield loaded, table

    def _is_static(self, library: MappedLibrary, table: CallTable) -> bool:
        """Whether an executable has the table's functions linked into it."""
        if ".so" in library.name or _is_named(library, table):
            return False
        try:
            image = self._images.image(library)
        except (NotElfError, MachineError):
            return False
        return self._is_inside(image, table)

    def _is_inside(self, image: ElfImage, table: CallTable) -> bool:
        """Whether a program has functions of the table that are on linked into it."""
        symbols = (symbol for function in table.selected(self._detail) for symbol in function.symbols)
        return image.is_executable and bool(image.defined(symbols))

    def _attach_mapped(self, loaded: LoadedSet, table: CallTable, library: MappedLibrary, since_ns: int) -> None:
        try:
            image = self._images.image(library)
            attached = self._attach(loaded, table, image, library.open_path, library.path_text)
        except (NotElfError, MachineError) as error:
            self._miss(table, f"{library.path_text}: {error}")
            return
        if attached is not None:
            if attached.attached_ns > since_ns:
                self._gap(since_ns, attached.attached_ns)
            self._note(
                "library",
                {
                    "pid": library.pid,
                    "path": library.path_text,
                    "layer": table.layer,
                    "build_id": image.build_id or "",
                    "start": library.start,
                    "end": library.end,
                    "offset": library.offset,
                    "mapped_ns": since_ns,
                    "attached_ns": attached.attached_ns,
                },
            )

    def _attach(self, loaded: LoadedSet, table: CallTable, image: ElfImage, path: str, shown: str) -> AttachedImage | None:
        key = (table.layer, f"{image.identity}:{_inode(path)}")
        if key in self._attached:
            return self._attached[key]
        try:
            attached = self._attach_table(loaded, table, image, path, shown)
        except FencepathError as error:
            self._miss(table, f"{shown}: {error}")
            return None
        self._attached[key] = attached
        self._note("image", msgspec.to_builtins(attached))
        return attached

    def _attach_table(self, loaded: LoadedSet, table: CallTable, image: ElfImage, path: str, shown: str) -> AttachedImage:
        classes: dict[InstructionClass, int] = defaultdict(int)
        counts: dict[str, int] = defaultdict(int)
        for program in table.programs(self._detail):
            points = {index: self._points(image, table, index) for index in program.functions}
            counts["absent"] += sum(not found for found in points.values())
            paired = {i: found for i, found in points.items() if found and self._pairs(table, i)}
            single = {i: found for i, found in points.items() if found and not self._pairs(table, i)}
            # returns first: an entry whose return is not probed yet would stay open for ever
            self._link(loaded, table, program.exit, paired, path, returning=True)
            self._link(loaded, table, program.entry, paired, path, returning=False)
            self._link(loaded, table, program.once, single, path, returning=False)
            counts["functions"] += len(paired) + len(single)
            counts["entry_only"] += len(single)
            for point in (point for found in points.values() for point in found):
                classes[point.instruction] += 1
        return AttachedImage(
            path=shown,
            layer=table.layer,
            build_id=image.build_id or "",
            functions=counts["functions"],
            emulated=classes[InstructionClass.EMULATED],
            stepped=classes[InstructionClass.STEPPED],
            entry_only=counts["entry_only"],
            absent=counts["absent"],
            attached_ns=time.monotonic_ns(),
        )

    def _pairs(self, table: CallTable, index: int) -> bool:
        function = table.functions[index]
        if not self._returns or not function.no_unwind:
            return False
        return self._exact or not function.entry_only

    def _points(self, image: ElfImage, table: CallTable, index: int) -> list[ProbePoint]:
        """Where a function's symbols are, each place once."""
        points: dict[int, ProbePoint] = {}
        for symbol in image.defined(table.functions[index].symbols):
            point = cheapest_offset(image, symbol)
            points.setdefault(point.offset, point)
        return list(points.values())

    def _link(
        self, loaded: LoadedSet, table: CallTable, program: str, points: Mapping[int, list[ProbePoint]], path: str, *, returning: bool
    ) -> None:
        pairs = [
            (point.offset, table.cookie(index, self._layouts.number(table.functions[index].kind)))
            for index, found in points.items()
            for point in found
        ]
        if not pairs:
            return
        fd = self._load(loaded, program)
        offsets, cookies = zip(*pairs, strict=True)
        loaded.links.append(attach_uprobes(fd, path, offsets, cookies, returning=returning, method=self._method))

    def _miss(self, table: CallTable, why: str) -> None:
        self.missing.append(MissingSet(table.layer, "functions", why))


def _is_named(library: MappedLibrary, table: CallTable) -> bool:
    return any(fnmatch(library.name, pattern) for pattern in table.libraries)


def _inode(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}"

