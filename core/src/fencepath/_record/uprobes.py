# SPDX-License-Identifier: Apache-2.0
"""Attaches call tables to every copy of their libraries: known ones before a command starts, others when they are mapped."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
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
from fencepath._record.probed_files import AttachedImage, ProbedFiles
from fencepath._record.programs import LoadedSet
from fencepath._record.return_probes import seccomp_ends_returns
from fencepath.calls import CallTable
from fencepath.errors import FencepathError, MachineError, UsageError
from fencepath.plugin import Detail
from fencepath.records import Layouts

__all__ = ["UprobeAttacher"]

_NAMED = 3
SITE_GLOBS = ("nvidia/*/lib", "torch/lib", "*.libs")

_GONE = ((0, 0, 0), "")
"""Stands among what was seen of a process for its end before anything was."""


class UprobeAttacher:
    """Puts the call programs of loaded sets into library files, each file once.

    Args:
        sets: loaded sets with call tables.
        layouts: of the recording.
        detail: which functions are on.
        exact: record the end of hot asynchronous calls too.
        returns: whether return probes may be used at all.
        note: called with a fact's type and data.
        gap: called with a stage of the loss table and the begin and end, CLOCK_MONOTONIC in ns, of a time in which a library
            was (``attach_gap``) or may have been (``ended_unseen``: its process has ended) mapped without probes.
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
        gap: Callable[[str, int, int], None],
    ) -> None:
        self._sets = [loaded for loaded in sets if loaded.planned.tables]
        self._layouts = layouts
        self._detail: Detail = detail
        self._exact = exact
        self._note = note
        self._gap = gap
        self._images = ImageCache()
        self._probed = ProbedFiles()
        self._seen: set[tuple[int, tuple[int, int, int], str]] = set()
        self._found: dict[str, set[int]] = defaultdict(set)
        self.missing: list[MissingSet] = []
        self._method = uprobe_attach_method() if self._sets else None
        self._returns = returns and not self._harms()
        self._load_ahead()

    def _harms(self) -> bool:
        """Whether return probes could end a program here; then the calls' ends are missing, and that is said."""
        if self._method is None or not seccomp_ends_returns(self._method):
            return False
        why = "this kernel lets seccomp filters refuse return probes, which ends the program: only the begin of calls is recorded"
        self.missing += [MissingSet(table.layer, "returns", why) for _, table in self._tables()]
        return True

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
        return self._probed.images

    def absent(self) -> Iterator[MissingSet]:
        """Yield what the library files do not have, of the APIs of which they have something."""
        for _, table in self._tables():
            found = self._found[table.layer]
            apis = {table.functions[index].api for index in found}
            wanted = (table.index(function.name) for function in table.selected(self._detail) if function.api in apis)
            names = [table.functions[index].name for index in wanted if index not in found]
            if names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                yield MissingSet(table.layer, "functions", f"not in its libraries: {', '.join(names[:_NAMED])}{more}")

    def unseen(self) -> Iterator[MissingSet]:
        """Yield the layers of which no library file was found; to be asked at the end."""
        for _, table in self._tables():
            if not self._found[table.layer]:
                why = f"no {' or '.join(table.libraries)} was found, and no program with its functions"
                yield MissingSet(table.layer, "functions", why)

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
        except UsageError:
            mapped = ()
        except MachineError as error:
            for _, table in self._tables():
                self._miss(table, str(error))
            return
        if not mapped:
            if (pid, *_GONE) not in self._seen:
                self._gap("ended_unseen", since_ns, time.monotonic_ns())
            self._seen.add((pid, *_GONE))
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
            with _held(library) as path:
                attached = self._attach(loaded, table, image, path, library.path_text, library)
        except NotElfError as error:
            self._miss(table, f"{library.path_text}: {error}")
            return
        except MachineError as error:
            if os.path.lexists(library.open_path):
                self._miss(table, f"{library.path_text}: {error}")
            elif not self._probed.knows(table.layer, library):
                self._gap("attach_gap", since_ns, time.monotonic_ns())
            return
        if attached is not None:
            if attached.attached_ns > since_ns:
                self._gap("attach_gap", since_ns, attached.attached_ns)
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

    def _attach(
        self,
        loaded: LoadedSet,
        table: CallTable,
        image: ElfImage,
        path: str,
        shown: str,
        library: MappedLibrary | None = None,
    ) -> AttachedImage | None:
        probed = self._probed.find(table.layer, image, path, library)
        if probed is not None:
            return probed
        before = len(loaded.links)
        try:
            attached, offset = self._attach_table(loaded, table, image, path, shown)
        except FencepathError as error:
            # half of them would be there twice if it went well the next time
            while len(loaded.links) > before:
                loaded.links.pop().close()
            self._miss(table, f"{shown}: {error}")
            return None
        self._probed.add(image, path, offset, attached)
        self._note("image", msgspec.to_builtins(attached))
        return attached

    def _attach_table(
        self, loaded: LoadedSet, table: CallTable, image: ElfImage, path: str, shown: str
    ) -> tuple[AttachedImage, int]:
        """Attach; return what that was and the offset of one of the probes, 0 if there is none."""
        offset = 0
        classes: dict[InstructionClass, list[str]] = defaultdict(list)
        counts: dict[str, int] = defaultdict(int)
        for program in table.programs(self._detail):
            points = {index: self._points(image, table, index) for index in program.functions}
            counts["absent"] += sum(not found for found in points.values())
            self._found[table.layer].update(index for index, found in points.items() if found)
            paired = {i: found for i, found in points.items() if found and self._pairs(table, i)}
            single = {i: found for i, found in points.items() if found and not self._pairs(table, i)}
            # returns first: an entry whose return is not probed yet would stay open for ever
            self._link(loaded, table, program.exit, paired, path, returning=True)
            self._link(loaded, table, program.entry, paired, path, returning=False)
            self._link(loaded, table, program.once, single, path, returning=False)
            counts["functions"] += len(paired) + len(single)
            counts["entry_only"] += len(single)
            for index, point in ((index, point) for index, found in points.items() for point in found):
                classes[point.instruction].append(table.functions[index].name)
                offset = point.offset
        attached = AttachedImage(
            path=shown,
            layer=table.layer,
            build_id=image.build_id or "",
            functions=counts["functions"],
            emulated=len(classes[InstructionClass.EMULATED]),
            stepped=tuple(sorted(set(classes[InstructionClass.STEPPED]))),
            entry_only=counts["entry_only"],
            absent=counts["absent"],
            attached_ns=time.monotonic_ns(),
        )
        return attached, offset

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
        self,
        loaded: LoadedSet,
        table: CallTable,
        program: str,
        points: Mapping[int, list[ProbePoint]],
        path: str,
        *,
        returning: bool,
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
        missed = MissingSet(table.layer, "functions", why)
        if missed not in self.missing:
            self.missing.append(missed)


def _is_named(library: MappedLibrary, table: CallTable) -> bool:
    return any(fnmatch(library.name, pattern) for pattern in table.libraries)


@contextlib.contextmanager
def _held(library: MappedLibrary) -> Generator[str]:
    """Give a path to a mapped file that stays good when the mapping, or its process, goes away.

    Raises:
        MachineError: it has gone already.
    """
    fd = library.open()
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
