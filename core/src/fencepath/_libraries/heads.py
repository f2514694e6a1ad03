# SPDX-License-Identifier: Apache-2.0
"""What a file says of itself in its first pages: build-id and soname.

A process that loads PyTorch maps hundreds of files while the recorder has rings to drain, so this reads four small pieces and
leaves everything else to :class:`~fencepath._libraries.elf.ElfImage`, which takes a hundred times as long.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

import msgspec

from fencepath._libraries.notes import NOTE_LIMIT_BYTES, build_id_in

__all__ = ["FileHead", "read_head"]

_HEADER = struct.Struct("<4sBB10x2xHI8xQ8x4x2xHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_STRTAB, _DT_SONAME = 5, 14
_SEGMENTS_LIMIT = 128
_DYNAMIC_LIMIT_BYTES = 1 << 16
_SONAME_LIMIT_BYTES = 256


class FileHead(msgspec.Struct, frozen=True):
    """What a file says of itself.

    Attributes:
        build_id: hex, ``""`` if it has none.
        soname: DT_SONAME, ``""`` if it has none.
    """

    build_id: str
    soname: str


class _Segment(msgspec.Struct, frozen=True):
    kind: int
    offset: int
    address: int
    size: int
    align: int


def read_head(fd: int) -> FileHead:
    """Return what the file behind `fd` says of itself; nothing if it is no 64-bit little-endian ELF file.

    Raises:
        OSError: it cannot be read.
    """
    header = os.pread(fd, _HEADER.size, 0)
    if len(header) < _HEADER.size or header[:6] != b"\x7fELF\x02\x01":
        return FileHead("", "")
    *_, table, size, count = _HEADER.unpack(header)
    if size != _SEGMENT.size:
        return FileHead("", "")
    segments = list(_segments(_read(fd, table, size * min(count, _SEGMENTS_LIMIT))))
    return FileHead(_build_id(fd, segments), _soname(fd, segments))


def _segments(table: bytes) -> Iterator[_Segment]:
    for kind, _, offset, address, _, size, _, align in _SEGMENT.iter_unpack(
        table[: len(table) // _SEGMENT.size * _SEGMENT.size]
    ):
        yield _Segment(kind, offset, address, size, align)


def _build_id(fd: int, segments: Iterable[_Segment]) -> str:
    for segment in segments:
        if segment.kind == _PT_NOTE:
            notes = _read(fd, segment.offset, min(segment.size, NOTE_LIMIT_BYTES))
            found = build_id_in(notes, segment.align)
            if found is not None:
                return found
    return ""


def _soname(fd: int, segments: list[_Segment]) -> str:
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return ""
    raw = _read(fd, dynamic.offset, min(dynamic.size, _DYNAMIC_LIMIT_BYTES))
    tags = dict(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))
    if _DT_SONAME not in tags or _DT_STRTAB not in tags:
        return ""
    address = tags[_DT_STRTAB] + tags[_DT_SONAME]
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            text = _read(fd, address - segment.address + segment.offset, _SONAME_LIMIT_BYTES)
            return text.split(b"\0", 1)[0].decode("utf-8", "replace")
    return ""


def _read(fd: int, offset: int, size: int) -> bytes:
    # offsets of a damaged file may be any number
    return os.pread(fd, size, offset) if offset < 1 << 62 else b""
