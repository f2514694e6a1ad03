# SPDX-License-Identifier: Apache-2.0
"""x86-64 instructions, as far as compilers prepare calls with them: their lengths, and registers and addresses they name."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LOAD", "LOAD_ADDRESS", "STORE", "Instruction", "call_target", "decode"]

LOAD_ADDRESS, LOAD, STORE = 0x8D, 0x8B, 0x89
"""Opcodes: ``lea``, ``mov`` to a register, ``mov`` from a register."""

_PREFIXES = b"\x66\xf2\xf3\x2e"
_PLAIN = frozenset(b"\x01\x03\x09\x0b\x21\x23\x29\x2b\x31\x33\x39\x3b\x63\x84\x85\x88\x89\x8a\x8b\x8d")
"""Opcodes with a ModRM byte and no immediate."""
_WITH_BYTE = frozenset(b"\x6b\x80\x83\xc0\xc1\xc6")
"""With a ModRM byte and an immediate of one byte."""
_WITH_WORD = frozenset(b"\x69\x81\xc7")
"""With a ModRM byte and an immediate of four bytes."""
_TWO_BYTES = frozenset(b"\x10\x11\x12\x13\x16\x17\x1f\x28\x29\x54\x57\x6c\x6e\x6f\x7e\x7f\xaf\xb6\xb7\xbe\xbf\xd6\xef")
"""Second opcodes, after 0F, with a ModRM byte and no immediate: vector moves and xor, nops, extending moves."""
_NONE = -1


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        length: bytes.
        opcode: its last byte, so that those of one and two bytes are not told apart; -1 of one without ModRM byte.
        register: number of the register operand; -1 if there is none.
        other: number of the other operand if that is a register; -1 if it is memory, or there is none.
        wide: whether it works on 64 bits.
        relative: whether the other operand is memory relative to the next instruction.
    """

    length: int
    opcode: int = _NONE
    register: int = _NONE
    other: int = _NONE
    wide: bool = False
    relative: bool = False


def decode(code: bytes, at: int) -> Instruction | None:
    """Return the instruction at `at`, None if it is none of those known here, or cut."""
    place = at
    while code[place : place + 1] and code[place] in _PREFIXES:
        place += 1
    short = 0x66 in code[at:place]
    rex = code[place] if code[place : place + 1] and code[place] & 0xF0 == 0x40 else 0
    place += bool(rex)
    found = _without_operands(code, place, rex, short=short) or _with_operands(code, place, rex, short=short)
    if found is None or place + found.length > len(code):
        return None
    return found._replace(length=place + found.length - at)


def call_target(code: bytes, at: int) -> tuple[bool, int] | None:
    """Return whether the call at `at` is through a pointer, and the offset of what it names; None if it is no such call."""
    for opcode, through_pointer in ((b"\xe8", False), (b"\xff\x15", True)):
        end = at + len(opcode) + 4
        if code.startswith(opcode, at) and len(code) >= end:
            return through_pointer, end + int.from_bytes(code[end - 4 : end], "little", signed=True)
    return None


def _without_operands(code: bytes, at: int, rex: int, *, short: bool) -> Instruction | None:
    if len(code) <= at:
        return None
    opcode, extended = code[at], (rex & 1) << 3
    if 0x50 <= opcode <= 0x5F:
        return Instruction(1, register=(opcode & 7) | extended)
    if opcode == 0x90:
        return Instruction(1)
    if opcode == 0x6A:
        return Instruction(2)
    if opcode == 0x68 and not short:
        return Instruction(5)
    if 0xB8 <= opcode <= 0xBF and not short:
        return Instruction(9 if rex & 8 else 5, register=(opcode & 7) | extended)
    return None


def _with_operands(code: bytes, at: int, rex: int, *, short: bool) -> Instruction | None:
    if len(code) <= at + 3:
        return None
    opcode, before, immediate = code[at], 1, 0
    if opcode == 0x0F and code[at + 1] in _TWO_BYTES:
        opcode, before = code[at + 1], 2
    elif opcode == 0xC5 and code[at + 2] in _TWO_BYTES:
        # the short form of the prefix that stands for 0F in AVX
        opcode, before = code[at + 2], 3
    elif opcode in _WITH_BYTE:
        immediate = 1
    elif opcode in _WITH_WORD and not short:
        immediate = 4
    elif opcode not in _PLAIN:
        return None
    modes = code[at + before]
    mode, place = modes >> 6, modes & 7
    register = (modes >> 3 & 7) | (rex & 4) << 1
    other = place | (rex & 1) << 3 if mode == 3 else _NONE
    length = before + 1 + _memory_bytes(code, at + before + 1, mode, place) + immediate
    return Instruction(length, opcode, register, other, bool(rex & 8), mode == 0 and place == 5)


def _memory_bytes(code: bytes, at: int, mode: int, place: int) -> int:
    """Bytes behind the ModRM byte that say where in memory."""
    if mode == 3:
        return 0
    scaled = place == 4
    if scaled:
        place = code[at] & 7 if len(code) > at else 0
    return scaled + (1 if mode == 1 else 4 if mode == 2 or place == 5 else 0)
