# SPDX-License-Identifier: Apache-2.0
"""Where the stack of a thread is now, from /proc."""

from __future__ import annotations

from pathlib import Path

__all__ = ["blocked_stack_pointer", "on_one_stack"]


def blocked_stack_pointer(tgid: int, tid: int) -> int:
    """Return the user stack pointer of a thread that is not running; 0 if it runs, is gone, or may not be looked at.

    /proc/PID/task/TID/syscall ends in the stack pointer and the program counter (proc_pid_syscall in fs/proc/base.c).
    """
    try:
        words = Path(f"/proc/{tgid}/task/{tid}/syscall").read_text().split()
    except OSError:
        return 0
    return int(words[-2], 16) if len(words) >= 3 else 0


def on_one_stack(tgid: int, one: int, other: int) -> bool:
    """Return whether two addresses are in one mapping of a process: a thread's stack is one, a signal's another."""
    try:
        lines = Path(f"/proc/{tgid}/maps").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        low, high = (int(bound, 16) for bound in line.split(" ", 1)[0].split("-"))
        if low <= one < high:
            return low <= other < high
    return False
