# SPDX-License-Identifier: Apache-2.0
"""Loops in machine code that call one small function each, in a file of their own: something to measure probes on.

The file has no name and no other process maps it, so probes on it are hit by nobody else. The loops run in a process
of their own, because the programs of a recording never count the recorder. x86-64 only.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from fencepath.errors import MachineError

__all__ = ["BODIES", "LoopCode", "LoopProcess", "Site"]

_CHILD = Path(__file__).with_name("probe_loops_child.py")
_ALIGNMENT = 64
_MARK_OPTION = 0x46504D4B
_MARK_BYTES = 64
_TOKEN = struct.pack("<HHI", 8, 0, 1).ljust(_MARK_BYTES, b"\0")

# Arguments are 0, so that programs that follow a pointer find none. The return address is never the first of a page.
_LOOP_HEAD = bytes.fromhex("53 4889fb 31ff 31f6 31d2 31c9 4531c0 4531c9")  # push rbx; mov rdi, rbx; clear the arguments
_LOOP_TAIL = bytes.fromhex("48ffcb")  # dec rbx
_LOOP_END = bytes.fromhex("5b c3")  # pop rbx; ret

BODIES: Mapping[str, bytes] = {
    "emulated": bytes.fromhex("55 5d c3"),  # push rbp; pop rbp; ret
    "stepped": bytes.fromhex("4883ec08 4883c408 c3"),  # sub 8, rsp; add 8, rsp; ret
    "long_nop": bytes.fromhex(
        "0f1f4000 c3"
    ),  # a nop of four bytes; ret. One of five is replaced by a call from 6.18 on.
}
"""Functions by the class of their first instruction."""


class Site(msgspec.Struct, frozen=True):
    """A function and the loop that calls it.

    Attributes:
        function: offset in the file at which it begins, bytes; where a probe goes.
        loop: offset of the loop, bytes.
    """

    function: int
    loop: int


class LoopCode:
    """A file in memory with one loop and one function for each name.

    Args:
        sites: body of the function by name; see :data:`BODIES`.
        mark: whether there is a loop named ``mark`` that calls prctl with a mark.

    Attributes:
        fd: the file.
        size: its size in bytes.
        sites: where things are, by name.

    Raises:
        MachineError: this is no x86-64 machine, or the kernel gives no such file.
    """

    def __init__(self, sites: Mapping[str, bytes], *, mark: bool = False) -> None:
        if platform.machine() != "x86_64":
            raise MachineError(f"probes cannot be measured on {platform.machine()}", "use an x86-64 machine")
        code = bytearray(_TOKEN)
        self.sites: dict[str, Site] = {}
        for name, body in sites.items():
            self.sites[name] = _add(code, body)
        if mark:
            self.sites["mark"] = _add_mark(code)
        self.size = len(code)
        try:
            self.fd = os.memfd_create("fencepath-probe-loops", os.MFD_CLOEXEC)
            os.write(self.fd, code)
        except OSError as error:
            raise MachineError(f"no file in memory can be made: {error.strerror}") from error

    @property
    def path(self) -> str:
        """By which this process can attach probes."""
        return f"/proc/self/fd/{self.fd}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; links and processes keep what they use."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _add(code: bytearray, body: bytes) -> Site:
    function = _align(code)
    code += body
    loop = _align(code)
    code += _LOOP_HEAD
    top = len(code)
    code += b"\xe8" + struct.pack("<i", function - (top + 5)) + _LOOP_TAIL
    code += b"\x75" + struct.pack("<b", top - (len(code) + 2)) + _LOOP_END
    return Site(function, loop)


def _add_mark(code: bytearray) -> Site:
    """prctl(option, 1, &mark, sizeof mark, 0); the mark is at the beginning of the file."""
    at = _align(code)
    code += bytes.fromhex("b89d000000 bf") + struct.pack("<I", _MARK_OPTION)  # mov 157, eax; mov option, edi
    code += bytes.fromhex("be01000000 488d15") + struct.pack("<i", -(len(code) + 5 + 7))  # mov 1, esi; lea mark, rdx
    code += bytes.fromhex("41ba40000000 4531c0 0f05 c3")  # mov 64, r10d; clear r8d; syscall; ret
    loop = _align(code)
    code += _LOOP_HEAD
    top = len(code)
    code += b"\xe8" + struct.pack("<i", at - (top + 5)) + _LOOP_TAIL
    code += b"\x75" + struct.pack("<b", top - (len(code) + 2)) + _LOOP_END
    return Site(at, loop)


def _align(code: bytearray) -> int:
    code += b"\xcc" * (-len(code) % _ALIGNMENT)
    return len(code)


class LoopProcess:
    """The process that runs the loops; a context manager that ends it.

    Attributes:
        pid: of the process, as this one sees it.
    """

    def __init__(self, code: LoopCode) -> None:
        self._code = code
        words = [sys.executable, "-I", "-S", str(_CHILD), str(code.fd), str(code.size)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(code.fd,), text=True
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, loops: Sequence[tuple[str, int]], rounds: int, budget_s: float) -> list[list[int]]:
        """Run loops in turns.

        Args:
            loops: (site, calls) in the order of each round. One more round comes first and is thrown away.
            rounds: most rounds.
            budget_s: no further round begins after this, but 3 there are.

        Returns:
            For each round the nanoseconds of the thread's CPU time, system included, of each loop.

        Raises:
            MachineError: the process ended.
        """
        asked = [[self._code.sites[name].loop, calls] for name, calls in loops]
        request = json.dumps({"loops": asked, "rounds": rounds, "budget_ns": int(budget_s * 1e9)})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            said = self._process.stderr.read().strip()
            raise MachineError(f"the process that calls probed code ended: {said or self._process.wait()}")
        results: list[list[int]] = json.loads(answer)
        return results
