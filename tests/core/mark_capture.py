# SPDX-License-Identifier: Apache-2.0
"""Run a command under ptrace and print every mark that it makes, as the kernel is given it.

``python mark_capture.py COMMAND ...`` prints one JSON line per mark: ``tid``, ``mark`` (the 64 bytes in hex) and
``pointed`` (the bytes that ``ptr`` points to, in hex). The command's own output goes to standard error; its exit status
is passed on. Needs no privileges.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

OPTION = 0x46504D4B
OP_REQUEST_BEGIN, OP_STEP_MEMBERS, OP_ATTRIBUTE = 1, 5, 13
# From linux/ptrace.h.
TRACEME, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, EXITKILL = 1, 2, 4, 8, 16, 1 << 20
SYSCALL_INFO_ENTRY = 1
SYSCALL_STOP = signal.SIGTRAP | 0x80
PRCTL = {"x86_64": 157, "aarch64": 167}[os.uname().machine]

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    result: int = libc.ptrace(request, tid, address, data)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request} on {tid}")
    return result


def start(command: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.dup2(2, 1)
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execvp(command[0], command)
    os.waitpid(pid, 0)
    ptrace(SETOPTIONS, pid, 0, TRACESYSGOOD | TRACEFORK | TRACEVFORK | TRACECLONE | TRACEEXEC | EXITKILL)
    ptrace(SYSCALL, pid)
    return pid


def read_memory(tid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{tid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size) or b""


def read_mark(tid: int) -> dict[str, Any] | None:
    info = ctypes.create_string_buffer(88)
    ptrace(GET_SYSCALL_INFO, tid, len(info), ctypes.addressof(info))
    # op, arch, instruction pointer, stack pointer, number, arguments
    kind, number = info.raw[0], struct.unpack_from("=Q", info.raw, 24)[0]
    if kind != SYSCALL_INFO_ENTRY or number != PRCTL:
        return None
    option, version, address, size, zero = struct.unpack_from("=5Q", info.raw, 32)
    if option & 0xFFFFFFFF != OPTION:
        return None
    assert (version, size, zero) == (1, 64, 0), (version, size, zero)
    mark = read_memory(tid, address, size)
    op, _, value = struct.unpack_from("=HHI", mark)
    length = {OP_STEP_MEMBERS: 16 * value}.get(op, struct.unpack_from("=H", mark, 50)[0])
    pointed = read_memory(tid, struct.unpack_from("=Q", mark, 56)[0], length) if length else b""
    return {"tid": tid, "mark": mark.hex(), "pointed": pointed.hex()}


def follow(pid: int) -> int:
    """Pass on every stop until the first process ends; return its exit status.

    A thread may be killed while it is stopped, as when another one ends the process: its end is told by the next wait.
    """
    while True:
        tid, status = os.waitpid(-1, 0x40000000)  # __WALL
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if tid == pid:
                return os.waitstatus_to_exitcode(status)
            continue
        with suppress(ProcessLookupError):
            pass_on(tid, os.WSTOPSIG(status))


def pass_on(tid: int, stop: int) -> None:
    deliver = 0
    if stop == SYSCALL_STOP:
        mark = read_mark(tid)
        if mark:
            print(json.dumps(mark), flush=True)
    elif stop not in (signal.SIGTRAP, signal.SIGSTOP):
        deliver = stop
    ptrace(SYSCALL, tid, 0, deliver)


if __name__ == "__main__":
    status = follow(start(sys.argv[1:]))
    sys.exit(status if status >= 0 else 128 - status)
