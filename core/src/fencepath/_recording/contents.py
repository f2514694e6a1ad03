# SPDX-License-Identifier: Apache-2.0
"""The parts of a recording on disk, each read when it is asked for, and the damage found on the way."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from fencepath._recording.columns import BatchCodec
from fencepath._recording.lines import Lines, read_lines
from fencepath._recording.manifest import Manifest, decode_manifest
from fencepath._recording.names import CLOCKS, FACTS, KEPT, LOSS, MANIFEST, SEGMENTS, segment_name, segment_number
from fencepath._recording.rows import Damage, Fact, LossRow
from fencepath._recording.stream_folder import StreamFolder
from fencepath._recording.tree import Tree, open_tree
from fencepath.clocks import ClockSample
from fencepath.errors import NotARecordingError, RecordingDamagedError
from fencepath.records import RecordLayout

__all__ = ["Contents", "open_contents"]

T = TypeVar("T", bound=msgspec.Struct)


class Contents:
    """The parts of one recording.

    Attributes:
        path: where it is.
        manifest: what it says about itself.
    """

    def __init__(self, path: Path, tree: Tree, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._tree = tree
        self._codecs: dict[str, BatchCodec] = {}
        self._damage: dict[str, Damage] = {}

    @property
    def closed(self) -> bool:
        """Whether its recorder came to its orderly end."""
        return self.manifest.ended_realtime_ns is not None

    @property
    def damage(self) -> list[Damage]:
        """What was found so far, and what sizes, indexes and the small tables tell."""
        for folder in (self.kept, *self.segments.values()):
            _ = folder.index
        _ = self.facts, self.loss, self.clocks
        for number in self.missing_segments:
            self._note(Damage(f"{SEGMENTS}/{segment_name(number)}", "missing"))
        return sorted(self._damage.values(), key=lambda damage: damage.file)

    @cached_property
    def kept(self) -> StreamFolder:
        """The kinds that are never dropped."""
        return self._folder(KEPT)

    @cached_property
    def segments(self) -> dict[int, StreamFolder]:
        """Segments by number, ascending."""
        numbers = (segment_number(name) for name in self._tree.folders(SEGMENTS))
        there = sorted(number for number in numbers if number is not None)
        return {number: self._folder(f"{SEGMENTS}/{segment_name(number)}") for number in there}

    @property
    def missing_segments(self) -> list[int]:
        """Numbers missing between segments that are there; those before them were dropped as oldest."""
        there = list(self.segments)
        return sorted(set(range(there[0], there[-1])).difference(there)) if there else []

    @cached_property
    def facts(self) -> Lines[Fact]:
        """What only the live machine knew."""
        return self._lines(FACTS, Fact)

    @cached_property
    def loss(self) -> Lines[LossRow]:
        """What is known to be lost."""
        return self._lines(LOSS, LossRow)

    @cached_property
    def clocks(self) -> Lines[ClockSample]:
        """Readings of other clocks."""
        return self._lines(CLOCKS, ClockSample)

    def codec(self, kind: str) -> BatchCodec | None:
        """Return the codec of `kind`, or None if the manifest does not declare it."""
        info = self.manifest.kinds.get(kind)
        if info is not None and kind not in self._codecs:
            self._codecs[kind] = BatchCodec(RecordLayout(kind, info.fields))
        return self._codecs.get(kind)

    def _folder(self, path: str) -> StreamFolder:
        return StreamFolder(self._tree, path, self.codec, self._note, closed=self.closed)

    def _lines(self, file: str, row_type: type[T]) -> Lines[T]:
        written_bytes = self.manifest.tables_bytes.get(file, 0)
        try:
            data = self._tree.read(file)
        except OSError as error:
            if self.closed:
                self._note(Damage(file, f"cannot be read: {error.strerror or error}", written_bytes))
            return Lines([], [], 0, 0, cut=False)
        lines = read_lines(data, row_type)
        short_bytes = max(written_bytes - len(data), 0)
        if lines.problem or short_bytes:
            # How many lines are behind the end is not known.
            lost_rows = None if short_bytes else lines.lost_rows
            what = lines.problem or "the file ends early"
            self._note(Damage(file, what, lines.lost_bytes + short_bytes, lost_rows))
        return lines

    def _note(self, damage: Damage) -> None:
        self._damage[damage.file] = damage


def open_contents(path: Path) -> Contents:
    """Return the contents of the recording at `path`; raises as :func:`fencepath.recording.open_recording`."""
    tree = open_tree(path)
    recorded = {FACTS, LOSS, CLOCKS} <= set(tree.files())
    try:
        return Contents(path, tree, decode_manifest(tree.read(MANIFEST), str(path)))
    except OSError as error:
        if recorded:
            raise RecordingDamagedError(f"{path} cannot be read: its {MANIFEST} is missing or unreadable") from error
        raise NotARecordingError(
            f"{path} is not a fencepath recording: it has no {MANIFEST}; name the folder that record made"
        ) from error
    except RecordingDamagedError as error:
        if recorded:
            raise
        raise NotARecordingError(f"{path} is not a fencepath recording: its {MANIFEST} is something else") from error
