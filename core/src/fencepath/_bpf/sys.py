# SPDX-License-Identifier: Apache-2.0
"""bpf(2) and perf_event_open(2), as thin as they can be.

Every function raises OSError with the kernel's errno; the modules above say what to do about it. Layouts of the
attributes: ``union bpf_attr`` in include/uapi/linux/bpf.h and ``struct perf_event_attr`` in linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import fcntl
import functools
import os
import platform
import resource
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "AttachType",
    "MapFlags",
    "MapType",
    "ProgramType",
    "error_text",
    "first_online_cpu",
    "link_create_perf_event",
    "link_create_uprobe_multi",
    "map_create",
    "map_delete",
    "map_lookup",
    "map_lookup_batch",
    "map_next_key",
    "map_update",
    "perf_event_enable",
    "perf_event_open",
    "possible_cpus",
    "prog_load",
    "prog_recursion_misses",
    "prog_run",
    "raise_file_limit",
    "raw_tracepoint_open",
]

ENOTSUPP = 524
"""The kernel's own "operation not supported", which errno.h does not have."""

_NR_BPF = {"x86_64": 321, "aarch64": 280}
_NR_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_PERF_FLAG_FD_CLOEXEC = 8
_LOAD_BYTES = 72
"""Of the attributes of PROG_LOAD, what every program needs."""
_MISSED_END = 56
"""Bytes of ``struct bpf_link_info`` up to the end of what it says of missed kprobes."""
_KPROBE_LINKS = (3, 4)
"""BPF_PERF_EVENT_KPROBE and _KRETPROBE of ``enum bpf_perf_event_type``."""
_PERF_EVENT_IOC_ENABLE = 0x2400
_OBJECT_NAME_LENGTH = 15


class _Command(enum.IntEnum):
    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    PROG_TEST_RUN = 10
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    BTF_GET_FD_BY_ID = 19
    BTF_GET_NEXT_ID = 23
    MAP_LOOKUP_BATCH = 24
    LINK_CREATE = 28


class MapType(enum.IntEnum):
    """``enum bpf_map_type``, as far as it is used here."""

    HASH = 1
    ARRAY = 2
    PROG_ARRAY = 3
    RINGBUF = 27


class MapFlags(enum.IntFlag):
    """``map_flags`` of a map's creation."""

    NO_PREALLOC = 1 << 0
    MMAPABLE = 1 << 10


class ProgramType(enum.IntEnum):
    """``enum bpf_prog_type``, as far as it is used here."""

    UPROBE = 2
    """BPF_PROG_TYPE_KPROBE, which serves uprobes too."""
    KPROBE = 2
    """The same, for functions of the kernel."""
    TRACEPOINT = 5
    RAW_TRACEPOINT = 17
    TRACING = 26


class AttachType(enum.IntEnum):
    """``enum bpf_attach_type``, as far as it is used here."""

    TRACE_FENTRY = 24
    TRACE_FEXIT = 25
    PERF_EVENT = 41
    UPROBE_MULTI = 48


class BtfFunction(NamedTuple):
    """A function of the kernel, by the number of its type.

    Attributes:
        number: in the BTF.
        fd: of the module's BTF; 0 for the kernel's own.
    """

    number: int
    fd: int = 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def error_text(code: int) -> str:
    """Return what an errno of these calls means."""
    return "operation not supported by this kernel" if code == ENOTSUPP else os.strerror(code)


def _syscall(numbers: dict[str, int], *arguments: int) -> int:
    number = numbers.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the system call number on {platform.machine()} is not known here")
    result: int = _libc().syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, error_text(code))
    return result


def _bpf(command: _Command, attributes: ctypes.Array[ctypes.c_char]) -> int:
    return _syscall(_NR_BPF, command, ctypes.addressof(attributes), len(attributes))


def _attributes(layout: str, *values: object) -> ctypes.Array[ctypes.c_char]:
    packed = struct.pack("=" + layout, *values)
    return ctypes.create_string_buffer(packed, len(packed))


def _object_name(name: str) -> bytes:
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name).encode()[:_OBJECT_NAME_LENGTH]


def _raise_memory_limit() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        return


def map_create(
    kind: MapType, name: str, *, key_size: int = 0, value_size: int = 0, max_entries: int, flags: MapFlags | int = 0
) -> int:
    """Create a map and return its file descriptor.

    Args:
        kind: type of map.
        name: shown by bpftool; cut to 15 letters and digits.
        key_size: bytes a key.
        value_size: bytes a value.
        max_entries: most entries, or bytes of a ring buffer.
        flags: see :class:`MapFlags`.
    """
    attributes = _attributes("IIIIIII16s", kind, key_size, value_size, max_entries, flags, 0, 0, _object_name(name))
    try:
        return _bpf(_Command.MAP_CREATE, attributes)
    except PermissionError:
        # Before memory cgroups accounted for maps (d5299b67dd59, 5.11) RLIMIT_MEMLOCK refused them with EPERM.
        _raise_memory_limit()
        return _bpf(_Command.MAP_CREATE, attributes)


def _element(
    command: _Command, fd: int, key: bytes | None, other: ctypes.Array[ctypes.c_char] | None, flags: int
) -> None:
    key_buffer = None if key is None else ctypes.create_string_buffer(key, len(key))
    key_address = 0 if key_buffer is None else ctypes.addressof(key_buffer)
    other_address = 0 if other is None else ctypes.addressof(other)
    _bpf(command, _attributes("IIQQQ", fd, 0, key_address, other_address, flags))


def map_lookup(fd: int, key: bytes, value_size: int) -> bytes | None:
    """Return the value under `key`, or None."""
    value = ctypes.create_string_buffer(value_size)
    try:
        _element(_Command.MAP_LOOKUP_ELEM, fd, key, value, 0)
    except FileNotFoundError:
        return None
    return value.raw


def map_update(fd: int, key: bytes, value: bytes) -> None:
    """Put `value` under `key`, whether or not there is one."""
    _element(_Command.MAP_UPDATE_ELEM, fd, key, ctypes.create_string_buffer(value, len(value)), 0)


def map_delete(fd: int, key: bytes) -> bool:
    """Take `key` out; return whether it was there."""
    try:
        _element(_Command.MAP_DELETE_ELEM, fd, key, None, 0)
    except FileNotFoundError:
        return False
    return True


def map_next_key(fd: int, key: bytes | None, key_size: int) -> bytes | None:
    """Return the key after `key` (None: the first), or None at the end."""
    following = ctypes.create_string_buffer(key_size)
    try:
        _element(_Command.MAP_GET_NEXT_KEY, fd, key, following, 0)
    except FileNotFoundError:
        return None
    return following.raw


def map_lookup_batch(
    fd: int, position: bytes | None, count: int, key_size: int, value_size: int
) -> tuple[bytes, bytes, bytes | None]:
    """Read up to `count` entries in one call (5.6+).

    Args:
        fd: a hash map.
        position: where the last call ended, or None to begin.
        count: most entries; ENOSPC if one bucket of the map has more.
        key_size: bytes a key.
        value_size: bytes a value.

    Returns:
        The keys, the values, and where to go on (None at the end).
    """
    keys = ctypes.create_string_buffer(max(1, key_size * count))
    values = ctypes.create_string_buffer(max(1, value_size * count))
    # A hash map's position is a u32, an array's is a key; both fit in eight bytes or in the key.
    out = ctypes.create_string_buffer(max(8, key_size))
    start = None if position is None else ctypes.create_string_buffer(position, len(position))
    attributes = _attributes(
        "QQQQIIQQ",
        0 if start is None else ctypes.addressof(start),
        ctypes.addressof(out),
        ctypes.addressof(keys),
        ctypes.addressof(values),
        count,
        fd,
        0,
        0,
    )
    try:
        _bpf(_Command.MAP_LOOKUP_BATCH, attributes)
        following = out.raw
    except FileNotFoundError:
        following = None
    read = struct.unpack_from("=I", attributes.raw, 32)[0]
    return keys.raw[: read * key_size], values.raw[: read * value_size], following


def prog_load(
    kind: ProgramType,
    name: str,
    instructions: bytes,
    *,
    attach_type: AttachType | int | None = None,
    function: BtfFunction | None = None,
    log: ctypes.Array[ctypes.c_char] | None = None,
) -> int:
    """Load a program under the licence GPL and return its file descriptor.

    Args:
        kind: type of program.
        name: shown by bpftool; cut to 15 letters and digits.
        instructions: 8 bytes each.
        attach_type: ``expected_attach_type``; None for the type's own.
        function: of a program of type TRACING: what it is for.
        log: takes the verifier's log; the kernel says ENOSPC if it is too short.
    """
    code = ctypes.create_string_buffer(instructions, len(instructions))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = _attributes(
        "IIQQIIQII16sIIIIQIIQIII",
        kind,
        len(instructions) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0 if log is None else 1,
        0 if log is None else len(log),
        0 if log is None else ctypes.addressof(log),
        0,
        0,
        _object_name(name),
        0,
        attach_type or 0,
        *[0] * 7,  # types and lines of its own
        *(function or (0, 0)),
    )
    # what is not asked for is left away: a kernel refuses attributes that it does not know
    size = len(attributes) if function else _LOAD_BYTES
    return _syscall(_NR_BPF, _Command.PROG_LOAD, ctypes.addressof(attributes), size)


def prog_run(fd: int) -> int:
    """Run a program of type RAW_TRACEPOINT once, here and now (5.10+), and return the lower half of what it returns."""
    attributes = _attributes("IIIIQQIIIIQQIII", fd, *[0] * 14)
    _bpf(_Command.PROG_TEST_RUN, attributes)
    result: int = struct.unpack_from("=I", attributes.raw, 4)[0]
    return result


def prog_recursion_misses(fd: int) -> int:
    """Return how often the kernel skipped a program because one already ran on that CPU (0 before 5.12)."""
    # recursion_misses is at byte 208 of struct bpf_prog_info; an older kernel leaves it alone.
    info = ctypes.create_string_buffer(216)
    _bpf(_Command.OBJ_GET_INFO_BY_FD, _attributes("IIQ", fd, len(info), ctypes.addressof(info)))
    misses: int = struct.unpack_from("=Q", info.raw, 208)[0]
    return misses


def raw_tracepoint_open(program: int, name: str) -> int:
    """Attach a program of type RAW_TRACEPOINT to a tracepoint by its name and return the link."""
    text = ctypes.create_string_buffer(name.encode())
    return _bpf(_Command.RAW_TRACEPOINT_OPEN, _attributes("QI", ctypes.addressof(text), program))


def tracing_open(program: int) -> int:
    """Attach a program of type TRACING to what it was loaded for and return the link."""
    return _bpf(_Command.RAW_TRACEPOINT_OPEN, _attributes("QI", 0, program))


def module_btf(name: str) -> int | None:
    """Return a file descriptor of a module's type information; None if the module has none."""
    number = 0
    while True:
        attributes = _attributes("III", number, 0, 0)
        try:
            _bpf(_Command.BTF_GET_NEXT_ID, attributes)
        except FileNotFoundError:
            return None
        number = struct.unpack_from("=I", attributes.raw, 4)[0]
        try:
            fd = _bpf(_Command.BTF_GET_FD_BY_ID, _attributes("I", number))
        except FileNotFoundError:
            continue  # gone meanwhile
        if _btf_name(fd) == name:
            return fd
        os.close(fd)


def _btf_name(fd: int) -> str:
    """Name of kernel types; "" for a program's."""
    name = ctypes.create_string_buffer(64)
    info = _attributes("QIIQII", 0, 0, 0, ctypes.addressof(name), len(name), 0)
    _bpf(_Command.OBJ_GET_INFO_BY_FD, _attributes("IIQ", fd, len(info), ctypes.addressof(info)))
    is_kernels: int = struct.unpack_from("=I", info.raw, 28)[0]
    return name.value.decode(errors="replace") if is_kernels else ""


def link_missed(link: int) -> int | None:
    """Return how often the kernel did not run a kprobe's program; None if it does not say (before 6.7)."""
    # struct bpf_link_info: perf_event.type at 16, and of a kprobe: name, name_len, offset, addr, missed at 24 to 56
    info = ctypes.create_string_buffer(_MISSED_END)
    attributes = _attributes("IIQ", link, len(info), ctypes.addressof(info))
    try:
        _bpf(_Command.OBJ_GET_INFO_BY_FD, attributes)
    except OSError:
        return None
    # 6.6 says what the link is and has no such number: how much it knows it says too
    known: int = struct.unpack_from("=I", attributes.raw, 4)[0]
    kind = struct.unpack_from("=I", info.raw, 16)[0]
    missed: int = struct.unpack_from("=Q", info.raw, _MISSED_END - 8)[0]
    return missed if kind in _KPROBE_LINKS and known >= _MISSED_END else None


def link_create_perf_event(program: int, event: int, cookie: int) -> int:
    """Attach a program to a perf event (5.15+) and return the link, which keeps the event."""
    return _bpf(_Command.LINK_CREATE, _attributes("IIIIQ", program, event, AttachType.PERF_EVENT, 0, cookie))


def link_create_uprobe_multi(
    program: int, path: str, offsets: Sequence[int], cookies: Sequence[int], *, returning: bool
) -> int:
    """Attach a program to many offsets of a file (6.6+) and return the link."""
    path_buffer = ctypes.create_string_buffer(os.fsencode(path))
    offset_array = (ctypes.c_uint64 * len(offsets))(*offsets)
    cookie_array = (ctypes.c_uint64 * len(cookies))(*cookies)
    attributes = _attributes(
        "IIIIQQQQIIII",
        program,
        0,
        AttachType.UPROBE_MULTI,
        0,
        ctypes.addressof(path_buffer),
        ctypes.addressof(offset_array),
        0,
        ctypes.addressof(cookie_array),
        len(offsets),
        1 if returning else 0,
        0,
        0,
    )
    return _bpf(_Command.LINK_CREATE, attributes)


def perf_event_open(kind: int, config: int, *, path: str | None = None, offset: int = 0) -> int:
    """Open a disabled perf event for every process.

    It is opened on one CPU and never samples: a BPF program attached to a tracepoint or uprobe event runs on whatever
    CPU hits it.

    Args:
        kind: number of the performance monitoring unit.
        config: what to count; for a tracepoint its id, for a uprobe or kprobe the bit that says return.
        path: file of a uprobe, or name of a kprobe's function.
        offset: of a uprobe in the file, or of a kprobe in the function, in bytes.
    """
    name = None if path is None else ctypes.create_string_buffer(os.fsencode(path))
    address = 0 if name is None else ctypes.addressof(name)
    size, disabled = 128, 1
    head = struct.pack("=IIQQQQQIIQQ", kind, size, config, 0, 0, 0, disabled, 0, 0, address, offset)
    attributes = ctypes.create_string_buffer(head, size)
    return _syscall(
        _NR_PERF_EVENT_OPEN, ctypes.addressof(attributes), -1, first_online_cpu(), -1, _PERF_FLAG_FD_CLOEXEC
    )


def perf_event_enable(event: int) -> None:
    """Switch a perf event on."""
    fcntl.ioctl(event, _PERF_EVENT_IOC_ENABLE, 0)


def _cpu_numbers(name: str) -> list[int]:
    ranges = Path("/sys/devices/system/cpu", name).read_text().strip().split(",")
    bounds = [part.split("-") for part in ranges]
    return [cpu for low, *high in bounds for cpu in range(int(low), int(high[0] if high else low) + 1)]


def possible_cpus() -> int:
    """Return one more than the highest CPU number this kernel can ever use."""
    return max(_cpu_numbers("possible")) + 1


def first_online_cpu() -> int:
    """Return the lowest CPU that is online."""
    return _cpu_numbers("online")[0]


def raise_file_limit() -> bool:
    """Raise the limit of open files to what this process may have; return whether that was more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True
