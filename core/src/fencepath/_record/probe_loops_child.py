# SPDX-License-Identifier: Apache-2.0
"""Runs as a process of its own: calls loops in machine code and says how long each took.

Started by :mod:`fencepath._record.probe_loops` as ``python -I -S probe_loops_child.py CODE_FD BYTES``. Each line of
standard input asks for rounds: ``{"loops": [[offset, calls], ...], "rounds": n, "budget_ns": b}``; the answer is one
line, a list of rounds with a list of nanoseconds of this thread's CPU time, one a loop. Only the standard library is
used.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time
from collections.abc import Callable, Sequence


def main() -> None:
    """Map the code privately, not writable, as the kernel wants it for uprobes, and serve requests until the input ends."""
    fd, size = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    base = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, fd, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        sys.exit("the code cannot be mapped executable")
    loop_type = ctypes.CFUNCTYPE(None, ctypes.c_long)
    for line in sys.stdin:
        asked = json.loads(line)
        loops = [(loop_type(base + offset), calls) for offset, calls in asked["loops"]]
        sys.stdout.write(json.dumps(_rounds(loops, asked["rounds"], asked["budget_ns"])) + "\n")
        sys.stdout.flush()


def _rounds(loops: Sequence[tuple[Callable[[int], None], int]], rounds: int, budget_ns: int) -> list[list[int]]:
    """One round that is thrown away, since pages and caches are cold, then as many as the budget allows, at least 3."""
    _round(loops)
    end_ns = time.monotonic_ns() + budget_ns
    results: list[list[int]] = []
    while len(results) < rounds and (len(results) < 3 or time.monotonic_ns() < end_ns):
        results.append(_round(loops))
    return results


def _round(loops: Sequence[tuple[Callable[[int], None], int]]) -> list[int]:
    return [_time(loop, calls) for loop, calls in loops]


def _time(loop: Callable[[int], None], calls: int) -> int:
    begin_ns = time.thread_time_ns()
    loop(calls)
    return time.thread_time_ns() - begin_ns


main()
