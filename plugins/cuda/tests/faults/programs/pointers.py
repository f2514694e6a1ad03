# SPDX-License-Identifier: Apache-2.0
"""Pointers to what cannot be read, or not yet, handed to functions that refuse them, and to some that do not.

Prints a JSON object for each call: function, what kind of pointer it got, and its result. The simulated library refuses
the functions of ``REFUSED`` before it looks at their arguments (SIMCUDA_FAIL), as NVIDIA's does with most of these.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from plugins.cuda.tests.faults.programs.library import LaunchConfig, Library

__all__ = ["FAILURES", "LONGEST", "NAME", "READABLE", "REFUSED"]

NAME = b"at_the_end"
LONGEST = 383
"""Bytes of a name that are recorded."""

REFUSED: Mapping[str, tuple[int | str, ...]] = {
    "cuLaunchKernelEx": ("pointer", 0, 0, 0),
    "cuGraphAddKernelNode_v2": (0, 0, 0, 0, "pointer"),
    "cuGraphAddEmptyNode": (0, 0, "pointer", 4),
    "cuThreadExchangeStreamCaptureMode": ("pointer",),
    "cuStreamCreate": ("pointer", 0),
    "cuEventCreate": ("pointer", 0),
    "cuMemAlloc_v2": ("pointer", 4096),
    "cuGraphCreate": ("pointer", 0),
    "cuStreamEndCapture": (0, "pointer"),
    "cuModuleGetFunction": (0, 0, "pointer"),
    "cuLibraryGetKernel": (0, 0, "pointer"),
    "cuGetProcAddress_v2": ("pointer", 0, 13000, 0, 0),
}
"""Functions and their arguments, one of them the pointer. Out pointers, structures, arrays, names."""
FAILURES = ",".join(f"{name}:1:{4 if name == 'cuStreamCreate' else 1}+" for name in REFUSED if name != "cuLaunchKernelEx")
FAILURES += ",cuLaunchKernelEx:1:3+"
"""SIMCUDA_FAIL. Three streams and two launches come first."""

READABLE = frozenset({"null"})
"""Pointers that are no fault: there is nothing at them, and it is not looked."""

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def pages(count: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE, fd: int = -1) -> int:
    """Map pages and return their address."""
    flags = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if fd < 0 else 0)
    address = _libc.mmap(None, count * _PAGE, protection, flags, fd, 0)
    assert address != ctypes.c_void_p(-1).value
    return int(address)


def before_a_hole(data: bytes) -> int:
    """Put bytes before the end of a page behind which nothing is mapped, and return where they are."""
    start = pages(2)
    assert _libc.munmap(start + _PAGE, _PAGE) == 0
    ctypes.memmove(start + _PAGE - len(data), data, len(data))
    return start + _PAGE - len(data)


def hole() -> int:
    """Return the address of a page that was there."""
    start = pages(3)
    assert _libc.munmap(start + _PAGE, _PAGE) == 0
    return start + _PAGE


def is_resident(address: int) -> bool:
    """Whether somebody has touched a page."""
    found = ctypes.create_string_buffer(1)
    assert _libc.mincore(address, _PAGE, found) == 0
    return bool(found.raw[0] & 1)


def in_a_file(data: bytes) -> int:
    """Return where a page of a file is mapped that the process has not touched: its first read brings it in."""
    with tempfile.TemporaryFile() as file:
        file.write(data.ljust(_PAGE, b"\0"))
        file.flush()
        return pages(1, fd=os.dup(file.fileno()))


def say(**what: Any) -> None:
    """Print."""
    print(json.dumps(what), flush=True)


class Pointers:
    """The calls of one process."""

    def __init__(self, path: str) -> None:
        self.cuda = Library(path)
        self.cuda.call("cuInit", 0)
        self.cuda.make("cuCtxCreate_v4", 0, 0, 0)
        self.stream, self.other, _ = (self.cuda.make("cuStreamCreate", 1) for _ in range(3))
        library = self.cuda.make("cuLibraryLoadData", b"kernel:30000", 0, 0, 0, 0, 0, 0)
        self.kernel = self.kernel_of(library)

    def kernel_of(self, library: int) -> int:
        """Return a kernel by its only name that is not refused: through a module."""
        del library
        return 0

    def refused(self) -> None:
        """Every function with every kind of pointer."""
        untouched = pages(1)
        kinds = {
            "null": 0,
            "unmapped": hole(),
            "forbidden": pages(1, 0),
            "cut": before_a_hole(b"\x01\x02\x03\x04\x05\x06\x07"),
            "untouched": untouched,
            "not canonical": 0xDEAD << 48,
            "of the kernel": 0xFFFF_8880_0000_0000,
        }
        for name, arguments in REFUSED.items():
            for kind, address in kinds.items():
                result = self.cuda.call(name, *(address if word == "pointer" else word for word in arguments))
                say(function=name, pointer=kind, result=result)
        say(untouched_is_resident=is_resident(untouched))

    def names(self) -> None:
        """Names that end where the memory does, and one that goes on too long."""
        for kind, name in {"short": NAME, "longest": b"n" * LONGEST, "too long": b"n" * (LONGEST + 1)}.items():
            result = self.cuda.call("cuModuleGetFunction", 0, 0, before_a_hole(name + b"\0"))
            say(function="cuModuleGetFunction", pointer=kind, result=result)
