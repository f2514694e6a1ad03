# SPDX-License-Identifier: Apache-2.0
"""CUDA's rules of order: the cases by name, then any story against an oracle of plain loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from plugins.cuda.tests.oracle import ORACLE_RULES, Oracle
from plugins.cuda.tests.story import LEGACY, OPEN, PER_THREAD, Call, Edge, Name, Span, Story
from plugins.cuda.tests.tales import CONTEXTS, EVENTS, EXECS, GRAPHS, STREAMS, tale, tales

from fencepath._engine.activities import CATEGORIES
from fencepath._engine.edges import EdgeTable
from fencepath.events import Category
from fencepath.joins import Events
from fencepath_cuda import model
from fencepath_cuda.events import Direction
from fencepath_cuda.links import Order, Waits
from fencepath_cuda.operations import Operations
from fencepath_cuda.rules import RUNTIME_RULES

S1, S2, E1, E2 = 0x5100, 0x5200, 0xE100, 0xE200
RULES = (model.SUBMIT, *model.ORDERS, *model.WAITS)


def op(number: int, maker: int = -1) -> Name:
    return number, maker


def finish(cause: int, effect: int, confidence: str = "bounded") -> Edge:
    return Edge(op(cause), (effect,), "finish_finish", confidence)


def start(cause: int, effect: int, confidence: str = "bounded") -> Edge:
    return Edge(op(cause), op(effect), "finish_start", confidence)


class TestSubmit:
    def test_every_call_on_a_stream_that_did_not_fail_submits_one_operation(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, 2, stream=S1)
        story.call("cuda.launch", 3, 4, stream=S1, result=719)
        story.call("cuda.malloc", 5, 6)
        alloc = story.call("cuda.malloc", 7, 8, stream=S1)
        run = story.run()
        assert run.edges("cuda.submit") == [
            Edge((number,), op(number), "start_start", "bounded") for number in (launch, alloc)
        ]
        assert (run.label(launch), run.label(alloc)) == ("kernel", "allocation")

    def test_a_kernel_is_called_by_the_name_that_its_handle_had(self) -> None:
        story = Story()
        for begin, name in ((1, "gemm"), (11, "softmax")):
            story.call("cuda.module.kernel", begin, begin + 1, kernel=0x77, name=name)
        story.call("cuda.module.kernel", 13, 14, kernel=0x88, of_kernel=0x77)
        first = story.call("cuda.launch", 5, 6, stream=S1, kernel=0x77)
        second = story.call("cuda.launch", 15, 16, stream=S1, kernel=0x88)
        unnamed = story.call("cuda.launch", 17, 18, stream=S1, kernel=0x99)
        other = story.call("cuda.launch", 19, 20, stream=S1, kernel=0x77, pid=2, tid=5)
        run = story.run()
        labels = [run.label(number) for number in (first, second, unnamed, other)]
        assert labels == ["gemm", "softmax", "kernel", "kernel"]


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
        wait = story.call("cuda.stream.synchronize", 5, 900, stream=S1, flags=OPEN)
        assert story.run().edges("cuda.stream_synchronize") == [finish(launch, wait)]

    def test_a_call_that_outlasts_the_wait_may_be_waited_for(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, 50, stream=S1, tid=2)
        wait = story.call("cuda.stream.synchronize", 5, 20, stream=S1)
        assert story.run().edges("cuda.stream_synchronize") == [finish(launch, wait, "inferred")]

    def test_a_handle_may_have_been_given_to_another_stream_where_creations_were_lost(self) -> None:
        story = Story()
        launch = story.call("cuda.launch", 1, 2, stream=S1)
        story.lose("cuda.stream.create", 5, 6)
        wait = story.call("cuda.stream.synchronize", 10, 20, stream=S1)
        assert story.run().edges("cuda.stream_synchronize") == [finish(launch, wait, "inferred")]


class TestStreamQuery:
    def test_a_stream_that_was_found_idle_had_finished(self) -> None:
        story = Story()
        last = story.call("cuda.launch", 1, 2, stream=S1)
        story.call("cuda.stream.query", 3, 4, stream=S1, result=600)
        query = story.call("cuda.stream.query", 5, 6, stream=S1)
        story.call("cuda.launch", 7, 8, stream=S1)
        story.call("cuda.stream.query", 9, 9, stream=S1, flags=OPEN)
        run = story.run()
        assert run.edges("cuda.stream_query") == [finish(last, query)]
        assert run.counts("cuda.stream_query") == (0, 0)


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
        story.call("cuda.context.synchronize", 21, 22)
        run = story.run()
        assert run.edges("cuda.context_synchronize") == [finish(old, first), finish(new, second)]
        assert run.counts("cuda.context_synchronize") == (1, 0)


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

    def test_a_record_that_was_still_being_made_may_be_the_last_one(self) -> None:
        story = Story()
        story.call("cuda.event.record", 5, 30, event=E1, stream=S2, tid=2)
        record = story.call("cuda.event.record", 12, 13, event=E1, stream=S1)
        wait = story.call("cuda.event.synchronize", 40, 50, event=E1)
        assert story.run().edges("cuda.event_synchronize") == [finish(record, wait, "inferred")]

    @pytest.mark.parametrize("during", [False, True])
    def test_a_record_of_a_whole_context_names_no_stream_and_counts(self, during: bool) -> None:
        story = Story()
        record = story.call("cuda.event.record", 5, 6, event=E1, stream=S2)
        begin = 22 if during else 12
        story.call("cuda.event.record", begin, begin + 1, event=E1, context_handle=0xC100, tid=2)
        wait = story.call("cuda.event.synchronize", 20, 30, event=E1)
        assert story.run().edges("cuda.event_synchronize") == [finish(record, wait, "inferred")]

    def test_a_record_of_a_whole_context_that_was_over_before_does_not(self) -> None:
        story = Story()
        story.call("cuda.event.record", 1, 2, event=E1, context_handle=0xC100)
        record = story.call("cuda.event.record", 5, 6, event=E1, stream=S2)
        wait = story.call("cuda.event.synchronize", 20, 30, event=E1)
        assert story.run().edges("cuda.event_synchronize") == [finish(record, wait)]

    @pytest.mark.parametrize(("kind", "flags"), [("cuda.event.create", 4), ("cuda.event.export", 0)])
    def test_another_process_may_record_a_shared_one(self, kind: str, flags: int) -> None:
        story = Story()
        story.call(kind, 1, 2, event=E1, event_flags=flags)
        record = story.call("cuda.event.record", 5, 6, event=E1, stream=S2)
        wait = story.call("cuda.event.synchronize", 20, 30, event=E1)
        assert story.run().edges("cuda.event_synchronize") == [finish(record, wait, "inferred")]

    def test_records_of_an_older_event_with_the_handle_do_not_count(self) -> None:
        story = Story()
        story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        story.call("cuda.event.destroy", 3, 4, event=E1)
        story.call("cuda.event.create", 5, 6, event=E1)
        story.call("cuda.event.synchronize", 10, 20, event=E1)
        run = story.run()
        assert run.edges("cuda.event_synchronize") == []
        assert run.counts("cuda.event_synchronize") == (1, 0)


class TestEventQuery:
    def test_a_record_that_was_found_complete(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        story.call("cuda.event.query", 3, 4, event=E1, result=600)
        query = story.call("cuda.event.query", 5, 6, event=E1)
        story.call("cuda.event.query", 7, 8, event=E2)
        run = story.run()
        assert run.edges("cuda.event_query") == [finish(record, query)]
        assert run.counts("cuda.event_query") == (0, 0)

    def test_a_time_between_two_is_known_when_both_are_complete(self) -> None:
        story = Story()
        first = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        second = story.call("cuda.event.record", 3, 4, event=E2, stream=S2)
        elapsed = story.call("cuda.event.elapsed", 5, 6, event=E1, end_event_handle=E2)
        story.call("cuda.event.elapsed", 7, 8, event=E1, end_event_handle=E2, result=600)
        assert story.run().edges("cuda.event_query") == [finish(first, elapsed), finish(second, elapsed)]


class TestStreamWaitEvent:
    def test_a_record_holds_up_the_wait_that_was_put_on_the_stream(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        wait = story.call("cuda.stream.wait_event", 3, 4, event=E1, stream=S2)
        story.call("cuda.event.record", 5, 6, event=E1, stream=S1)
        unbound = story.call("cuda.stream.wait_event", 7, 8, event=E2, stream=S2)
        held = story.call("cuda.launch", 9, 10, stream=S2)
        run = story.run()
        assert run.edges("cuda.stream_wait_event") == [start(record, wait)]
        assert run.counts("cuda.stream_wait_event") == (1, 0)
        assert start(wait, held) in run.edges("cuda.stream_order")
        assert op(unbound) not in run.names

    def test_a_wait_whose_call_had_not_come_back_may_mean_a_later_record(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        wait = story.call("cuda.stream.wait_event", 3, 9, event=E1, stream=S2)
        story.call("cuda.event.record", 5, 6, event=E1, stream=S1, tid=2)
        assert story.run().edges("cuda.stream_wait_event") == [start(record, wait, "inferred")]

    def test_a_lost_record_may_be_the_last_one(self) -> None:
        story = Story()
        record = story.call("cuda.event.record", 1, 2, event=E1, stream=S1)
        story.lose("cuda.event.record", 2, 3)
        wait = story.call("cuda.stream.wait_event", 5, 6, event=E1, stream=S2)
        assert story.run().edges("cuda.stream_wait_event") == [start(record, wait, "inferred")]


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
            start(first, second),
            start(second, overlapping, "inferred"),
            start(overlapping, third),
        ]
        assert run.counts("cuda.stream_order") == (0, 1)

    def test_a_call_recorded_at_entry_has_come_back_when_its_thread_goes_on(self) -> None:
        story = Story()
        first = story.call("cuda.launch", 1, stream=S1, tid=2)
        second = story.call("cuda.launch", 5, stream=S1, tid=1)
        story.call("cuda.stream.synchronize", 7, 8, stream=S2, tid=1)
        third = story.call("cuda.launch", 9, stream=S1, tid=2)
        run = story.run()
        assert run.edges("cuda.stream_order") == [start(first, second, "inferred"), start(second, third)]

    def test_a_launch_with_attributes_may_let_its_kernel_start_before_the_kernel_before_has_finished(self) -> None:
        story = Story()
        first = story.call("cuda.launch", 1, 2, stream=S1)
        early = story.call("cuda.launch", 3, 4, stream=S1, attributes=1)
        copy = story.call("cuda.memcpy.async", 5, 6, stream=S1)
        after = story.call("cuda.launch", 7, 8, stream=S1, attributes=1)
        run = story.run()
        assert run.edges("cuda.stream_order") == [
            start(first, early, "inferred"),
            start(early, copy),
            start(copy, after),
        ]

    @pytest.mark.parametrize(
        ("kind", "confidence"), [("", "inferred"), ("cuda.stream.create", "inferred"), ("x", "bounded")]
    )
    def test_a_handle_may_be_another_streams_where_records_were_lost(self, kind: str, confidence: str) -> None:
        story = Story()
        first = story.call("cuda.launch", 1, 2, stream=S1)
        story.lose(kind, 3, 4)
        second = story.call("cuda.launch", 5, 6, stream=S1)
        assert story.run().edges("cuda.stream_order") == [start(first, second, confidence)]


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
        again = story.call("cuda.stream.synchronize", 10, 11, stream=LEGACY)
        run = story.run()
        assert run.edges("cuda.legacy_wait") == [finish(launch, wait)], again
        assert run.counts("cuda.stream_synchronize") == (2, 0)

    def test_an_operation_on_it_in_between_takes_the_edge(self) -> None:
        story = Story()
        story.call("cuda.stream.create", 1, 2, stream=S1)
        story.call("cuda.launch", 3, 4, stream=S1)
        legacy = story.call("cuda.launch", 5, 6, stream=LEGACY)
        wait = story.call("cuda.stream.synchronize", 7, 9, stream=LEGACY)
        run = story.run()
        assert run.edges("cuda.legacy_wait") == []
        assert run.edges("cuda.stream_synchronize") == [finish(legacy, wait)]


class TestBlockingCopy:
    def test_a_copy_to_the_host_is_done_when_it_returns_and_others_need_not_be(self) -> None:
        story = Story()
        down = story.call("cuda.memcpy", 1, 9, stream=LEGACY, direction=int(Direction.DEVICE_TO_HOST))
        story.call("cuda.memcpy", 11, 19, stream=LEGACY, direction=int(Direction.HOST_TO_DEVICE))
        story.call("cuda.memcpy.async", 21, 29, stream=LEGACY, direction=int(Direction.DEVICE_TO_HOST))
        story.call("cuda.memcpy", 31, stream=LEGACY, direction=int(Direction.DEVICE_TO_HOST))
        assert story.run().edges("cuda.blocking_copy") == [finish(down, down)]


class TestWalk:
    def test_a_wait_is_named_by_what_it_waited_for(self) -> None:
        """No path leads through work of which the times are not known: the wait stays the thread's own."""
        story = Story()
        story.call("cuda.launch", 1_000, 1_400, tid=2, stream=S1)
        story.call("cuda.event.record", 1_500, 1_600, tid=2, stream=S1, event=E1)
        story.call("cuda.event.synchronize", 2_000, 9_000, tid=1, event=E1)
        path, rules = story.run().walk("/1@?", 500, 9_000)
        told = [
            (int(begin), int(end), CATEGORIES[category], rules[rule] if rule >= 0 else "")
            for begin, end, category, rule in zip(path.begin, path.end, path.category, path.rule, strict=True)
        ]
        assert told == [
            (500, 2_000, Category.NOT_OBSERVED, ""),
            (2_000, 9_000, Category.DEVICE_WAIT, "cuda.event_synchronize"),
        ]

    def test_a_wait_of_which_nothing_is_known_has_no_rule(self) -> None:
        story = Story()
        story.call("cuda.stream.synchronize", 2_000, 9_000, stream=S1)
        path, _ = story.run().walk("/1@?", 2_000, 9_000)
        assert ([CATEGORIES[category] for category in path.category], path.rule.tolist()) == (
            [Category.DEVICE_WAIT],
            [-1],
        )


def test_runtime_calls_are_joined_to_the_driver_calls_inside_them() -> None:
    names = {rule.name for rule in RUNTIME_RULES}
    assert {"cuda.runtime.launch", "cuda.runtime.memcpy.async", "cuda.runtime.context.synchronize"} <= names
    assert all(rule.on == ("thread",) and rule.requires == ("cuda.runtime.call",) for rule in RUNTIME_RULES)


class Told(msgspec.Struct, frozen=True):
    """All that is said of a story."""

    edges: dict[str, list[Edge]]
    counts: dict[str, tuple[int, int]]
    spans: list[Span]


def told_by_model(story: Story) -> Told:
    run = story.run()
    edges = {rule: run.edges(rule) if rule in run.rules else [] for rule in RULES}
    counts = {rule: run.counts(rule) if rule in run.rules else (0, 0) for rule in RULES}
    return Told(edges, counts, run.spans())


def told_by_oracle(story: Story) -> Told:
    oracle = Oracle(story.calls, story.losses)
    edges, counts = ({rule: of(rule) for rule in RULES} for of in (oracle.of, oracle.counts))
    return Told(edges, counts, oracle.spans())  # type: ignore[arg-type]  # each is what its method returns


def test_the_oracle_knows_all_rules() -> None:
    assert sorted(ORACLE_RULES) == sorted(RULES)


@settings(max_examples=600, deadline=None)
@given(tales())
def test_of_every_story_the_model_says_what_the_oracle_says(story: Story) -> None:
    assert told_by_model(story) == told_by_oracle(story)


@settings(max_examples=60, deadline=None)
@given(tales())
def test_no_edge_goes_back_in_time(story: Story) -> None:
    run = story.run()
    edges = EdgeTable([(rule, batch) for rule in RULES for batch in run.batches_of(rule)], run.table, 0)
    assert not edges.back.any()


@cache
def fixed() -> list[tuple[Story, Told]]:
    """Stories that are the same in every run, and the oracle's word on each."""
    stories = [tale(seed, 30) for seed in range(150)]
    return [(story, told_by_oracle(story)) for story in stories]


def differs() -> bool:
    """Whether the model says of one of the fixed stories what the oracle does not."""
    return any(told_by_model(story) != told for story, told in fixed())


def test_on_the_fixed_stories_they_agree() -> None:
    assert not differs()


def _no_order(events: Events, operations: Operations) -> Order:
    del events, operations
    nothing = np.empty(0, np.int64)
    return Order(nothing, nothing, nothing.astype(np.bool_), (nothing, nothing))


def _no_waits(kinds: tuple[str, ...]) -> Callable[[Events, Operations], Waits]:
    nothing = np.empty(0, np.int64)
    waits = Waits(nothing, nothing, nothing, nothing, nothing.astype(np.bool_), kinds, whole=True)
    return lambda events, operations: waits


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_says_nothing_is_found_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == model.SUBMIT:
        monkeypatch.setattr(model.SubmitRule, "apply", lambda self, view: [])
    elif rule in model.ORDERS:
        monkeypatch.setitem(model.ORDERS, rule, _no_order)
    else:
        monkeypatch.setitem(model.WAITS, rule, _no_waits(("cuda.stream.query",)))
    assert differs()


@pytest.mark.parametrize(
    ("column", "handles"),
    [("stream", STREAMS), ("event", EVENTS), ("graph", GRAPHS), ("graph_exec", EXECS), ("context_handle", CONTEXTS)],
)
def test_two_handles_that_change_places_are_found_out(column: str, handles: tuple[int, ...]) -> None:
    one, other = min(handles), max(handles)
    swapped = {one: other, other: one}
    assert any(told_by_model(_swap(story, column, swapped)) != told for story, told in fixed())


def _swap(story: Story, column: str, swapped: dict[int, int]) -> Story:
    """Exchange two handles in the second half of a story."""
    changed = Story()
    changed.losses = story.losses
    half = len(story.calls) // 2
    changed.calls = [_with(call, column, swapped) if call.number >= half else call for call in story.calls]
    return changed


def _with(call: Call, column: str, new: dict[int, int]) -> Call:
    """Give a call another handle in a column."""
    value = call.get(column) if column in call.more else int(getattr(call, column, 0))
    if column in call.more:
        return msgspec.structs.replace(call, more={**call.more, column: new.get(value, value)})
    return msgspec.structs.replace(call, **{column: new[value]}) if value in new else call
