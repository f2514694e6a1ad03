# SPDX-License-Identifier: Apache-2.0
"""The kernel's own type information (BTF): members of structures, functions, variables of a section.

Format: Documentation/bpf/btf.rst, include/uapi/linux/btf.h. That of a module goes on where the kernel's ends: in its numbers of
types, and in its texts.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fencepath.errors import MachineError

__all__ = ["BTF_FOLDER", "KernelTypes"]

BTF_FOLDER = Path("/sys/kernel/btf")

_KERNEL = "vmlinux"
_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_STRUCT, _UNION, _FUNCTION, _VARIABLE, _SECTION = 4, 5, 12, 14, 15
_QUALIFIERS = (8, 9, 10, 11)
"""Names, volatile, const and restrict, which stand before a type."""
_LAST_KIND = 19
# Words of each type, by kind: three and a fixed number, and some for each of what it has many of. An unknown kind leads beyond
# the end of any file.
_KINDS = np.arange(128)
_WORDS = np.where((_KINDS > 0) & (_KINDS <= _LAST_KIND), 3, 1 << 30).astype(np.uint32)
_WORDS[[1, 14, 17]] += 1
_WORDS[3] += 3
_EACH = np.zeros(128, np.uint32)
_EACH[[4, 5, 15, 19]] = 3
_EACH[[6, 13]] = 2
# Wider since libbpf f7a6b9eaff3e (2026) than the 16 and 5 bits of old, whose other bits are 0.
_COUNT_MASK, _KIND_SHIFT, _KIND_MASK = 0xFFFFFF, 24, 0x7F
_PIECE = 16384
"""Words at a time: what is reckoned of so many stays in the processor's cache."""

Words: TypeAlias = NDArray[np.uint32]
Places: TypeAlias = NDArray[np.intp]


class KernelTypes:
    """Types of the running kernel, or of one of its modules.

    Where there are none, nothing is found. The file is read once per process and version of it.

    Args:
        module: whose types, without those of the kernel that they go on from; "" for the kernel's.
        folder: where the files are.

    Attributes:
        problem: why there are none; None if there are.
    """

    def __init__(self, module: str = "", folder: Path = BTF_FOLDER) -> None:
        self.problem: MachineError | None = None
        self._types: _Types | None = None
        try:
            kernel = _types(folder / _KERNEL)
            self._types = _types(folder / module, kernel) if module else kernel
        except MachineError as error:
            self.problem = error

    def offsets(self, members: Iterable[str]) -> dict[str, int]:
        """Return byte offsets of structure members, of those that there are.

        A member of a nameless structure or union inside counts as the outer one's. Of several structures of one name it is the first
        that has the member. Of a bit field it is the byte in which it begins.

        Args:
            members: such as ``file.f_inode``.
        """
        if self._types is None:
            return {}
        found = {wanted: self._types.offset(*wanted.split(".", 1)) for wanted in members}
        return {wanted: offset for wanted, offset in found.items() if offset is not None}

    def require_offsets(self, members: Iterable[str]) -> dict[str, int]:
        """Return byte offsets of all the members; else as :meth:`offsets`.

        Raises:
            MachineError: if there are no types, or a member is in none of the structures of that name.
        """
        wanted = list(members)
        found = self.offsets(wanted)
        if self.problem is not None:
            raise self.problem
        lacking = [member for member in wanted if member not in found]
        if lacking:
            raise MachineError(f"this kernel has no {', '.join(lacking)}")
        return found

    def function(self, name: str) -> int | None:
        """Return the number of a function's type, by which fentry is attached; None if there is none of that name."""
        return None if self._types is None else self._types.function(name)

    def variables(self, beside: str) -> dict[str, int]:
        """Return byte offsets of the variables in one section, such as that of the per-CPU ones.

        A name that two of them have is left out. Empty if no section has the variable.

        Args:
            beside: a variable of that section.
        """
        return {} if self._types is None else self._types.variables(beside)


def _types(path: Path, base: _Types | None = None) -> _Types:
    try:
        status = path.stat()
        return _read_types(path, (status.st_mtime_ns, status.st_size), base)
    except OSError as error:
        raise MachineError(
            f"{path} cannot be read ({error.strerror})", "use a kernel with CONFIG_DEBUG_INFO_BTF"
        ) from error
    except (struct.error, ValueError) as error:
        raise MachineError(f"{path} is not of a known form: {error}") from error


@functools.lru_cache(maxsize=4)
def _read_types(path: Path, version: tuple[int, int], base: _Types | None) -> _Types:
    """Kept, since all the kernel's types are walked over: the kernel's own, and those of the modules last asked for."""
    del version
    return _Types(path.read_bytes(), base)


class _Types:
    """The types of one file.

    Attributes:
        end: number of the type that would be the next.
        texts: those of `base` too.

    Raises:
        ValueError: this is no BTF.
        struct.error: this is shorter than its header.
    """

    def __init__(self, data: bytes, base: _Types | None) -> None:
        magic, _, _, head, types_at, types_bytes, texts_at, texts_bytes = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("wrong magic number")
        if head + max(types_at + types_bytes, texts_at + texts_bytes) > len(data):
            raise ValueError("it is cut")
        self._base = base
        # Type 0 is void, and in no file.
        self._first: int = base.end if base else 1
        self._words: Words = np.frombuffer(data, "<u4", types_bytes // 4, head + types_at)
        self._begins = _begins(self._words)
        self.end: int = self._first + len(self._begins)
        self._names = self._words[self._begins]
        information = self._words[self._begins + 1]
        self._kinds = information >> _KIND_SHIFT & _KIND_MASK
        self._counts = information & _COUNT_MASK
        # With bit 31 the upper byte of a member's offset is a bit field's width.
        self._bits_masks = np.where(information >> 31, 0xFFFFFF, 0xFFFFFFFF)
        self.texts: bytes = (base.texts if base else b"") + data[head + texts_at : head + texts_at + texts_bytes]
        if not self.texts.endswith(b"\0"):
            raise ValueError("the last of its texts has no end")

    def offset(self, name: str, member: str) -> int | None:
        """The byte offset of a structure's member."""
        text = _terminated(member)
        offsets = (self.member(number, text, set()) for number in self._numbers(_STRUCT, name))
        return next((offset for offset in offsets if offset is not None), None)

    def function(self, name: str) -> int | None:
        """The number of the first function of a name."""
        return next(iter(self._numbers(_FUNCTION, name)), None)

    def variables(self, beside: str) -> dict[str, int]:
        """Byte offsets of the variables in the section that holds one of them."""
        sought = set(self._numbers(_VARIABLE, beside))
        for index in np.flatnonzero(self._kinds == _SECTION).tolist() if sought else ():
            entries = self._triples(index)
            if not sought.isdisjoint(number for number, _, _ in entries):
                return self._named([(number, offset) for number, offset, _ in entries])
        return {}

    def _numbers(self, kind: int, name: str) -> list[int]:
        """Numbers of the types of a kind and name."""
        indices: Places = np.flatnonzero(self._kinds == kind)
        places = self._names[indices].astype(np.intp)
        text = _terminated(name)
        inside = places + len(text) <= len(self.texts)
        indices, places = indices[inside], places[inside]
        # Compared where the types point to: a name is written once, but may be the tail of a longer one.
        characters = np.frombuffer(self.texts, np.uint8)
        for at, character in enumerate(text):
            same = characters[places + at] == character
            indices, places = indices[same], places[same]
        numbers: list[int] = (indices + self._first).tolist()
        return numbers

    def member(self, number: int, name: bytes, searched: set[int]) -> int | None:
        """The byte offset of a member, also where it is in nameless structures and unions, which may be qualified (vm_fault)."""
        if self._base is not None and number < self._first:
            return self._base.member(number, name, searched)
        index = number - self._first
        # Damaged types may be members of themselves.
        if number in searched or not 0 <= index < len(self._begins):
            return None
        searched.add(number)
        kind = int(self._kinds[index])
        if kind in _QUALIFIERS:
            return self.member(int(self._words[self._begins[index] + 2]), name, searched)
        if kind not in (_STRUCT, _UNION):
            return None
        mask = int(self._bits_masks[index])
        for text, inside, bits in self._triples(index):
            if self.texts.startswith(name, text):
                return (bits & mask) // 8
            if text == 0 and (inner := self.member(inside, name, searched)) is not None:
                return (bits & mask) // 8 + inner
        return None

    def _triples(self, index: int) -> list[tuple[int, int, int]]:
        """What a structure, union or section has: three words each."""
        begin = int(self._begins[index]) + 3
        words = self._words[begin : begin + 3 * int(self._counts[index])].tolist()
        return list(zip(words[::3], words[1::3], words[2::3], strict=True))

    def _named(self, variables: Iterable[tuple[int, int]]) -> dict[str, int]:
        found: dict[str, int] = {}
        ambiguous: set[str] = set()
        for number, offset in variables:
            if self._first <= number < self.end:
                name = self._text(int(self._names[number - self._first]))
                ambiguous |= {name} & found.keys()
                found[name] = offset
        return {name: offset for name, offset in found.items() if name not in ambiguous}

    def _text(self, place: int) -> str:
        return self.texts[place : self.texts.find(b"\0", place)].decode(errors="replace")


def _begins(words: Words) -> Places:
    """Where each type begins.

    How long types are is reckoned for every word as if one began there, which numpy does at once, and then it is gone from each
    to the next. That takes half the time of looking at each type, and unlike a search for a name it finds types only.
    """
    found: list[int] = []
    end, at = len(words) - 2, 0
    for start in range(0, end, _PIECE):
        information = words[start + 1 : start + 1 + _PIECE]
        kinds = information >> _KIND_SHIFT & _KIND_MASK
        lengths = array("I", (_WORDS[kinds] + _EACH[kinds] * (information & _COUNT_MASK)).tobytes())
        stop = min(start + _PIECE, end)
        while at < stop:
            found.append(at)
            at += lengths[at - start]
    if at != len(words):
        raise ValueError("the types do not end where they should, or a kind of them is not known")
    return np.array(found, np.intp)


def _terminated(name: str) -> bytes:
    return name.encode() + b"\0"
