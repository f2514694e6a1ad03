# SPDX-License-Identifier: Apache-2.0
"""Names under which a program registers its functions, read from the instructions of those calls.

Compilers of GPU languages make a host stub for each kernel, and a constructor that calls a function of the runtime
(``__cudaRegisterFunction``) with the stub's address and the kernel's name. A stripped library has no symbol for the stub, but it
still has that call, in which gcc and clang load both from memory relative to the instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fencepath._libraries.elf import ElfImage
from fencepath._libraries.relocations import Relocations
from fencepath._libraries.x86 import LOAD, LOAD_ADDRESS, STORE, call_target, decode

__all__ = ["SCAN_LIMIT_BYTES", "RegisteredName", "registered_names"]

SCAN_LIMIT_BYTES = 512 << 20
"""Most code of one file that is looked through. libtorch_cuda has about 150 MB."""

_CHUNK_BYTES = 4 << 20
_BEFORE, _AFTER = 64, 96
"""Bytes before and after the load of the address in which the rest of the call is looked for; seen: up to 50."""
_RELATIVE_BYTES = 7
"""Length of an instruction of 64 bits on memory relative to the next one."""
_REGISTERS = (7, 6, 2, 1, 8, 9)
"""Numbers of rdi, rsi, rdx, rcx, r8 and r9 in instructions, by argument."""
_NAME = re.compile(rb"([A-Za-z_$.][\w$.]*)\0", re.ASCII)
_NAME_LIMIT_BYTES = 16384
"""Names of templates' instances are long; seen: 4,000 bytes."""

_Places: TypeAlias = npt.NDArray[np.int64]


class RegisteredName(NamedTuple):
    """A name that a function is registered under.

    Attributes:
        name: the string that is passed.
        sure: whether the call is known to be of the registering function; else it only looks like it, as in a file that
            has that function linked in without a symbol.
    """

    name: str
    sure: bool


class _Call(NamedTuple):
    """How the registering function is called in a file.

    Attributes:
        address: register with the function's address.
        name: register with its name.
        targets: where calls of it go; with `slots`, none if that is not known.
        slots: pointers through which it is called.
    """

    address: int
    name: int
    targets: frozenset[int]
    slots: frozenset[int]

    @property
    def known(self) -> bool:
        return bool(self.targets or self.slots)


class _Piece(NamedTuple):
    """A piece of code.

    Attributes:
        address: virtual address of its first byte in the file's own terms.
        code: the bytes.
        end: how much of `code` is looked through; the rest is what follows, so that no call is cut.
    """

    address: int
    code: bytes
    end: int


def registered_names(
    image: ElfImage, symbol: str, address: int, name: int, offsets: Collection[int], within: Callable[[], bool]
) -> dict[int, RegisteredName]:
    """Return the names that functions of a file are registered under; those with two names are left out.

    Args:
        image: the file; of x86-64, else nothing is found.
        symbol: the registering function.
        address: its argument with the function's address, 0 to 5.
        name: its argument with the name, 0 to 5.
        offsets: file offsets of the functions.
        within: asked between pieces of 4 MB; when it says no, nothing more is looked at.

    Raises:
        NotElfError: the file is damaged.
    """
    if image.machine != "EM_X86_64":
        return {}
    relocations = Relocations(image)
    targets = relocations.stubs_of(symbol) | {found.address for found in image.versions(symbol)}
    call = _Call(_REGISTERS[address], _REGISTERS[name], targets, relocations.slots_of(symbol))
    wanted = {place: offset for offset in offsets if (place := image.address_at(offset)) is not None}
    pointers = {slot: place for slot, place in relocations.pointers.items() if place in wanted}
    found: dict[int, set[RegisteredName]] = {}
    for piece in _pieces(image, within):
        for at, place in _loads(piece, call.address, wanted, pointers):
            text = _name_of_call(image, piece, at, call)
            if text is not None:
                found.setdefault(wanted[place], set()).add(RegisteredName(text, call.known))
    return {offset: next(iter(names)) for offset, names in found.items() if len(names) == 1}


def _pieces(image: ElfImage, within: Callable[[], bool]) -> Iterator[_Piece]:
    left = SCAN_LIMIT_BYTES
    for segment in image.executable_segments:
        for at in range(0, min(segment.file_size, left), _CHUNK_BYTES):
            if not within():
                return
            before = min(at, _BEFORE)
            size = before + min(_CHUNK_BYTES, segment.file_size - at)
            rest = min(size + _AFTER, segment.file_size - at + before)
            code = image.read_code(segment.offset + at - before, rest)
            yield _Piece(segment.address + at - before, code, size)
        left -= min(segment.file_size, left)


def _loads(
    piece: _Piece, register: int, wanted: Collection[int], pointers: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield where in a piece the address of a wanted function is loaded into a register, and the address."""
    for opcode, goals in ((LOAD_ADDRESS, {place: place for place in wanted}), (LOAD, pointers)):
        places, targets = _relative(piece, opcode, register)
        hit = np.isin(targets, np.array(list(goals), np.int64))
        for at, target in zip(places[hit].tolist(), targets[hit].tolist(), strict=True):
            yield at, goals[target]


def _relative(piece: _Piece, opcode: int, register: int) -> tuple[_Places, _Places]:
    """Find the instructions on memory relative to the next one: where they are, and the addresses that they name."""
    code = np.frombuffer(piece.code, np.uint8)
    pattern = _pattern(opcode, register)
    size = min(piece.end, len(code) - _RELATIVE_BYTES + 1)
    if size <= 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    match = code[:size] == pattern[0]
    for number in (1, 2):
        match &= code[number : size + number] == pattern[number]
    at = np.flatnonzero(match).astype(np.int64)
    words = np.ascontiguousarray(code[at[:, None] + np.arange(3, _RELATIVE_BYTES)]).view("<i4")[:, 0]
    return at, piece.address + at + _RELATIVE_BYTES + words


def _pattern(opcode: int, register: int) -> bytes:
    """The first three bytes of an instruction on a register of 64 bits and memory relative to the next one."""
    return bytes([0x4C if register & 8 else 0x48, opcode, 0x05 | (register & 7) << 3])


def _name_of_call(image: ElfImage, piece: _Piece, at: int, call: _Call) -> str | None:
    """The name in the call for which an address is loaded at `at`; None if it is another call, or hard to read."""
    state = _state_at_call(piece, at)
    if state is None or not _is_call_of(call, image, piece, state.end):
        return None
    value = state.registers.get(call.name, _Before(call.name))
    if isinstance(value, _Before):
        value = _loaded_before(image, piece, at, value.register)
    return _string(image, value) if value is not None else None


class _Before(NamedTuple):
    """The value that a register had where the address is loaded."""

    register: int


_Value: TypeAlias = int | _Before | None
"""An address, the value of a register, or anything else."""


class _State(NamedTuple):
    """What is in registers, as far as it changed, when a call is reached at `end`."""

    registers: dict[int, _Value]
    end: int


def _state_at_call(piece: _Piece, at: int) -> _State | None:
    """Follow the instructions from `at` to the next call; None if one of them is not known."""
    state = _State({}, at)
    while state.end < at + _AFTER:
        if call_target(piece.code, state.end) is not None:
            return state
        found = decode(piece.code, state.end)
        if found is None:
            return None
        end = state.end + found.length
        if found.opcode == LOAD_ADDRESS and found.wide and found.relative:
            state.registers[found.register] = _relative_address(piece, end)
        elif found.opcode in (LOAD, STORE) and found.wide and found.other >= 0:
            to, source = (found.register, found.other)[:: 1 if found.opcode == LOAD else -1]
            state.registers[to] = state.registers.get(source, _Before(source))
        else:
            # it may have written any of them
            state.registers.update({found.register: None, found.other: None})
        state = _State(state.registers, end)
    return None


def _relative_address(piece: _Piece, end: int) -> int:
    """The address that an instruction ending at `end`, with nothing behind the relative word, names."""
    return piece.address + end + int.from_bytes(piece.code[end - 4 : end], "little", signed=True)


def _is_call_of(call: _Call, image: ElfImage, piece: _Piece, at: int) -> bool:
    target = call_target(piece.code, at)
    assert target is not None  # that is where it was found
    through_pointer, offset = target
    address = piece.address + offset
    if call.known:
        return address in (call.slots if through_pointer else call.targets)
    return not through_pointer and image.file_offset(address) is not None


def _loaded_before(image: ElfImage, piece: _Piece, at: int, register: int) -> int | None:
    """The address that is in a register at `at`, by the last load or copy since the call before.

    Where instructions begin is not known going backwards, but seven bytes that name a string by chance are next to none.
    """
    begin = _end_of_call_before(image, piece, at)
    while True:
        loaded = piece.code.rfind(_pattern(LOAD_ADDRESS, register), begin, at)
        copied = max((piece.code.rfind(copy, begin, at) for copy in _copies(register)), default=-1)
        if loaded < 0 and copied < 0:
            return None
        if loaded > copied:
            return _relative_address(piece, loaded + _RELATIVE_BYTES) if loaded + _RELATIVE_BYTES <= at else None
        found = decode(piece.code, copied)
        if found is None:
            return None
        at, register = copied, found.register if found.opcode == STORE else found.other


def _copies(register: int) -> Iterator[bytes]:
    """Instructions that copy another register of 64 bits to this one."""
    for source in range(16):
        if source != register:
            yield bytes([0x48 | (source & 8) >> 1 | register >> 3, STORE, 0xC0 | (source & 7) << 3 | register & 7])
            yield bytes([0x48 | (register & 8) >> 1 | source >> 3, LOAD, 0xC0 | (register & 7) << 3 | source & 7])


def _end_of_call_before(image: ElfImage, piece: _Piece, at: int) -> int:
    """Where the last call before `at` ends: what registers held for it is not for this one."""
    for place in range(at - 5, max(at - _BEFORE, 0) - 1, -1):
        target = call_target(piece.code, place)
        if target is not None and (target[0] or image.file_offset(piece.address + target[1]) is not None):
            return place + 5
    return max(at - _BEFORE, 0)


def _string(image: ElfImage, address: int) -> str | None:
    """The name at an address, None if there is none."""
    offset = image.data_offset(address)
    if offset is None:
        return None
    match = _NAME.match(image.read_code(offset, _NAME_LIMIT_BYTES))
    return match[1].decode("ascii") if match else None
