# SPDX-License-Identifier: Apache-2.0
"""Programs that are recorded for a part of their life only, or that are killed: what there is of them is true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
from plugins.cuda.tests.faults.workbench import Bench, Recorded
from plugins.cuda.tests.truths import Compared, OpKey
from tests.faults.commandline import Running, until

from fencepath.joins import Confidence
from fencepath.records import Flags
from fencepath_cuda.simcuda.truth import Truth, read_truth

pytestmark = pytest.mark.bpf

SHAPE = (7, 5, 3, 64, 1, 1, 0)
BLOCKING, NON_BLOCKING = 0, 1
RELAXED = 2


class Puppet:
    """A program on the simulated library that makes one call after the other, as it is told to."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._truth = folder / "truth"
        environ = bench.library.environment(truth=self._truth, wait="block")
        words = bench.python("puppet", bench.library.libcuda)
        self._process = subprocess.Popen(
            words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=bench.root
        )
        self._killed = False
        self.pid = int(self._heard()["pid"])

    def __enter__(self) -> Self:
        self.call("cuInit", 0)
        self.call("cuCtxCreate_v4", {"out": "context"}, 0, 0, 0)
        self.call("cuLibraryLoadData", {"out": "library"}, {"text": "short:20000 long:60000000000"}, 0, 0, 0, 0, 0, 0)
        for name in ("short", "long"):
            self.call("cuLibraryGetKernel", {"out": name}, {"value": "library"}, {"text": name})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill() if kind else self.end()
        code = self._process.wait(30)
        for file in (self._process.stdin, self._process.stdout):
            assert file is not None
            file.close()
        assert kind or code == (-signal.SIGKILL if self._killed else 0)

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(self._process.stdout.readline())
        return line

    def begin(self, name: str, *arguments: int | dict[str, str]) -> None:
        """Have a call begun."""
        self.type(json.dumps({"call": name, "arguments": arguments}))
        assert self._heard() == {"calling": name}

    def returns(self) -> int:
        """Wait for the call that was begun, and return its result."""
        return int(self._heard()["result"])

    def call(self, name: str, *arguments: int | dict[str, str]) -> None:
        """Have a call made, which has to succeed."""
        self.begin(name, *arguments)
        assert self.returns() == 0, name

    def type(self, line: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stream(self, name: str, flags: int) -> None:
        """Have a stream made."""
        self.call("cuStreamCreate", {"out": name}, flags)

    def launch(self, stream: str, kernel: str = "short") -> None:
        """Have a kernel launched on a stream, or on the default stream if it has no name."""
        self.call("cuLaunchKernel", {"value": kernel}, *SHAPE, {"value": stream} if stream else 0, 0, 0)

    def on(self, function: str, stream: str, *more: int | dict[str, str]) -> None:
        """Have a function of a stream called."""
        self.call(function, {"value": stream}, *more)

    def sleeps(self) -> bool:
        """Whether it is in a wait of the kernel that is not for its standard input."""
        number = Path(f"/proc/{self.pid}/syscall").read_text().split()[0]
        return number == FUTEX

    def end(self) -> None:
        """Have it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """Kill it."""
        self._killed = True
        self._process.kill()
        self._process.wait(30)

    def truth(self, begin_ns: int = 0, end_ns: int = 1 << 62) -> Truth:
        """What it did, of the calls that began within a time."""
        truth = read_truth(self._truth)
        calls = [call for call in truth.calls if begin_ns <= call.begin_ns < end_ns]
        numbers = {call.number for call in calls}
        ops = {op.id: op for op in truth.ops.values() if op.call in numbers}
        return Truth(pid=truth.pid, calls=calls, ops=ops)


FUTEX = "202"
"""On x86-64."""


class Part(NamedTuple):
    """A part of a program's life that was recorded."""

    recorded: Recorded
    truth: Truth
    compared: Compared


class Attached:
    """A recording of a puppet from some time on."""

    def __init__(self, bench: Bench, puppet: Puppet, detail: str = "full") -> None:
        self.folder = bench.folder()
        self._puppet = puppet
        self.running: Running = bench.start(self.folder, "--pid", str(puppet.pid), detail=detail)
        until(lambda: "recording to" in self.running.errors or self.running.ended, "the recording to begin")
        self.begin_ns = time.monotonic_ns()

    def detach(self) -> None:
        """End the recording while the program lives."""
        self.end_ns = time.monotonic_ns()
        self.running.kill(signal.SIGINT)
        self.done = self.running.wait()
        assert self.done.code == 0, self.done.errors

    def part(self) -> Part:
        """What was recorded, and what happened in that time; the program has to have ended."""
        recorded = Recorded(self.folder, self.done)
        truth = self._puppet.truth(self.begin_ns, self.end_ns)
        assert recorded.lost == 0
        return Part(recorded, truth, recorded.compared(self._puppet.pid, truth))


def spans_of(part: Part) -> dict[OpKey, tuple[int, int]]:
    """When the device began and ended each operation, and each launch of a graph as a whole."""
    spans = {key: (op.start_ns, op.end_ns) for key, op in part.compared.ops().items()}
    for launch in {op.launch for op in part.truth.ops.values() if op.launch}:
        mine = [op for op in part.truth.ops.values() if op.launch == launch]
        spans[launch, 0] = min(op.start_ns for op in mine), max(op.end_ns for op in mine)
    return spans


def check_truth_of(part: Part) -> int:
    """No bound and nothing sure is wrong, and what a wait is said to have waited for had ended by its end.

    Returns:
        How many edges that are sure have been looked at.
    """
    spans, looked = spans_of(part), 0
    calls = {call.number: call for call in part.truth.calls}
    for key in spans.keys() & set(part.compared.operations.values()):
        earliest, latest = part.compared.bounds[key]
        assert earliest <= spans[key][0]
        assert latest is None or spans[key][1] <= latest, key
    for edge in part.compared.edges:
        if edge.sure and edge.cause in spans and (isinstance(edge.effect, int) or edge.effect in spans):
            effect = calls[edge.effect].end_ns if isinstance(edge.effect, int) else spans[edge.effect][0]
            assert spans[edge.cause][1] <= effect, edge
            looked += 1
    return looked


@pytest.fixture(scope="module")
def late(bench: Bench) -> Part:
    """A program with streams and a CUDA event from before, and others with their handles; it lives on afterwards."""
    with Puppet(bench, bench.folder()) as puppet:
        puppet.stream("blocking", BLOCKING)
        puppet.stream("free", NON_BLOCKING)
        puppet.call("cuEventCreate", {"out": "event"}, 0)
        puppet.launch("blocking")
        puppet.call("cuEventRecord", {"value": "event"}, {"value": "blocking"})
        attached = Attached(bench, puppet)
        puppet.call("cuEventSynchronize", {"value": "event"})
        puppet.launch("blocking")
        puppet.launch("")
        puppet.launch("free")
        puppet.call("cuEventRecord", {"value": "event"}, {"value": "blocking"})
        puppet.on("cuStreamWaitEvent", "free", {"value": "event"}, 0)
        puppet.launch("free")
        puppet.on("cuStreamSynchronize", "free")
        puppet.stream("new", BLOCKING)
        puppet.launch("new")
        puppet.launch("")
        puppet.launch("new")
        puppet.on("cuStreamSynchronize", "new")
        puppet.on("cuStreamDestroy_v2", "blocking")
        puppet.stream("blocking", BLOCKING)
        puppet.launch("blocking")
        puppet.call("cuCtxSynchronize")
        attached.detach()
        puppet.launch("free")
        puppet.on("cuStreamSynchronize", "free")
        puppet.end()
    return attached.part()


def test_a_program_attached_late_is_recorded_from_then_on_and_lives_on(late: Part) -> None:
    ops = late.compared.ops()
    assert len(ops) == 10
    assert set(late.compared.operations.values()) == set(ops)
    assert check_truth_of(late) > len(ops)


def test_handles_from_before_have_generation_0(late: Part) -> None:
    """One that is given out again has the next."""
    streams = {
        "blocking": late.truth.named("cuStreamDestroy_v2")[0],
        "free": late.truth.named("cuStreamSynchronize")[0],
    }
    for call in streams.values():
        assert late.recorded.text(late.recorded.row_of(late.compared, call.number)["stream"]).endswith("#0")
    made = late.truth.named("cuStreamCreate")
    again = late.recorded.row_of(late.compared, made[1].number)
    assert again["stream_handle"] == int(streams["blocking"].arguments["handle"], 16)
    for call in made:
        assert late.recorded.text(late.recorded.row_of(late.compared, call.number)["stream"]).endswith("#1")
    for call in late.truth.named("cuEventRecord", "cuEventSynchronize"):
        assert late.recorded.text(late.recorded.row_of(late.compared, call.number)["event"]).endswith("#0")


def test_order_by_the_legacy_stream_is_inferred_for_streams_from_before(late: Part) -> None:
    """Whether they are blocking is not known; of a new one it is."""
    ops = late.compared.ops()
    created = {call.arguments["stream"] for call in late.truth.named("cuStreamCreate")}
    edges = [edge for edge in late.compared.edges if edge.rule == "cuda.legacy_stream"]
    sides = [{ops[edge.cause].stream, ops[edge.effect].stream} for edge in edges if isinstance(edge.effect, tuple)]
    sure = [edge.sure for edge in edges]
    assert len(sides) == len(edges)
    assert sure == [bool(side & created) for side in sides]
    assert {True, False} == set(sure)
    table = late.recorded.analysis.edges
    mine = table.rule == table.rules.index("cuda.legacy_stream")
    levels = {list(Confidence)[level] for level in np.unique(table.confidence[mine]).tolist()}
    assert levels == {Confidence.BOUNDED, Confidence.INFERRED}


def test_a_wait_for_a_record_from_before_is_for_nothing_that_is_known(late: Part) -> None:
    first, *_ = late.truth.named("cuEventSynchronize")
    assert first.waited_for
    assert [edge for edge in late.compared.edges if edge.effect == first.number] == []


@pytest.fixture(scope="module")
def amid(bench: Bench) -> Part:
    """A recording that begins in the middle of one capture and ends in the middle of another."""
    with Puppet(bench, bench.folder()) as puppet:
        for name in ("one", "two"):
            puppet.stream(name, NON_BLOCKING)
            puppet.call("cuEventCreate", {"out": f"event {name}"}, 0)
        puppet.on("cuStreamBeginCapture_v2", "one", RELAXED)
        puppet.launch("one")
        attached = Attached(bench, puppet)
        puppet.launch("one")
        puppet.call("cuEventRecord", {"value": "event one"}, {"value": "one"})
        puppet.on("cuStreamWaitEvent", "two", {"value": "event one"}, 0)
        puppet.launch("two")
        puppet.call("cuEventRecord", {"value": "event two"}, {"value": "two"})
        puppet.on("cuStreamWaitEvent", "one", {"value": "event two"}, 0)
        puppet.on("cuStreamEndCapture", "one", {"out": "graph"})
        puppet.call("cuGraphInstantiateWithFlags", {"out": "exec"}, {"value": "graph"}, 0)
        puppet.launch("one")
        puppet.call("cuGraphLaunch", {"value": "exec"}, {"value": "one"})
        puppet.launch("one")
        puppet.on("cuStreamSynchronize", "one")
        puppet.on("cuStreamBeginCapture_v2", "one", RELAXED)
        puppet.launch("one")
        attached.detach()
        puppet.launch("one")
        puppet.on("cuStreamEndCapture", "one", {"out": "graph"})
        puppet.end()
    return attached.part()


def test_calls_of_a_capture_that_was_begun_before_are_not_taken_for_run(amid: Part) -> None:
    """Its end says that there was one; its graph is not known, so a launch of it is one operation."""
    ops = amid.compared.ops()
    launches = {call.number for call in amid.truth.named("cuGraphLaunch")}
    assert len(launches) == 1
    assert {key for key in ops if key[0] in launches}
    plain = {key for key in ops if key[0] not in launches}
    assert set(amid.compared.operations.values()) == plain | {(number, 0) for number in launches}


def test_all_that_is_said_of_a_recording_amid_captures_is_true(amid: Part) -> None:
    assert check_truth_of(amid) >= 3
    (wait,) = amid.truth.named("cuStreamSynchronize")
    assert any(edge.effect == wait.number and edge.sure for edge in amid.compared.edges)


def test_a_program_that_is_killed_in_a_wait(bench: Bench) -> None:
    """The wait is open until the program's end, and joined to what it was waiting for."""
    with Puppet(bench, bench.folder()) as puppet:
        attached = Attached(bench, puppet)
        puppet.stream("stream", NON_BLOCKING)
        puppet.launch("stream", "long")
        puppet.begin("cuStreamSynchronize", {"value": "stream"})
        until(puppet.sleeps, "the program to wait")
        puppet.kill()
    attached.done = attached.running.wait()
    assert attached.done.code == 0, attached.done.errors
    recorded = Recorded(attached.folder, attached.done)
    assert recorded.lost == 0
    rows = {row["name"]: row for row in recorded.rows(puppet.pid)}
    assert list(rows) == ["cuStreamCreate", "cuLaunchKernel", "cuStreamSynchronize"]
    wait, launch = rows["cuStreamSynchronize"], rows["cuLaunchKernel"]
    assert wait["flags"] & Flags.OPEN
    assert not wait["returned"]
    assert not launch["flags"] & Flags.OPEN
    ends = recorded.recording.records("process.exit")
    assert wait["time_ns"] in ends["time_ns"][ends["tgid"] == puppet.pid].tolist()
    edges = recorded.analysis.edges
    (operation,) = edges.effect[edges.cause == launch["activity"]].tolist()
    assert edges.cause[edges.effect == wait["activity"]].tolist() == [operation]
    batch = recorded.analysis.view.batch("cuda.operation")
    assert batch["flags"][recorded.analysis.table.locate(operation)[1]] & Flags.OPEN, "its end is not known"


def test_a_recording_that_ends_while_the_program_waits(bench: Bench) -> None:
    """The wait is open in the recording; it comes back all the same, where a return probe had been, and the program goes on."""
    gate = bench.folder() / "gate"
    os.mkfifo(gate)
    with Puppet(bench, bench.folder()) as puppet:
        attached = Attached(bench, puppet)
        puppet.stream("stream", NON_BLOCKING)
        puppet.launch("stream")
        puppet.on("cuLaunchHostFunc", "stream", {"reader": str(gate)}, 0)
        puppet.begin("cuStreamSynchronize", {"value": "stream"})
        until(puppet.sleeps, "the program to wait")
        attached.detach()
        gate.write_text("on")
        assert puppet.returns() == 0
        puppet.launch("stream")
        puppet.on("cuStreamSynchronize", "stream")
        puppet.end()
    recorded = Recorded(attached.folder, attached.done)
    truth = puppet.truth(attached.begin_ns)
    rows = recorded.rows(puppet.pid)
    assert [row["name"] for row in rows] == [call.name for call in truth.calls][: len(rows)]
    *others, wait = rows
    assert wait["name"] == "cuStreamSynchronize"
    assert wait["flags"] & Flags.OPEN
    assert attached.end_ns <= wait["time_ns"] < truth.calls[len(rows) - 1].end_ns
    assert not any(row["flags"] & Flags.OPEN for row in others)
    assert recorded.lost == 0
