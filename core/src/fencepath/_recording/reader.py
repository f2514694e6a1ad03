# SPDX-License-Identifier: Apache-2.0
"""Reads a recording, whole or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from fencepath._recording.columns import BatchCodec
from fencepath._recording.contents import Contents, open_contents
from fencepath._recording.folder import is_locked
from fencepath._recording.manifest import Manifest
from fencepath._recording.rows import Damage, Fact, LossRow
from fencepath._recording.streams import gather
from fencepath.clocks import ClockSample
from fencepath.errors import RecordingDamagedError
from fencepath.records import Layouts, Records

__all__ = ["Recording", "Segment", "open_recording"]

# An index may be wrong, so room is made for no more rows than this at once, whatever it says.
_MOST_EXPECTED = 1 << 24


class Segment(msgspec.Struct, frozen=True):
    """A stretch of a recording. Neighbours overlap in time: a call that lasts is in the segment in which it ended.

    Attributes:
        number: counted from 1.
        begin_ns: least begin of its records; CLOCK_MONOTONIC. 0 without records.
        time_ns: greatest time of its records; CLOCK_MONOTONIC. 0 without records.
        rows: readable records by kind.
        bytes: size on disk.
        loss: events known to be lost while it was written, by stage.
    """

    number: int
    begin_ns: int
    time_ns: int
    rows: dict[str, int]
    bytes: int
    loss: dict[str, int]


class Recording:
    """A recording that is read; :func:`open_recording` makes one.

    Opening reads the manifest only; the rest is read when asked for. Records are not kept, so one that is larger than
    memory is read by :meth:`iter_records`. Broken parts are passed over and told in :attr:`damage`.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._contents.path

    @property
    def manifest(self) -> Manifest:
        """What it says about itself."""
        return self._contents.manifest

    @property
    def layouts(self) -> Layouts:
        """Record layouts and kind numbers."""
        return self.manifest.layouts

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind that the manifest declares, with records or without."""
        return tuple(self.manifest.kinds)

    @property
    def live(self) -> bool:
        """Whether it is still being recorded."""
        return is_locked(self.path)

    @property
    def damage(self) -> list[Damage]:
        """What cannot be read, as far as sizes, indexes and the parts read so far tell; :meth:`verify` reads all."""
        return self._contents.damage

    @property
    def cut(self) -> bool:
        """Whether it lacks its orderly end (its recorder was killed, or still runs), or a part of it."""
        return not self._contents.closed or bool(self.damage)

    def verify(self) -> list[Damage]:
        """Read everything and return all damage, checksums included."""
        for kind in self.kinds:
            for _ in self.iter_records(kind):
                pass
        return self.damage

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that are there, oldest first. One without a good index is read to know it."""
        found: list[Segment] = []
        for number, folder in self._contents.segments.items():
            index = folder.index
            rows = {kind: held.rows for kind, held in index.kinds.items()}
            found.append(Segment(number, index.begin_ns, index.time_ns, rows, index.bytes, index.loss))
        return tuple(found)

    def records(self, kind: str) -> Records:
        """Return all records of `kind`, in the order in which they were written, which is not that of time.

        Returns:
            Structured array of the dtype of the kind's layout; empty if there are none.

        Raises:
            RecordingDamagedError: if the kind is not one of the manifest's.
        """
        codec = self._codec(kind)
        indexes = [folder.stored_index for folder in (self._contents.kept, *self._contents.segments.values())]
        expected = sum(index.kinds[kind].rows for index in indexes if index and kind in index.kinds)
        return gather(self.iter_records(kind), codec.dtype, min(max(expected, 0), _MOST_EXPECTED))

    def iter_records(self, kind: str, segment: int | None = None) -> Iterator[Records]:
        """Yield the records of `kind` batch by batch, each of about 1 MiB at most.

        Args:
            kind: a kind of the manifest.
            segment: number of the one segment to read; None for all, after what is kept outside of segments.

        Raises:
            RecordingDamagedError: if the kind is not one of the manifest's, or there is no such segment.
        """
        self._codec(kind)
        folders = self._contents.segments
        if segment is not None and segment not in folders:
            raise RecordingDamagedError(f"{self.path} has no segment {segment}; it was dropped as oldest or is missing")
        for folder in [self._contents.kept, *folders.values()] if segment is None else [folders[segment]]:
            yield from folder.read(kind)

    def facts(self, type: str | None = None) -> list[Fact]:  # noqa: A002 - named as in the file
        """Return the facts in the order in which they were found out; only those of one type if it is given."""
        return [fact for fact in self._contents.facts.rows if type is None or fact.type == type]

    @property
    def loss(self) -> list[LossRow]:
        """The loss table."""
        return self._contents.loss.rows

    @property
    def clocks(self) -> list[ClockSample]:
        """Readings of other clocks, in the order in which they were made."""
        return self._contents.clocks.rows

    def _codec(self, kind: str) -> BatchCodec:
        codec = self._contents.codec(kind)
        if codec is None:
            raise RecordingDamagedError(f"{self.path} has no records of {kind}: its manifest does not declare it")
        return codec


def open_recording(path: str | Path) -> Recording:
    """Open the recording at `path`, a folder or a zip file of one.

    Raises:
        NotARecordingError: if there is no recording.
        NewerFormatError: if it was written by a newer fencepath than this one can read.
        RecordingDamagedError: if its manifest cannot be read.
        UsageError: if this user may not read it.
    """
    return Recording(open_contents(Path(path)))
