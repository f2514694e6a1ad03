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

__all__ = ["FAILURES", "KINDS", "NAMES", "REFUSED"]

NAMES = {"short": b"at_the_end", "longest": b"n" * 383, "too long": b"n" * 384}
"""Names that can be read, by what they are called; of the last one byte more than is recorded."""

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
GOOD = {"cuStreamCreate": 1, "cuLaunchKernelEx": 2, "cuLibraryGetKernel": 1}
"""How often those of them that are called before are not refused."""
FAILURES = ",".join(f"{name}:1:{GOOD.get(name, 0) + 1}+" for name in REFUSED)
"""SIMCUDA_FAIL."""

KINDS = ("null", "unmapped", "forbidden", "cut", "untouched", "not canonical", "of the kernel")
"""Pointers that each of them is handed. Behind the first is nothing, so nothing is looked for there."""

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


def launch(cuda: Library) -> None:
    """Three launches on one stream that succeed: the first's structure ends where the memory does, the second's is in a page
    that only the driver brings in."""
    stream = cuda.make("cuStreamCreate", 1)
    library = cuda.make("cuLibraryLoadData", b"kernel:30000", 0, 0, 0, 0, 0, 0)
    kernel = cuda.make("cuLibraryGetKernel", library, b"kernel")
    config = bytes(LaunchConfig((7, 5, 3), (64, 1, 1), 0, stream, 0, 0))
    for address in (before_a_hole(config), in_a_file(config)):
        say(launched=cuda.call("cuLaunchKernelEx", address, kernel, 0, 0))
    say(launched=cuda.call("cuLaunchKernel", kernel, 7, 5, 3, 64, 1, 1, 0, stream, 0, 0))
    say(waited=cuda.call("cuStreamSynchronize", stream))


def refuse(cuda: Library) -> None:
    """Every function with every kind of pointer."""
    untouched = pages(1)
    cut = before_a_hole(b"\x01\x02\x03")
    addresses = (0, hole(), pages(1, 0), cut, untouched, 0xDEAD << 48, 0xFFFF_8880_0000_0000)
    for name, arguments in REFUSED.items():
        for kind, address in zip(KINDS, addresses, strict=True):
            result = cuda.call(name, *(address if word == "pointer" else word for word in arguments))
            say(function=name, pointer=kind, result=result)
    say(untouched_is_resident=is_resident(untouched))


def ask(cuda: Library) -> None:
    """Names that end where the memory does."""
    for kind, name in NAMES.items():
        result = cuda.call("cuModuleGetFunction", 0, 0, before_a_hole(name + b"\0"))
        say(function="cuModuleGetFunction", pointer=kind, result=result)


def main(path: str) -> None:
    """Make the calls."""
    cuda = Library(path)
    cuda.call("cuInit", 0)
    cuda.make("cuCtxCreate_v4", 0, 0, 0)
    launch(cuda)
    refuse(cuda)
    ask(cuda)


if __name__ == "__main__":
    main(*sys.argv[1:])
