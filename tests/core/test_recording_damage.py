# SPDX-License-Identifier: Apache-2.0
"""Recordings that are cut, damaged or killed: what is whole is read, what is not is told, and nothing else happens."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core import recording_child
from tests.core.recording_samples import (
    HANDLE,
    KEPT_KINDS,
    LAUNCH,
    LAYOUTS,
    SECOND_NS,
    same,
    sample_manifest,
    sample_records,
    write_sample,
)

from fencepath.clocks import ClockSample
from fencepath.errors import FencepathError, RecordingDamagedError, UsageError
from fencepath.recording import Fact, LossRow, Recording, RecordingWriter, open_recording, repair_recording
from fencepath.records import Records

KILLS = int(os.environ.get("FENCEPATH_STRESS_KILLS", "50"))
BATCHES, ROWS = 3, 13
STREAMS = (
    "kept/cuda.stream.create.arrows",
    "segments/000001/cuda.launch.arrows",
    "segments/000002/mark.step.arrows",
)
TABLES = ("facts.jsonl", "loss.jsonl", "clocks.jsonl")
INDEXES = ("kept/index.json", "segments/000001/index.json")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.fencepath"


@pytest.fixture
def written(path: Path) -> dict[str, Records]:
    return write_sample(path, BATCHES, ROWS)


def cuts(file: Path, step: int = 1) -> Iterator[int]:
    """Truncate `file` byte by byte, from its end to nothing."""
    for size in range(file.stat().st_size - 1, -1, -step):
        os.truncate(file, size)
        yield size


def table(recording: Recording, file: str) -> list[Fact] | list[LossRow] | list[ClockSample]:
    if file == "facts.jsonl":
        return recording.facts()
    return recording.loss if file == "loss.jsonl" else recording.clocks


def lost_rows(recording: Recording, file: str) -> int | None:
    (damage,) = [damage for damage in recording.verify() if damage.file == file]
    return damage.lost_rows


@pytest.mark.parametrize("file", STREAMS)
def test_a_stream_cut_at_any_byte_loses_only_its_tail(path: Path, written: dict[str, Records], file: str) -> None:
    kind = Path(file).stem
    wanted = written[kind]
    # What the file holds is at this place among all records of the kind.
    start = BATCHES * ROWS if file.startswith("segments/000002") else 0
    stop = BATCHES * ROWS if file.startswith("segments/000001") else len(wanted)
    held = stop - start
    for size in cuts(path / file, step=7):
        recording = open_recording(path)
        found = recording.records(kind)
        left = len(found) - (len(wanted) - (stop - start))
        assert left % ROWS == 0
        assert 0 <= left <= held, "a shorter file holds no more"
        assert same(found, np.concatenate([wanted[: start + left], wanted[stop:]])), size
        assert lost_rows(recording, file) == len(wanted) - len(found)
        assert [damage.file for damage in recording.damage] == [file]
        assert recording.cut
        held = left
    assert held == 0


@pytest.mark.parametrize("file", TABLES)
def test_a_table_cut_at_any_byte_loses_only_its_tail(path: Path, written: dict[str, Records], file: str) -> None:
    whole = open_recording(path)
    rows = table(whole, file)
    lines = (path / file).read_bytes().splitlines(keepends=True)
    ends = np.cumsum([len(line) for line in lines])
    for size in cuts(path / file):
        recording = open_recording(path)
        found = table(recording, file)
        # A line that lacks only its newline is whole.
        count = int(np.searchsorted(ends - 1, size, side="right"))
        assert found == rows[:count]
        assert [damage.file for damage in recording.damage] == [file]
        assert recording.cut
        assert same(recording.records(LAUNCH.kind), written[LAUNCH.kind])


@pytest.mark.parametrize("file", INDEXES)
def test_an_index_cut_at_any_byte_is_made_anew(path: Path, written: dict[str, Records], file: str) -> None:
    whole = open_recording(path).segments
    for size in cuts(path / file):
        recording = open_recording(path)
        lacks_newline_only = recording.damage == []
        assert lacks_newline_only or [damage.file for damage in recording.damage] == [file], size
        assert [segment.rows for segment in recording.segments] == [segment.rows for segment in whole]
        assert [segment.time_ns for segment in recording.segments] == [segment.time_ns for segment in whole]
        assert all(same(recording.records(kind), records) for kind, records in written.items())


def test_a_manifest_cut_at_any_byte_is_damage(path: Path, written: dict[str, Records]) -> None:
    size = (path / "manifest.json").stat().st_size
    os.truncate(path / "manifest.json", size - 1)
    assert open_recording(path).manifest.tool == "test"
    os.truncate(path / "manifest.json", size - 2)
    for _ in cuts(path / "manifest.json"):
        with pytest.raises(RecordingDamagedError, match=r"manifest\.json"):
            open_recording(path)
    (path / "manifest.json").unlink()
    with pytest.raises(RecordingDamagedError, match=r"manifest\.json"):
        open_recording(path)


@pytest.mark.parametrize("file", [*STREAMS, *TABLES, *INDEXES, "segments/000001", "segments", "kept"])
def test_what_is_missing_is_told(path: Path, written: dict[str, Records], file: str) -> None:
    gone = path / file
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    recording = open_recording(path)
    found = sum(len(recording.records(kind)) for kind in written)
    total = sum(map(len, written.values()))
    if file in (*STREAMS, *INDEXES):
        assert found + (lost_rows(recording, file) or 0) == total
    assert recording.cut == (file not in ("segments", "segments/000001"))


def test_a_segment_missing_in_the_middle_is_told_and_at_the_front_is_retention(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        for second in range(35):
            writer.tick(second * SECOND_NS)
            writer.append(LAUNCH.kind, sample_records(LAUNCH, 7))
    shutil.rmtree(tmp_path / "r" / "segments" / "000001")
    assert open_recording(tmp_path / "r").damage == []
    shutil.rmtree(tmp_path / "r" / "segments" / "000003")
    assert [damage.file for damage in open_recording(tmp_path / "r").damage] == ["segments/000003"]


@pytest.mark.parametrize("filler", [b"\0" * 4096, b"\xff" * 17, b"ARROW1\0\0", b"x"])
def test_bytes_after_the_end_are_told(path: Path, written: dict[str, Records], filler: bytes) -> None:
    for file in (*STREAMS, *TABLES):
        with (path / file).open("ab") as stream:
            stream.write(filler)
    recording = open_recording(path)
    assert all(same(recording.records(kind), records) for kind, records in written.items())
    assert {damage.file: damage.lost_bytes for damage in recording.verify()} == dict.fromkeys(
        (*STREAMS, *TABLES), len(filler)
    )


def test_zeros_where_a_batch_was_are_told(path: Path, written: dict[str, Records]) -> None:
    file = path / STREAMS[1]
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2))
    recording = open_recording(path)
    found = recording.records(LAUNCH.kind)
    assert lost_rows(recording, STREAMS[1]) == len(written[LAUNCH.kind]) - len(found) > 0


def test_a_batch_that_does_not_decode_is_passed_over(tmp_path: Path) -> None:
    path, rows = tmp_path / "r", 2000
    written = sample_records(LAUNCH, 3 * rows)
    written["tid"] = 7  # compresses, so that zstd has something to refuse
    with RecordingWriter(path, sample_manifest()) as writer:
        for at in range(0, 3 * rows, rows):
            writer.append(LAUNCH.kind, written[at : at + rows])
            writer.flush()
    file = path / STREAMS[1]
    data = file.read_bytes()
    frames = [at for at in range(len(data)) if data.startswith(b"\x28\xb5\x2f\xfd", at)]
    middle = min(frames, key=lambda at: abs(at - len(data) // 2))
    file.write_bytes(data[:middle] + b"\0\0\0\0" + data[middle + 4 :])
    recording = open_recording(path)
    found = recording.records(LAUNCH.kind)
    assert same(found, np.concatenate([written[:rows], written[2 * rows :]]))
    (damage,) = recording.damage
    assert "cannot be decoded" in damage.what
    assert damage.lost_rows == rows
    report = repair_recording(path)
    assert same(open_recording(path).records(LAUNCH.kind), found)
    assert report.dropped == (damage,)
    assert [(row.stage, row.count) for row in open_recording(path).loss] == [("repair", rows)]


def test_a_changed_byte_is_told_by_the_checksum_at_least(path: Path, written: dict[str, Records]) -> None:
    chance = random.Random(11)
    for file in STREAMS:
        data = (path / file).read_bytes()
        for _ in range(150):
            at = chance.randrange(len(data))
            changed = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
            (path / file).write_bytes(changed)
            recording = open_recording(path)
            assert [damage.file for damage in recording.verify()] == [file], at
        (path / file).write_bytes(data)


def test_random_bytes_raise_nothing_but_documented_errors(path: Path, written: dict[str, Records]) -> None:
    chance = np.random.default_rng(5)
    files = [file for file in path.rglob("*") if file.is_file()]
    whole = {file: file.read_bytes() for file in files}
    opened = 0
    for _ in range(300):
        victims = chance.choice(len(files), 2, replace=False)
        for victim in victims:
            data = bytearray(whole[files[victim]])
            at = int(chance.integers(len(data)))
            end = at + int(chance.integers(1, 400))
            data[at:end] = chance.bytes(int(chance.integers(0, 400)))
            files[victim].write_bytes(data)
        try:
            recording = open_recording(path)
            for kind in recording.kinds:
                recording.records(kind)
            _ = recording.segments, recording.facts(), recording.loss, recording.clocks, recording.damage
            opened += 1
        except FencepathError:
            pass
        for victim in victims:
            files[victim].write_bytes(whole[files[victim]])
    assert opened > 100


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("harm", ["unclosed", "cut", "missing", "tables", "index", "schema"])
def test_repair_makes_it_whole(path: Path, written: dict[str, Records], harm: str, in_place: bool) -> None:
    if harm == "cut":
        for file in STREAMS:
            os.truncate(path / file, (path / file).stat().st_size * 2 // 3)
    elif harm == "missing":
        (path / STREAMS[1]).unlink()
    elif harm == "tables":
        for file in TABLES:
            os.truncate(path / file, (path / file).stat().st_size - 3)
    elif harm == "index":
        (path / INDEXES[1]).write_bytes(b"{")
    elif harm == "schema":
        (path / STREAMS[2]).write_bytes(b"\xff" * 64 + (path / STREAMS[2]).read_bytes()[64:])
    else:
        path = unclosed(path.parent / "unclosed")
    before = open_recording(path)
    readable = {kind: before.records(kind) for kind in before.kinds}
    facts, damage = before.facts(), before.verify()
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    target = path if in_place else path.parent / "whole.fencepath"

    report = repair_recording(path, None if in_place else target)

    assert list(report.dropped) == damage
    whole = open_recording(target)
    assert (whole.verify(), whole.cut) == ([], False)
    assert all(same(whole.records(kind), records) for kind, records in readable.items())
    assert whole.facts() == facts
    counted = sum(row.count for row in whole.loss if row.stage == "repair")
    assert counted == sum(part.lost_rows or 0 for part in damage if part.file in STREAMS)
    assert not [file for file in target.rglob("*") if file.name.startswith(".")]
    assert {file.stat().st_mode & 0o777 for file in target.rglob("*") if file.is_file()} == {0o600}
    if not in_place:
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == files
    again = repair_recording(target)
    assert (again.dropped, again.rewritten) == ((), ())


def unclosed(path: Path) -> Path:
    """Return a recording as a killed recorder leaves it: by a copy, as this process lives on."""
    writer = RecordingWriter(path.parent / "live", sample_manifest(), kept_kinds=KEPT_KINDS)
    for layout in LAYOUTS:
        writer.append(layout.kind, sample_records(layout, 3 * ROWS))
    writer.flush()
    shutil.copytree(path.parent / "live", path)
    with pytest.raises(UsageError, match="still being recorded"):
        repair_recording(path.parent / "live")
    writer.close()
    return path


def test_repair_fills_a_gap_between_segments(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        for second in range(35):
            writer.tick(second * SECOND_NS)
            writer.append(LAUNCH.kind, sample_records(LAUNCH, 7))
    shutil.rmtree(tmp_path / "r" / "segments" / "000002")
    assert [damage.file for damage in repair_recording(tmp_path / "r").dropped] == ["segments/000002"]
    assert open_recording(tmp_path / "r").verify() == []


def test_repair_refuses_an_output_that_exists(path: Path, written: dict[str, Records]) -> None:
    with pytest.raises(UsageError, match="exists"):
        repair_recording(path, path.parent)


@pytest.fixture
def killer() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, recording_child.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def kill_one(killer: subprocess.Popen[str], path: Path, flushes: int, after_s: float) -> int:
    """Have `path` written, killed some time after so many flushes; return the rows of each kind flushed for sure."""
    assert killer.stdin is not None
    assert killer.stdout is not None
    killer.stdin.write(f"{path}\n")
    killer.stdin.flush()
    flushed = seen = pid = 0
    for line in killer.stdout:
        if line == "dead\n":
            return flushed
        if line.startswith("pid"):
            pid = int(line.split()[1])
        else:
            flushed, seen = int(line), seen + 1
        if pid and seen >= flushes:
            time.sleep(after_s)
            os.kill(pid, signal.SIGKILL)
            flushes = sys.maxsize
    pytest.fail("the process that forks the writers ended")


def test_killed_at_any_moment_all_that_was_flushed_is_read(tmp_path: Path, killer: subprocess.Popen[str]) -> None:
    chance = random.Random(7)
    wanted = {layout.kind: sample_records(layout, recording_child.ROWS) for layout in (LAUNCH, HANDLE)}
    flushed_in_all = segments_in_all = 0
    for kill in range(KILLS):
        path = tmp_path / f"{kill}"
        # Every fifth dies while it begins.
        flushes = chance.randrange(1, 120) if kill % 5 else 0
        flushed = kill_one(killer, path, flushes, chance.uniform(0, 0.02))
        flushed_in_all += flushed
        try:
            recording = open_recording(path)
        except FencepathError:
            assert flushed == 0
            continue
        assert recording.cut
        assert not recording.live
        segments_in_all += len(recording.segments)
        for kind, sequence in wanted.items():
            found = recording.records(kind)
            assert len(found) >= flushed
            repeated = np.tile(sequence, len(found) // len(sequence) + 1)[: len(found)]
            assert same(found, repeated)
        readable = {kind: recording.records(kind) for kind in wanted}
        repair_recording(path)
        whole = open_recording(path)
        assert (whole.verify(), whole.cut) == ([], False)
        assert all(same(whole.records(kind), records) for kind, records in readable.items())
        shutil.rmtree(path)
    assert flushed_in_all > 500 * KILLS
    assert segments_in_all > KILLS
