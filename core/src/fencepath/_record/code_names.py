# SPDX-License-Identifier: Apache-2.0
"""Names of functions whose addresses are in call records, found while recording: afterwards their files may be gone.

The recorder's own thread only collects addresses and opens files. Symbol tables are read in another one, which ends with the
recording, however much is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencepath._libraries import ElfImage, FoundName, MappedLibrary, NotElfError, Registering, find_names
from fencepath._record.declared_code import AddressColumn, LayerCode
from fencepath._record.mappings import CodeMappings, Mapped
from fencepath._record.plan import MissingSet
from fencepath.errors import MachineError
from fencepath.records import Records

__all__ = ["CodeNames"]

LIMIT = 20_000
"""Most distinct addresses of functions. A program has some thousand kernels."""
FILES_LIMIT = 64
"""Most files that are looked into, each with one open descriptor."""
LAST_WAIT_S = 5.0
"""How long the end of a recording waits for names."""
_NAME_BYTES = 4096


class _Job(NamedTuple):
    """Offsets in a file; the descriptor comes with the first job of a module."""

    module: int
    shown: str
    fd: int | None
    offsets: tuple[int, ...]


class CodeNames:
    """Collects addresses from records and writes the facts ``code_name`` {module, offset, name, how}.

    Args:
        codes: what the layers say.
        mappings: what the targets have mapped.
        note: called with a fact's type and data.
    """

    def __init__(
        self, codes: Iterable[LayerCode], mappings: CodeMappings, note: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        self._mappings = mappings
        self._note = note
        self._columns: dict[str, list[AddressColumn]] = defaultdict(list)
        self._layers: list[str] = []
        registering: list[Registering] = []
        for table, use in codes:
            self._layers += [table.layer] if use.addresses else []
            for declared in use.addresses:
                self._columns[declared.kind] += [
                    AddressColumn(table, declared.kind, column) for column in declared.columns
                ]
            registering += [Registering(made.symbol, made.address, made.name) for made in use.registrations]
        self._finder = _Finder(registering)
        self._known: dict[int, set[int]] = defaultdict(set)
        self._collected = 0
        self._full = False
        self._waiting: dict[tuple[int, int], bool] = {}
        self._asked: set[tuple[int, int]] = set()
        self._opened: set[int] = set()
        self._left_out = 0

    def missing(self) -> Iterator[MissingSet]:
        """Yield what was not looked for; to be asked at the end."""
        for layer in self._layers:
            if self._full:
                yield MissingSet(
                    layer, "names", f"more than {LIMIT} addresses of functions: the later ones have no names"
                )
            if self._left_out:
                why = "not looked up, as they are in no file, it was gone, there were too many, or time ran out"
                yield MissingSet(layer, "names", f"{self._left_out} addresses of functions were {why}")

    def take(self, kind: str, records: Records) -> None:
        """Collect the addresses in records of a kind."""
        for column in self._columns.get(kind, ()):
            for pid, address in column.addresses(records):
                if address not in self._known[pid]:
                    self._collect(pid, address)

    def _collect(self, pid: int, address: int) -> None:
        if self._collected >= LIMIT:
            self._full = True
            return
        self._collected += 1
        self._known[pid].add(address)
        self._waiting[pid, address] = False

    def forget(self, pid: int) -> None:
        """Take addresses of a process for new ones, after it became another program, or ended."""
        self._known.pop(pid, None)

    def ask(self) -> None:
        """Have names looked for, and write those that were found; to be called now and then, after maps were looked at.

        An address in a mapping that has not been seen gets one more chance at the next call.
        """
        wanted: dict[int, tuple[MappedLibrary, set[int]]] = {}
        for (pid, address), again in [*self._waiting.items()]:
            mapped = self._mappings.find(pid, address)
            if mapped is None and not again:
                self._waiting[pid, address] = True
                continue
            del self._waiting[pid, address]
            if mapped is not None and mapped.mapping.is_file and mapped.module >= 0:
                self._want(mapped, mapped.mapping.file_offset(address), wanted)
            else:
                self._left_out += 1
        for module, (mapping, offsets) in wanted.items():
            self._send(module, mapping, tuple(sorted(offsets)))
        self._write()

    def _want(self, mapped: Mapped, offset: int, wanted: dict[int, tuple[MappedLibrary, set[int]]]) -> None:
        if (mapped.module, offset) not in self._asked:
            self._asked.add((mapped.module, offset))
            wanted.setdefault(mapped.module, (mapped.mapping, set()))[1].add(offset)

    def _send(self, module: int, mapping: MappedLibrary, offsets: tuple[int, ...]) -> None:
        fd: int | None = None
        if module not in self._opened:
            if len(self._opened) < FILES_LIMIT:
                with contextlib.suppress(MachineError, OSError):
                    fd = _open(mapping)
            if fd is None:
                self._left_out += len(offsets)
                self._asked.difference_update((module, offset) for offset in offsets)
                return
            self._opened.add(module)
        self._finder.send(_Job(module, mapping.shown, fd, offsets))

    def _write(self) -> None:
        for module, names in self._finder.results():
            for offset, found in names.items():
                name = found.name[:_NAME_BYTES].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                self._note("code_name", {"module": module, "offset": offset, "name": name, "how": found.how})

    def finish(self) -> None:
        """Ask for the last addresses, wait for names, though not for long, and write them."""
        self.ask()
        self.ask()
        self._left_out += self._finder.finish(LAST_WAIT_S)
        self._write()

    def close(self) -> None:
        """Have the thread end."""
        self._finder.finish(0.0)


def _open(mapping: MappedLibrary) -> int:
    """Open a mapped file; of a process that has ended by its path, if the same file is there.

    Raises:
        MachineError: it is another one.
        OSError: there is none.
    """
    try:
        return mapping.open()
    except MachineError:
        fd = os.open(mapping.path_text, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(fd)
        if (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino) != mapping.identity:
            os.close(fd)
            raise
        return fd


class _Finder:
    """The thread that reads files. It is started by the first job."""

    def __init__(self, registering: Sequence[Registering]) -> None:
        self._registering = registering
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[int, dict[int, FoundName]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._sent = self._done = 0

    def send(self, job: _Job) -> None:
        """Have offsets looked up."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fencepath-names", daemon=True)
            self._thread.start()
        self._sent += len(job.offsets)
        self._jobs.put(job)

    def results(self) -> list[tuple[int, dict[int, FoundName]]]:
        """Return what was found since the last time, by module."""
        found: list[tuple[int, dict[int, FoundName]]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._found.get_nowait())
        return found

    def finish(self, timeout_s: float) -> int:
        """Wait for all jobs, at most so long; return how many offsets were not looked up."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_s)
            self._stopped.set()
        return self._sent - self._done

    def _work(self) -> None:
        images: dict[int, ElfImage] = {}
        with contextlib.ExitStack() as opened:
            while (job := self._jobs.get()) is not None:
                if self._stopped.is_set():
                    if job.fd is not None:
                        os.close(job.fd)
                    continue
                with contextlib.suppress(NotElfError, OSError):
                    if job.fd is not None:
                        images[job.module] = opened.enter_context(ElfImage(job.fd, job.shown))
                    if job.module in images:
                        self._found.put((job.module, self._names(images[job.module], job.offsets)))
                self._done += len(job.offsets)

    def _names(self, image: ElfImage, offsets: Sequence[int]) -> dict[int, FoundName]:
        return find_names(image, offsets, self._registering, lambda: not self._stopped.is_set())
