# SPDX-License-Identifier: Apache-2.0
"""Makes a cut or damaged recording whole: keeps what can be read, drops the rest and says what that was."""

from __future__ import annotations

import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from fencepath._recording.columns import END
from fencepath._recording.contents import Contents, open_contents
from fencepath._recording.folder import Folder, open_folder, write_error
from fencepath._recording.lines import Lines
from fencepath._recording.manifest import encode_manifest
from fencepath._recording.names import (
    CLOCKS,
    FACTS,
    INDEX,
    KEPT,
    LOSS,
    MANIFEST,
    SEGMENTS,
    kind_of,
    segment_name,
    stream_name,
)
from fencepath._recording.reader import Recording
from fencepath._recording.rows import ALL_CPUS, Damage, LossRow
from fencepath._recording.segments import KindIndex, encode_index, index_of
from fencepath._recording.stream_folder import StreamFolder
from fencepath._recording.streams import StreamReader
from fencepath.errors import UsageError

__all__ = ["RepairReport", "repair_recording"]


class RepairReport(msgspec.Struct, frozen=True):
    """What a repair did.

    Attributes:
        path: the whole recording.
        dropped: what could not be read and is gone.
        rewritten: files that were written anew, by path inside the recording.
    """

    path: str
    dropped: tuple[Damage, ...]
    rewritten: tuple[str, ...]


def repair_recording(path: str | Path, output: str | Path | None = None) -> RepairReport:
    """Make the recording at `path` whole.

    Files that are whole are not touched. Rows known to be lost are added to the loss table, stage ``repair``, and what
    was dropped is kept in the manifest's ``extra["repairs"]``. Repairing a whole recording changes nothing.

    Args:
        path: folder of the recording.
        output: make a whole copy there and leave `path` as it is; None to repair in place.

    Raises:
        NotARecordingError: as :func:`open_recording`.
        NewerFormatError: as :func:`open_recording`.
        RecordingDamagedError: as :func:`open_recording`.
        UsageError: if it is still being recorded, is no folder, or `output` exists.
        MachineError: if the disk is full.
    """
    contents = open_contents(Path(path))
    if not contents.path.is_dir():
        raise UsageError(f"{path} is packed in a file; unpack it to repair it")
    target = contents.path if output is None else Path(output)
    try:
        # Locked also when it is only copied: a recording that grows has no copy.
        with open_folder(contents.path) as folder:
            if output is None:
                return _Repair(contents, folder).run()
            _copy(contents.path, target)
        with open_folder(target) as folder:
            return _Repair(open_contents(target), folder).run()
    except OSError as error:
        raise write_error(target, error) from error


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        raise UsageError(f"{target} exists; choose another name or remove it")
    target.mkdir(mode=0o700)
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)


class _Repair:
    """One repair. The loss table comes first: a repair that is killed says too much lost rather than too little."""

    def __init__(self, contents: Contents, folder: Folder) -> None:
        self._contents = contents
        self._folder = folder
        self._rewritten: list[str] = []

    def run(self) -> RepairReport:
        contents = self._contents
        ended_ns = max(file.stat().st_mtime_ns for file in contents.path.rglob("*") if file.is_file())
        dropped = tuple(Recording(contents).verify())
        self._folder.remove_leftovers()
        self._lines(LOSS, contents.loss, self._lost_rows(dropped))
        self._lines(FACTS, contents.facts)
        self._lines(CLOCKS, contents.clocks)
        with self._folder.subfolder(KEPT) as kept:
            self._streams(contents.kept, kept)
        with self._folder.subfolder(SEGMENTS) as segments:
            segments.remove_leftovers()
            self._segments(segments)
        if dropped or self._rewritten or not contents.closed:
            self._manifest(dropped, ended_ns)
        return RepairReport(str(contents.path), dropped, tuple(sorted(self._rewritten)))

    def _lost_rows(self, dropped: Iterable[Damage]) -> Iterator[bytes]:
        """Yield a line for the loss table for each file whose index tells how many of its rows are lost."""
        folders = {folder.path: folder for folder in (self._contents.kept, *self._contents.segments.values())}
        for damage in dropped:
            path, _, name = damage.file.rpartition("/")
            kind = kind_of(name)
            stored = folders[path].stored_index if kind else None
            if kind and stored and damage.lost_rows:
                held = stored.kinds[kind]
                row = LossRow("repair", kind, ALL_CPUS, held.begin_ns, held.time_ns, damage.lost_rows)
                yield msgspec.json.encode(row) + b"\n"

    def _lines(self, name: str, lines: Lines[Any], more: Iterable[bytes] = ()) -> None:
        added = list(more)
        if lines.problem or added or not (self._contents.path / name).is_file():
            self._replace(self._folder, name, b"".join(line.rstrip() + b"\n" for line in [*lines.good, *added]), name)

    def _segments(self, segments: Folder) -> None:
        for number, streams in self._contents.segments.items():
            with segments.subfolder(segment_name(number)) as folder:
                self._streams(streams, folder)
        for number in self._contents.missing_segments:
            with segments.subfolder(segment_name(number)) as folder:
                empty = encode_index(index_of({}, {}))
                self._replace(folder, INDEX, empty, f"{SEGMENTS}/{segment_name(number)}/{INDEX}")

    def _streams(self, streams: StreamFolder, folder: Folder) -> None:
        folder.remove_leftovers()
        whole: dict[str, KindIndex] = {}
        for kind in streams.kinds:
            reader = streams.scan(kind)
            if reader is None or not reader.good:
                folder.remove(stream_name(kind))
            else:
                whole[kind] = self._stream(reader, folder, kind, streams.path)
        stored = streams.stored_index
        index = index_of(whole, stored.loss if stored else {})
        if index != stored:
            self._replace(folder, INDEX, encode_index(index), f"{streams.path}/{INDEX}")

    def _stream(self, reader: StreamReader, folder: Folder, kind: str, path: str) -> KindIndex:
        if reader.ended and not reader.problem:
            return reader.index
        data = b"".join(reader.data[begin:end] for begin, end in reader.good) + END
        self._replace(folder, stream_name(kind), data, f"{path}/{stream_name(kind)}")
        return msgspec.structs.replace(reader.index, bytes=len(data), crc32=zlib.crc32(data))

    def _manifest(self, dropped: tuple[Damage, ...], ended_ns: int) -> None:
        manifest = self._contents.manifest
        before = manifest.extra.get("repairs")
        repairs: list[Any] = before if isinstance(before, list) else []
        repair = {"at_realtime_ns": time.time_ns(), "dropped": msgspec.to_builtins(dropped)}
        manifest = msgspec.structs.replace(
            manifest,
            ended_realtime_ns=manifest.ended_realtime_ns or ended_ns,
            tables_bytes={name: (self._contents.path / name).stat().st_size for name in (FACTS, LOSS, CLOCKS)},
            extra=manifest.extra | {"repairs": [*repairs, repair]},
        )
        self._replace(self._folder, MANIFEST, encode_manifest(manifest), MANIFEST)

    def _replace(self, folder: Folder, name: str, data: bytes, path: str) -> None:
        folder.replace(name, data)
        self._rewritten.append(path)
