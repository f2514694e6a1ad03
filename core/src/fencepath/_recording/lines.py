# SPDX-License-Identifier: Apache-2.0
"""Reads files of one JSON object per line, passing over lines that are broken."""

from __future__ import annotations

import io
from typing import Generic, TypeVar

import msgspec

__all__ = ["Lines", "read_lines"]

T = TypeVar("T", bound=msgspec.Struct)


class Lines(msgspec.Struct, Generic[T], frozen=True):
    """What a file of lines holds.

    Attributes:
        rows: rows that could be read, in order.
        good: their text.
        lost_rows: lines that could not be read.
        lost_bytes: their bytes.
        cut: whether the file ends within a line.
    """

    rows: list[T]
    good: list[bytes]
    lost_rows: int
    lost_bytes: int
    cut: bool

    @property
    def problem(self) -> str:
        """What is wrong, "" if nothing."""
        if not self.lost_rows:
            return ""
        inside = self.lost_rows - self.cut
        parts = [f"{inside} lines cannot be read"] if inside else []
        return " and ".join([*parts, "the file ends within a line"] if self.cut else parts)


def read_lines(data: bytes, row_type: type[T]) -> Lines[T]:
    """Return the rows of `data`."""
    decoder = msgspec.json.Decoder(row_type)
    rows: list[T] = []
    good: list[bytes] = []
    lost_rows = lost_bytes = 0
    cut = False
    for line in io.BytesIO(data):
        try:
            rows.append(decoder.decode(line))
            good.append(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            lost_rows += 1
            lost_bytes += len(line)
            cut = not line.endswith(b"\n")
    return Lines(rows, good, lost_rows, lost_bytes, cut)
