# SPDX-License-Identifier: Apache-2.0
"""Client of the stand-in for NVIDIA's driver: its modules and device nodes, requests, waits, and its own account.

Layouts are those of driver 580, as in ``data/`` of the layer ``nvidia``. Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import stat
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CTL",
    "GPU",
    "NEVER",
    "PAGES",
    "RAISE",
    "THREADED",
    "TRUTH",
    "UVM",
    "UVM_DEVICE",
    "WORK",
    "Row",
    "alloc",
    "carry",
    "control",
    "free",
    "insert",
    "make_nodes",
    "mapping",
    "poll",
    "refused",
    "remove",
    "request",
    "serve_pages",
    "touch",
    "truth",
    "work",
]

TRUTH = Path("/sys/kernel/debug/nvidia_standin/truth")
"""The stand-in's own account."""
RAISE = Path("/sys/kernel/debug/nvidia_xid/raise")
"""Where errors are asked for."""
CTL, GPU, UVM_DEVICE = "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"
UVM = 1000
"""Stands for nvidia-uvm in the account, where others have their minor."""
WORK, NEVER, PAGES, UNKNOWN = 0xF00D0001, 0xF00D0002, 0xF00D0003, 0xF00DFFFF
"""Commands that only the stand-in has: work that ends by an interrupt, a call that does not return, page faults of the GPU, one it refuses."""
THREADED = Path("/sys/module/nvidia/parameters/threaded")
"""Whether the thread of the interrupt ends waits: ``1`` or ``0``."""

CLIENT, DEVICE = 0xC1D00007, 0xDE01
_MAJOR = 195
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Row(NamedTuple):
    """A line of the account.

    Attributes:
        what: ``ioctl``, ``open``, ``release``, ``mmap``, ``fault``, ``service``, ``migration``, ``wait``, ``interrupt``, ``half`` or
            ``dropped``.
        values: its numbers by name.
    """

    what: str
    values: dict[str, int]


def truth(text: str) -> list[Row]:
    """Return the lines of an account."""
    rows = [line.split() for line in text.splitlines()]
    return [
        Row(what, {name: int(value) for name, value in (word.split("=") for word in words)}) for what, *words in rows
    ]


def insert(name: str, *parameters: str) -> None:
    """Load a module of the stand-in's, and make its nodes if it is the one that has them."""
    module = Path(os.environ["FENCEPATH_VM_NVIDIA"], f"{name}.ko")
    subprocess.run(["insmod", str(module), *parameters], check=True)
    if name == "nvidia":
        make_nodes()


def remove(name: str) -> bool:
    """Unload a module; return whether it could be."""
    return subprocess.run(["rmmod", name], check=False, capture_output=True).returncode == 0


def make_nodes() -> None:
    """Make the device nodes, as nvidia-modprobe does."""
    rows = (line.split() for line in Path("/proc/devices").read_text().splitlines())
    (uvm,) = (int(row[0]) for row in rows if row[1:] == ["nvidia-uvm"])
    numbers = {CTL: (_MAJOR, 255), GPU: (_MAJOR, 0), UVM_DEVICE: (uvm, 0)}
    for path, (major, minor) in numbers.items():
        Path(path).unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))


def request(number: int, size: int) -> int:
    """_IOWR('F', number, size)."""
    return 3 << 30 | size << 16 | ord("F") << 8 | number


def refused(fd: int, command: int, argument: int | bytearray = 0) -> int:
    """Make a request that fails; return its errno, 0 if it did not fail."""
    try:
        fcntl.ioctl(fd, command, argument)
    except OSError as error:
        return error.errno or 0
    return 0


def alloc(fd: int, handle: int, object_class: int, size_bytes: int = 0) -> int:
    """NV_ESC_RM_ALLOC with rights; return the status."""
    parameters = ctypes.create_string_buffer(512)
    struct.pack_into("<Q", parameters, 64, size_bytes)
    buffer = bytearray(struct.pack("<IIIIQ", CLIENT, DEVICE, handle, object_class, ctypes.addressof(parameters)))
    buffer += bytes(48 - len(buffer))
    fcntl.ioctl(fd, request(0x2B, 48), buffer)
    return int(struct.unpack_from("<I", buffer, 40)[0])


def free(fd: int, handle: int) -> None:
    """NV_ESC_RM_FREE."""
    fcntl.ioctl(fd, request(0x29, 16), bytearray(struct.pack("<IIII", CLIENT, DEVICE, handle, 0)))


def control(fd: int, command: int, parameters: bytes = b"") -> int:
    """NV_ESC_RM_CONTROL; return the status."""
    behind = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
    values = (CLIENT, DEVICE, command, 0, ctypes.addressof(behind), len(parameters), 0)
    buffer = bytearray(struct.pack("<IIIIQII", *values))
    fcntl.ioctl(fd, request(0x2A, 32), buffer)
    return int(struct.unpack_from("<I", buffer, 28)[0])


def carry(fd: int, number: int, argument: bytearray | int, size: int) -> int:
    """NV_ESC_IOCTL_XFER_CMD with another request in it, whose structure or address is given; return the errno, 0 if it was taken."""
    if isinstance(argument, bytearray):
        inner = ctypes.create_string_buffer(bytes(argument), max(len(argument), 1))
        argument = ctypes.addressof(inner)
    return refused(fd, request(211, 16), bytearray(struct.pack("<IIQ", number, size, argument)))


def work(fd: int, delay_ns: int, *, at_poll: bool) -> None:
    """Ask for work that ends by an interrupt.

    Args:
        fd: of /dev/nvidia0.
        delay_ns: from its begin to the interrupt.
        at_poll: it begins when the file is polled, so that the poll waits for sure; else at once.
    """
    assert control(fd, WORK, struct.pack("<QQ", delay_ns, at_poll)) == 0


def serve_pages(fd: int, services: int, pages: int, destination: int) -> None:
    """Have a thread of the kernel serve page faults of the GPU, with a migration of so many pages each."""
    assert control(fd, PAGES, struct.pack("<III", services, pages, destination)) == 0


def poll(fd: int, timeout_ms: int | None = 20_000) -> int:
    """Wait for the end of work as CUDA's blocking waits do; return how many files are ready."""
    waiter = select.poll()
    waiter.register(fd, select.POLLIN | select.POLLPRI)
    return len(waiter.poll(timeout_ms))


def mapping(fd: int, lengths_bytes: Sequence[int]) -> None:
    """Map a file in each length and give that up again. Not by the module `mmap`, which makes copies of descriptors."""
    for length in lengths_bytes:
        at = _libc.mmap(None, length, 3, 1, fd, 0)
        assert at != ctypes.c_void_p(-1).value
        assert _libc.munmap(at, length) == 0


def touch(fd: int, length_bytes: int) -> int:
    """Map a file, read each page of it, give it up again, and return where it was."""
    at = _libc.mmap(None, length_bytes, 3, 1, fd, 0)
    assert at != ctypes.c_void_p(-1).value
    for page in range(at, at + length_bytes, 4096):
        assert ctypes.c_uint8.from_address(page).value == 0
    assert _libc.munmap(at, length_bytes) == 0
    return int(at)
