# SPDX-License-Identifier: Apache-2.0
"""Writes a recording while it is being made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from fencepath._recording.columns import BatchCodec
from fencepath._recording.folder import AppendFile, Owner, create_folder, write_error
from fencepath._recording.manifest import Manifest, encode_manifest
from fencepath._recording.names import CLOCKS, FACTS, KEPT, LOSS, MANIFEST, SEGMENTS, segment_name
from fencepath._recording.retention import Retention
from fencepath._recording.rows import ALL_CPUS, Fact, LossRow
from fencepath._recording.segments import SegmentIndex, SegmentWriter, time_range
from fencepath._recording.staging import Stage
from fencepath.clocks import ClockSample
from fencepath.errors import MachineError, UsageError
from fencepath.records import RecordLayout, Records

__all__ = ["RecordingWriter"]

_FLUSH_NS = 1_000_000_000
_LINES_BYTES = 1 << 18


class RecordingWriter:
    """Writes one recording.

    It does no more than copy: records are staged, turned into columns, compressed and appended. Times are given by the
    caller's :meth:`tick`; nothing here reads CLOCK_MONOTONIC. For use by one thread.

    A write that the system refuses (a full disk) raises once, as :class:`~fencepath.errors.MachineError`. What was
    written before stays readable; from then on everything is counted as lost, in the loss table, and nothing raises.

    Args:
        path: folder to make; it must not exist, or be empty.
        manifest: written at once. Kinds are declared here or by :meth:`update_manifest`.
        keep_ns: drop segments whose newest record is older than this; None keeps all.
        max_bytes: drop the oldest segments while all files together are larger than this; None for no limit.
        owner: user and group that everything shall belong to; None: whoever runs this.
        kept_kinds: kinds that are never dropped.
        kept_bytes: bound for those; what is beyond it is lost, and counted.
        segment_ns: a segment is closed when it has been open for this long.
        segment_bytes: a segment is closed when it has become this large.

    Raises:
        UsageError: if `path` is taken, or nothing can be made there.
        MachineError: if the disk is full.
    """

    def __init__(
        self,
        path: str | Path,
        manifest: Manifest,
        *,
        keep_ns: int | None = None,
        max_bytes: int | None = None,
        owner: Owner | None = None,
        kept_kinds: Collection[str] = frozenset(),
        kept_bytes: int = 256 << 20,
        segment_ns: int = 10_000_000_000,
        segment_bytes: int = 64 << 20,
    ) -> None:
        self.path = Path(path)
        self._manifest = manifest
        self._kept_kinds = frozenset(kept_kinds)
        self._kept_bytes = kept_bytes
        self._retention = Retention(keep_ns, max_bytes)
        self._segment_ns = self._retention.segment_ns(segment_ns)
        self._segment_bytes = self._retention.segment_bytes(segment_bytes)
        self._encoder = msgspec.json.Encoder()
        self._now_ns: int | None = None
        self._flushed_ns: int | None = None
        self._stages: dict[str, Stage] = {}
        self._lines: dict[str, list[bytes]] = {FACTS: [], LOSS: [], CLOCKS: []}
        self._lines_bytes = 0
        self._segment: SegmentWriter | None = None
        self._segments_made = 0
        self._failure: MachineError | UsageError | None = None
        self._failed_ns = 0
        self._unwritten: dict[str, list[int]] = {}
        self._closed = False
        self._made = not self.path.exists()
        self._folder = create_folder(self.path, owner)
        try:
            self._folder.reserve()
            self._folder.replace(MANIFEST, encode_manifest(manifest))
            self._files: dict[str, AppendFile] = {name: self._folder.new_file(name) for name in self._lines}
            self._segments = self._folder.subfolder(SEGMENTS)
            self._kept = SegmentWriter(self._folder.subfolder(KEPT), None)
        except OSError as error:
            self._remove()
            raise write_error(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is on disk."""
        return self._manifest

    @property
    def size_bytes(self) -> int:
        """Bytes on disk, without the manifest and the indexes."""
        lines = sum(file.size_bytes for file in self._files.values())
        open_bytes = self._segment.size_bytes if self._segment else 0
        return lines + self._kept.size_bytes + self._retention.size_bytes + open_bytes

    def append(self, kind: str, records: Records) -> None:
        """Take over `records`, copied: the caller's array is free when this returns.

        Args:
            kind: a kind of the manifest.
            records: array of its layout's dtype; strides are free.

        Raises:
            ValueError: if the kind is not declared or the dtype is another.
            MachineError: if a batch was due and could not be written.
        """
        stage = self._stages.get(kind)
        if stage is None:
            stage = self._new_stage(kind)
        if records.dtype != stage.codec.dtype:
            raise ValueError(f"records of {kind} have another layout than the manifest declares")
        while len(records):
            records = stage.take(records)
            if stage.full:
                self._write_batch(kind, stage)
        self._settle()

    def fact(self, type: str, data: Mapping[str, Any]) -> None:  # noqa: A002 - named as in the file
        """Append a fact; `data` must be plain JSON."""
        self._line(FACTS, Fact(type, dict(data)))

    def loss(self, rows: Iterable[LossRow]) -> None:
        """Append to the loss table."""
        rows = tuple(rows)
        if self._segment:
            self._segment.count_loss(rows)
        for row in rows:
            self._line(LOSS, row)

    def clock_sample(self, sample: ClockSample) -> None:
        """Append a reading of a clock."""
        self._line(CLOCKS, sample)

    def update_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest; kinds may be added, never changed.

        Raises:
            ValueError: if a kind changed or is gone.
            MachineError: if it could not be written; the old one is still there.
        """
        for kind, info in self._manifest.kinds.items():
            if manifest.kinds.get(kind) != info:
                raise ValueError(f"{kind} cannot be changed or removed while its records are being written")
        if self._failure:
            return
        with self._failing():
            self._folder.replace(MANIFEST, encode_manifest(manifest))
            self._manifest = manifest

    def tick(self, now_ns: int) -> None:
        """Do what is due: flush once a second, close a segment that is old, drop what retention says.

        Args:
            now_ns: CLOCK_MONOTONIC.

        Raises:
            MachineError: if something was due and could not be written.
        """
        self._now_ns = now_ns
        if self._flushed_ns is None:
            self._flushed_ns = now_ns
        if self._segment and self._segment.opened_ns is None:
            self._segment.opened_ns = now_ns
        if now_ns - self._flushed_ns >= _FLUSH_NS:
            self.flush()
        self._settle()

    def flush(self) -> None:
        """Hand everything that waits to the system.

        Raises:
            MachineError: if it could not be written.
        """
        self._flushed_ns = self._now_ns
        self._write_lines()
        for kind, stage in self._stages.items():
            if len(stage):
                self._write_batch(kind, stage)

    def close(self) -> None:
        """Flush, end every file and mark the recording as ended; a second call does nothing.

        Raises:
            MachineError: if not all could be written and no earlier call has said so. All is closed nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        told = self._failure
        # From the reserve's release on there is room for the account of the end, even on a full disk.
        steps = (self.flush, self._folder.release_reserve, self._close_segment, self._close_kept, self._close_files)
        for step in steps:
            with contextlib.suppress(MachineError, UsageError):
                step()
        if self._failure and not told:
            raise self._failure

    def discard(self) -> None:
        """Remove the recording instead of closing it: for one into which nothing was recorded."""
        if self._closed:
            return
        self._closed = True
        for part in (self._segment, self._kept):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.close()
        for file in self._files.values():
            file.close()
        self._segments.close()
        self._remove()

    def _remove(self) -> None:
        self._folder.clear()
        self._folder.close()
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def _close_kept(self) -> None:
        with self._failing():
            self._kept.close()

    def _close_files(self) -> None:
        try:
            with self._failing():
                self._count_unwritten_lines()
                for name, file in self._files.items():
                    file.append(b"".join(self._lines[name]))
                self._manifest = msgspec.structs.replace(
                    self._manifest,
                    ended_realtime_ns=time.time_ns(),
                    tables_bytes={name: file.size_bytes for name, file in self._files.items()},
                )
                self._folder.replace(MANIFEST, encode_manifest(self._manifest))
        finally:
            for file in self._files.values():
                file.close()
            self._segments.close()
            self._folder.close()

    def _count_unwritten_lines(self) -> None:
        """After a failure, put into the loss table what could not be written; the table itself goes on."""
        if not self._failure:
            return
        now_ns = self._now_ns or 0
        for name, kind in ((FACTS, "fact"), (CLOCKS, "clock")):
            if self._lines[name]:
                self._unwritten[kind] = [self._failed_ns, now_ns, len(self._lines[name])]
                self._lines[name] = []
        for kind, (from_ns, to_ns, count) in self._unwritten.items():
            row = LossRow("disk", kind, ALL_CPUS, from_ns, to_ns, count)
            self._lines[LOSS].append(self._encoder.encode(row) + b"\n")

    def _new_stage(self, kind: str) -> Stage:
        info = self._manifest.kinds.get(kind)
        if info is None:
            raise ValueError(f"{kind} is not a kind of this recording's manifest")
        self._stages[kind] = Stage(BatchCodec(RecordLayout(kind, info.fields)))
        return self._stages[kind]

    def _write_batch(self, kind: str, stage: Stage) -> None:
        records = stage.drain()
        if self._failure:
            self._count_unwritten(kind, records)
            return
        try:
            if kind in self._kept_kinds:
                self._write_kept(stage.codec, records)
            else:
                self._open_segment().write(stage.codec, records)
        except OSError as error:
            self._count_unwritten(kind, records)
            self._fail(error)

    def _write_kept(self, codec: BatchCodec, records: Records) -> None:
        if self._kept.size_bytes < self._kept_bytes:
            self._kept.write(codec, records)
        else:
            self.loss([LossRow("kept", codec.layout.kind, ALL_CPUS, *time_range(records), len(records))])

    def _open_segment(self) -> SegmentWriter:
        if self._segment is None:
            folder = self._segments.subfolder(segment_name(self._segments_made + 1))
            self._segments_made += 1
            self._segment = SegmentWriter(folder, self._now_ns)
        return self._segment

    def _settle(self) -> None:
        """Close the segment if it is old or large, and drop what retention says."""
        if self._failure:
            return
        if self._segment is not None and self._is_full(self._segment):
            self.flush()
            self._close_segment()
        if self._retention.limited:
            self._drop_old()

    def _is_full(self, segment: SegmentWriter) -> bool:
        old = (
            self._now_ns is not None
            and segment.opened_ns is not None
            and self._now_ns - segment.opened_ns >= self._segment_ns
        )
        return old or segment.size_bytes >= self._segment_bytes

    def _close_segment(self) -> None:
        if self._segment is None:
            return
        segment, self._segment = self._segment, None
        with self._failing():
            self._retention.add(self._segments_made, segment.close())

    def _drop_old(self) -> None:
        other_bytes = self.size_bytes - self._retention.size_bytes
        for number, index in self._retention.drop(self._now_ns, other_bytes):
            # Counted before it is done: a recorder killed in between says too much rather than too little.
            for row in _dropped(index):
                self._line(LOSS, row)
            self._write_lines()
            with self._failing():
                self._segments.remove_folder(segment_name(number))

    def _line(self, name: str, row: msgspec.Struct) -> None:
        line = self._encoder.encode(row) + b"\n"
        self._lines[name].append(line)
        self._lines_bytes += len(line)
        if self._lines_bytes >= _LINES_BYTES:
            self._write_lines()

    def _write_lines(self) -> None:
        self._lines_bytes = 0
        if self._failure:
            return
        with self._failing():
            for name, lines in self._lines.items():
                if lines:
                    self._files[name].append(b"".join(lines))
                    self._lines[name] = []

    def _count_unwritten(self, kind: str, records: Records) -> None:
        begin_ns, time_ns = time_range(records)
        lost = self._unwritten.setdefault(kind, [begin_ns, time_ns, 0])
        lost[:] = min(lost[0], begin_ns), max(lost[1], time_ns), lost[2] + len(records)

    @contextlib.contextmanager
    def _failing(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        failure = write_error(self.path, error)
        if self._failure is None:
            self._failure, self._failed_ns = failure, self._now_ns or 0
        raise failure from error


def _dropped(index: SegmentIndex) -> list[LossRow]:
    return [
        LossRow("retention", kind, ALL_CPUS, held.begin_ns, held.time_ns, held.rows)
        for kind, held in index.kinds.items()
        if held.rows
    ]
