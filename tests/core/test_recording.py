# SPDX-License-Identifier: Apache-2.0
"""Recordings: what is written is read, by fencepath and by others; segments, retention, permissions."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from tests.core.recording_samples import (
    HANDLE,
    KEPT_KINDS,
    LAUNCH,
    LAYOUTS,
    SECOND_NS,
    STEP,
    field_bytes,
    same,
    sample_manifest,
    sample_records,
    write_sample,
)

from fencepath.clocks import ClockSample
from fencepath.errors import NewerFormatError, NotARecordingError, RecordingDamagedError, UsageError
from fencepath.recording import (
    FORMAT,
    Fact,
    KindInfo,
    LossRow,
    RecordingWriter,
    new_manifest,
    open_recording,
)
from fencepath.records import CALL_HEAD, HEADER, INTERVAL, Field, RecordLayout

FIELD_TYPES = st.one_of(
    st.sampled_from(["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "char"]),
    st.builds("{}[{}]".format, st.sampled_from(["u8", "u16", "u32", "u64", "s8", "s64", "char"]), st.integers(1, 40)),
)
RECORD_LAYOUTS = st.builds(
    lambda head, types: RecordLayout("any.kind", (*head, *(Field(f"f{i}", t) for i, t in enumerate(types)))),
    st.sampled_from([HEADER, INTERVAL, CALL_HEAD]),
    st.lists(FIELD_TYPES, max_size=9),
)


def tree(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@settings(max_examples=60, deadline=None)
@given(layout=RECORD_LAYOUTS, counts=st.lists(st.integers(0, 300), min_size=1, max_size=4), kept=st.booleans())
def test_every_layout_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, layout: RecordLayout, counts: list[int], kept: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "r.fencepath"
    written = sample_records(layout, sum(counts))
    manifest = new_manifest({"any.kind": KindInfo(7, "any", layout.fields)})
    with RecordingWriter(path, manifest, kept_kinds={"any.kind"} if kept else frozenset()) as writer:
        at = 0
        for count in counts:
            writer.append("any.kind", written[at : at + count])
            writer.flush()
            at += count
    recording = open_recording(path)
    assert same(recording.records("any.kind"), written)
    assert recording.layouts["any.kind"] == layout
    assert recording.layouts.number("any.kind") == 7
    assert recording.verify() == []
    assert not recording.cut


def test_everything_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "r.fencepath"
    written = write_sample(path)
    recording = open_recording(path)
    assert recording.kinds == tuple(written)
    for kind, records in written.items():
        assert same(recording.records(kind), records)
    assert (
        recording.facts("process")
        == recording.facts()
        == [Fact("process", {"pid": pid, "name": "python"}) for pid in range(10)]
    )
    assert recording.facts("thread") == []
    assert recording.loss == [LossRow("ring", LAUNCH.kind, 1, at, at + 1, 17) for at in range(10)]
    assert recording.clocks == [
        ClockSample(domain="realtime", before_ns=at, value_ns=7, after_ns=at + 1) for at in range(10)
    ]
    assert recording.manifest.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert recording.manifest.kernel == os.uname().release
    assert recording.manifest.ended_realtime_ns is not None
    assert recording.manifest.ended_realtime_ns >= recording.manifest.created_realtime_ns
    assert (recording.damage, recording.cut, recording.live) == ([], False, False)


def test_the_folder_is_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "r.fencepath"
    write_sample(path)
    segment = ["", "/cuda.launch.arrows", "/index.json", "/mark.step.arrows"]
    assert tree(path) == sorted(
        ["clocks.jsonl", "facts.jsonl", "kept", "kept/cuda.stream.create.arrows", "kept/index.json", "loss.jsonl"]
        + ["manifest.json", "segments"]
        + [f"segments/{number}{name}" for number in ("000001", "000002") for name in segment]
    )


def test_polars_and_pyarrow_read_the_streams(tmp_path: Path) -> None:
    path = tmp_path / "r.fencepath"
    written = write_sample(path)[STEP.kind]
    parts: list[Any] = []
    for number in ("000001", "000002"):
        file = path / "segments" / number / "mark.step.arrows"
        frame = pl.read_ipc_stream(file)
        with ipc.open_stream(file) as stream:
            table = stream.read_all()
        assert table.schema.metadata[b"fencepath.kind"] == b"mark.step"
        assert frame.columns == table.column_names == [field.name for field in STEP.fields]
        assert frame["requests"].to_list() == table["requests"].to_pylist()
        assert frame["name"].to_list() == table["name"].to_pylist()
        parts.append(frame)
    whole: Any = pl.concat(parts)
    assert whole["time_ns"].to_list() == written["time_ns"].tolist()
    assert whole["requests"].to_list() == written["requests"].tolist()
    assert b"".join(whole["name"].to_list()) == field_bytes(written, "name")


def test_a_strided_view_of_a_ring_is_taken(tmp_path: Path) -> None:
    written = sample_records(LAUNCH, 1000)
    stride = np.zeros(1000, dtype={"names": ["r"], "formats": [LAUNCH.dtype], "itemsize": 128})
    stride["r"] = written
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        writer.append(LAUNCH.kind, stride["r"])
        stride["r"]["time_ns"] = 0  # the ring is used again
    assert same(open_recording(tmp_path / "r").records(LAUNCH.kind), written)


def test_more_rows_than_a_batch_holds(tmp_path: Path) -> None:
    written = sample_records(LAUNCH, 50_021)
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        writer.append(LAUNCH.kind, written)
    recording = open_recording(tmp_path / "r")
    parts = list(recording.iter_records(LAUNCH.kind))
    assert len(parts) > 2
    assert all(part.nbytes <= 1 << 20 for part in parts)
    assert same(np.concatenate(parts), written)
    assert same(recording.records(LAUNCH.kind), written)


def test_another_layout_or_kind_is_refused(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        with pytest.raises(ValueError, match="another layout"):
            writer.append(LAUNCH.kind, sample_records(STEP, 1))
        with pytest.raises(ValueError, match="not a kind"):
            writer.append("cuda.memcpy", sample_records(STEP, 1))
        changed = {**sample_manifest().kinds, STEP.kind: KindInfo(2, "mark", HEADER)}
        with pytest.raises(ValueError, match="cannot be changed"):
            writer.update_manifest(msgspec.structs.replace(writer.manifest, kinds=changed))
    with pytest.raises(RecordingDamagedError, match=r"no records of cuda\.memcpy"):
        open_recording(tmp_path / "r").records("cuda.memcpy")


def test_what_was_flushed_or_ticked_is_on_disk_while_recording(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written = sample_records(LAUNCH, 300)
    with RecordingWriter(path, sample_manifest()) as writer:
        writer.tick(0)
        writer.append(LAUNCH.kind, written[:100])
        writer.tick(SECOND_NS - 1)
        assert len(open_recording(path).records(LAUNCH.kind)) == 0
        writer.tick(SECOND_NS)
        recording = open_recording(path)
        assert same(recording.records(LAUNCH.kind), written[:100])
        assert (recording.live, recording.cut, recording.damage) == (True, True, [])
        writer.append(LAUNCH.kind, written[100:])
        writer.flush()
        assert same(open_recording(path).records(LAUNCH.kind), written)


def test_kinds_are_added_while_recording(tmp_path: Path) -> None:
    first = new_manifest({LAUNCH.kind: KindInfo(1, "cuda", LAUNCH.fields)})
    with RecordingWriter(tmp_path / "r", first) as writer:
        writer.append(LAUNCH.kind, sample_records(LAUNCH, 3))
        kinds = {**first.kinds, STEP.kind: KindInfo(2, "mark", STEP.fields)}
        writer.update_manifest(msgspec.structs.replace(first, kinds=kinds, calibration={"uprobe_ns": 700}))
        assert open_recording(tmp_path / "r").manifest.calibration == {"uprobe_ns": 700}
        writer.append(STEP.kind, sample_records(STEP, 5))
    recording = open_recording(tmp_path / "r")
    assert [len(recording.records(kind)) for kind in recording.kinds] == [3, 5]


def test_a_segment_closes_by_time(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        for second in range(25):
            writer.tick(second * SECOND_NS)
            writer.append(LAUNCH.kind, sample_records(LAUNCH, 7, start_ns=second * SECOND_NS))
    recording = open_recording(tmp_path / "r")
    assert [segment.number for segment in recording.segments] == [1, 2, 3]
    assert sum(segment.rows[LAUNCH.kind] for segment in recording.segments) == 25 * 7
    for segment in recording.segments:
        parts = np.concatenate(list(recording.iter_records(LAUNCH.kind, segment.number)))
        assert len(parts) == segment.rows[LAUNCH.kind]
        assert (segment.begin_ns, segment.time_ns) == (parts["begin_ns"].min(), parts["time_ns"].max())
        assert segment.time_ns - segment.begin_ns < 11 * SECOND_NS
    with pytest.raises(RecordingDamagedError, match="no segment 4"):
        list(recording.iter_records(LAUNCH.kind, 4))


def test_a_segment_closes_by_size(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest(), segment_bytes=1 << 20) as writer:
        for seed in range(100):
            writer.append(LAUNCH.kind, sample_records(LAUNCH, 1009, seed))
            writer.flush()
    sizes = [segment.bytes for segment in open_recording(tmp_path / "r").segments]
    assert len(sizes) > 3
    assert max(sizes) < (1 << 20) + 2 * 1009 * LAUNCH.size_bytes


def test_the_index_counts_loss(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        writer.append(LAUNCH.kind, sample_records(LAUNCH, 7))
        writer.flush()
        writer.loss([LossRow("ring", LAUNCH.kind, cpu, 0, 1, 17) for cpu in range(3)])
    assert open_recording(tmp_path / "r").segments[0].loss == {"ring": 51}


@pytest.mark.parametrize("limit", ["time", "size"])
def test_retention_drops_the_oldest_and_counts_it(tmp_path: Path, limit: str) -> None:
    seconds, rows, max_bytes = 60, 997, 1 << 20
    writer = RecordingWriter(
        tmp_path / "r",
        sample_manifest(),
        keep_ns=12 * SECOND_NS if limit == "time" else None,
        max_bytes=max_bytes if limit == "size" else None,
        kept_kinds=KEPT_KINDS,
    )
    for second in range(seconds):
        writer.tick(second * SECOND_NS)
        for layout in LAYOUTS:
            count = 101 if layout.kind in KEPT_KINDS else rows
            writer.append(layout.kind, sample_records(layout, count, second, second * SECOND_NS))
        if limit == "size":
            assert writer.size_bytes <= max_bytes
    writer.close()
    recording = open_recording(tmp_path / "r")
    left = recording.records(LAUNCH.kind)
    dropped = sum(row.count for row in recording.loss if row.kind == LAUNCH.kind)
    assert {row.stage for row in recording.loss} == {"retention"}
    assert len(left) + dropped == seconds * rows
    assert 0 < len(left) < seconds * rows
    assert left["time_ns"].max() > (seconds - 1) * SECOND_NS
    if limit == "time":
        assert left["time_ns"].min() <= (seconds - 1 - 12) * SECOND_NS + SECOND_NS
        assert left["time_ns"].min() > (seconds - 1 - 12 - 5) * SECOND_NS
    assert max(row.to_ns for row in recording.loss) < left["begin_ns"].min()
    assert len(recording.records(HANDLE.kind)) == seconds * 101
    assert (recording.damage, recording.cut) == ([], False)


def test_kept_kinds_have_a_bound(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest(), kept_kinds=KEPT_KINDS, kept_bytes=100_000) as writer:
        for seed in range(40):
            writer.append(HANDLE.kind, sample_records(HANDLE, 499, seed))
            writer.flush()
    recording = open_recording(tmp_path / "r")
    lost = sum(row.count for row in recording.loss if (row.stage, row.kind) == ("kept", HANDLE.kind))
    assert lost > 0
    assert len(recording.records(HANDLE.kind)) + lost == 40 * 499


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_sample(tmp_path / "open")
        os.umask(0o777)
        write_sample(tmp_path / "closed")
    finally:
        os.umask(before)
    for root in (tmp_path / "open", tmp_path / "closed"):
        modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (root, *root.rglob("*"))}
        assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.bpf  # needs root, to give files to another user
def test_everything_belongs_to_the_owner(tmp_path: Path) -> None:
    root = tmp_path / "r"
    with RecordingWriter(root, sample_manifest(), owner=(4321, 1234)) as writer:
        writer.append(LAUNCH.kind, sample_records(LAUNCH, 3))
        writer.flush()
        assert {(path.stat().st_uid, path.stat().st_gid) for path in (root, *root.rglob("*"))} == {(4321, 1234)}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (root, *root.rglob("*"))} == {(4321, 1234)}


@pytest.mark.bpf  # needs root, to give files to another user
def test_a_link_put_in_by_the_owner_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    writer = RecordingWriter(tmp_path / "r", sample_manifest(), owner=(4321, 1234))
    (tmp_path / "r" / "segments" / "000001").symlink_to(outside)
    writer.append(LAUNCH.kind, sample_records(LAUNCH, 3))
    with pytest.raises(UsageError, match="cannot write"):
        writer.flush()
    writer.close()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("there", ["file", "folder", "recording", "dangling link"])
def test_a_path_that_is_taken_is_refused(tmp_path: Path, there: str) -> None:
    path = tmp_path / "r"
    if there == "file":
        path.write_text("mine")
    elif there == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    elif there == "recording":
        write_sample(path)
    else:
        path.symlink_to(tmp_path / "nowhere")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="choose another"):
        RecordingWriter(path, sample_manifest())
    assert tree(tmp_path) == before


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir(mode=0o755)
    write_sample(tmp_path / "r")
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700
    assert open_recording(tmp_path / "r").verify() == []


def test_no_folder_to_make_it_in(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        RecordingWriter(tmp_path / "nowhere" / "r", sample_manifest())


def test_two_writers_at_one_path(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", sample_manifest()) as writer:
        with pytest.raises(UsageError, match="not empty"):
            RecordingWriter(tmp_path / "r", sample_manifest())
        writer.append(LAUNCH.kind, sample_records(LAUNCH, 3))
    assert len(open_recording(tmp_path / "r").records(LAUNCH.kind)) == 3


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", sample_manifest())
    writer.close()
    ended_ns = open_recording(tmp_path / "r").manifest.ended_realtime_ns
    writer.close()
    assert open_recording(tmp_path / "r").manifest.ended_realtime_ns == ended_ns
    assert open_recording(tmp_path / "r").records(LAUNCH.kind).shape == (0,)


@pytest.mark.parametrize("inside", ["", "r.fencepath"])
def test_a_zip_file_is_opened(tmp_path: Path, inside: str) -> None:
    written = write_sample(tmp_path / "r.fencepath")
    root = tmp_path if inside else tmp_path / "r.fencepath"
    packed = shutil.make_archive(str(tmp_path / "demo"), "zip", root, inside or None)
    recording = open_recording(packed)
    assert all(same(recording.records(kind), records) for kind, records in written.items())
    assert len(recording.facts()) == 10
    assert (recording.verify(), recording.cut, recording.live) == ([], False, False)


def edit_manifest(path: Path, **fields: Any) -> None:
    manifest = msgspec.json.decode((path / "manifest.json").read_bytes())
    (path / "manifest.json").write_bytes(msgspec.json.encode(manifest | fields))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write_sample(tmp_path / "r")
    edit_manifest(tmp_path / "r", format=FORMAT + 1, kinds=["a", "different", "shape"])
    with pytest.raises(NewerFormatError, match="upgrade fencepath"):
        open_recording(tmp_path / "r")


def test_unknown_fields_of_a_newer_minor_are_passed_over(tmp_path: Path) -> None:
    written = write_sample(tmp_path / "r")
    edit_manifest(tmp_path / "r", invented_later={"a": [1, 2]})
    facts = tmp_path / "r" / "facts.jsonl"
    facts.write_bytes(facts.read_bytes() + b'{"type":"gpu","data":{},"invented_later":1}\n')
    recording = open_recording(tmp_path / "r")
    assert same(recording.records(LAUNCH.kind), written[LAUNCH.kind])
    assert recording.facts("gpu") == [Fact("gpu", {})]
    assert recording.verify() == []


HEAD = [*map(msgspec.to_builtins, HEADER)]


def kind_of(*fields: tuple[str, str], number: int = 1) -> dict[str, Any]:
    return {"number": number, "layer": "x", "fields": [*HEAD, *({"name": n, "type": t} for n, t in fields)]}


@pytest.mark.parametrize(
    "kinds",
    [
        {"../../etc/x": kind_of()},
        {"x.y": {"number": 1, "layer": "x", "fields": []}},
        {"x.y": kind_of(number=65536)},
        {"x.y": kind_of(("a", "f64"))},
        {"x.y": kind_of(("a", "u8[9999999999]"))},
        {"x.y": kind_of(("a b", "u8"))},
        {"x.y": kind_of(), "x.z": kind_of()},
    ],
    ids=["path", "no header", "number", "type", "size", "field name", "same number"],
)
def test_a_manifest_that_lies_is_damaged(tmp_path: Path, kinds: dict[str, Any]) -> None:
    write_sample(tmp_path / "r")
    edit_manifest(tmp_path / "r", kinds=kinds)
    with pytest.raises(RecordingDamagedError, match=re.escape("manifest.json is damaged")):
        open_recording(tmp_path / "r")


@pytest.mark.parametrize(
    "what", ["nothing", "empty folder", "folder", "file", "random file", "other manifest", "random manifest"]
)
def test_what_is_no_recording_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "r"
    if what == "file":
        path.write_text("{}")
    elif what == "random file":
        path.write_bytes(b"PK\x03\x04" + np.random.default_rng(3).bytes(5000))
    elif what != "nothing":
        path.mkdir()
    if what == "folder":
        (path / "segments").mkdir()
    elif what == "other manifest":
        (path / "manifest.json").write_text('{"name": "web app", "format": 99}')
    elif what == "random manifest":
        (path / "manifest.json").write_bytes(np.random.default_rng(4).bytes(500))
    with pytest.raises(NotARecordingError, match="recording"):
        open_recording(path)
