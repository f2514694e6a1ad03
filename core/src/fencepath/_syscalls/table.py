# SPDX-License-Identifier: Apache-2.0
"""What plugins want from system calls, as data, and the rows of BPF maps made of it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from fencepath._syscalls.decode import row_text
from fencepath._syscalls.devices import DeviceClass
from fencepath.records import INTERVAL, Field, RecordLayout

__all__ = ["SLOTS", "Argument", "IoctlDecoder", "Read", "Row", "SyscallProbe", "SyscallTable", "syscall_layout"]

SLOTS = 4
"""Values that are taken at entry, and again as many at return."""

_SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
_ARGUMENTS = 6
_RAW, _MEMORY, _VIA = 1, 2, 3
_SLOT = struct.Struct("<BBBBHH")
_ROW = struct.Struct(f"<HHI{2 * SLOTS * _SLOT.size}s")

When: TypeAlias = Literal["entry", "return"]


class Read(msgspec.Struct, frozen=True):
    """A number in user memory that an argument points to.

    Attributes:
        name: of the value.
        type: ``u8``, ``u16``, ``u32`` or ``u64``.
        offset: from the pointer, bytes.
        when: read at entry, or at return (a driver's own status is often in the argument's structure).
        argument: index of the pointer among the call's arguments; 2 is an ioctl's.
        via: the pointer is not the argument but the u64 at this offset behind it.
    """

    name: str
    type: str
    offset: int
    when: When = "entry"
    argument: int = 2
    via: int | None = None


class Argument(msgspec.Struct, frozen=True):
    """An argument itself, as the register holds it.

    Attributes:
        name: of the value.
        index: 0 to 5.
    """

    name: str
    index: int


Value: TypeAlias = Read | Argument


class IoctlDecoder(msgspec.Struct, frozen=True):
    """One ioctl of a device class, or all that no other decoder of the class is for.

    Attributes:
        kind: event kind of its records.
        device: name of the :class:`DeviceClass`.
        name: of the request, such as ``NV_ESC_RM_CONTROL``.
        type: _IOC_TYPE, such as 0x46.
        number: _IOC_NR. Sizes and directions are not looked at: they change between versions.
        command: the whole command instead, for drivers that do not number as _IOC does (nvidia-uvm).
        values: what is taken, at most :data:`SLOTS` at entry and as many at return.
    """

    kind: str
    device: str
    name: str
    type: int | None = None
    number: int | None = None
    command: int | None = None
    values: tuple[Value, ...] = ()


class SyscallProbe(msgspec.Struct, frozen=True):
    """One system call, of every file or of a device class's.

    Attributes:
        kind: event kind of its records.
        syscall: name as in ``syscalls:sys_enter_<name>``: ``read``, ``poll``, ``newfstat``.
        device: name of the :class:`DeviceClass` its fd must be of, or "" for any.
        fd: index of the argument that is the fd; needed for a device class.
        values: as in :class:`IoctlDecoder`.
    """

    kind: str
    syscall: str
    device: str = ""
    fd: int | None = None
    values: tuple[Value, ...] = ()


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
        self.entries: tuple[IoctlDecoder | SyscallProbe, ...] = (*ioctls, *probes)
        # Class 0 is "any".
        self._classes = {device.name: number for number, device in enumerate(self.devices, 1)}
        if len(self._classes) != len(self.devices):
            raise ValueError("two device classes have one name")
        self.rows = tuple(self._number_rows())
        self._match: dict[bytes, int] = {}
        for index, entry in enumerate(self.entries):
            self._check(entry)
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
        entries: list[IoctlDecoder | SyscallProbe] = []
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
    def syscalls(self) -> dict[str, int | None]:
        """System calls that have to be traced, with the index of the argument that is the fd."""
        found: dict[str, int | None] = {}
        for entry in self.entries:
            if isinstance(entry, IoctlDecoder):
                found["ioctl"] = 0
            elif found.setdefault(entry.syscall, entry.fd) is None:
                found[entry.syscall] = entry.fd
        return found

    @property
    def matches(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of the map that finds a row."""
        return ((key, struct.pack("<I", row)) for key, row in self._match.items())

    def device_class(self, name: str) -> int:
        """Number of a device class in the map of devices."""
        return self._classes[name]

    def row_bytes(self, index: int, kind_number: int) -> bytes:
        """Return ``struct fp_syscall_row`` of one row."""
        values = self.entries[index].values
        slots = [b"".join(_slot(value) for value in _at(values, when)) for when in ("entry", "return")]
        packed = b"".join(part.ljust(SLOTS * _SLOT.size, b"\0") for part in slots)
        return _ROW.pack(kind_number, 0, self.rows[index].function, packed)

    def _number_rows(self) -> Iterator[Row]:
        counts: dict[str, int] = {}
        for entry in self.entries:
            function = counts.setdefault(entry.kind, 0)
            counts[entry.kind] += 1
            names = [tuple(value.name for value in _at(entry.values, when)) for when in ("entry", "return")]
            name = entry.name if isinstance(entry, IoctlDecoder) else entry.syscall
            yield Row(entry.kind, function, name, names[0], names[1])

    def _key(self, entry: IoctlDecoder | SyscallProbe) -> bytes:
        """``struct fp_syscall_key``: index of the system call, device class, how it is matched and with what."""
        if isinstance(entry, SyscallProbe):
            return struct.pack("<HBBI", self._index(entry.syscall), self._class_of(entry.device), 0, 0)
        how, what = 0, 0
        if entry.command is not None:
            how, what = 1, entry.command
        elif entry.type is not None and entry.number is not None:
            how, what = 2, entry.type << 8 | entry.number
        return struct.pack("<HBBI", self._index("ioctl"), self._class_of(entry.device), how, what)

    def _index(self, syscall: str) -> int:
        return list(self.syscalls).index(syscall)

    def _class_of(self, device: str) -> int:
        if device and device not in self._classes:
            raise ValueError(f"no device class is called {device}")
        return self._classes[device] if device else 0

    def _check(self, entry: IoctlDecoder | SyscallProbe) -> None:
        for when in ("entry", "return"):
            if len(_at(entry.values, when)) > SLOTS:
                raise ValueError(f"{entry.kind}: more than {SLOTS} values at {when}")
        for value in entry.values:
            _check_value(entry.kind, value)
        if isinstance(entry, IoctlDecoder):
            if (entry.type is None) != (entry.number is None) or (entry.command is not None and entry.type is not None):
                raise ValueError(f"{entry.name}: give type and number, or command, or neither")
            if not entry.device:
                raise ValueError(f"{entry.name}: an ioctl means nothing without its device class")
        elif entry.device and entry.fd is None:
            raise ValueError(f"{entry.syscall}: say which argument is the fd")
        elif entry.syscall == "ioctl":
            raise ValueError("ioctl: use an IoctlDecoder")
        elif entry.fd != self.syscalls[entry.syscall]:
            raise ValueError(f"{entry.syscall}: its fd is argument {self.syscalls[entry.syscall]} elsewhere")


def _at(values: Sequence[Value], when: str) -> tuple[Value, ...]:
    return tuple(value for value in values if (value.when if isinstance(value, Read) else "entry") == when)


def _check_value(kind: str, value: Value) -> None:
    index = value.argument if isinstance(value, Read) else value.index
    if not 0 <= index < _ARGUMENTS:
        raise ValueError(f"{kind}: {value.name}: a system call has no argument {index}")
    if isinstance(value, Read):
        if value.type not in _SIZES:
            raise ValueError(f"{kind}: {value.name}: {value.type!r} is not one of {', '.join(_SIZES)}")
        if not 0 <= value.offset <= 0xFFFF or not 0 <= (value.via or 0) <= 0xFFFF:
            raise ValueError(f"{kind}: {value.name}: an offset is at most 65535")


def _slot(value: Value) -> bytes:
    if isinstance(value, Argument):
        return _SLOT.pack(_RAW, value.index, 8, 0, 0, 0)
    how = _MEMORY if value.via is None else _VIA
    return _SLOT.pack(how, value.argument, _SIZES[value.type], 0, value.offset, value.via or 0)
