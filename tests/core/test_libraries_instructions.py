# SPDX-License-Identifier: Apache-2.0
"""Which instruction the kernel emulates, on bytes made by hand."""

from __future__ import annotations

import pytest

from fencepath._libraries import InstructionClass, classify, jump_target

EMULATED = {
    "push %rax": "50",
    "push %rbp": "55 48 89 e5",
    "push %rdi": "57",
    "push %r8": "41 50",
    "push %r15": "41 57 41 56",
    "nop": "90",
    "xchg %ax,%ax": "66 90",
    "pause": "f3 90",
    "jmp short": "eb 10",
    "jmp near": "e9 00 01 00 00",
    "notrack-prefixed jmp": "3e e9 00 01 00 00",
    "call": "e8 00 01 00 00",
    "je short": "74 05",
    "jg short": "7f 05",
    "jo near": "0f 80 00 01 00 00",
    "jg near": "0f 8f 00 01 00 00",
}
STEPPED = {
    "nothing": "",
    "endbr64": "f3 0f 1e fa",
    "sub $8,%rsp": "48 83 ec 08",
    "mov %rsp,%rbp": "48 89 e5",
    "pop %rax": "58",
    "ret": "c3",
    "rep ret": "f3 c3",
    "indirect jmp": "ff e0",
    "indirect call": "ff d0",
    "push imm8": "6a 01",
    "push mem": "ff 35 00 00 00 00",
    "push with another REX": "48 55",
    "push with operand size": "66 55",
    "xchg %rax,%r8, whose opcode is nop's": "41 90",
    "16-bit jmp": "66 e9 00 01",
    "16-bit je": "66 0f 84 00 01",
    "setcc beside the conditional jumps": "0f 90 c0",
    "a lone two-byte escape": "0f",
    "a lone REX": "41",
}
LONG_NOPS = ("0f 1f 00", "0f 1f 40 00", "0f 1f 44 00 00", "66 0f 1f 44 00 00", "66 2e 0f 1f 84 00 00 00 00 00")


@pytest.mark.parametrize("code", EMULATED.values(), ids=EMULATED.keys())
def test_emulated(code: str) -> None:
    assert classify(bytes.fromhex(code)) is InstructionClass.EMULATED


@pytest.mark.parametrize("code", STEPPED.values(), ids=STEPPED.keys())
def test_stepped(code: str) -> None:
    assert classify(bytes.fromhex(code)) is InstructionClass.STEPPED
    assert classify(bytes.fromhex(code), long_nop=InstructionClass.EMULATED) is InstructionClass.STEPPED


@pytest.mark.parametrize("code", LONG_NOPS)
def test_long_nops_are_as_the_kernel_was_measured(code: str) -> None:
    assert classify(bytes.fromhex(code)) is InstructionClass.STEPPED
    assert classify(bytes.fromhex(code), long_nop=InstructionClass.EMULATED) is InstructionClass.EMULATED


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("e9 fb 0f 00 00", 0x2000),
        ("f3 0f 1e fa e9 f7 0f 00 00", 0x2000),
        ("eb 0e", 0x1010),
        ("eb fe", 0x1000),
        ("e9 fb ef ff ff", 0),
        ("e8 fb 0f 00 00", -1),
        ("55 e9 fb 0f 00 00", -1),
        ("ff 25 00 00 00 00", -1),
        ("e9 fb 0f 00", -1),
        ("", -1),
    ],
)
def test_where_a_jump_goes(code: str, target: int) -> None:
    assert jump_target(bytes.fromhex(code), 0x1000) == target
