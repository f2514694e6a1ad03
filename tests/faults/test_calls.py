# SPDX-License-Identifier: Apache-2.0
"""Calls that end in unusual ways, or not at all, and very many of them."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.faults.calling import Call, Caller, Calls, Said, Suite, calls_of, said_in
from tests.faults.commandline import Done, ForkServer, until

from fencepath.recording import Recording, open_recording
from fencepath.records import Flags
from fencepath.report import Report

pytestmark = pytest.mark.bpf


def exit_of(suite: Suite, tid: int) -> int:
    """Time at which a thread ended, CLOCK_MONOTONIC."""
    records = suite.recording.records("process.exit")
    (time_ns,) = records["time_ns"][records["tid"] == tid].tolist()
    return int(time_ns)


@pytest.mark.parametrize("label", ["ending", "exit_around"])
def test_a_call_in_which_its_thread_ends_is_open_until_then(suite: Suite, label: str) -> None:
    """By pthread_exit inside of it; by exit of another thread."""
    (said,) = suite.said(label, "cuStreamSynchronize")
    (call,) = suite.calls.of(said)
    assert call.flags & Flags.OPEN
    assert call.time_ns == exit_of(suite, said.tid)


def test_threads_that_end_inside_calls_end_as_without_a_recording(suite: Suite) -> None:
    assert suite.done.output == suite.alone.output
    assert "child 4 0\nchild 23 0\n" in suite.done.output


def test_each_call_that_was_jumped_out_of_is_accounted_for(suite: Suite) -> None:
    """The second and third take the place of the one before; the third's end cannot be known, so it stays open."""
    said = suite.said("leap", "cuStreamSynchronize")
    seen = [call for call in suite.calls.all if call.tgid == said[0].tgid and call.function == "cuStreamSynchronize"]
    lost = [row for row in suite.recording.loss if row.stage in ("overwritten", "abandoned_unwound")]
    assert {row.kind for row in lost} == {"cuda.stream.synchronize"}
    assert len(seen) + sum(row.count for row in lost) == len(said) == 3
    assert all(call.flags & Flags.OPEN for call in seen)
    assert all(row.from_ns < said[-1].begin_ns and said[0].begin_ns < row.to_ns for row in lost)


def test_recursive_calls_are_told_apart(suite: Suite) -> None:
    (said,) = suite.said("recursion", "cuStreamSynchronize")
    found = suite.calls.of(said)
    assert len(found) == said.calls == 3 * 13
    assert len({call.begin_ns for call in found}) == len(found)
    for first in range(0, len(found), 13):
        assert_nested(found[first : first + 13])


def assert_nested(chain: list[Call]) -> None:
    """Each call is inside of the one before."""
    for outer, inner in itertools.pairwise(chain):
        assert outer.begin_ns < inner.begin_ns < inner.time_ns < outer.time_ns


def test_calls_inside_of_a_call_are_inside_of_it(suite: Suite) -> None:
    (said,) = suite.said("nested", "cuEventSynchronize")
    outer = suite.calls.of(said)
    inner = [call for line in suite.said("nested") for call in suite.calls.of(line)]
    assert (len(outer), len(inner)) == (5, 15)
    for call in outer:
        assert sum(call.begin_ns < other.begin_ns < other.time_ns < call.time_ns for other in inner) == 3


THREADS = 8


@pytest.mark.parametrize(
    ("each", "each_ms"), [pytest.param(50_021, 25, id="200k-per-s"), pytest.param(25_013, 0, id="as-fast-as-possible")]
)
def test_of_very_many_calls_each_is_recorded_or_counted_as_lost(
    tmp_path: Path, caller: Caller, knowing: ForkServer, each: int, each_ms: int
) -> None:
    path, truth = tmp_path / "storm.fencepath", tmp_path / "truth"
    words = caller.command(truth, "storm", str(THREADS), str(each), str(each_ms))
    assert knowing.run("record", "-o", path, "--layers", "cuda", "--", *words).code == 0
    said = said_in(truth)
    recording = open_recording(path)
    for function, kind, count in (("cuLaunchKernel", "cuda.launch", each), ("cuMemFree_v2", "cuda.free", each // 8)):
        lines = [line for line in said if line.function == function]
        made = sum(line.calls for line in lines)
        assert made == THREADS * count
        seen = len(recording.records(kind))
        lost = sum(row.count for row in recording.loss if row.kind == kind)
        lasted_ns = max(line.end_ns for line in lines) - min(line.begin_ns for line in lines)
        print(f"{function}: {made} calls at {made / lasted_ns * 1e9:.0f} /s, {lost} lost")
        assert seen + lost == made


class Hanging(NamedTuple):
    """A program whose last call never returned while it was recorded."""

    recording: Recording
    calls: Calls
    truth: list[Said]
    report: Report
    text: Done
    done: Done


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory, caller: Caller, knowing: ForkServer) -> Hanging:
    folder = tmp_path_factory.mktemp("hang")
    path, truth = folder / "hang.fencepath", folder / "truth"
    words = caller.command(truth, "hang")
    running = knowing.start("record", "-o", path, "--layers", "cuda,host", "--duration", "1500ms", "--", *words)
    until(lambda: "events in" in running.errors or running.ended, "the end of the recording")
    said = said_in(truth)
    text = knowing.run("report", path)
    report = msgspec.json.decode(knowing.run("report", path, "--json").output, type=Report)
    assert not running.ended
    os.kill(said[-1].tgid, signal.SIGUSR1)
    return Hanging(*calls_of(path), said, report, text, running.wait())


def test_a_call_that_never_returns_is_open_in_the_recording(hanging: Hanging) -> None:
    (call,) = hanging.calls.of(hanging.truth[-1])
    assert call.function == "cuStreamSynchronize"
    assert call.flags & Flags.OPEN
    assert call.time_ns - call.begin_ns > 500_000_000
    assert hanging.calls.counts(hanging.truth)["hang", "cuMemAlloc_v2"] == (2, 2)


def test_a_request_whose_call_never_returns_is_open_and_its_path_ends_in_the_call(hanging: Hanging) -> None:
    (request,) = hanging.report.requests
    assert (request.key, request.state) == ("hanging", "open")
    last = request.path.segments[-1]
    assert last.category == "device_wait"
    assert last.activity.startswith("cuda.stream.synchronize") or "cuStreamSynchronize" in last.activity
    assert last.end_ns == request.end_ns
    assert last.end_ns - last.start_ns > 500_000_000
    assert hanging.text.code == 0
    assert "hanging" in hanging.text.output
    assert "had not ended" in hanging.text.output
    assert "cuStreamSynchronize" in hanging.text.output


def test_a_command_goes_on_after_its_recording_and_its_signal_is_passed_on(hanging: Hanging) -> None:
    assert hanging.done.code == 128 + signal.SIGUSR1
    assert time.monotonic_ns() > hanging.report.requests[0].end_ns
