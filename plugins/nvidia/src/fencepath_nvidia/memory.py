# SPDX-License-Identifier: Apache-2.0
"""Memory of processes over time, as the driver and as the CUDA API tell it.

Both see the same bytes: the API hands out pieces of what its library took from the driver, and rounds and keeps. They are two
accounts and never added up. Within the driver's account memory that several objects share is counted once, for who allocated it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fencepath.events import Batch
from fencepath.joins import Events
from fencepath_nvidia.kinds import ALLOC, DUP, FREE, MEMORY_ALLOC, MMAP, MUNMAP

__all__ = ["Account", "Balance", "Change", "Objects", "api_changes", "balances", "changes", "driver_changes"]

_CLIENTS = (0x0, 0x1, 0x41)
_DEVICE = 0x80
_PLACES: Mapping[int, str] = {0x3E: "system", 0x3F: "gpu", 0x40: "gpu", 0x71: "pinned", 0: "heap"}
# fencepath_cuda's Place: what cuMemAlloc and its like allocate.
_API_PLACES: Mapping[int, str] = {1: "gpu", 2: "pinned", 3: "managed", 4: "pool", 5: "gpu, by handle"}
_EXIT, _MALLOC, _API_FREE = "process.exit", "cuda.malloc", "cuda.free"

Handle = tuple[int, int]
"""Client and object; a client's own has both equal. Clients are the driver's: no two processes have one of a number."""


class Account(msgspec.Struct, frozen=True, order=True):
    """Whose bytes, and by whose word.

    Attributes:
        tgid: process.
        source: ``driver`` or ``cuda``.
        place: ``gpu``, ``system`` (the host's, for the GPU), ``pinned`` (the program's own), ``uvm`` (ranges of managed memory and
            the like: addresses, not bytes in use), ``heap`` (by an older request that does not say); of the API also ``managed``,
            ``pool`` and ``gpu, by handle``.
        device: which GPU, as the driver counts; -1 if it is not known.
    """

    tgid: int
    source: str
    place: str
    device: int = -1


class Change(msgspec.Struct, frozen=True):
    """Bytes that came or went. ``time_ns`` is CLOCK_MONOTONIC."""

    time_ns: int
    account: Account
    bytes: int


class Balance(msgspec.Struct):
    """An account, as far as it was seen.

    Attributes:
        live_bytes: at the end.
        peak_bytes: most at one time.
        allocated_bytes: all that came.
        freed_bytes: all that went.
        allocations: how often it came.
    """

    live_bytes: int = 0
    peak_bytes: int = 0
    allocated_bytes: int = 0
    freed_bytes: int = 0
    allocations: int = 0

    def add(self, change_bytes: int) -> None:
        """Take a change into account."""
        self.live_bytes += change_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if change_bytes > 0:
            self.allocated_bytes += change_bytes
            self.allocations += 1
        else:
            self.freed_bytes -= change_bytes


def balances(found: Iterable[Change]) -> dict[Account, Balance]:
    """Balance changes, which come by time."""
    result: dict[Account, Balance] = defaultdict(Balance)
    for change in found:
        result[change.account].add(change.bytes)
    return dict(result)


def changes(events: Events) -> list[Change]:
    """Return all changes of both accounts by time."""
    return sorted([*driver_changes(events), *api_changes(events)], key=lambda change: change.time_ns)


class _Memory(msgspec.Struct):
    """Memory that one or more objects stand for."""

    account: Account
    bytes: int
    objects: int = 1


class Objects:
    """The driver's objects as a forest: giving one up gives up what lies under it, and a client all that is its own.

    Attributes:
        changes: of memory, so far.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._parents: dict[Handle, Handle] = {}
        self._children: dict[Handle, set[Handle]] = defaultdict(set)
        self._memory: dict[Handle, _Memory] = {}
        self._devices: dict[Handle, int] = {}
        self._objects: dict[int, set[Handle]] = defaultdict(set)
        self._clients: dict[int, set[int]] = defaultdict(set)

    def add(self, time_ns: int, tgid: int, client: int, parent: int, handle: int) -> Handle:
        """Add an object. One of the same handle, whose end was not seen, is gone."""
        at = (client, handle)
        self.free(time_ns, at)
        self._clients[tgid].add(client)
        self._objects[client].add(at)
        self._parents[at] = (client, parent)
        self._children[client, parent].add(at)
        return at

    def set_device(self, at: Handle, device: int) -> None:
        """Say which GPU an object, and what lies under it, is of."""
        self._devices[at] = device

    def set_memory(self, time_ns: int, at: Handle, tgid: int, place: str, size: int) -> None:
        """Say that an object is memory."""
        account = Account(tgid, "driver", place, self._device_of(at))
        self._memory[at] = _Memory(account, size)
        self.changes.append(Change(time_ns, account, size))

    def share(self, at: Handle, source: Handle) -> None:
        """Say that an object is what another one is."""
        memory = self._memory.get(source)
        if memory is not None:
            memory.objects += 1
            self._memory[at] = memory

    def free(self, time_ns: int, at: Handle) -> None:
        """Give up an object."""
        client, handle = at
        below = [*self._objects.pop(client, ()), at] if client == handle else [at]
        while below:
            each = below.pop()
            below += self._children.pop(each, ())
            self._drop(time_ns, each)

    def end(self, time_ns: int, tgid: int) -> None:
        """Give up all of a process."""
        for client in self._clients.pop(tgid, ()):
            self.free(time_ns, (client, client))

    def _drop(self, time_ns: int, at: Handle) -> None:
        parent = self._parents.pop(at, None)
        if parent in self._children:
            self._children[parent].discard(at)
        if at[0] in self._objects:
            self._objects[at[0]].discard(at)
        self._devices.pop(at, None)
        memory = self._memory.pop(at, None)
        if memory is not None:
            memory.objects -= 1
            if not memory.objects:
                self.changes.append(Change(time_ns, memory.account, -memory.bytes))

    def _device_of(self, at: Handle) -> int:
        seen: set[Handle] = set()
        while at in self._parents and at not in seen:
            seen.add(at)
            if at in self._devices:
                return self._devices[at]
            at = self._parents[at]
        return -1


def driver_changes(events: Events) -> list[Change]:
    """Return what the driver allocated and freed, and ranges of nvidia-uvm, by time.

    Requests that failed, or of which the driver's status is not known, change nothing.
    """
    objects = Objects()
    ranges: dict[tuple[int, int], int] = {}
    for time_ns, kind, row in _by_time(events, _COLUMNS):
        if kind == _EXIT:
            if row["tid"] == row["tgid"]:
                objects.end(time_ns, row["tgid"])
                objects.changes += _end_ranges(ranges, time_ns, row["tgid"])
        elif kind in (MMAP, MUNMAP):
            objects.changes += _range_change(ranges, time_ns, kind, row)
        elif row["rm_status"] == 0:
            _apply(objects, time_ns, kind, row)
    return objects.changes


_COLUMNS: Mapping[str, tuple[str, ...]] = {
    ALLOC: ("tgid", "rm_status", "client", "parent", "object", "object_class", "device_id"),
    MEMORY_ALLOC: ("tgid", "rm_status", "client", "parent", "object", "object_class", "size_bytes"),
    DUP: ("tgid", "rm_status", "client", "parent", "object", "source_client", "source_object"),
    FREE: ("tgid", "rm_status", "client", "object"),
    MMAP: ("tgid", "status", "label", "address", "length_bytes", "device"),
    MUNMAP: ("tgid", "status", "address", "device"),
    _EXIT: ("tgid", "tid"),
}


def _apply(objects: Objects, time_ns: int, kind: str, row: Mapping[str, int]) -> None:
    client, handle = row["client"], row["object"]
    if kind == FREE:
        objects.free(time_ns, (client, handle))
        return
    if kind == ALLOC and row["object_class"] in _CLIENTS:
        client = handle
    at = objects.add(time_ns, row["tgid"], client, row["parent"], handle)
    if kind == DUP:
        objects.share(at, (row["source_client"], row["source_object"]))
    elif kind == MEMORY_ALLOC:
        place = _PLACES.get(row["object_class"], f"class {row['object_class']:#06x}")
        objects.set_memory(time_ns, at, row["tgid"], place, row["size_bytes"])
    elif row["object_class"] == _DEVICE:
        objects.set_device(at, row["device_id"])


_RM_MAJOR = 195
_MINOR_BITS = 20


def _range_change(
    ranges: dict[tuple[int, int], int], time_ns: int, kind: str, row: Mapping[str, int]
) -> Iterator[Change]:
    if row["device"] >> _MINOR_BITS == _RM_MAJOR:
        # memory of the resource manager, counted where it was allocated
        return
    key = (row["tgid"], row["address"])
    account = Account(row["tgid"], "driver", "uvm")
    if kind == MMAP and row["address"]:
        ranges[key] = row["length_bytes"]
        yield Change(time_ns, account, row["length_bytes"])
    elif kind == MUNMAP and row["status"] == 0 and key in ranges:
        yield Change(time_ns, account, -ranges.pop(key))


def _end_ranges(ranges: dict[tuple[int, int], int], time_ns: int, tgid: int) -> Iterator[Change]:
    for key in [key for key in ranges if key[0] == tgid]:
        yield Change(time_ns, Account(tgid, "driver", "uvm"), -ranges.pop(key))


def api_changes(events: Events) -> list[Change]:
    """Return what calls of the CUDA API allocated and freed, by time; only calls that are known to have succeeded."""
    found: list[Change] = []
    live: dict[tuple[int, int], Change] = {}
    columns = ("tgid", "result", "returned", "address", "place")
    for time_ns, kind, row in _by_time(events, {_MALLOC: (*columns, "bytes"), _API_FREE: columns}):
        if not row["returned"] or row["result"] or not row["address"]:
            continue
        key = (row["tgid"], row["address"])
        if kind == _API_FREE:
            gone = live.pop(key, None)
            found += [Change(time_ns, gone.account, -gone.bytes)] if gone is not None else []
        elif row["place"] in _API_PLACES:
            account = Account(row["tgid"], "cuda", _API_PLACES[row["place"]])
            live[key] = Change(time_ns, account, row["bytes"])
            found.append(live[key])
    return found


def _by_time(events: Events, columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, str, dict[str, int]]]:
    """Rows of several kinds by time; of equal times in the order of the kinds."""
    rows: list[tuple[int, str, dict[str, int]]] = []
    for kind, names in columns.items():
        rows += ((time_ns, kind, row) for time_ns, row in _rows(events.batch(kind), names))
    yield from sorted(rows, key=lambda row: row[0])


def _rows(batch: Batch, names: Sequence[str]) -> Iterator[tuple[int, dict[str, int]]]:
    if not len(batch):
        return
    plain = zip(*(batch[name].tolist() for name in names), strict=True)
    for time_ns, values in zip(batch["time_ns"].tolist(), plain, strict=True):
        yield time_ns, dict(zip(names, values, strict=True))
