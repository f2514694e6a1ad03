# SPDX-License-Identifier: Apache-2.0
"""All that plugins want from system calls, checked and numbered, and the rows of BPF maps made of it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepath._syscalls.declare import (
    SIZES,
    SLOTS,
    Argument,
    Entry,
    IoctlDecoder,
    SyscallProbe,
    Value,
    check_entry,
    values_at,
)
from fencepath._syscalls.decode import row_text
from fencepath._syscalls.devices import DeviceClass
from fencepath.records import INTERVAL, Field, RecordLayout

__all__ = ["KEY_BYTES", "ROW_BYTES", "Row", "SyscallTable", "syscall_layout"]

_RAW, _MEMORY, _VIA = 1, 2, 3
_NULLABLE = 1
_ALL, _COMMAND, _TYPE_NUMBER, _SIZED, _WHERE = range(5)
_SELECTS, _WRAPS, _MAPS, _UNMAPS = 1, 2, 4, 8
_SLOT = struct.Struct("<BBBBHH")
_ROW = struct.Struct(f"<HHIHHHH{2 * SLOTS * _SLOT.size}s")
_KEY = struct.Struct("<HBBII")

ROW_BYTES = _ROW.size
"""``struct fp_syscall_row``."""
KEY_BYTES = _KEY.size
"""``struct fp_syscall_key``."""


class Row(msgspec.Struct, frozen=True):
    """What is recorded for one decoder or probe.

    Attributes:
        kind: event kind.
        function: index among the rows of its kind, as in the records.
        name: of the request or system call.
        entry: names of the values in ``before``.
        returned: names of the values in ``after``.
    """

    kind: str
    function: int
    name: str
    entry: tuple[str, ...]
    returned: tuple[str, ...]


def syscall_layout(kind: str) -> RecordLayout:
    """Return the layout of records of system calls: 128 bytes, the same for every kind.

    Fields behind :data:`INTERVAL`: ``function``: index of the row among the kind's; ``fd``: -1 if the call has none;
    ``device``: ``major << 20 | minor`` of the character device behind fd, else 0; ``command``: of an ioctl;
    ``argument``: of an ioctl, an address of the process; ``status``: what the system call returned, a negative errno if
    it failed (-512 to -516: interrupted by a signal, and restarted or ended after it); ``before`` and ``after``: the
    row's values, zero extended.
    """
    fields = {
        "function": "u32",
        "fd": "s32",
        "device": "u32",
        "command": "u32",
        "argument": "u64",
        "status": "s64",
        "before": f"u64[{SLOTS}]",
        "after": f"u64[{SLOTS}]",
    }
    return RecordLayout(kind, (*INTERVAL, *(Field(name, type_) for name, type_ in fields.items())))


class SyscallTable:
    """All that plugins want from system calls, checked and numbered.

    Args:
        devices: classes that the decoders and probes name.
        ioctls: decoders.
        probes: other system calls.

    Raises:
        ValueError: if an entry contradicts itself or another one.
    """

    def __init__(
        self,
        devices: Sequence[DeviceClass] = (),
        ioctls: Sequence[IoctlDecoder] = (),
        probes: Sequence[SyscallProbe] = (),
    ) -> None:
        self.devices = tuple(devices)
        self.entries: tuple[Entry, ...] = (*ioctls, *probes)
        # Class 0 is "any".
        self._classes = {device.name: number for number, device in enumerate(self.devices, 1)}
        if len(self._classes) != len(self.devices):
            raise ValueError("two device classes have one name")
        for entry in self.entries:
            check_entry(entry)
        self.rows = tuple(self._number_rows())
        self._selects = self._find_selections()
        self._match: dict[bytes, int] = {}
        for index, entry in enumerate(self.entries):
            if isinstance(entry, SyscallProbe) and entry.source not in (None, self.sources[entry.syscall]):
                raise ValueError(f"{entry.syscall}: its {_say(self.sources[entry.syscall])} elsewhere")
            if self._match.setdefault(self._key(entry), index) != index:
                raise ValueError(f"{self.rows[index].name} is asked for twice")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Event kinds, each once."""
        return tuple(dict.fromkeys(entry.kind for entry in self.entries))

    def recorded(self, kind: str) -> tuple[str, ...]:
        """Return what a recording's manifest keeps of a kind's rows, in the order of ``function``."""
        return tuple(row_text(row.name, row.entry, row.returned) for row in self.rows if row.kind == kind)

    @classmethod
    def merged(cls, tables: Iterable[SyscallTable]) -> SyscallTable:
        """Return one table with everything that several want; equal device classes are one.

        Raises:
            ValueError: if two of them contradict each other.
        """
        devices: dict[str, DeviceClass] = {}
        entries: list[Entry] = []
        for table in tables:
            for device in table.devices:
                if devices.setdefault(device.name, device) != device:
                    raise ValueError(f"two plugins mean different devices by {device.name}")
            entries += table.entries
        return cls(
            tuple(devices.values()),
            [entry for entry in entries if isinstance(entry, IoctlDecoder)],
            [entry for entry in entries if isinstance(entry, SyscallProbe)],
        )

    @property
    def sources(self) -> dict[str, tuple[str, int] | None]:
        """System calls that have to be traced, with what tells the device (:attr:`SyscallProbe.source`)."""
        found: dict[str, tuple[str, int] | None] = {}
        for entry in self.entries:
            if isinstance(entry, IoctlDecoder):
                found["ioctl"] = ("fd", 0)
            elif found.setdefault(entry.syscall, entry.source) is None:
                found[entry.syscall] = entry.source
        return found

    @property
    def syscalls(self) -> dict[str, int | None]:
        """System calls that have to be traced, with the index of the argument that is the fd, None if none is."""
        return {name: source[1] if source and source[0] == "fd" else None for name, source in self.sources.items()}

    @property
    def matches(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of the map that finds a row."""
        return ((key, struct.pack("<I", row)) for key, row in self._match.items())

    def device_class(self, name: str) -> int:
        """Number of a device class in the map of devices."""
        return self._classes[name]

    def row_bytes(self, index: int, kind_number: int) -> bytes:
        """Return ``struct fp_syscall_row`` of one row."""
        entry = self.entries[index]
        slots = [b"".join(_slot(value) for value in values_at(entry.values, when)) for when in ("entry", "return")]
        packed = b"".join(part.ljust(SLOTS * _SLOT.size, b"\0") for part in slots)
        how, places = self._how(entry)
        return _ROW.pack(kind_number, how, self.rows[index].function, *places, packed)

    def _how(self, entry: Entry) -> tuple[int, tuple[int, int, int, int]]:
        """Bits of a row, and its offsets: of the number that selects, and of a wrapped request."""
        if isinstance(entry, SyscallProbe):
            return (_MAPS if entry.maps else 0) | (_UNMAPS if entry.address is not None else 0), (0, 0, 0, 0)
        if entry.wraps is not None:
            return _WRAPS, (0, entry.wraps.number, entry.wraps.size, entry.wraps.pointer)
        selects = self._selects.get(entry.request) if entry.where is None else None
        return (_SELECTS, (selects[1], 0, 0, 0)) if selects else (0, (0, 0, 0, 0))

    def _find_selections(self) -> dict[tuple[object, ...], tuple[int, int]]:
        """By request: index of the decoder that has no `where`, and the offset that the others look at."""
        bases = {
            entry.request: (index, entry)
            for index, entry in enumerate(self.entries)
            if isinstance(entry, IoctlDecoder) and entry.where is None
        }
        found: dict[tuple[object, ...], tuple[int, int]] = {}
        for entry in self.entries:
            if not isinstance(entry, IoctlDecoder) or entry.where is None:
                continue
            if entry.request not in bases:
                raise ValueError(f"{entry.name}: a decoder of the same request is needed for all other numbers")
            index, base = bases[entry.request]
            if base.wraps is not None:
                raise ValueError(f"{entry.name}: it cannot both carry another request and be told by a number")
            if found.setdefault(entry.request, (index, entry.where.offset)) != (index, entry.where.offset):
                raise ValueError(f"{entry.name}: other decoders of the request look at another offset")
        return found

    def _number_rows(self) -> Iterator[Row]:
        counts: dict[str, int] = {}
        for entry in self.entries:
            function = counts.setdefault(entry.kind, 0)
            counts[entry.kind] += 1
            names = [tuple(value.name for value in values_at(entry.values, when)) for when in ("entry", "return")]
            name = entry.name if isinstance(entry, IoctlDecoder) else entry.syscall
            yield Row(entry.kind, function, name, names[0], names[1])

    def _key(self, entry: Entry) -> bytes:
        """``struct fp_syscall_key``: index of the system call, device class, how it is matched and with what."""
        if isinstance(entry, SyscallProbe):
            return _KEY.pack(self._index(entry.syscall), self._class_of(entry.device), _ALL, 0, 0)
        how, what, base = _ALL, 0, 0
        if entry.where is not None:
            how, what, base = _WHERE, entry.where.value, self._selects[entry.request][0]
        elif entry.command is not None:
            how, what = _COMMAND, entry.command
        elif entry.type is not None and entry.number is not None:
            how, what = _TYPE_NUMBER, entry.type << 8 | entry.number
            if entry.size is not None:
                how, what = _SIZED, entry.size << 16 | what
        return _KEY.pack(self._index("ioctl"), self._class_of(entry.device), how, what, base)

    def _index(self, syscall: str) -> int:
        return list(self.sources).index(syscall)

    def _class_of(self, device: str) -> int:
        if device and device not in self._classes:
            raise ValueError(f"no device class is called {device}")
        return self._classes[device] if device else 0


def _say(source: tuple[str, int] | None) -> str:
    return f"{source[0]} is argument {source[1]}" if source else "fd is not known"


def _slot(value: Value) -> bytes:
    if isinstance(value, Argument):
        return _SLOT.pack(_RAW, value.index, 8, 0, 0, 0)
    how = _MEMORY if value.via is None else _VIA
    flags = _NULLABLE if value.nullable else 0
    return _SLOT.pack(how, value.argument, SIZES[value.type], flags, value.offset, value.via or 0)
