# SPDX-License-Identifier: Apache-2.0
"""Reads one Arrow stream up to its break, and around batches that do not decode."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from fencepath._recording.columns import END, BatchCodec, BrokenStreamError, Message, messages
from fencepath._recording.segments import KindIndex, time_range
from fencepath.records import Records

__all__ = ["StreamReader", "gather"]


class StreamReader:
    """Iterates over the batches of a stream; what was found on the way is in the attributes.

    Attributes:
        data: the whole file.
        rows: rows of the batches given out.
        good: byte ranges of the schema and of every batch given out, in order; empty if the schema is bad.
        ended: whether the stream has its end marker.
        problem: the first thing that is wrong, "" if nothing.
        lost_bytes: bytes that were passed over.
    """

    def __init__(self, data: bytes, codec: BatchCodec) -> None:
        self.data = data
        self.rows = 0
        self.good: list[tuple[int, int]] = []
        self.ended = False
        self.problem = ""
        self.lost_bytes = 0
        self._codec = codec
        self._begin_ns = 0
        self._time_ns = 0

    @property
    def index(self) -> KindIndex:
        """What the file holds, as read."""
        return KindIndex(self.rows, len(self.data), self._begin_ns, self._time_ns, zlib.crc32(self.data))

    def __iter__(self) -> Iterator[Records]:
        end = 0
        try:
            for message in messages(self.data):
                end = message.end
                records = self._read(message)
                if records is not None and len(records):
                    self._count(records)
                    yield records
        except BrokenStreamError as error:
            self._lose(str(error), len(self.data) - error.offset)
        self.ended = self.data[end : end + len(END)] == END

    def _read(self, message: Message) -> Records | None:
        if message.begin == 0:
            self._codec.check_head(message)
            self.good.append((0, message.end))
            return None
        try:
            records = self._codec.decode(message)
        except BrokenStreamError as error:
            self._lose(str(error), message.end - message.begin)
            return None
        self.good.append((message.begin, message.end))
        return records

    def _lose(self, why: str, lost_bytes: int) -> None:
        self.problem = self.problem or why
        self.lost_bytes += lost_bytes

    def _count(self, records: Records) -> None:
        begin_ns, time_ns = time_range(records)
        self._begin_ns = min(self._begin_ns, begin_ns) if self.rows else begin_ns
        self._time_ns = max(self._time_ns, time_ns)
        self.rows += len(records)


def gather(parts: Iterable[Records], dtype: np.dtype[np.void], expected: int) -> Records:
    """Return all `parts` as one array, holding each only until it is copied.

    Args:
        parts: arrays of `dtype`.
        dtype: of the result.
        expected: rows to make room for at first.
    """
    # As plain bytes: numpy copies a structured dtype field by field.
    raw = f"V{dtype.itemsize}"
    whole: Records = np.zeros(expected, dtype=raw)
    count = 0
    for part in parts:
        if count + len(part) > len(whole):
            larger: Records = np.zeros(max(2 * len(whole), count + len(part)), dtype=raw)
            larger[:count] = whole[:count]
            whole = larger
        whole[count : count + len(part)] = part.view(raw)
        count += len(part)
    return whole[:count].view(dtype)
