# SPDX-License-Identifier: Apache-2.0
"""Attaches call tables to every copy of their libraries: known ones before a command starts, others when they are mapped."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import msgspec

from fencepath._bpf.attach import UprobeMethod, uprobe_attach_method
from fencepath._libraries import (
    JUMP_BYTES,
    ElfImage,
    ImageCache,
    InstructionClass,
    MappedLibrary,
    NotElfError,
    ProbePoint,
    Symbol,
    cheapest_offset,
    executable_mappings,
    find_known,
    first_of_each,
    interpreter_of,
    jump_target,
)
from fencepath._record.call_links import CallLinks
from fencepath._record.plan import MissingSet
from fencepath._record.probed_files import AttachedImage, ProbedFile, ProbedFiles
from fencepath._record.programs import LoadedSet
from fencepath._record.return_probes import seccomp_ends_returns
from fencepath.calls import CallTable
from fencepath.errors import FencepathError, MachineError, UsageError
from fencepath.plugin import Detail
from fencepath.records import Layouts

__all__ = ["UprobeAttacher"]

BY_OFFSET_LIMIT = 1024
"""Most functions of one file that are attached where it has no symbol; libcuda has about 700 functions in all."""
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
        self._detail: Detail = detail
        self._note = note
        self._gap = gap
        self._images = ImageCache()
        self._probed = ProbedFiles()
        self._seen: dict[int, set[tuple[tuple[int, int, int], str]]] = defaultdict(set)
        self.stopped = False
        self._found: dict[str, set[int]] = defaultdict(set)
        self.missing: list[MissingSet] = []
        self._links = self._call_links(layouts, exact=exact, returns=returns) if self._sets else None
        self._load_ahead()

    def _call_links(self, layouts: Layouts, *, exact: bool, returns: bool) -> CallLinks:
        method = uprobe_attach_method()
        returns = returns and not self._harms(method)
        return CallLinks(layouts, self._detail, exact=exact, returns=returns, method=method)

    def _harms(self, method: UprobeMethod) -> bool:
        """Whether return probes could end a program here; then the calls' ends are missing, and that is said."""
        if not seccomp_ends_returns(method):
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
                        self._linker.load(loaded, function)

    @property
    def _linker(self) -> CallLinks:
        assert self._links is not None  # nothing is attached without call tables
        return self._links

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
                yield MissingSet(table.layer, "functions", f"not in its libraries: {', '.join(names)}")

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

    def attach_process(self, pid: int, since_ns: int) -> tuple[MappedLibrary, ...]:
        """Attach to the libraries that a process has mapped and that have no probes yet.

        Args:
            pid: process.
            since_ns: CLOCK_MONOTONIC before which it has mapped nothing that was not looked at. What it called from then on
                in a library without probes is not recorded: that is the gap.

        Returns:
            Everything that it has mapped executable; nothing if that could not be seen, or if there is no call table.
        """
        if not self._sets:
            return ()
        try:
            everything = executable_mappings(pid)
        except UsageError:
            everything = ()
        except MachineError as error:
            for _, table in self._tables():
                self._miss(table, str(error))
            return ()
        mapped = first_of_each(everything)
        if not mapped:
            if _GONE not in self._seen[pid]:
                self._gap("ended_unseen", since_ns, time.monotonic_ns())
            self._seen[pid].add(_GONE)
            return ()
        new = [library for library in mapped if (library.identity, library.path_text) not in self._seen[pid]]
        self._seen[pid].update((library.identity, library.path_text) for library in new)
        # those told by their names come first, as each of the others has to be read
        for wanted in (_is_named, self._is_static):
            for library in new:
                for loaded, table in self._tables():
                    if wanted(library, table):
                        self._attach_mapped(loaded, table, library, since_ns)
        return everything

    def without_probe(self, layer: str, library: MappedLibrary, addresses: Iterable[int]) -> list[int]:
        """Return those addresses, in a mapped library that has probes of a layer, at which no probed function begins.

        One at which a jump to a probed function stands is left out: a call of it is recorded there.
        """
        try:
            image = self._images.image(library)
            with _held(library) as path:
                probed = self._probed.find(layer, image, path, library)
        except (NotElfError, MachineError):
            return []
        if probed is None:
            return []
        places = ((address, library.file_offset(address)) for address in addresses)
        return [
            address
            for address, offset in places
            if probed.functions.isdisjoint((offset, jump_target(image.read_code(offset, JUMP_BYTES), offset)))
        ]

    def attach_at(self, layer: str, library: MappedLibrary, functions: Mapping[int, str]) -> dict[int, int]:
        """Attach functions of a layer's table at addresses that are no symbols.

        Args:
            layer: whose table.
            library: a mapping of a library that has probes of this layer.
            functions: names in the table, by the addresses of :meth:`without_probe`. Those that the table does not have, or
                that are not on at this detail, are passed over.

        Returns:
            For each address that was attached, when, CLOCK_MONOTONIC in ns.
        """
        loaded, table = next(pair for pair in self._tables() if pair[1].layer == layer)
        wanted = {symbol: index for index in self._on(table) for symbol in table.functions[index].symbols}
        places = {address: wanted[name] for address, name in functions.items() if name in wanted}
        try:
            image = self._images.image(library)
            with _held(library) as path:
                probed = self._probed.find(layer, image, path, library)
                if probed is None or not places:
                    return {}
                if len(probed.attached.by_offset) + len(places) > BY_OFFSET_LIMIT:
                    self._miss(
                        table, f"{library.shown}: it hands out over {BY_OFFSET_LIMIT} functions without a symbol"
                    )
                    return {}
                points: dict[int, list[ProbePoint]] = defaultdict(list)
                for address, index in places.items():
                    offset = library.file_offset(address)
                    points[index].append(cheapest_offset(image, Symbol("", offset, offset, 0)))
                self._linker.attach(loaded, table, points, path)
        except FencepathError as error:
            self._miss(table, f"{library.shown}: {error}")
            return {}
        attached_ns = time.monotonic_ns()
        self._found[layer].update(points)
        for index, found in points.items():
            self._keep_more(
                probed, table.functions[index].name, [point.function_offset for point in found], attached_ns
            )
        return dict.fromkeys(places, attached_ns)

    def _keep_more(self, probed: ProbedFile, function: str, offsets: Sequence[int], attached_ns: int) -> None:
        probed.add(function, offsets)
        data = {"layer": probed.attached.layer, "path": probed.attached.path, "build_id": probed.attached.build_id}
        for offset in offsets:
            self._note("by_offset", {**data, "function": function, "offset": offset, "attached_ns": attached_ns})

    def forget(self, pid: int) -> None:
        """Look at all mappings of a process again, after it became another program."""
        self._seen.pop(pid, None)

    def stop(self) -> None:
        """Attach nothing more: all probes are about to be detached, for good."""
        self.stopped = True

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
                attached = self._attach(loaded, table, image, path, library.shown, library)
        except NotElfError as error:
            self._miss(table, f"{library.shown}: {error}")
            return
        except MachineError as error:
            if os.path.lexists(library.open_path):
                self._miss(table, f"{library.shown}: {error}")
            elif not self._probed.knows(table.layer, library):
                self._gap("attach_gap", since_ns, time.monotonic_ns())
            return
        if attached is None and self.stopped:
            self._gap("attach_gap", since_ns, time.monotonic_ns())
        if attached is not None:
            if attached.attached_ns > since_ns:
                self._gap("attach_gap", since_ns, attached.attached_ns)
            self._note(
                "library",
                {
                    "pid": library.pid,
                    "path": library.shown,
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
            return probed.attached
        if self.stopped:
            return None
        try:
            points = {index: found for index in self._on(table) if (found := self._points(image, table, index))}
            self._linker.attach(loaded, table, points, path)
        except FencepathError as error:
            self._miss(table, f"{shown}: {error}")
            return None
        self._found[table.layer].update(points)
        return self._keep(table, image, path, shown, points)

    def _keep(
        self, table: CallTable, image: ElfImage, path: str, shown: str, points: Mapping[int, list[ProbePoint]]
    ) -> AttachedImage:
        """Remember that a file has probes, and tell."""
        attached_ns = time.monotonic_ns()
        every = [(table.functions[index].name, point) for index, found in points.items() for point in found]
        stepped = {name for name, point in every if point.instruction is InstructionClass.STEPPED}
        attached = AttachedImage(
            path=shown,
            layer=table.layer,
            build_id=image.build_id or "",
            functions=len(points),
            emulated=sum(point.instruction is InstructionClass.EMULATED for _, point in every),
            stepped=tuple(sorted(stepped)),
            entry_only=sum(not self._linker.pairs(table, index) for index in points),
            absent=len(self._on(table)) - len(points),
            attached_ns=attached_ns,
        )
        offset = every[0][1].offset if every else 0
        self._probed.add(image, path, offset, [point.function_offset for _, point in every], attached)
        self._note("image", msgspec.to_builtins(attached))
        return attached

    def _on(self, table: CallTable) -> list[int]:
        return [table.index(function.name) for function in table.selected(self._detail)]

    def _points(self, image: ElfImage, table: CallTable, index: int) -> list[ProbePoint]:
        """Where a function's symbols are, each place once."""
        points: dict[int, ProbePoint] = {}
        for symbol in image.defined(table.functions[index].symbols):
            point = cheapest_offset(image, symbol)
            points.setdefault(point.offset, point)
        return list(points.values())

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
