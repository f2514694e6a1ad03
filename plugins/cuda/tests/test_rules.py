# SPDX-License-Identifier: Apache-2.0
"""Rules of order: the cases by name, then any story against an oracle of plain loops."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins.cuda.tests.oracle import Oracle
from plugins.cuda.tests.story import LEGACY, PER_THREAD, Edge, Run, Story, batch_of

from fencepath._engine.activities import CATEGORIES
from fencepath._engine.edges import EdgeTable
from fencepath.events import Category
from fencepath.records import Flags
from fencepath_cuda.events import StreamKind
from fencepath_cuda.rules import RUNTIME_RULES, cuda_rules

S1, S2, E1 = 0x5100, 0x5200, 0xE100
RULES = [rule.name for rule in cuda_rules() if rule not in RUNTIME_RULES]


def finish(cause: int, effect: int, confidence: str = "bounded") -> Edge:
    return Edge(cause, effect, "finish_finish", confidence)


def start(cause: int, effect: int, confidence: str = "bounded") -> Edge:
    return Edge(cause, effect, "start_start", confidence)


class TestStreamSynchronize:
    def test_the_last_submission_before_it(self) -> None:
        story = Story()
        story.call("cuda.launch", 1, 2, stream=S1)
        last = story.call("cuda.launch", 3, 4, stream=S1)
        story.call("cuda.launch", 5, 6, stream=S2)
        wait = story.call("cuda.stream.synchronize", 7, 20, stream=S1)
        run = story.run()
        assert run.edges("cuda.stream_synchronize") == [finish(last, wait)]
        assert run.counts("cuda.stream_synchronize") == (0, 0)

    def test_a_submission_during_the_wait_may_be_waited_for(self) -> None:
        story = Story()
        before = story.call("cuda.launch", 1, 2, stream=S1)
        wait = story.call("cuda.stream.synchronize", 3, 20, stream=S1)
        during = story.call("cuda.launch", 5, 6, stream=S1, tid=2)
        story.call("cuda.launch", 20, 21, stream=S1, tid=2)
        run = story.run()
        assert run.edges("cuda.stream_synchronize") == [finish(before, wait), finish(during, wait, "inferred")]
        assert run.counts("cuda.stream_synchronize") == (0, 1)

    def test_without_a_submission_it_is_unmatched(self) -> None:
        story = Story()
        story.call("cuda.stream.synchronize", 3, 20, stream=S1)
        story.call("cuda.launch", 30, 31, stream=S1)
        assert story.run().counts("cuda.stream_synchronize") == (1, 0)

    def test_calls_that_failed_give_nothing(self) -> None:
        story = Story()
        good = story.call("cuda.launch", 1, 2, stream=S1)
        story.call("cuda.launch", 3, 4, stream=S1, result=719)
        wait = story.call("cuda.stream.synchronize", 5, 6, stream=S1)
        story.call("cuda.stream.synchronize", 7, 8, stream=S1, result=719)
        run = story.run()
        assert run.edges("cuda.stream_synchronize") == [finish(good, wait)]
        assert run.counts("cuda.stream_synchronize") == (0, 0)

    def test_a_launch_recorded_at_entry_counts(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, stream=S1)
        wait = story.call("cuda.stream.synchronize", 5, 6, stream=S1)
        assert story.run().edges("cuda.stream_synchronize") == [finish(launch, wait)]

    def test_a_wait_that_never_came_back_is_explained(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, 2, stream=S1)
        wait = story.call("cuda.stream.synchronize", 5, 900, stream=S1, flags=int(Flags.TASK | Flags.OPEN))
        assert story.run().edges("cuda.stream_synchronize") == [finish(launch, wait)]

    def test_a_call_that_outlasts_the_wait_is_no_violation(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, 50, stream=S1, tid=2)
        wait = story.call("cuda.stream.synchronize", 5, 20, stream=S1)
        assert story.run().edges("cuda.stream_synchronize") == [start(launch, wait, "inferred")]


class TestContextSynchronize:
    def test_the_last_submission_of_every_stream_of_the_process(self) -> None:
        story = Story()
        story.call("cuda.launch", 1, 2, stream=S1)
        one = story.call("cuda.launch", 3, 4, stream=S1)
        two = story.call("cuda.launch", 5, 6, stream=S2)
        story.call("cuda.launch", 7, 8, stream=S2, pid=2, tid=9)
        wait = story.call("cuda.context.synchronize", 10, 20)
        assert story.run().edges("cuda.context_synchronize") == [finish(one, wait), finish(two, wait)]

    def test_what_an_earlier_wait_saw_finished_is_left_out(self) -> None:
        story = Story()
        old = story.call("cuda.launch", 1, 2, stream=S1)
        first = story.call("cuda.context.synchronize", 3, 10)
        new = story.call("cuda.launch", 11, 12, stream=S2)
        second = story.call("cuda.context.synchronize", 13, 20)
        third = story.call("cuda.context.synchronize", 21, 22)
        run = story.run()
        assert run.edges("cuda.context_synchronize") == [finish(old, first), finish(new, second)]
        assert run.counts("cuda.context_synchronize") == (1, 0), third


class TestEventSynchronize:
    def test_the_record_as_of_the_call(self) -> None:
        story = Story()
        story.call("cuda.event.create", 1, 2, event=E1)
        story.call("cuda.event.record", 3, 4, event=E1, stream=S1)
        record = story.call("cuda.event.record", 5, 6, event=E1, stream=S2)
        wait = story.call("cuda.event.synchronize", 10, 20, event=E1)
        story.call("cuda.event.record", 21, 22, event=E1, stream=S1, tid=2)
        run = story.run()
        assert run.edges("cuda.event_synchronize") == [finish(record, wait)]
        assert run.counts("cuda.event_synchronize") == (0, 0)

    def test_a_record_during_the_wait_makes_it_unsure(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 5, 6, event=E1, stream=S2)
        wait = story.call("cuda.event.synchronize", 10, 20, event=E1)
        story.call("cuda.event.record", 12, 13, event=E1, stream=S1, tid=2)
        run = story.run()
        assert run.edges("cuda.event_synchronize") == [finish(record, wait, "inferred")]
        assert run.counts("cuda.event_synchronize") == (0, 1)

    def test_records_of_an_older_event_with_the_handle_do_not_count(self) -> None:
        story = Story()
        story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        story.call("cuda.event.destroy", 3, 4, event=E1)
        story.call("cuda.event.create", 5, 6, event=E1)
        story.call("cuda.event.synchronize", 10, 20, event=E1)
        run = story.run()
        assert run.edges("cuda.event_synchronize") == []
        assert run.counts("cuda.event_synchronize") == (1, 0)


class TestStreamWaitEvent:
    def test_a_record_binds_what_next_goes_on_the_stream(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        story.call("cuda.stream.wait_event", 3, 4, event=E1, stream=S2)
        story.call("cuda.event.record", 5, 6, event=E1, stream=S1)
        story.call("cuda.stream.wait_event", 7, 8, event=0xE200, stream=S2)
        bound = story.call("cuda.launch", 9, 10, stream=S2)
        story.call("cuda.launch", 11, 12, stream=S2)
        run = story.run()
        assert run.edges("cuda.stream_wait_event") == [start(record, bound)]
        assert run.counts("cuda.stream_wait_event") == (1, 0)


class TestStreamOrder:
    def test_neighbours_on_a_stream(self) -> None:
        story = Story()
        first = story.call("cuda.launch", 1, stream=S1)
        story.call("cuda.launch", 2, 3, stream=S2)
        second = story.call("cuda.memcpy.async", 4, 9, stream=S1)
        overlapping = story.call("cuda.launch", 8, 9, stream=S1, tid=2)
        third = story.call("cuda.launch", 12, stream=S1, tid=3)
        run = story.run()
        assert run.edges("cuda.stream_order") == [
            start(first, second, "exact"),
            start(second, overlapping, "inferred"),
            start(overlapping, third, "exact"),
        ]
        assert run.counts("cuda.stream_order") == (0, 1)

    def test_a_call_recorded_at_entry_has_come_back_when_its_thread_goes_on(self) -> None:
        story = Story()
        first = story.call("cuda.launch", 1, stream=S1, tid=2)
        second = story.call("cuda.launch", 5, stream=S1, tid=1)
        story.call("cuda.stream.synchronize", 7, 8, stream=S2, tid=1)
        third = story.call("cuda.launch", 9, stream=S1, tid=2)
        run = story.run()
        assert run.edges("cuda.stream_order") == [start(first, second, "inferred"), start(second, third, "exact")]


class TestLegacyStream:
    def test_blocking_streams_are_ordered_with_it_and_others_not(self) -> None:
        story = Story()
        story.call("cuda.stream.create", 1, 2, stream=S1)
        story.call("cuda.stream.create", 3, 4, stream=S2, stream_flags=1)
        story.call("cuda.launch", 5, 6, stream=S1)
        before = story.call("cuda.launch", 7, 8, stream=S1)
        story.call("cuda.launch", 9, 10, stream=S2)
        legacy = story.call("cuda.memcpy", 11, 12, stream=LEGACY)
        after = story.call("cuda.launch", 13, 14, stream=S1)
        story.call("cuda.launch", 15, 16, stream=S1)
        own = story.call("cuda.launch", 17, 18, stream=PER_THREAD)
        story.call("cuda.launch", 19, 20, stream=S2)
        expected = [start(before, legacy), start(legacy, after), start(legacy, own)]
        assert story.run().edges("cuda.legacy_stream") == expected

    def test_of_streams_from_before_the_recording_it_is_inferred(self) -> None:
        story = Story()
        before = story.call("cuda.launch", 1, 2, stream=S1)
        legacy = story.call("cuda.launch", 3, 4, stream=LEGACY)
        story.call("cuda.stream.synchronize", 5, 6, stream=LEGACY)
        run = story.run()
        assert run.edges("cuda.legacy_stream") == [start(before, legacy, "inferred")]
        assert run.counts("cuda.legacy_stream") == (0, 1)

    def test_waiting_for_it_waits_for_blocking_streams(self) -> None:
        story = Story()
        story.call("cuda.stream.create", 1, 2, stream=S1)
        launch = story.call("cuda.launch", 3, 4, stream=S1)
        wait = story.call("cuda.stream.synchronize", 5, 9, stream=LEGACY)
        run = story.run()
        assert run.edges("cuda.legacy_stream") == [finish(launch, wait)]
        assert run.counts("cuda.stream_synchronize") == (1, 0)

    def test_an_operation_on_it_in_between_takes_the_edge(self) -> None:
        story = Story()
        story.call("cuda.stream.create", 1, 2, stream=S1)
        story.call("cuda.launch", 3, 4, stream=S1)
        legacy = story.call("cuda.launch", 5, 6, stream=LEGACY)
        wait = story.call("cuda.stream.synchronize", 7, 9, stream=LEGACY)
        run = story.run()
        assert [edge for edge in run.edges("cuda.legacy_stream") if edge.effect == wait] == []
        assert run.edges("cuda.stream_synchronize") == [finish(legacy, wait)]


class TestCapture:
    def test_what_is_captured_does_not_run(self) -> None:
        story = Story()
        ran = story.call("cuda.launch", 1, 2, stream=S1)
        story.call("cuda.graph.capture_begin", 3, 4, stream=S1)
        story.call("cuda.launch", 5, 6, stream=S1)
        other = story.call("cuda.launch", 7, 8, stream=S2)
        story.call("cuda.graph.capture_end", 9, 10, stream=S1)
        wait = story.call("cuda.stream.synchronize", 11, 12, stream=S1)
        launched = story.call("cuda.graph.launch", 13, 14, stream=S1)
        elsewhere = story.call("cuda.stream.synchronize", 15, 16, stream=S2)
        run = story.run()
        assert run.edges("cuda.stream_synchronize") == [finish(ran, wait), finish(other, elsewhere)]
        assert run.edges("cuda.stream_order") == [start(ran, launched, "exact")]

    def test_a_stream_that_joins_by_a_cuda_event_is_captured_too(self) -> None:
        story = Story()
        story.call("cuda.graph.capture_begin", 1, 2, stream=S1)
        story.call("cuda.event.record", 3, 4, event=E1, stream=S1)
        story.call("cuda.stream.wait_event", 5, 6, event=E1, stream=S2)
        story.call("cuda.launch", 7, 8, stream=S2)
        story.call("cuda.graph.capture_end", 9, 10, stream=S1)
        after = story.call("cuda.launch", 11, 12, stream=S2)
        wait = story.call("cuda.stream.synchronize", 13, 14, stream=S2)
        run = story.run()
        assert run.edges("cuda.stream_synchronize") == [finish(after, wait)]
        assert run.edges("cuda.stream_wait_event") == []
        assert run.edges("cuda.stream_order") == []


class TestWalk:
    def test_a_wait_is_followed_to_the_thread_that_submitted(self) -> None:
        """Thread 2 records the CUDA event while thread 1 begins to wait for it: from then on the device is what takes time."""
        story = Story()
        story.call("cuda.launch", 1_000, 1_400, tid=2, stream=S1)
        story.call("cuda.event.record", 1_500, 2_500, tid=2, stream=S1, event=E1)
        story.call("cuda.event.synchronize", 2_000, 9_000, tid=1, event=E1)
        path, rules = story.run().walk("/1@?", 500, 9_000)
        told = [
            (int(begin), int(end), CATEGORIES[category], rules[rule] if rule >= 0 else "")
            for begin, end, category, rule in zip(path.begin, path.end, path.category, path.rule, strict=True)
        ]
        assert told[-1] == (2_500, 9_000, Category.DEVICE_EXECUTION, "cuda.event_synchronize")
        assert [row[:3] for row in told[:-1]] == [
            (500, 1_000, Category.NOT_OBSERVED),
            (1_000, 1_400, Category.API_CALL),
            (1_400, 1_500, Category.NOT_OBSERVED),
            (1_500, 2_500, Category.API_CALL),
        ]

    def test_a_wait_for_what_was_submitted_before_is_device_wait(self) -> None:
        story = Story()
        story.call("cuda.launch", 1_000, 1_400, stream=S1)
        story.call("cuda.stream.synchronize", 2_000, 9_000, stream=S1)
        path, _ = story.run().walk("/1@?", 2_000, 9_000)
        assert [CATEGORIES[category] for category in path.category] == [Category.DEVICE_WAIT]


WORK = ("cuda.launch", "cuda.memcpy", "cuda.malloc")
EVENTS = ("cuda.event.record", "cuda.stream.wait_event")
WAITS = ("cuda.stream.synchronize", "cuda.event.synchronize", "cuda.context.synchronize")
CAPTURES = ("cuda.graph.capture_begin", "cuda.graph.capture_end")
PLOTS = (
    (*WORK, *EVENTS, *WAITS, *CAPTURES, "cuda.stream.create"),
    ("cuda.launch", *EVENTS, *CAPTURES, "cuda.stream.synchronize"),
    ("cuda.launch", "cuda.stream.create", "cuda.stream.synchronize"),
    ("cuda.launch", "cuda.context.synchronize"),
    ("cuda.launch", *EVENTS, "cuda.event.synchronize"),
)
"""Kinds that stories are made of: all, and those of one rule, so that what it is about comes up often."""

LENGTHS = st.sampled_from((None, 0, 3, 10, 12, 20, 27, 40, 65))
"""Calls begin 10 apart: some end within the next one, some just when it begins."""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Up to 24 calls of two processes with a few threads, streams and CUDA events; each begins at a time of its own."""
    story = Story()
    kinds = draw(st.sampled_from(PLOTS))
    streams = draw(st.sampled_from(((S1, S1, S2, LEGACY, PER_THREAD), (S1, LEGACY), (S1, S2))))
    for number in range(draw(st.integers(1, 24))):
        kind = draw(st.sampled_from(kinds))
        thread = draw(st.sampled_from((1, 1, 2, 3)))
        begin, length = 10 * number + 1, draw(LENGTHS)
        creates = kind == "cuda.stream.create"
        story.call(
            kind,
            begin,
            None if length is None else begin + length,
            pid=1 + thread // 3,
            tid=thread,
            stream=0 if kind == "cuda.event.synchronize" else draw(st.sampled_from((S1, S2) if creates else streams)),
            event=draw(st.sampled_from((E1, 0xE200))) if "event" in kind else 0,
            result=draw(st.sampled_from((0, 0, 0, 0, 0, 1))),
            **({"stream_flags": draw(st.sampled_from((0, 0, 1)))} if creates else {}),
        )
    return story


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=300, deadline=None)
@given(stories())
def test_every_story_has_the_edges_of_the_oracle(rule: str, story: Story) -> None:
    assert story.run().edges(rule) == Oracle(story.calls).of(rule)


@settings(deadline=None)
@given(stories())
def test_no_edge_goes_back_in_time(story: Story) -> None:
    """As the engine sees it, with the bounds that it gives to calls recorded at entry."""
    run = story.run()
    edges = EdgeTable([(rule, batch) for rule in RULES for batch in run.batches_of(rule)], run.table, 0)
    assert not edges.back.any()


def test_runtime_calls_are_joined_to_the_driver_calls_inside_them() -> None:
    names = {rule.name for rule in RUNTIME_RULES}
    assert {"cuda.runtime.launch", "cuda.runtime.memcpy.async", "cuda.runtime.context.synchronize"} <= names
    assert all(rule.on == ("thread",) and rule.requires == ("cuda.runtime.call",) for rule in RUNTIME_RULES)


CALLS = 250_000
SHARES = {
    "cuda.launch": 0.9,
    "cuda.memcpy.async": 0.03,
    "cuda.event.record": 0.03,
    "cuda.stream.wait_event": 0.01,
    "cuda.stream.synchronize": 0.01,
    "cuda.event.synchronize": 0.01,
    "cuda.context.synchronize": 0.01,
}


@pytest.fixture(scope="module")
def large() -> Run:
    """Calls of 8 threads on 64 streams, one of them the legacy stream, with 100 CUDA events."""
    random = np.random.default_rng(20)
    kinds = random.choice(list(SHARES), CALLS, p=list(SHARES.values()))
    stream = random.integers(0, 64, CALLS)
    begin = np.arange(CALLS) * 1_000
    columns = {
        "begin_ns": begin,
        "time_ns": begin + random.integers(1, 5_000, CALLS),
        "tgid": np.ones(CALLS),
        "tid": random.integers(1, 9, CALLS),
        "flags": np.full(CALLS, int(Flags.TASK)),
        "returned": np.ones(CALLS),
        "stream_handle": np.where(stream == 0, LEGACY, S1 + stream),
        "stream_kind": np.where(stream == 0, StreamKind.LEGACY, StreamKind.CREATED),
        "event_handle": E1 + random.integers(0, 100, CALLS),
        "number": np.arange(CALLS),
    }
    batches = {}
    for kind in SHARES:
        mine = np.flatnonzero(kinds == kind)
        mine = mine[np.argsort(columns["time_ns"][mine])]
        batches[kind] = batch_of(kind, {name: column[mine] for name, column in columns.items()})
    created = {name: column[:64] for name, column in columns.items()} | {"stream_handle": S1 + np.arange(64)}
    batches["cuda.stream.create"] = batch_of("cuda.stream.create", created)
    return Run(batches)


@pytest.mark.parametrize("rule", RULES)
def test_many_calls_take_little(rule: str, large: Run) -> None:
    """Each rule by itself, with the operations made anew. A second is ten times what it takes on an idle machine."""
    before = time.thread_time()
    edges = large.batches_of(rule)
    assert sum(len(batch.cause) for batch in edges) > 1_000
    assert time.thread_time() - before < 1
