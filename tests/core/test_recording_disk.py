# SPDX-License-Identifier: Apache-2.0
"""A disk that gets full: said once, counted, and what was written before is read."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.core.recording_samples import (
    HANDLE,
    KEPT_KINDS,
    LAUNCH,
    SECOND_NS,
    same,
    sample_manifest,
    sample_records,
)

from fencepath.errors import MachineError
from fencepath.recording import RecordingWriter, open_recording, repair_recording
from fencepath.records import Records

TOTAL, PART = 100_003, 997


@pytest.fixture(params=["1m", "2m", "3300k"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@contextmanager
def largest_file(size_bytes: int) -> Generator[None, None, None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(path: Path) -> tuple[Records, list[str]]:
    """Write more than there is room for, go on after the failure, and return what was meant and what was raised."""
    launches = sample_records(LAUNCH, TOTAL)
    raised: list[str] = []
    writer = RecordingWriter(path, sample_manifest(), kept_kinds=KEPT_KINDS)
    for at in range(0, TOTAL, PART):
        try:
            writer.tick(at * SECOND_NS // 10_000)
            writer.fact("process", {"pid": at})
            writer.append(HANDLE.kind, sample_records(HANDLE, 1, at))
            writer.append(LAUNCH.kind, launches[at : at + PART])
            writer.flush()
        except MachineError as error:
            raised.append(str(error))
    writer.close()
    return launches, raised


def check(path: Path, launches: Records) -> None:
    recording = open_recording(path)
    found = recording.records(LAUNCH.kind)
    lost = {row.kind: row.count for row in recording.loss if row.stage == "disk"}
    assert 0 < len(found) < TOTAL
    assert same(found, launches[: len(found)])
    assert len(found) + lost[LAUNCH.kind] == TOTAL
    parts = -(-TOTAL // PART)
    assert len(recording.records(HANDLE.kind)) + lost[HANDLE.kind] == parts
    assert len(recording.facts()) + lost["fact"] == parts
    assert (recording.verify(), recording.cut) == ([], False)
    assert repair_recording(path).rewritten == ()


@pytest.mark.bpf  # needs root, to mount a small disk
def test_a_full_disk(small_disk: Path) -> None:
    path = small_disk / "r.fencepath"
    launches, raised = fill(path)
    remedy = "free some space there, or bound the recording with --max-size"
    assert raised == [f"cannot write to {path}: no space left on device; {remedy}"]
    check(path, launches)


def test_a_file_size_limit(tmp_path: Path) -> None:
    with largest_file(1_000_000):
        launches, raised = fill(tmp_path / "r")
    assert len(raised) == 1
    assert "file too large" in raised[0]
    check(tmp_path / "r", launches)


@pytest.mark.bpf  # needs root, to mount a small disk
def test_a_disk_too_full_to_begin(small_disk: Path) -> None:
    free = os.statvfs(small_disk)
    (small_disk / "hog").write_bytes(b"x" * (free.f_bavail - 3) * free.f_bsize)
    with pytest.raises(MachineError, match="no space left"):
        RecordingWriter(small_disk / "r", sample_manifest())
    (small_disk / "hog").unlink()
    RecordingWriter(small_disk / "r", sample_manifest()).close()
    assert open_recording(small_disk / "r").verify() == []


@pytest.mark.bpf  # needs root, to mount a small disk
def test_a_bound_keeps_it_from_getting_full(small_disk: Path) -> None:
    with RecordingWriter(small_disk / "r", sample_manifest(), max_bytes=600_000) as writer:
        for at in range(0, TOTAL, PART):
            writer.append(LAUNCH.kind, sample_records(LAUNCH, PART, at))
            writer.flush()
    recording = open_recording(small_disk / "r")
    dropped = sum(row.count for row in recording.loss if row.stage == "retention")
    assert len(recording.records(LAUNCH.kind)) + dropped == -(-TOTAL // PART) * PART
    assert recording.verify() == []
