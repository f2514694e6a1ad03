# SPDX-License-Identifier: Apache-2.0
"""What plugins want from system calls, as data, and what one entry may say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "ARRAY_FDS",
    "FOUND",
    "SLOTS",
    "Argument",
    "Entry",
    "Equals",
    "IoctlDecoder",
    "Read",
    "SyscallProbe",
    "Value",
    "Wrapped",
    "check_entry",
    "values_at",
]

SLOTS = 4
"""Values that are taken at entry, and again as many at return."""

ARRAY_FDS = 16
"""Entries of an array of ``struct pollfd`` that are looked at, the first ones."""

FOUND = 6
"""As :attr:`Read.argument`: the entry of :attr:`SyscallProbe.fds` whose fd is of the device class."""

SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
_ARGUMENTS = 6
_HIGHEST_OFFSET = 0xFFFF
_HIGHEST_SIZE = 0x3FFF

When: TypeAlias = Literal["entry", "return"]


class Read(msgspec.Struct, frozen=True):
    """A number in user memory that an argument points to.

    Attributes:
        name: of the value.
        type: ``u8``, ``u16``, ``u32`` or ``u64``.
        offset: from the pointer, bytes.
        when: read at entry, or at return (a driver's own status is often in the argument's structure).
        argument: index of the pointer among the call's arguments; 2 is an ioctl's. :data:`FOUND` is the entry found.
        via: the pointer is not the argument but the u64 at this offset behind it.
        nullable: a pointer of 0 is no fault; the value is 0 then.
    """

    name: str
    type: str
    offset: int
    when: When = "entry"
    argument: int = 2
    via: int | None = None
    nullable: bool = False


class Argument(msgspec.Struct, frozen=True):
    """An argument itself, as the register holds it.

    Attributes:
        name: of the value.
        index: 0 to 5.
    """

    name: str
    index: int


Value: TypeAlias = Read | Argument


class Equals(msgspec.Struct, frozen=True):
    """A number in an ioctl's structure by which one request is several, such as the class of what is allocated.

    Attributes:
        offset: of a u32, bytes from the argument's pointer; all decoders of one request look at the same.
        value: what it is.
    """

    offset: int
    value: int


class Wrapped(msgspec.Struct, frozen=True):
    """Where an ioctl that carries another one has its number, size and pointer. Offsets in the argument's structure, bytes.

    Attributes:
        number: of a u32: _IOC_NR of the other.
        size: of a u32: size of the other's structure.
        pointer: of a u64: address of the other's structure.
    """

    number: int
    size: int
    pointer: int


class IoctlDecoder(msgspec.Struct, frozen=True):
    """One ioctl of a device class, or all that no other decoder of the class is for.

    Attributes:
        kind: event kind of its records.
        device: name of the :class:`DeviceClass`.
        name: of the request, such as ``NV_ESC_RM_CONTROL``.
        type: _IOC_TYPE, such as 0x46.
        number: _IOC_NR. Directions are not looked at: they change between versions.
        command: the whole command instead, for drivers that do not number as _IOC does (nvidia-uvm).
        values: what is taken, at most :data:`SLOTS` at entry and as many at return.
        size: only with this _IOC_SIZE; None for every size that no other decoder of the number names.
        where: only if the structure holds this number; the same request has a decoder without it as well.
        wraps: the request carries another one. That one's decoder is used, its pointer is the argument, and the record's
            ``command`` has its number and size (of a size above 16383, 16383). A request that cannot be read, or that
            carries one of its own kind, is recorded as it is.
    """

    kind: str
    device: str
    name: str
    type: int | None = None
    number: int | None = None
    command: int | None = None
    values: tuple[Value, ...] = ()
    size: int | None = None
    where: Equals | None = None
    wraps: Wrapped | None = None

    @property
    def request(self) -> tuple[str, int | None, int | None, int | None, int | None]:
        """Which request it is for, whatever its structure holds."""
        return self.device, self.type, self.number, self.command, self.size


class SyscallProbe(msgspec.Struct, frozen=True):
    """One system call, of every file or of a device class's.

    What tells the device is the same for everybody who wants a system call: `fd`, `fds` or `address`.

    Attributes:
        kind: event kind of its records.
        syscall: name as in ``syscalls:sys_enter_<name>``: ``read``, ``poll``, ``newfstat``.
        device: name of the :class:`DeviceClass` its fd must be of, or "" for any.
        fd: index of the argument that is the fd.
        values: as in :class:`IoctlDecoder`.
        fds: index of the argument that points to an array of ``struct pollfd``, whose length is the argument after it. The
            first of its :data:`ARRAY_FDS` first entries whose fd is of a class that is asked for is the record's ``fd``.
        address: index of the argument that is an address which a call with `maps` returned to the same process.
        maps: the call returns the address of a mapping of the device (mmap), by which `address` finds it.
    """

    kind: str
    syscall: str
    device: str = ""
    fd: int | None = None
    values: tuple[Value, ...] = ()
    fds: int | None = None
    address: int | None = None
    maps: bool = False

    @property
    def source(self) -> tuple[str, int] | None:
        """What tells its device: ``fd``, ``fds`` or ``address``, and the index of that argument; None if nothing does."""
        for name in ("fd", "fds", "address"):
            index: int | None = getattr(self, name)
            if index is not None:
                return name, index
        return None


Entry: TypeAlias = IoctlDecoder | SyscallProbe


def values_at(values: Sequence[Value], when: When) -> tuple[Value, ...]:
    """Return the values that are taken then; arguments are taken at entry."""
    return tuple(value for value in values if (value.when if isinstance(value, Read) else "entry") == when)


def check_entry(entry: Entry) -> None:
    """Check what an entry says by itself.

    Raises:
        ValueError: it contradicts itself.
    """
    for when in ("entry", "return"):
        if len(values_at(entry.values, when)) > SLOTS:
            raise ValueError(f"{entry.kind}: more than {SLOTS} values at {when}")
    for value in entry.values:
        _check_value(entry, value)
    if isinstance(entry, IoctlDecoder):
        _check_ioctl(entry)
    else:
        _check_probe(entry)


def _check_value(entry: Entry, value: Value) -> None:
    index = value.argument if isinstance(value, Read) else value.index
    found = isinstance(value, Read) and index == FOUND and isinstance(entry, SyscallProbe) and entry.fds is not None
    if not (0 <= index < _ARGUMENTS or found):
        raise ValueError(f"{entry.kind}: {value.name}: a system call has no argument {index}")
    if isinstance(value, Read):
        if value.type not in SIZES:
            raise ValueError(f"{entry.kind}: {value.name}: {value.type!r} is not one of {', '.join(SIZES)}")
        _check_offsets(f"{entry.kind}: {value.name}", value.offset, value.via or 0)


def _check_offsets(what: str, *offsets: int) -> None:
    if not all(0 <= offset <= _HIGHEST_OFFSET for offset in offsets):
        raise ValueError(f"{what}: an offset is at most {_HIGHEST_OFFSET}")


def _check_ioctl(entry: IoctlDecoder) -> None:
    if (entry.type is None) != (entry.number is None) or (entry.command is not None and entry.type is not None):
        raise ValueError(f"{entry.name}: give type and number, or command, or neither")
    if not entry.device:
        raise ValueError(f"{entry.name}: an ioctl means nothing without its device class")
    if entry.size is not None and (entry.type is None or not 0 <= entry.size <= _HIGHEST_SIZE):
        raise ValueError(f"{entry.name}: a size goes with type and number, and is at most {_HIGHEST_SIZE}")
    if entry.where is not None:
        if entry.wraps is not None:
            raise ValueError(f"{entry.name}: it cannot both carry another request and be told by a number")
        _check_offsets(entry.name, entry.where.offset)
    if entry.wraps is not None:
        if entry.type is None:
            raise ValueError(f"{entry.name}: what carries another request has type and number")
        _check_offsets(entry.name, entry.wraps.number, entry.wraps.size, entry.wraps.pointer)


def _check_probe(entry: SyscallProbe) -> None:
    named = [name for name in ("fd", "fds", "address") if getattr(entry, name) is not None]
    if len(named) > 1:
        raise ValueError(f"{entry.syscall}: give one of {', '.join(named)}")
    if entry.device and not named:
        raise ValueError(f"{entry.syscall}: say which argument is the fd")
    if entry.syscall == "ioctl":
        raise ValueError("ioctl: use an IoctlDecoder")
    if entry.maps and not (entry.device and entry.fd is not None):
        raise ValueError(f"{entry.syscall}: only a call on an fd of a device class makes a mapping of it")
