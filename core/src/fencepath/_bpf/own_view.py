# SPDX-License-Identifier: Apache-2.0
"""Whether this process numbers processes and tells the time as BPF programs do, which know no namespaces."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from fencepath._bpf import sys as bpf
from fencepath.errors import MachineError

__all__ = ["check_own_view", "kernel_pid"]

_HALF = 1 << 32
_INITIAL = ("pid:[4026531836]", "time:[4026531834]")
"""PROC_PID_INIT_INO and PROC_TIME_INIT_INO of include/linux/proc_ns.h: the initial namespaces on every machine."""


def _program(helper: int, shift: int) -> bytes:
    """Call a helper; r0 >>= shift; exit."""
    return struct.pack("<BBhiBBhiBBhi", 0x85, 0, 0, helper, 0x77, 0, 0, shift, 0x95, 0, 0, 0)


_PID = _program(14, 32)  # bpf_get_current_pid_tgid
_TIME = _program(5, 0)  # bpf_ktime_get_ns


def check_own_view() -> None:
    """Do nothing if this process is in the initial pid namespace, and in a time namespace whose clock is the host's.

    Raises:
        MachineError: it is not, so that no process could be told apart, or no time compared.
    """
    seen = kernel_pid()
    if seen is None:
        _check_names()
        return
    if seen != os.getpid():
        raise _other(
            "pid", f"process {os.getpid()} here is {seen} for the kernel", "--pid=host (hostPID: true in a pod)"
        )
    before_ns = time.monotonic_ns()
    seen_ns = _run(_TIME)
    # only the lower half is known
    if seen_ns is not None and (seen_ns - before_ns) % _HALF > (time.monotonic_ns() - before_ns):
        raise _other("time", "its monotonic clock is not the kernel's", "no time namespace")


def kernel_pid() -> int | None:
    """Return the number that a BPF program sees of this process; None if it may not run one."""
    return _run(_PID)


def _run(instructions: bytes) -> int | None:
    try:
        program = bpf.prog_load(bpf.ProgramType.RAW_TRACEPOINT, "fp_own_view", instructions)
    except OSError:
        return None
    try:
        return bpf.prog_run(program)
    except OSError:
        return None
    finally:
        os.close(program)


def _check_names() -> None:
    for name in _INITIAL:
        kind = name.partition(":")[0]
        try:
            own = str(Path(f"/proc/self/ns/{kind}").readlink())
        except OSError:  # a kernel without this kind of namespace
            continue
        if own != name:
            raise _other(kind, f"{own} is not the initial one", "the host's namespaces")


def _other(kind: str, evidence: str, container: str) -> MachineError:
    return MachineError(
        f"fencepath runs in a {kind} namespace of its own, and what it records is the host's view: {evidence}",
        f"run it on the host, or in a container with {container}",
    )
