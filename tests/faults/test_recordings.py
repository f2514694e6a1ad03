# SPDX-License-Identifier: Apache-2.0
"""Recordings that are cut, broken, foreign, newer or empty, through the command line: one clear line and the right code."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.commandline import Done, ForkServer, fencepath

from fencepath.recording import LossRow, open_recording
from fencepath.testing.fixtures import write_recording
from fencepath_cuda.simcuda import build

LAUNCHES = 101
WARNING = "fencepath: warning: "
REPAIR = "`fencepath repair` makes the recording whole"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, commands: ForkServer) -> Path:
    """A recording of two requests of a simulated GPU."""
    folder = tmp_path_factory.mktemp("whole")
    simulated = build(folder / "simcuda")
    path = folder / "whole.fencepath"
    words = [simulated.workload, "--threads", "2", "--launches", LAUNCHES]
    done = fencepath("record", "-o", path, "--", *map(str, words), environ=simulated.environment())
    assert done.code == 0, done.errors
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy that may be broken."""
    return copied(whole, tmp_path / "copy.fencepath")


def copied(whole: Path, path: Path) -> Path:
    shutil.copytree(whole, path)
    return path


def files_of(path: Path) -> list[str]:
    # the loss table is empty where nothing was lost: there is nothing in it to damage
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.stat().st_size)


def assert_plain(done: Done) -> None:
    """Nothing but lines of fencepath, and no fault of its own."""
    assert all(line.startswith("fencepath: ") for line in done.errors.splitlines()), done.errors
    assert "Traceback" not in done.output + done.errors
    assert "a fault of fencepath itself" not in done.errors


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


pytestmark = pytest.mark.bpf


def test_a_whole_recording_is_reported_without_warning(whole: Path, commands: ForkServer) -> None:
    done = commands.run("report", whole, "--strict")
    assert (done.code, done.errors) == (0, "")
    assert "2 requests" in done.output


def test_cut_anywhere_it_is_read_up_to_the_break(whole: Path, tmp_path: Path, commands: ForkServer) -> None:
    """Each file in turn, at a place that differs from file to file and is the same in every run."""
    codes: dict[str, int] = {}
    for number, name in enumerate(files_of(whole)):
        path = copied(whole, tmp_path / f"{number}.fencepath")
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[: random.Random(name).randrange(len(data))])
        done = commands.run("report", path)
        assert_plain(done)
        assert WARNING in done.errors or done.code == 4, name
        assert done.code in ((4,) if name == "manifest.json" else (0, 1)), (name, done)
        codes[name] = done.code
    lost = {name for name, code in codes.items() if code == 1}
    # only where the marks are gone are there no requests left
    assert lost <= {"kept/mark.text.arrows", "segments/000001/mark.point.arrows"}, lost


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 0.999])
def test_cut_at_many_places_of_one_file_it_keeps_what_is_before(copy: Path, commands: ForkServer, share: float) -> None:
    file = copy / "segments/000001/cuda.launch.arrows"
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    done = commands.run("report", copy, "--json")
    assert_plain(done)
    assert done.code == 0
    assert f"{WARNING}segments/000001/cuda.launch.arrows: " in done.errors
    assert REPAIR in done.errors
    report = json.loads(done.output)
    assert report["recording"]["damage"]
    assert len(report["requests"]) == 2
    assert 0 <= report["recording"]["events"].get("cuda.launch", 0) <= 2 * LAUNCHES


def test_cut_as_a_killed_recorder_leaves_it(copy: Path, commands: ForkServer) -> None:
    """No end in the manifest, no index, half of a batch."""
    edit(copy, lambda manifest: manifest.pop("ended_realtime_ns"))
    for index in copy.rglob("index.json"):
        index.unlink()
    file = copy / "segments/000001/host.switch.arrows"
    file.write_bytes(file.read_bytes()[:-100])
    done = commands.run("report", copy, "--json")
    assert_plain(done)
    assert done.code == 0
    report = json.loads(done.output)
    assert report["recording"]["cut"]
    assert len(report["requests"]) == 2


def test_random_bytes_in_each_file(whole: Path, tmp_path: Path, commands: ForkServer) -> None:
    """Of the same length, so that only what is read tells."""
    for number, name in enumerate(files_of(whole)):
        path = copied(whole, tmp_path / f"{number}.fencepath")
        size = (path / name).stat().st_size
        (path / name).write_bytes(random.Random(number).randbytes(size))
        done = commands.run("report", path)
        assert_plain(done)
        assert WARNING in done.errors or done.code == 4, name
        assert done.code in ((4,) if name == "manifest.json" else (0, 1)), (name, done)


def test_random_bytes_inside_of_each_file(whole: Path, tmp_path: Path, commands: ForkServer) -> None:
    """Some bytes in the middle are others: a checksum tells, or it is told as whatever it now says."""
    for number, name in enumerate(files_of(whole)):
        path = copied(whole, tmp_path / f"{number}.fencepath")
        data = bytearray((path / name).read_bytes())
        middle = len(data) // 2
        data[middle : middle + 16] = random.Random(number).randbytes(16)
        (path / name).write_bytes(data)
        done = commands.run("report", path)
        assert_plain(done)
        assert done.code in (0, 1, 4), (name, done)
        if name.endswith(".arrows"):
            assert WARNING in done.errors, name


def refusals(path: Path) -> Iterator[tuple[str, int, str]]:
    """Make things at `path` that are no recording, one after the other; yield name, exit code and what is said."""
    yield "nothing", 2, "there is no recording at"
    path.mkdir()
    yield "an empty folder", 2, "is not a fencepath recording"
    (path / "notes.txt").write_text("hello")
    yield "a foreign folder", 2, "is not a fencepath recording"
    (path / "manifest.json").write_text('{"name": "a web application", "icons": []}')
    yield "another program's manifest", 2, "is not a fencepath recording"
    (path / "manifest.json").write_bytes(b"\x00\xff" * 100)
    yield "a manifest of other bytes", 2, "is not a fencepath recording"
    shutil.rmtree(path)
    path.write_text("hello")
    yield "a file", 2, "is not a fencepath recording"
    path.write_bytes(b"PK\x03\x04 half a zip file")
    yield "a broken zip file", 2, "is not a fencepath recording"
    path.unlink()
    path.symlink_to(path)
    yield "a link to itself", 2, ""


def test_what_is_no_recording_is_refused(tmp_path: Path, commands: ForkServer) -> None:
    path = tmp_path / "other.fencepath"
    for what, code, said in refusals(path):
        for command in (["report"], ["repair"], ["export", "--to", "perfetto"]):
            done = commands.run(command[0], path, *command[1:])
            assert_plain(done)
            assert len(done.errors.splitlines()) == 1, (what, command, done)
            assert done.code == code, (what, command, done)
            assert said in done.errors, (what, command, done)
            assert done.output == "", (what, command, done)


def test_a_newer_format_is_refused(copy: Path, commands: ForkServer) -> None:
    def newer(manifest: dict[str, Any]) -> None:
        manifest["version" if "version" in manifest else "format"] += 1

    edit(copy, newer)
    done = commands.run("report", copy)
    assert_plain(done)
    assert done.code == 3
    (line,) = done.errors.splitlines()
    assert "newer" in line
    assert commands.run("repair", copy).code == 3


def test_a_recording_without_its_manifest_is_damaged(copy: Path, commands: ForkServer) -> None:
    (copy / "manifest.json").unlink()
    done = commands.run("report", copy)
    assert_plain(done)
    assert done.code == 4
    assert "manifest.json" in done.errors


def test_missing_segments_are_told_and_the_rest_is_read(copy: Path, commands: ForkServer) -> None:
    shutil.copytree(copy / "segments/000001", copy / "segments/000003")
    done = commands.run("report", copy, "--strict")
    assert_plain(done)
    assert done.code == 4
    assert f"{WARNING}segments/000002: missing" in done.errors
    assert "requests" in done.output


def test_with_no_segments_at_all_there_are_the_kept_kinds(copy: Path, commands: ForkServer) -> None:
    shutil.rmtree(copy / "segments")
    done = commands.run("report", copy, "--json")
    assert_plain(done)
    assert done.code == 0
    report = json.loads(done.output)
    assert {request["state"] for request in report["requests"]} == {"open"}


def test_kinds_without_a_plugin_are_left_out_and_that_is_said(copy: Path, commands: ForkServer) -> None:
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"cuda', '"other'))
    for file in list(copy.rglob("cuda.*.arrows")):
        file.rename(file.with_name(file.name.replace("cuda.", "other.", 1)))
    for index in copy.rglob("index.json"):
        index.write_text(index.read_text().replace('"cuda.', '"other.'))
    done = commands.run("report", copy, "--json")
    assert_plain(done)
    assert done.code == 0
    report = json.loads(done.output)
    assert "cuda.launch" not in report["recording"]["events"]
    assert any("no plugin is installed" in problem and "other.launch" in problem for problem in report["problems"])
    assert "no plugin is installed" in commands.run("report", copy).output


def test_a_recording_of_nothing_has_no_requests(tmp_path: Path, commands: ForkServer) -> None:
    path = tmp_path / "nothing.fencepath"
    write_recording(path, {})
    done = commands.run("report", path)
    assert_plain(done)
    assert done.code == 1
    assert "no requests in this recording" in done.errors
    assert json.loads(commands.run("report", path, "--json").output)["requests"] == []
    assert commands.run("export", path, "--to", "perfetto").code == 1
    assert commands.run("repair", path).code == 0


def test_an_unknown_request(whole: Path, commands: ForkServer) -> None:
    done = commands.run("report", whole, "--request", "worker-7")
    assert_plain(done)
    assert done.code == 1
    assert "no request worker-7" in done.errors
    assert commands.run("report", whole, "--request", "worker-1").code == 0
    assert commands.run("export", whole, "--to", "perfetto", "--request", "worker-7").code == 1


def test_strict_tells_damage_before_loss_and_loss_only_in_what_is_shown(copy: Path, commands: ForkServer) -> None:
    assert commands.run("report", copy, "--strict").code == 0
    report = json.loads(commands.run("report", copy, "--json").output)
    first, second = sorted(report["requests"], key=lambda request: request["end_ns"])
    assert first["end_ns"] < second["end_ns"]
    add_loss(
        copy,
        LossRow(
            stage="ring_full", kind="cuda.launch", cpu=0, from_ns=first["end_ns"] + 1, to_ns=second["end_ns"], count=3
        ),
    )
    assert commands.run("report", copy, "--strict").code == 1
    assert commands.run("report", copy, "--strict", "--request", first["key"]).code == 0
    assert commands.run("report", copy, "--strict", "--request", second["key"]).code == 1
    assert commands.run("report", copy).code == 0
    file = copy / "segments/000001/process.exit.arrows"
    file.write_bytes(file.read_bytes()[:-50])
    assert commands.run("report", copy, "--strict").code == 4


def test_strict_counts_a_time_without_probes_as_loss(copy: Path, commands: ForkServer) -> None:
    (request, *_) = json.loads(commands.run("report", copy, "--json").output)["requests"]
    begin_ns = request["start_ns"]
    add_loss(copy, LossRow(stage="attach_gap", kind="", cpu=-1, from_ns=begin_ns - 100, to_ns=begin_ns + 100, count=0))
    assert commands.run("report", copy, "--strict").code == 1
    assert commands.run("report", copy).code == 0


def add_loss(path: Path, row: LossRow) -> None:
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    with (path / "loss.jsonl").open("a") as file:
        file.write(json.dumps(fields) + "\n")


def test_repaired_it_is_reported_without_warning(copy: Path, commands: ForkServer) -> None:
    for name in ("segments/000001/cuda.launch.arrows", "kept/cuda.stream.create.arrows", "facts.jsonl"):
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[: len(data) * 2 // 3])
    (copy / "segments/000001/host.switch.arrows").write_bytes(b"\x07" * 3000)
    (copy / "segments/000001/index.json").unlink()
    before = commands.run("report", copy)
    assert before.errors.count(WARNING) >= 4
    repaired = commands.run("repair", copy)
    assert_plain(repaired)
    assert repaired.code == 0
    assert repaired.output
    after = commands.run("report", copy)
    assert (after.code, after.errors) == (0, "")
    assert open_recording(copy).verify() == []
    # what was dropped is known to be lost, not forgotten
    assert json.loads(commands.run("repair", copy, "--json").output) is not None


def test_a_reader_that_has_seen_enough_is_no_fault(whole: Path) -> None:
    for options in ("", "--json"):
        command = f'"{sys.executable}" -m fencepath report "{whole}" {options} | head -c 1; echo " ${{PIPESTATUS[0]}}"'
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert done.stderr == ""
        assert done.stdout.endswith(" 0\n"), done.stdout
    command = f'"{sys.executable}" -m fencepath report "{whole}" --json | true; echo " ${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (" 0\n", "")
