# SPDX-License-Identifier: Apache-2.0
"""Offsets of kernel structure members, from the kernel's own type information (BTF).

Format: Documentation/bpf/btf.rst. Only structures, unions and their members are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepath.errors import MachineError

__all__ = ["VMLINUX_BTF", "member_offsets"]

VMLINUX_BTF = Path("/sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_STRUCT, _UNION = 4, 5
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
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MachineError(
            f"{path} cannot be read ({error.strerror})", "use a kernel with CONFIG_DEBUG_INFO_BTF"
        ) from error
    members = [tuple(item.split(".", 1)) for item in wanted]
    try:
        types = _Types(data)
        found = {f"{name}.{member}": types.offset(name, member) for name, member in members}
    except (struct.error, IndexError, ValueError) as error:
        raise MachineError(f"{path} is not of a known form: {error}") from error
    lacking = [item for item, offset in found.items() if offset is None]
    if lacking:
        raise MachineError(f"this kernel has no {', '.join(lacking)}")
    return {item: offset for item, offset in found.items() if offset is not None}


class _Types:
    def __init__(self, data: bytes) -> None:
        magic, _, _, size, type_at, type_size, text_at, text_size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("wrong magic number")
        self._data = data
        self._text = data[size + text_at : size + text_at + text_size]
        # Type 0 is void and not in the file.
        self._places = [0, *self._walk(size + type_at, size + type_at + type_size)]

    def _walk(self, at: int, end: int) -> Iterator[int]:
        while at < end:
            yield at
            info = _TYPE.unpack_from(self._data, at)[1]
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            if not 0 < kind <= _LAST_KIND:
                raise ValueError(f"kind {kind} of a type is not known")
            at += _TYPE.size + _FIXED.get(kind, 0) + _EACH.get(kind, 0) * count

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
            places.add(at)
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
            if (
                text == 0
                and self._is_aggregate(kind)
                and (inner := self._member(self._places[kind], names)) is not None
            ):
                return int(bits // 8) + inner
        return None

    def _is_aggregate(self, kind: int) -> bool:
        return _TYPE.unpack_from(self._data, self._places[kind])[1] >> 24 & 0x1F in (_STRUCT, _UNION)
