# SPDX-License-Identifier: Apache-2.0
"""Processes that come, become others and go: all of their calls are recorded, each under the right identity."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.faults.calling import THREADS, Caller, Calls, Said, Suite, calls_of, said_in
from tests.faults.commandline import Done, ForkServer, Running, until

from fencepath.recording import Recording
from fencepath.records import Flags

pytestmark = pytest.mark.bpf


def test_every_call_of_every_process_is_recorded(suite: Suite) -> None:
    counts = suite.calls.counts(line for line in suite.truth if line.end_ns)
    assert len(counts) == 18
    assert {key: seen for key, (_, seen) in counts.items()} == {key: said for key, (said, _) in counts.items()}
    assert counts["many", "cuMemAlloc_v2"] == (THREADS * 53, THREADS * 53)


def test_the_program_behaves_as_without_a_recording(suite: Suite) -> None:
    assert (suite.done.code, suite.done.output) == (suite.alone.code, suite.alone.output)
    assert suite.done.code == 41
    others = [line for line in suite.done.errors.splitlines() if not line.startswith("fencepath: ")]
    assert "\n".join(others) == suite.alone.errors.strip()


def test_nothing_is_missing_of_a_library_that_is_found_before_the_start(suite: Suite) -> None:
    assert not [row for row in suite.recording.loss if row.stage == "attach_gap"]
    assert {row.stage for row in suite.recording.loss if row.count} == {"overwritten"}


def test_children_have_identities_of_their_own(suite: Suite) -> None:
    labels = ("parent", "child", "grandchild", "spawned", "vforked", "spawner")
    processes = {label: {suite.process_of(line) for line in suite.said(label)} for label in labels}
    assert all(len(names) == 1 for names in processes.values())
    assert len(set.union(*processes.values())) == len(labels)
    for label, names in processes.items():
        # boot/PID@START#EXECS: the forked ones never executed, the spawned ones did once
        pid, rest = next(iter(names)).split("/")[1].split("@")
        assert int(pid) == suite.said(label)[0].tgid
        assert rest.split("#")[1] == ("1" if label in ("spawned", "vforked") else "0")


@pytest.mark.parametrize("who", ["leader", "thread"])
def test_exec_gives_a_new_identity(suite: Suite, who: str) -> None:
    (before,), (after,) = suite.said(f"{who}_before"), suite.said(f"{who}_after")
    assert before.tgid == after.tgid
    first, second = suite.process_of(before), suite.process_of(after)
    assert first.split("#")[0] == second.split("#")[0]
    assert (first.split("#")[1], second.split("#")[1]) == ("0", "1")


def test_a_call_that_execs_is_open_until_then(suite: Suite) -> None:
    (said,) = suite.said("thread_before", "cuStreamSynchronize")
    (call,) = suite.calls.of(said)
    (after,) = suite.said("thread_after")
    assert call.flags & Flags.OPEN
    assert said.begin_ns < call.time_ns < after.begin_ns


def test_a_number_that_is_used_again_is_another_process(suite: Suite) -> None:
    (first,), (second,) = suite.said("first_life"), suite.said("second_life")
    assert first.tgid == second.tgid
    assert suite.process_of(first) != suite.process_of(second)


class Lasting(NamedTuple):
    """A command that ends while a process that it left behind is inside a call."""

    done: Done
    recording: Recording
    calls: Calls
    truth: list[Said]
    marker: Path


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, caller: Caller, knowing: ForkServer) -> Iterator[Lasting]:
    folder = tmp_path_factory.mktemp("daemon")
    path, truth, marker = folder / "daemon.fencepath", folder / "truth", folder / "marker"
    words = caller.command(truth, "daemon", str(marker))
    done = knowing.run("record", "-o", path, "--layers", "cuda", "--", *words)
    yield Lasting(done, *calls_of(path), said_in(truth), marker)
    marker.touch()


def test_a_daemon_outlives_the_command_and_its_recording(lasting: Lasting) -> None:
    assert lasting.done.code == 6
    whole = [line for line in lasting.truth if line.end_ns]
    assert lasting.calls.counts(whole) == {("daemon", "cuMemAlloc_v2"): (47, 47), ("command", "cuMemAlloc_v2"): (3, 3)}


def test_the_call_that_the_daemon_is_in_is_open(lasting: Lasting) -> None:
    (said,) = (line for line in lasting.truth if not line.end_ns)
    (call,) = lasting.calls.of(said)
    assert call.flags & Flags.OPEN
    assert call.time_ns > max(line.end_ns for line in lasting.truth)


def test_the_daemon_comes_back_from_a_call_whose_probe_is_gone(lasting: Lasting) -> None:
    (daemon,) = {line.tgid for line in lasting.truth if line.label == "daemon"}
    os.kill(daemon, 0)
    lasting.marker.touch()
    until(lambda: not lasting.marker.exists(), "the daemon to return from its call")


class First(NamedTuple):
    """A program that calls a library in an unknown place from the moment on that it is loaded."""

    done: Done
    recording: Recording
    calls: Calls
    truth: list[Said]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, caller: Caller, commands: ForkServer) -> First:
    folder = tmp_path_factory.mktemp("first")
    path, truth = folder / "first.fencepath", folder / "truth"
    words = caller.command(truth, "first", "1500", library=caller.library)
    done = commands.run("record", "-o", path, "--layers", "cuda", "--", *words)
    return First(done, *calls_of(path), said_in(truth))


def test_calls_before_the_probes_are_in_the_stated_gap(first: First) -> None:
    (gap,) = (row for row in first.recording.loss if row.stage == "attach_gap")
    missing = len(first.truth) - len(first.calls.all)
    print(f"gap of {(gap.to_ns - gap.from_ns) / 1e6:.1f} ms, {missing} calls missing")
    assert first.done.code == 5
    assert gap.to_ns - gap.from_ns < 1_000_000_000
    assert len(first.truth) > missing >= 0
    # what is recorded are the last ones, and each that is missing is in the gap
    assert all(gap.from_ns < said.begin_ns < gap.to_ns for said in first.truth[:missing])


def test_every_call_after_the_gap_is_recorded(first: First) -> None:
    (gap,) = (row for row in first.recording.loss if row.stage == "attach_gap")
    missing = len(first.truth) - len(first.calls.all)
    after = first.truth[missing:]
    assert sum(said.begin_ns >= gap.to_ns for said in first.truth) <= len(after)
    for said, call, following in zip(after, first.calls.all, [*after[1:], None], strict=True):
        assert said.begin_ns < call.begin_ns
        assert following is None or call.begin_ns < following.begin_ns


def test_the_report_states_the_gap(first: First, commands: ForkServer) -> None:
    done = commands.run("report", first.recording.path)
    assert "mapped before its probes were there" in done.output
    assert done.code == 1  # no requests in it


def test_a_program_with_the_library_inside_is_found_before_the_start(
    tmp_path: Path, caller: Caller, commands: ForkServer
) -> None:
    path, truth = tmp_path / "both.fencepath", tmp_path / "truth"
    words = [str(caller.both), str(truth), "", "plain", "both", "137"]
    done = commands.run("record", "-o", path, "--layers", "cuda", "--", *words)
    assert done.code == 0, done.errors
    recording, calls = calls_of(path)
    assert calls.counts(said_in(truth)) == {("both", "cuMemAlloc_v2"): (137, 137)}
    assert not [row for row in recording.loss if row.stage == "attach_gap"]


class Attended(NamedTuple):
    """Running programs that were recorded by their parent's number."""

    done: Done
    recording: Recording
    calls: Calls
    truth: list[Said]


@pytest.fixture(scope="module")
def attended(tmp_path_factory: pytest.TempPathFactory, caller: Caller, commands: ForkServer) -> Attended:
    folder = tmp_path_factory.mktemp("attended")
    path, truth = folder / "attended.fencepath", folder / "truth"
    copies = {}
    for name in ("unlinked", "replaced"):
        copies[name] = folder / name / "libcuda.so.1"
        copies[name].parent.mkdir()
        copies[name].write_bytes(caller.library.read_bytes())
    programs = [
        caller.command(truth, "attended", "threads", "199", library=caller.library),
        caller.command(truth, "attended", "unlinked", "0", library=copies["unlinked"]),
        caller.command(truth, "attended", "replaced", "0", library=copies["replaced"]),
        caller.command(truth, "memory", library=caller.library),
    ]
    script = "".join(f"{' '.join(words)} <&0 & " for words in programs) + "wait"
    process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        ready = {process.stdout.readline().strip() for _ in programs}
        assert ready == {"ready threads", "ready unlinked", "ready replaced", "ready memory"}
        copies["unlinked"].unlink()
        other = copies["replaced"].with_name("other")
        other.write_bytes(b"not the library that is mapped")
        other.rename(copies["replaced"])
        running = commands.start("record", "-o", path, "--layers", "cuda", "--pid", str(process.pid))
        _wait_until_recording(running)
        process.stdin.write("go\nx")
        process.stdin.flush()
        assert process.wait(30) == 0
        done = running.wait()
    return Attended(done, *calls_of(path), said_in(truth))


def _wait_until_recording(running: Running) -> None:
    until(lambda: "recording to" in running.errors or running.ended, "the recorder to be ready")
    assert not running.ended, running.errors


@pytest.mark.parametrize("label", ["threads", "unlinked", "replaced", "memory"])
def test_nothing_is_missing_once_it_says_that_it_records(attended: Attended, label: str) -> None:
    assert attended.done.code == 0
    said, seen = attended.calls.counts(attended.truth)[label, "cuMemAlloc_v2"]
    assert seen == said
    assert said == (83 + 199 * 79 if label == "threads" else 83)
    assert not [row for row in attended.recording.loss if row.count]
