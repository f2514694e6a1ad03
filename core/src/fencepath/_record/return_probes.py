# SPDX-License-Identifier: Apache-2.0
"""Whether return probes would harm programs with a seccomp filter on this machine, found out by a child with a filter.

From 6.11 on a return probe on x86-64 ends in a system call, uretprobe(2), that the kernel puts under the function's
return. Until seccomp let it pass ("seccomp: passthrough uretprobe systemcall without filtering", 6.14, and its backports)
a filter that does not know the call refuses it, and the program is gone. Any process may map a probed file and any may set a filter later, so where that is
so nobody gets return probes.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from fencepath._bpf import sys as bpf
from fencepath._bpf.attach import UprobeMethod, attach_uprobes
from fencepath._record.probe_loops import BODIES, LoopCode

__all__ = ["seccomp_ends_returns"]

_CHILD = Path(__file__).with_name("return_probes_child.py")
_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")
_TIMEOUT_S = 10


@functools.cache
def seccomp_ends_returns(method: UprobeMethod) -> bool:
    """Whether a function with a return probe ends a process whose seccomp filter refuses what it does not know.

    A child that cannot set a filter (the kernel has none) says no; one that does not come back says yes.

    Raises:
        MachineError: uprobes cannot be attached here.
    """
    with LoopCode({"plain": BODIES["emulated"]}) as code:
        program = bpf.prog_load(bpf.ProgramType.UPROBE, "fp_nothing", _RETURN_ZERO, attach_type=method.attach_type)
        try:
            offset = code.sites["plain"].function
            with attach_uprobes(program, code.path, [offset], [0], returning=True, method=method):
                return not _comes_back(code, offset)
        finally:
            os.close(program)


def _comes_back(code: LoopCode, offset: int) -> bool:
    words = [sys.executable, "-I", "-S", str(_CHILD), str(code.fd), str(code.size), str(offset)]
    try:
        done = subprocess.run(words, pass_fds=(code.fd,), capture_output=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode >= 0
