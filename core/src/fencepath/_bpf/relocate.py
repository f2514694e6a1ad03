# SPDX-License-Identifier: Apache-2.0
"""The maps that compiled programs name: by file descriptors, which are others in every process."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from fencepath.errors import MachineError

__all__ = ["descriptors_of", "relocate"]

_LOAD_ADDRESS, _MAP_BY_FD = 0x18, 1
"""BPF_LD | BPF_IMM | BPF_DW, and BPF_PSEUDO_MAP_FD in its source register (include/uapi/linux/bpf.h)."""


def descriptors_of(instructions: bytes) -> frozenset[int]:
    """Return the file descriptors of the maps that a program uses."""
    return frozenset(fd for _, fd in _uses(instructions))


def relocate(instructions: bytes, descriptors: Mapping[int, int]) -> bytes:
    """Replace the file descriptors of maps in a program.

    Args:
        instructions: 8 bytes each.
        descriptors: new by old.

    Raises:
        MachineError: the program uses another map.
    """
    code = bytearray(instructions)
    for at, fd in _uses(instructions):
        if fd not in descriptors:
            raise MachineError("a program uses a map that is not of the recording")
        struct.pack_into("<i", code, at + 4, descriptors[fd])
    return bytes(code)


def _uses(code: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(code):
        operation, registers = code[at], code[at + 1]
        if operation == _LOAD_ADDRESS and registers >> 4 == _MAP_BY_FD:
            yield at, struct.unpack_from("<i", code, at + 4)[0]
        at += 16 if operation == _LOAD_ADDRESS else 8
