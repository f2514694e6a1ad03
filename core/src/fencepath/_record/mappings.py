# SPDX-License-Identifier: Apache-2.0
"""What code each target has mapped, as facts: a call record has the address of its caller, and these say whose code that is.

Facts, in the order in which they were found out (times are CLOCK_MONOTONIC in ns):

- ``module``: {module, kind, path, soname, build_id, device, inode}: a file, or memory of a kind, with its number in the recording.
- ``mapping``: {pid, module, start, end, offset, from_ns, seen_ns}: it is there since `from_ns` or somewhat later.
- ``unmapped``: {pid, start, until_ns}: it is there no longer; `start` is None if that is so of all, after an exec.
- ``mappings_copied``: {pid, parent, time_ns}: a forked process begins with what is known of its parent.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fencepath._libraries import FileHead, MappedLibrary, read_head
from fencepath.errors import MachineError

__all__ = ["CodeMappings", "Mapped"]

LIMIT_OF_PROCESS = 8192
"""Most mappings that are told of one process until it becomes another program. PyTorch has about 300; a just-in-time
compiler may have any number."""
LIMIT = 200_000
"""Most mappings that are told of all processes together, about 30 MB of facts."""
_PERIOD_NS = 10_000_000_000

_Key = tuple[int, int, int, tuple[int, int], int, str]


class Mapped(msgspec.Struct, frozen=True):
    """A mapping with the number of what is in it.

    Attributes:
        module: number of the module's fact.
        mapping: the mapping, as it was seen.
    """

    module: int
    mapping: MappedLibrary


class _Seen:
    """What is known of one process. After a fork two have the same, until one of them gets something else."""

    def __init__(self, known: dict[_Key, Mapped], looked_ns: int) -> None:
        self.known: Mapping[_Key, Mapped] = known
        self.looked_ns = looked_ns
        self.told = 0
        self._own = known
        self._shared = False
        self._sorted: list[Mapped] | None = None

    def forked(self, time_ns: int) -> _Seen:
        """What is known of a new child."""
        child = _Seen(self._own, time_ns)
        self._shared = child._shared = True
        return child

    def change(self, key: _Key, mapped: Mapped | None) -> None:
        """Set what is at a place, or with None that nothing is there any more."""
        if self._shared:
            self.known = self._own = dict(self._own)
            self._shared = False
        if mapped is None:
            del self._own[key]
        else:
            self._own[key] = mapped
        self._sorted = None

    def at(self, address: int) -> Mapped | None:
        if self._sorted is None:
            self._sorted = sorted(self.known.values(), key=lambda mapped: mapped.mapping.start)
        at = bisect_right(self._sorted, address, key=lambda mapped: mapped.mapping.start) - 1
        if at >= 0 and address < self._sorted[at].mapping.end:
            return self._sorted[at]
        return None


class CodeMappings:
    """Keeps what code the targets have mapped. A look that finds nothing new writes nothing.

    Args:
        note: called with a fact's type and data.
        gap: called with a stage of the loss table, begin and end of its window in ns of CLOCK_MONOTONIC, kind and count.
    """

    def __init__(
        self, note: Callable[[str, Mapping[str, Any]], None], gap: Callable[[str, int, int, str, int], None]
    ) -> None:
        self._note = note
        self._gap = gap
        self._processes: dict[int, _Seen] = {}
        self._modules: dict[tuple[Any, ...], int] = {}
        self._told = 0

    def look(self, pid: int, mapped: Iterable[MappedLibrary], since_ns: int, now_ns: int) -> None:
        """Take what a process has mapped.

        Args:
            pid: process.
            mapped: all of it.
            since_ns: before which no file was mapped that was not seen then. Memory is not announced when it becomes executable,
                so what is new of it may have been there since the look before.
            now_ns: time of the look.
        """
        current = {_key(mapping): mapping for mapping in _merged(mapped)}
        # what is there at the first look was there before the recording began
        seen = self._processes.setdefault(pid, _Seen({}, 0))
        since_ns = since_ns if seen.looked_ns else 0
        for key in [key for key in seen.known if key not in current]:
            self._note("unmapped", {"pid": pid, "start": seen.known[key].mapping.start, "until_ns": now_ns})
            seen.change(key, None)
        left_out = sum(
            not self._add(
                pid, seen, mapping, since_ns if _kind(mapping) == "file" else min(since_ns, seen.looked_ns), now_ns
            )
            for key, mapping in current.items()
            if key not in seen.known
        )
        if left_out:
            self._gap("mappings_left_out", seen.looked_ns, now_ns, "", left_out)
        seen.looked_ns = now_ns

    def _add(self, pid: int, seen: _Seen, mapping: MappedLibrary, from_ns: int, now_ns: int) -> bool:
        """Keep a mapping; return whether there was room to tell of it."""
        told = seen.told < LIMIT_OF_PROCESS and self._told < LIMIT
        module = self._module(mapping) if told else -1
        seen.change(_key(mapping), Mapped(module, mapping))
        if told:
            seen.told += 1
            self._told += 1
            data = {"start": mapping.start, "end": mapping.end, "offset": mapping.offset}
            self._note("mapping", {"pid": pid, "module": module, **data, "from_ns": from_ns, "seen_ns": now_ns})
        return told

    def fork(self, child: int, parent: int, time_ns: int) -> None:
        """Take note of a new process, which has what its parent has."""
        before = self._processes.get(parent)
        self._processes[child] = before.forked(time_ns) if before else _Seen({}, time_ns)
        self._note("mappings_copied", {"pid": child, "parent": parent, "time_ns": time_ns})

    def exec(self, pid: int, time_ns: int) -> None:
        """Take note that a process has become another program: all that it had is gone."""
        self._note("unmapped", {"pid": pid, "start": None, "until_ns": time_ns})
        self._processes[pid] = _Seen({}, time_ns)

    def find(self, pid: int, address: int) -> Mapped | None:
        """Return the mapping that an address lies in, as it was seen at the last look; None if it lies in none."""
        seen = self._processes.get(pid)
        return seen.at(address) if seen is not None else None

    def due(self, now_ns: int) -> tuple[int, ...]:
        """Return the process that was not looked at for longest, if that is long ago.

        Code that is in no file (of just-in-time compilers) appears unannounced, and is found by looking now and then.
        """
        pid = min(self._processes, key=self.looked_ns, default=None)
        return () if pid is None or now_ns - self.looked_ns(pid) < _PERIOD_NS else (pid,)

    def looked_ns(self, pid: int) -> int:
        """Return when a process was last looked at, 0 if never."""
        return self._processes[pid].looked_ns if pid in self._processes else 0

    def drop(self, pid: int) -> None:
        """Free what is kept of a process that has ended; what was told of it stays true."""
        self._processes.pop(pid, None)

    @property
    def processes(self) -> tuple[int, ...]:
        """Those of which something is known and that have not been found ended."""
        return tuple(self._processes)

    def _module(self, mapping: MappedLibrary) -> int:
        path, kind = mapping.shown, _kind(mapping)
        head = _head(mapping) if mapping.is_file else FileHead("", "")
        identity = (*mapping.device, mapping.inode) if mapping.is_file else ()
        key = (kind, path, head, identity)
        known = self._modules.get(key)
        if known is not None:
            return known
        number = self._modules[key] = len(self._modules)
        data = {"module": number, "kind": kind, "path": path}
        data |= {"soname": head.soname if head else "", "build_id": head.build_id if head else None}
        data |= {"device": list(mapping.device), "inode": mapping.inode}
        self._note("module", data)
        return number


def _key(mapping: MappedLibrary) -> _Key:
    return mapping.start, mapping.end, mapping.offset, mapping.device, mapping.inode, mapping.path_text


def _kind(mapping: MappedLibrary) -> str:
    if mapping.is_file:
        return "memory" if mapping.path_text.startswith("/memfd:") else "file"
    return "kernel" if mapping.path_text in ("[vdso]", "[vsyscall]", "[uprobes]") else "anonymous"


def _head(mapping: MappedLibrary) -> FileHead | None:
    """What the file says of itself, None if it can no longer be read."""
    with contextlib.suppress(MachineError, OSError):
        fd = mapping.open()
        try:
            return read_head(fd)
        finally:
            os.close(fd)
    return None


def _merged(mappings: Iterable[MappedLibrary]) -> Iterator[MappedLibrary]:
    """Join memory without a file that follows one another: a compiler's pages differ in their rights only."""
    last: MappedLibrary | None = None
    for mapping in mappings:
        if last is not None and _joins(last, mapping):
            last = msgspec.structs.replace(last, end=mapping.end)
            continue
        if last is not None:
            yield last
        last = mapping
    if last is not None:
        yield last


def _joins(first: MappedLibrary, second: MappedLibrary) -> bool:
    in_memory = not first.is_file and not second.is_file
    return in_memory and (first.end, first.path_text) == (second.start, second.path_text)
