# SPDX-License-Identifier: Apache-2.0
"""Segments: folders of one Arrow stream per kind, closed and indexed at a limit of time or size."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import msgspec

from fencepath._recording.columns import END, BatchCodec
from fencepath._recording.folder import Folder
from fencepath._recording.names import INDEX, stream_name
from fencepath._recording.rows import LossRow
from fencepath.records import Records

__all__ = ["KindIndex", "SegmentIndex", "SegmentWriter", "encode_index", "index_of", "time_range"]


class KindIndex(msgspec.Struct, frozen=True):
    """What one closed file of a segment holds.

    Attributes:
        rows: records.
        bytes: size of the file.
        begin_ns: least begin; CLOCK_MONOTONIC.
        time_ns: greatest time; CLOCK_MONOTONIC.
        crc32: of the whole file.
    """

    rows: int
    bytes: int
    begin_ns: int
    time_ns: int
    crc32: int


class SegmentIndex(msgspec.Struct, frozen=True):
    """``index.json`` of a closed segment.

    Attributes:
        begin_ns: least begin of its records (their time, where they do not last); CLOCK_MONOTONIC. 0 without records.
        time_ns: greatest time of its records; CLOCK_MONOTONIC. 0 without records.
        bytes: size of its files.
        kinds: what each file holds.
        loss: events known to be lost while it was written, by stage; the loss table says more.
    """

    begin_ns: int
    time_ns: int
    bytes: int
    kinds: dict[str, KindIndex]
    loss: dict[str, int] = {}


class _Stream:
    """One growing file of a segment."""

    def __init__(self, folder: Folder, codec: BatchCodec) -> None:
        self._file = folder.new_file(stream_name(codec.layout.kind))
        self._codec = codec
        self._crc32 = 0
        self._rows = 0
        self._begin_ns, self._time_ns = 2**64, 0
        try:
            self._append(codec.head)
        except OSError:
            self._file.close()
            raise

    @property
    def index(self) -> KindIndex:
        begin_ns = self._begin_ns if self._rows else 0
        return KindIndex(self._rows, self._file.size_bytes, begin_ns, self._time_ns, self._crc32)

    def write(self, records: Records) -> int:
        data = self._codec.encode(records)
        self._append(data)
        begin_ns, time_ns = time_range(records)
        self._rows += len(records)
        self._begin_ns, self._time_ns = min(self._begin_ns, begin_ns), max(self._time_ns, time_ns)
        return len(data)

    def end(self) -> None:
        self._append(END)

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        self._file.append(data)
        self._crc32 = zlib.crc32(data, self._crc32)


class SegmentWriter:
    """An open segment.

    Attributes:
        folder: its folder; the segment closes it.
        opened_ns: CLOCK_MONOTONIC when it was opened; None until the writer is told a time.
        size_bytes: bytes written so far.
    """

    def __init__(self, folder: Folder, opened_ns: int | None) -> None:
        self.folder = folder
        self.opened_ns = opened_ns
        self.size_bytes = 0
        self._streams: dict[str, _Stream] = {}
        self._loss: dict[str, int] = {}

    def write(self, codec: BatchCodec, records: Records) -> None:
        """Append one batch.

        Raises:
            OSError: if it could not be written; the segment is as it was before.
        """
        kind = codec.layout.kind
        if kind not in self._streams:
            self._streams[kind] = _Stream(self.folder, codec)
            self.size_bytes += len(codec.head)
        self.size_bytes += self._streams[kind].write(records)

    def count_loss(self, rows: Iterable[LossRow]) -> None:
        """Count what was lost while this segment was open."""
        for row in rows:
            self._loss[row.stage] = self._loss.get(row.stage, 0) + row.count

    def close(self) -> SegmentIndex:
        """End every stream, write the index and return it.

        Raises:
            OSError: if the disk is full; every file is closed and readable nevertheless.
        """
        try:
            for stream in self._streams.values():
                stream.end()
            index = index_of({kind: stream.index for kind, stream in self._streams.items()}, self._loss)
            # Not durable: waiting for the disk would stall the drain, and a lost index is rebuilt by the reader.
            self.folder.replace(INDEX, encode_index(index), durable=False)
            return index
        finally:
            for stream in self._streams.values():
                stream.close()
            self.folder.close()


def index_of(kinds: Mapping[str, KindIndex], loss: Mapping[str, int]) -> SegmentIndex:
    """Return the index of a segment with these files."""
    filled = [kind for kind in kinds.values() if kind.rows]
    return SegmentIndex(
        begin_ns=min((kind.begin_ns for kind in filled), default=0),
        time_ns=max((kind.time_ns for kind in filled), default=0),
        bytes=sum(kind.bytes for kind in kinds.values()),
        kinds=dict(kinds),
        loss=dict(loss),
    )


def encode_index(index: SegmentIndex) -> bytes:
    """Return the text of ``index.json``."""
    return msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"


def time_range(records: Records) -> tuple[int, int]:
    """Return the least begin (time, where records do not last) and the greatest time of one or more records, in ns."""
    begin = "begin_ns" if "begin_ns" in (records.dtype.names or ()) else "time_ns"
    return int(records[begin].min()), int(records["time_ns"].max())
