# SPDX-License-Identifier: Apache-2.0
"""Programs of uprobes get no stack that another run of them may be using."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest

from fencepath._bpf import private_stacks, sys
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.private_stacks import gives_private_stacks, on_own_stack, tail_call_prevents
from fencepath._bpf.sys import ProgramType

pytestmark = pytest.mark.bpf

# two functions with 400 bytes of stack each: more than the 512 of one stack
DEEP = private_stacks._TWO_DEEP
PLAIN = private_stacks._RETURN


def load(instructions: bytes, kind: ProgramType = ProgramType.UPROBE) -> str:
    """Load a program; return what the verifier said if it was refused, else ""."""
    log = ctypes.create_string_buffer(1 << 14)
    try:
        os.close(sys.prog_load(kind, "deep", instructions, log=log))
    except OSError:
        return log.value.decode()
    return ""


def test_whether_a_kernel_gives_them_is_what_it_takes() -> None:
    assert gives_private_stacks() == (load(DEEP) == "")


def test_a_guarded_program_has_one_stack_on_every_kernel() -> None:
    with on_own_stack(DEEP, guarded=True) as guarded:
        assert re.search(r"combined stack size of 2 calls is \d+\. Too large", load(guarded))
    assert tail_call_prevents()


def test_a_guarded_program_that_fits_loads() -> None:
    with on_own_stack(PLAIN, guarded=True) as guarded:
        assert load(guarded) == ""
        assert (guarded != PLAIN) == gives_private_stacks()


def test_one_that_is_not_guarded_stays_as_it_is() -> None:
    with on_own_stack(DEEP, guarded=False) as same:
        assert same == DEEP


def test_nothing_stays_open() -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with on_own_stack(PLAIN, guarded=True):
        pass
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def tag(fd: int) -> str:
    """What the kernel makes of a program's instructions before it changes them."""
    match = re.search(r"^prog_tag:\s+(\w+)$", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def test_compiled_programs_are_guarded_on_uprobes_alone() -> None:
    with BpfObject("int on_call(void *ctx) { return 0; }") as compiled:
        uprobe = compiled.load("on_call", ProgramType.UPROBE)
        tracepoint = compiled.load("on_call", ProgramType.TRACEPOINT)
        assert (tag(uprobe) != tag(tracepoint)) == gives_private_stacks()
