# SPDX-License-Identifier: Apache-2.0
"""ELF notes, of which one is the build-id."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["NOTE_LIMIT_BYTES", "build_id_in"]

NOTE_LIMIT_BYTES = 1 << 20
"""Most of one note segment that is read."""

_NT_GNU_BUILD_ID = 3


def build_id_in(segment: bytes, align: int) -> str | None:
    """Return the GNU build-id among the notes of a PT_NOTE segment in hex, or None.

    Args:
        segment: its bytes.
        align: its alignment, bytes.
    """
    for name, kind, desc in _notes(segment, max(4, align)):
        if kind == _NT_GNU_BUILD_ID and name == b"GNU":
            return desc.hex()
    return None


def _notes(raw: bytes, align: int) -> Iterator[tuple[bytes, int, bytes]]:
    # PT_NOTE with 8-byte alignment holds GNU property notes only; name and content are padded to the alignment.
    at = 0
    while at + 12 <= len(raw):
        name_size, desc_size, kind = (int.from_bytes(raw[at + 4 * i : at + 4 * i + 4], "little") for i in range(3))
        desc_at = _up(at + 12 + name_size, align)
        yield raw[at + 12 : at + 12 + name_size].rstrip(b"\0"), kind, raw[desc_at : desc_at + desc_size]
        at = _up(desc_at + desc_size, align)


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
