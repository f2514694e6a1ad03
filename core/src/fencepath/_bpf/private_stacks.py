# SPDX-License-Identifier: Apache-2.0
"""Keep uprobe programs off the private stacks that kernels give to BPF programs.

From 6.13 on (commit a76ab5731e32) the kernel may give a program of type KPROBE a stack of its own for each CPU, as it takes
for granted that no two runs of it meet on one CPU. Programs of uprobes are of that type, run preemptible (88bf18581375), and do
meet: one run then writes over what the other has on its stack, and the kernel ends in a panic (open-telemetry's eBPF
instrumentation, issue 3056). A program that has a tail call gets no such stack (``bpf_enable_priv_stack``), taken or not.
So where the kernel gives private stacks, a tail call that is never taken goes in front of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
from collections.abc import Generator

from fencepath._bpf import sys as bpf

__all__ = ["gives_private_stacks", "on_own_stack", "tail_call_prevents"]

_FRAME_POINTER = 10
_MAP_BY_FD = _TO_PROGRAM = 1
_TAIL_CALL = 12
_DEEP_BYTES = 400
"""Two of these are more than the 512 bytes of one stack."""


def _instruction(code: int, destination: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | destination, offset, value)


_RETURN = _instruction(0xB7) + _instruction(0x95)
_DEEP = _instruction(0x7A, _FRAME_POINTER, offset=-_DEEP_BYTES)
_TWO_DEEP = _DEEP + _instruction(0x85, source=_TO_PROGRAM, value=2) + _RETURN + _DEEP + _RETURN


@functools.cache
def gives_private_stacks() -> bool:
    """Whether this kernel gives programs of uprobes stacks of their own: whether it takes one that needs two of them."""
    return _loads(_TWO_DEEP)


@functools.cache
def tail_call_prevents() -> bool:
    """Whether a tail call keeps this kernel from doing so."""
    try:
        with on_own_stack(_TWO_DEEP, guarded=True) as guarded:
            return not _loads(guarded) and _loads(_RETURN)
    except OSError:
        return False


@contextlib.contextmanager
def on_own_stack(instructions: bytes, *, guarded: bool) -> Generator[bytes]:
    """Give a program that will run on the stack of the thread that hits its probe; to be loaded within the context.

    Args:
        instructions: 8 bytes each.
        guarded: whether it needs that; if not, or where no kernel does otherwise, the program is given as it is.
    """
    if not guarded or not gives_private_stacks():
        yield instructions
        return
    # One a program: an array takes only programs like the first one that it saw.
    fd = bpf.map_create(bpf.MapType.PROG_ARRAY, "fp_no_stack", key_size=4, value_size=4, max_entries=1, flags=0)
    try:
        yield _never(fd) + instructions
    finally:
        os.close(fd)


def _never(fd: int) -> bytes:
    """If (0 != 0) bpf_tail_call(ctx, map, 0). All jumps of what comes behind are relative."""
    call = (
        _instruction(0x18, 2, _MAP_BY_FD, value=fd)
        + _instruction(0)
        + _instruction(0xB7, 3)
        + _instruction(0x85, value=_TAIL_CALL)
    )
    return _instruction(0xB7, 0) + _instruction(0x15, 0, offset=len(call) // 8) + call


def _loads(instructions: bytes) -> bool:
    log = ctypes.create_string_buffer(1 << 12)
    try:
        os.close(bpf.prog_load(bpf.ProgramType.UPROBE, "fp_stacks", instructions, log=log))
    except OSError:
        return False
    return True
