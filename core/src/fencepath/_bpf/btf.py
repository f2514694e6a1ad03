# SPDX-License-Identifier: Apache-2.0
"""Offsets of kernel structure members and numbers of functions, from the kernel's own type information (BTF).

Format: Documentation/bpf/btf.rst. Only structures, unions, their members, and names of functions are read. That of a module goes on
where the kernel's ends: in its numbers of types, and in its texts.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepath.errors import MachineError

__all__ = ["VMLINUX_BTF", "function_number", "member_offsets"]

VMLINUX_BTF = Path("/sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_STRUCT, _UNION, _FUNCTION = 4, 5, 12
_QUALIFIERS = (8, 9, 10, 11)
"""Names, volatile, const and restrict, which stand before a type."""
# Bytes behind each type, by kind: a fixed part, and one for each of `vlen`.
_FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
_LAST_KIND = 19


def member_offsets(wanted: Iterable[str], path: Path = VMLINUX_BTF) -> dict[str, int]:
    """Return byte offsets of structure members.

    Args:
        wanted: such as ``file.f_inode``. Members of anonymous structures and unions inside count as the outer one's.
        path: the file.

    Raises:
        MachineError: if there is no BTF, or a member is in none of the kernel's structures of that name.
    """
    members = [tuple(item.split(".", 1)) for item in wanted]
    try:
        types = _types(path)
        found = {f"{name}.{member}": types.offset(name, member) for name, member in members}
    except (struct.error, IndexError, ValueError) as error:
        raise MachineError(f"{path} is not of a known form: {error}") from error
    lacking = [item for item, offset in found.items() if offset is None]
    if lacking:
        raise MachineError(f"this kernel has no {', '.join(lacking)}")
    return {item: offset for item, offset in found.items() if offset is not None}


def function_number(name: str, module: str = "", folder: Path = VMLINUX_BTF.parent) -> int | None:
    """Return the number of a function's type, None if there is none of that name.

    Args:
        name: of the function.
        module: whose it is; "" for the kernel itself.
        folder: where the files are.

    Raises:
        MachineError: the kernel, or the module, has no BTF.
    """
    kernel = folder / VMLINUX_BTF.name
    path = folder / module if module else kernel
    try:
        base = _types(kernel)
        return (_Types(_read(path), base) if module else base).function(name)
    except (struct.error, IndexError, ValueError) as error:
        raise MachineError(f"{path} is not of a known form: {error}") from error


def _types(path: Path) -> _Types:
    return _read_types(path, path.stat().st_mtime_ns if path.exists() else 0)


@functools.lru_cache(maxsize=1)
def _read_types(path: Path, written_ns: int) -> _Types:
    """Kept, since the kernel's has some 150,000 types, which takes 0.3 s."""
    del written_ns
    return _Types(_read(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MachineError(
            f"{path} cannot be read ({error.strerror})", "use a kernel with CONFIG_DEBUG_INFO_BTF"
        ) from error


class _Types:
    def __init__(self, data: bytes, base: _Types | None = None) -> None:
        magic, _, _, size, type_at, type_size, text_at, text_size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("wrong magic number")
        self._data = data
        self._text = data[size + text_at : size + text_at + text_size]
        self._first_text = base.text_end if base else 0
        # Type 0 is void and not in the file.
        self._first = base.number_end if base else 0
        self._places = [*([] if base else [0]), *self._walk(size + type_at, size + type_at + type_size)]

    def _walk(self, at: int, end: int) -> Iterator[int]:
        while at < end:
            yield at
            info = _TYPE.unpack_from(self._data, at)[1]
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            if not 0 < kind <= _LAST_KIND:
                raise ValueError(f"kind {kind} of a type is not known")
            at += _TYPE.size + _FIXED.get(kind, 0) + _EACH.get(kind, 0) * count

    @property
    def text_end(self) -> int:
        """Where the texts of a module's types go on."""
        return self._first_text + len(self._text)

    @property
    def number_end(self) -> int:
        """Where a module's types go on."""
        return self._first + len(self._places)

    def function(self, name: str) -> int | None:
        names = self._text_places(name)
        for number, place in enumerate(self._places, self._first):
            text, info, _ = _TYPE.unpack_from(self._data, place)
            if number and info >> 24 & 0x1F == _FUNCTION and text in names:
                return number
        return None

    def offset(self, name: str, member: str) -> int | None:
        names = self._text_places(name)
        for place in self._places[1:]:
            text, info, _ = _TYPE.unpack_from(self._data, place)
            if (
                text in names
                and info >> 24 & 0x1F == _STRUCT
                and (found := self._member(place, self._text_places(member))) is not None
            ):
                return found
        return None

    def _text_places(self, name: str) -> frozenset[int]:
        # A name is written once, but a compiler may let it be the tail of a longer one.
        places: set[int] = set()
        sought = name.encode() + b"\0"
        at = self._text.find(sought)
        while at >= 0:
            places.add(self._first_text + at)
            at = self._text.find(sought, at + 1)
        return frozenset(places)

    def _member(self, place: int, names: frozenset[int]) -> int | None:
        info = _TYPE.unpack_from(self._data, place)[1]
        bits_mask = 0xFFFFFF if info >> 31 else 0xFFFFFFFF
        for index in range(info & 0xFFFF):
            text, kind, bits = _MEMBER.unpack_from(self._data, place + _TYPE.size + index * _MEMBER.size)
            bits &= bits_mask
            if text in names:
                return int(bits // 8)
            if text == 0 and (inner := self._within(kind, names)) is not None:
                return int(bits // 8) + inner
        return None

    def _within(self, kind: int, names: frozenset[int]) -> int | None:
        """The offset in an anonymous structure or union, which may be qualified, as in struct vm_fault."""
        place = self._places[kind]
        _, info, behind = _TYPE.unpack_from(self._data, place)
        while info >> 24 & 0x1F in _QUALIFIERS:
            place = self._places[behind]
            _, info, behind = _TYPE.unpack_from(self._data, place)
        return self._member(place, names) if info >> 24 & 0x1F in (_STRUCT, _UNION) else None
