# SPDX-License-Identifier: Apache-2.0
"""What the kernel does with the instruction under a uprobe: that decides the probe's cost.

Emulated in the trap itself: about 0.7 µs. Everything else is copied out of line and single-stepped, a second trap:
about 9 µs on the same machine. Which is which: ``branch_setup_xol_ops`` and ``push_setup_xol_ops`` in
arch/x86/kernel/uprobes.c; the same since 4.x for the forms known here. Multi-byte nops (0F 1F) are emulated by newer
kernels only (seen on 6.18), so the caller says which kind this kernel is.
"""

from __future__ import annotations

import enum
import itertools

import msgspec

from fencepath._libraries.elf import ElfImage
from fencepath._libraries.symbols import Symbol
from fencepath.errors import MachineError

__all__ = ["JUMP_BYTES", "InstructionClass", "ProbePoint", "cheapest_offset", "classify", "jump_target"]

_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_LONGEST = 15
JUMP_BYTES = 9
"""What :func:`jump_target` needs to see: an endbr64 and a jump."""
_PREFIXES = frozenset(b"\x66\x67\xf2\xf3\x2e\x36\x3e\x26\x64\x65")


class InstructionClass(enum.StrEnum):
    """How the kernel gets past the probed instruction."""

    EMULATED = "emulated"
    STEPPED = "stepped"


class ProbePoint(msgspec.Struct, frozen=True):
    """Where to attach for a function.

    Attributes:
        offset: in the file, bytes.
        instruction: class of the instruction there.
        moved: whether it lies behind the function's endbr64.
    """

    offset: int
    instruction: InstructionClass
    moved: bool

    @property
    def function_offset(self) -> int:
        """Where the function begins, bytes in the file."""
        return self.offset - len(_ENDBR64) if self.moved else self.offset


def classify(code: bytes, *, long_nop: InstructionClass = InstructionClass.STEPPED) -> InstructionClass:
    """Return the class of the x86-64 instruction that `code` begins with.

    Errs to stepped: a form that is not known to be emulated on every supported kernel counts as stepped, so that an
    estimated cost is never too low.

    Args:
        code: bytes from the probed address on; 15 are always enough.
        long_nop: what this kernel does with multi-byte nops, if that was measured.
    """
    if _is_emulated(code):
        return InstructionClass.EMULATED
    return long_nop if _is_long_nop(code) else InstructionClass.STEPPED


def cheapest_offset(
    image: ElfImage, symbol: Symbol, *, force: bool = False, long_nop: InstructionClass = InstructionClass.STEPPED
) -> ProbePoint:
    """Return where a probe of `symbol` costs least and still sees its arguments, stack and return address.

    Args:
        image: the file.
        symbol: a function in it.
        force: accept arm64, where single-stepping under load has crashed kernels.
        long_nop: as in :func:`classify`.

    Raises:
        MachineError: for arm64 without `force`, and for any other machine but x86-64.
    """
    if image.machine == "EM_AARCH64" and force:
        return ProbePoint(symbol.offset, InstructionClass.STEPPED, moved=False)
    if image.machine != "EM_X86_64":
        remedy = "force it to accept the risk" if image.machine == "EM_AARCH64" else ""
        raise MachineError(f"uprobes are refused on {image.machine.removeprefix('EM_').lower()} ({image.name})", remedy)
    code = image.read_code(symbol.offset, len(_ENDBR64) + _LONGEST)
    if code.startswith(_ENDBR64) and (symbol.size == 0 or symbol.size > len(_ENDBR64)):
        behind = classify(code[len(_ENDBR64) :], long_nop=long_nop)
        if behind is InstructionClass.EMULATED:
            return ProbePoint(symbol.offset + len(_ENDBR64), behind, moved=True)
    return ProbePoint(symbol.offset, classify(code, long_nop=long_nop), moved=False)


def jump_target(code: bytes, offset: int) -> int:
    """Return where the jump goes that x86-64 code consists of, after an endbr64 or not; -1 if it begins otherwise.

    Args:
        code: bytes from `offset` on; :data:`JUMP_BYTES` are enough.
        offset: of the code. The result is in the same terms.
    """
    begin = len(_ENDBR64) if code.startswith(_ENDBR64) else 0
    for opcode, width in ((0xE9, 4), (0xEB, 1)):
        end = begin + 1 + width
        if code[begin : begin + 1] == bytes([opcode]) and len(code) >= end:
            return offset + end + int.from_bytes(code[begin + 1 : end], "little", signed=True)
    return -1


def _is_emulated(code: bytes) -> bool:
    # push of a register: 50+r, or 41 50+r for r8 to r15. With any other prefix the kernel steps it.
    if code[:1] == b"\x41":
        return len(code) > 1 and 0x50 <= code[1] <= 0x57
    if code and 0x50 <= code[0] <= 0x57:
        return True
    prefixes = bytes(itertools.takewhile(lambda byte: byte in _PREFIXES, code))
    rest = code[len(prefixes) :]
    if rest[:1] == b"\x90":
        return True
    if b"\x66" in prefixes:
        # The kernel refuses 16-bit branches.
        return False
    return _is_relative_branch(rest)


def _is_relative_branch(code: bytes) -> bool:
    if not code:
        return False
    jump_or_call = code[0] in (0xEB, 0xE9, 0xE8)
    short_conditional = 0x70 <= code[0] <= 0x7F
    near_conditional = code[0] == 0x0F and len(code) > 1 and 0x80 <= code[1] <= 0x8F
    return jump_or_call or short_conditional or near_conditional


def _is_long_nop(code: bytes) -> bool:
    rest = code.lstrip(b"\x66\x2e")
    # Register field 0: the other values of 0F 1F are nops too, but no assembler writes them.
    return rest[:2] == b"\x0f\x1f" and len(rest) > 2 and rest[2] & 0x38 == 0
