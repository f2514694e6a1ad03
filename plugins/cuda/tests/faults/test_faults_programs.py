# SPDX-License-Identifier: Apache-2.0
"""What a program may do wrong with handles, captures and graphs: recorded as it was, and nothing said that did not happen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from plugins.cuda.tests.faults.workbench import Bench, Recorded
from plugins.cuda.tests.test_programs import check_bounds, check_order, check_waits
from plugins.cuda.tests.truths import Compared

from fencepath_cuda.errors import error_name
from fencepath_cuda.model import ORDERS
from fencepath_cuda.simcuda.programs import Program, as_text, read_runs

pytestmark = pytest.mark.bpf

GLOBAL, RELAXED = 0, 2
NON_BLOCKING = 1
US, MS = 1000, 1_000_000


def begun(flags: Sequence[int] = (NON_BLOCKING, NON_BLOCKING)) -> Program:
    """A program with a context, streams with these flags, two CUDA events and memory."""
    program = Program()
    program.add("ctx_create", "c0", 0, 0)
    for number, flag in enumerate(flags):
        program.add("stream_create", f"s{number}", flag, 0)
    for number in range(2):
        program.add("event_create", f"e{number}", 0)
    program.add("alloc", "b0", 4096)
    return program


def captured(program: Program, graph: str, *nodes: tuple[str | int, ...]) -> None:
    """Capture launches and sets on s0."""
    program.add("begin", "s0", RELAXED)
    for step, *arguments in nodes:
        program.add(str(step), *arguments)
    program.add("end", "s0", graph)


def handles_given_out_again() -> Program:
    """Streams, CUDA events, executable graphs, graphs and contexts, each destroyed with work and made again at once."""
    program = begun()
    for turn in range(5):
        program.add("launch", "s0", 300 * US)
        program.add("record", "e0", "s0")
        program.add("wait", "s1", "e0", 0)
        program.add("event_destroy", "e0")
        program.add("event_create", "e0", 0)
        program.add("stream_destroy", "s0")
        program.add("stream_create", "s0", turn % 2, 0)
        program.add("launch", "s0", 20 * US)
        program.add("launch", "null", 20 * US)
        program.add("wait", "s1", "e0", 0)  # never recorded: waits for nothing
        program.add("launch", "s1", 20 * US)
        captured(program, "g0", ("launch", "s0", 20 * US), *[("memset_async", "b0", 1, 64, "s0")] * turn)
        program.add("instantiate", "x0", "g0", 0)
        program.add("graph_destroy", "g0")
        program.add("graph_launch", "x0", "s0")
        program.add("exec_destroy", "x0")
    program.add("ctx_sync")
    program.add("ctx_destroy", "c0")
    program.add("ctx_create", "c0", 0, 0)
    program.add("stream_create", "s0", 0, 0)
    program.add("launch", "s0", 20 * US)
    program.add("stream_sync", "s0")
    return program


def events_destroyed_while_waited_for() -> Program:
    """By the device: the wait holds all the same, and what gets the handle is another CUDA event."""
    program = begun()
    for _ in range(3):
        program.add("launch", "s0", 2 * MS)
        program.add("record", "e0", "s0")
        program.add("wait", "s1", "e0", 0)
        program.add("event_destroy", "e0")
        program.add("event_create", "e0", 0)
        program.add("launch", "s1", 10 * US)
        program.add("record", "e0", "s1")
        program.add("event_sync", "e0")
    return program


def event_destroyed_in_a_wait() -> Program:
    """By another thread while a thread waits for it."""
    program = begun()
    program.add("wait_value", "s0", "b0", 1)
    program.add("record", "e0", "s0")
    program.add("barrier", 0)
    program.on(1).add("ctx_set", "c0").add("barrier", 0).add("event_sync", "e0").add("barrier", 1)
    program.add("sleep", 300 * MS)
    program.add("event_destroy", "e0")
    program.add("event_create", "e0", 0)
    program.add("record", "e0", "s1")
    program.add("event_sync", "e0")
    program.add("write_value", "s1", "b0", 1)
    program.add("barrier", 1)
    return program


def streams_destroyed_with_work_queued() -> Program:
    """Their operations go on; the stream that gets the handle does not wait for them."""
    program = begun((0, NON_BLOCKING))
    for turn in range(3):
        program.add("launch", "s0", 4 * MS)
        program.add("launch", "s0", 10 * US)
        program.add("record", "e0", "s0")
        program.add("stream_destroy", "s0")
        program.add("stream_create", "s0", turn % 2, 0)
        program.add("launch", "s0", 10 * US)
        program.add("stream_sync", "s0")
        program.add("wait", "s1", "e0", 0)
        program.add("launch", "s1", 10 * US)
    program.add("stream_sync", "s1")
    return program


def capture_invalidated() -> Program:
    """By a wait for the stream that is captured; what is put on it afterwards is refused until the capture is ended."""
    program = begun()
    program.add("launch", "s0", 10 * US)
    program.add("begin", "s0", GLOBAL)
    program.add("launch", "s0", 10 * US)
    program.add("stream_sync", "s0")
    program.add("launch", "s0", 10 * US)
    program.add("record", "e0", "s0")
    program.add("end", "s0", "g0")
    program.add("launch", "s0", 10 * US)
    program.add("stream_sync", "s0")
    return program


def capture_not_joined() -> Program:
    """A stream that was drawn into a capture does not come back to the one that began it."""
    program = begun()
    program.add("begin", "s0", GLOBAL)
    program.add("launch", "s0", 10 * US)
    program.add("record", "e0", "s0")
    program.add("wait", "s1", "e0", 0)
    program.add("launch", "s1", 10 * US)
    program.add("end", "s0", "g0")
    program.add("launch", "s1", 10 * US)
    program.add("launch", "s0", 10 * US)
    program.add("ctx_sync")
    return program


def capture_ended_on_the_wrong_thread() -> Program:
    """Threads take turns."""
    program = begun()
    program.add("begin", "s0", GLOBAL)
    program.add("launch", "s0", 10 * US)
    program.add("barrier", 0)
    program.on(1).add("ctx_set", "c0").add("barrier", 0).add("end", "s0", "g0").add("launch", "s0", 10 * US)
    program.on(1).add("barrier", 1)
    program.add("barrier", 1)
    program.add("launch", "s0", 10 * US)
    program.add("stream_sync", "s0")
    return program


def capture_ended_on_the_wrong_stream() -> Program:
    """It goes on, and cannot come to anything."""
    program = begun()
    program.add("begin", "s0", GLOBAL)
    program.add("launch", "s0", 10 * US)
    program.add("record", "e0", "s0")
    program.add("wait", "s1", "e0", 0)
    program.add("end", "s1", "g0")
    program.add("launch", "s0", 10 * US)
    program.add("end", "s0", "g0")
    program.add("launch", "s0", 10 * US)
    program.add("launch", "s1", 10 * US)
    program.add("ctx_sync")
    return program


def captures_begun_and_ended_out_of_turn() -> Program:
    """An end without a begin, a begin in a capture that goes on all the same, a second end."""
    program = begun()
    program.add("end", "s0", "g0")
    program.add("begin", "s0", RELAXED)
    program.add("launch", "s0", 10 * US)
    program.add("begin", "s0", RELAXED)
    program.add("launch", "s0", 10 * US)
    program.add("end", "s0", "g1")
    program.add("end", "s0", "g0")
    program.add("instantiate", "x0", "g1", 0)
    program.add("graph_launch", "x0", "s0")
    program.add("stream_sync", "s0")
    return program


def captures_that_reach_outside() -> Program:
    """A wait for what was recorded before, work on the legacy stream, a wait by the host for a CUDA event of the capture."""
    program = begun((0, NON_BLOCKING))
    program.add("launch", "s1", 10 * US)
    program.add("record", "e1", "s1")
    program.add("begin", "s0", RELAXED)
    program.add("wait", "s0", "e1", 0)
    program.add("end", "s0", "g0")
    program.add("begin", "s0", RELAXED)
    program.add("launch", "null", 10 * US)
    program.add("end", "s0", "g0")
    program.add("begin", "s0", RELAXED)
    program.add("launch", "s0", 10 * US)
    program.add("record", "e0", "s0")
    program.add("event_sync", "e0")
    program.add("end", "s0", "g0")
    program.add("wait", "s1", "e0", 0)
    for stream in ("s0", "s1", "null"):
        program.add("launch", stream, 10 * US)
    program.add("ctx_sync")
    return program


def stream_destroyed_in_its_capture() -> Program:
    """The capture goes with it; the stream that gets the handle is not captured."""
    program = begun()
    program.add("begin", "s0", RELAXED)
    program.add("launch", "s0", 10 * US)
    program.add("stream_destroy", "s0")
    program.add("stream_create", "s0", NON_BLOCKING, 0)
    program.add("launch", "s0", 10 * US)
    program.add("stream_sync", "s0")
    return program


def graphs_launched_after_updates() -> Program:
    """After one, after one that failed for its nodes, after a node's own, and as a handle given out again."""
    program = begun()
    two = ("launch", "s0", 30 * US), ("memset_async", "b0", 1, 64, "s0")
    captured(program, "g0", *two)
    program.add("instantiate", "x0", "g0", 0)
    program.add("graph_launch", "x0", "s0")
    captured(program, "g1", *two)
    program.add("update", "x0", "g1")
    program.add("graph_destroy", "g1")
    program.add("graph_launch", "x0", "s1")
    captured(program, "g2", *two, ("launch", "s0", 10 * US))
    program.add("update", "x0", "g2")
    program.add("graph_launch", "x0", "s0")
    captured(program, "g3", ("memset_async", "b0", 1, 64, "s0"), ("launch", "s0", 10 * US))
    program.add("update", "x0", "g3")
    program.add("graph_launch", "x0", "s0")
    program.add("graph_nodes", "g0", 0, 1)
    program.add("set_kernel", "x0", "n0", 50 * US)
    program.add("graph_launch", "x0", "s0")
    program.add("exec_destroy", "x0")
    program.add("instantiate", "x1", "g2", 0)
    program.add("graph_launch", "x1", "s0")
    program.add("ctx_sync")
    return program


def ended_without_destroying_anything() -> Program:
    """With work queued, a capture open, and nothing waited for."""
    program = begun()
    for _ in range(17):
        program.add("launch", "s0", 40 * MS)
    program.add("record", "e0", "s0")
    program.add("begin", "s1", RELAXED)
    program.add("launch", "s1", 10 * US)
    program.add("leave")
    return program


TURNS: Mapping[str, tuple[Program, Mapping[str, Sequence[int]]]] = {
    make.__name__: (make(), fails)
    for make, fails in (
        (handles_given_out_again, {}),
        (events_destroyed_while_waited_for, {}),
        (streams_destroyed_with_work_queued, {}),
        (
            capture_invalidated,
            {
                "cuStreamSynchronize": [900],
                "cuLaunchKernel": [901],
                "cuEventRecord": [901],
                "cuStreamEndCapture": [901],
            },
        ),
        (capture_not_joined, {"cuStreamEndCapture": [904]}),
        (capture_ended_on_the_wrong_thread, {"cuStreamEndCapture": [908]}),
        (capture_ended_on_the_wrong_stream, {"cuStreamEndCapture": [903, 901], "cuLaunchKernel": [901]}),
        (captures_begun_and_ended_out_of_turn, {"cuStreamEndCapture": [401, 401], "cuStreamBeginCapture_v2": [401]}),
        (
            captures_that_reach_outside,
            {
                "cuStreamWaitEvent": [905, 1],
                "cuLaunchKernel": [906],
                "cuEventSynchronize": [907],
                "cuStreamEndCapture": [901, 901, 901],
            },
        ),
        (stream_destroyed_in_its_capture, {}),
        (graphs_launched_after_updates, {"cuGraphExecUpdate_v2": [910, 910]}),
        (ended_without_destroying_anything, {}),
    )
}
"""Programs in which no two calls overlap, and which of their calls fail with what."""

TOGETHER = {event_destroyed_in_a_wait.__name__: event_destroyed_in_a_wait()}
"""Programs whose threads are in each other's way."""


@pytest.fixture(scope="module")
def recorded(bench: Bench) -> Recorded:
    """All programs, a process each."""
    programs = [*(program for program, _ in TURNS.values()), *TOGETHER.values()]
    file = bench.folder() / "programs.txt"
    file.write_text(as_text(programs))
    return bench.record(bench.library.program, "--timeout", "30", file)


@pytest.fixture(scope="module")
def compared(recorded: Recorded) -> Mapping[str, Compared]:
    """Each program with its truth, by name; every call of it is in the recording, and nothing was lost."""
    assert recorded.lost == 0
    runs = read_runs(recorded.done.output)
    assert [run.status for run in runs] == [0] * len(runs)
    names = [*TURNS, *TOGETHER]
    return {name: recorded.compared(run.pid) for name, run in zip(names, runs, strict=True)}


@pytest.mark.parametrize("name", TURNS)
def test_calls_that_fail_are_recorded_as_such(recorded: Recorded, compared: Mapping[str, Compared], name: str) -> None:
    """Those that have to, and no others; no edge leads from or to one of them."""
    fails = TURNS[name][1]
    one = compared[name]
    found: dict[str, list[int]] = defaultdict(list)
    failed: set[int] = set()
    for call in one.truth.calls:
        if call.result:
            found[call.name].append(call.result)
            failed.add(call.number)
            assert recorded.row_of(one, call.number)["result"] == call.result
    assert found == fails, {name: [error_name("driver", code) for code in codes] for name, codes in found.items()}
    edges = recorded.analysis.edges
    joined = {one.number_of.get(int(end), 0) for ends in (edges.cause, edges.effect) for end in ends.tolist()}
    assert not joined & failed


@pytest.mark.parametrize("name", TURNS)
def test_operations_and_their_order_are_those_of_the_device(compared: Mapping[str, Compared], name: str) -> None:
    one = compared[name]
    ops = one.ops()
    if name == ended_without_destroying_anything.__name__:
        submitted = {(call.number, 0) for call in one.truth.calls if call.op is not None}
        assert set(ops) < set(one.operations.values()) == submitted, "the device got to the end"
    else:
        assert set(one.operations.values()) == set(ops)
        check_order(one, ops, name)
    check_waits(one, ops, name)
    check_bounds(one, ops, name)


@pytest.mark.parametrize("name", TURNS)
def test_handles_given_out_again_are_other_entities(
    recorded: Recorded, compared: Mapping[str, Compared], name: str
) -> None:
    one = compared[name]
    texts: dict[tuple[str, int], set[str]] = defaultdict(set)
    for call in one.truth.calls:
        row = recorded.row_of(one, call.number) if call.number in one.number_of.values() else {}
        for column in ("stream", "event"):
            if call.arguments.get(column) is not None and row.get(column, -1) >= 0 and not call.result:
                texts[column, call.arguments[column]].add(recorded.text(row[column]))
    assert len(texts) > 2
    assert {key: found for key, found in texts.items() if len(found) != 1} == {}
    assert len({text for found in texts.values() for text in found}) == len(texts)


def test_handles_were_given_out_again(compared: Mapping[str, Compared]) -> None:
    """So that the test before this one does not become empty."""
    for name, column, handle in (
        (handles_given_out_again.__name__, "stream", "handle"),
        (handles_given_out_again.__name__, "event", "event_handle"),
        (handles_given_out_again.__name__, "exec", "exec_handle"),
        (events_destroyed_while_waited_for.__name__, "event", "event_handle"),
        (streams_destroyed_with_work_queued.__name__, "stream", "handle"),
    ):
        calls = [call.arguments for call in compared[name].truth.calls if column in call.arguments]
        assert len({call[handle] for call in calls}) < len({call[column] for call in calls}), (name, column)


@pytest.mark.parametrize("name", TOGETHER)
def test_nothing_is_said_to_be_sure_that_did_not_happen(compared: Mapping[str, Compared], name: str) -> None:
    one = compared[name]
    ops = one.ops()
    assert set(one.operations.values()) == set(ops)
    check_bounds(one, ops, name)
    for edge in one.edges:
        if edge.sure and edge.rule in ORDERS:
            assert isinstance(edge.effect, tuple)
            assert ops[edge.cause].end_ns <= ops[edge.effect].start_ns, edge


def test_a_wait_for_a_destroyed_event_is_for_what_it_had_recorded(compared: Mapping[str, Compared]) -> None:
    one = compared[event_destroyed_in_a_wait.__name__]
    first, second = one.truth.named("cuEventSynchronize")
    (destroy,) = one.truth.named("cuEventDestroy_v2")
    assert first.begin_ns < destroy.begin_ns < destroy.end_ns < first.end_ns, "it was not destroyed in the wait"
    key = {op.id: name for name, op in one.ops().items()}
    for call in (first, second):
        found = {
            edge.cause for edge in one.edges if edge.effect == call.number and edge.rule == "cuda.event_synchronize"
        }
        assert found == {key[op] for op in call.waited_for}
