# SPDX-License-Identifier: Apache-2.0
"""The walk on stories of which the right answer is known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.core.synthetic import BOOT_ID, PID, RULES, Story, plugins

from fencepath._builtin.marks import Op
from fencepath._engine.activities import ENTRY_ONLY_LIMIT_NS
from fencepath._engine.walk import FORK_RULE, WAKE_RULE
from fencepath.analysis import Analysis
from fencepath.errors import UsageError
from fencepath.events import Category
from fencepath.joins import Confidence, JoinRule, Order, Pick, Relation, Select
from fencepath.records import Flags
from fencepath.report import Segment

A, B, C = 7, 8, 9
Piece = tuple[int, int, Category]


def segments(analysis: Analysis, target: str = "end") -> tuple[Segment, ...]:
    assert analysis.problems == ()
    return analysis.report(target=target).requests[0].path.segments


def pieces(found: tuple[Segment, ...]) -> list[Piece]:
    return [(s.start_ns, s.end_ns, s.category) for s in found]


def thread_of(segment: Segment) -> int:
    return int(segment.entities[0].split("/")[2].split("@")[0])


def test_a_request_that_only_computes(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 100, 900, A)
    assert pieces(segments(story.analysis(tmp_path))) == [(100, 900, Category.HOST_COMPUTE)]


def test_launch_queue_execution_and_the_end_of_the_wait(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 100, 900, A)
    story.call("launch", 150, 200, A, fence=1)
    story.job(300, 600, fence=1, name="kernel")
    story.wait(250, 650, A, fence=1)
    found = segments(story.analysis(tmp_path))
    assert [(*piece, s.rule, s.confidence) for piece, s in zip(pieces(found), found, strict=True)] == [
        (100, 150, Category.HOST_COMPUTE, None, Confidence.EXACT),
        (150, 300, Category.LAUNCH_QUEUE, "toy.launch", Confidence.EXACT),
        (300, 600, Category.DEVICE_EXECUTION, None, Confidence.EXACT),
        (600, 650, Category.DRIVER, "toy.done", Confidence.BOUNDED),
        (650, 900, Category.HOST_COMPUTE, None, Confidence.EXACT),
    ]
    assert [s.activity for s in found] == ["", "kernel", "kernel", "wait", ""]
    assert found[2].entities == ("toy.fence:1",)


def test_jobs_of_one_ring_wait_for_each_other(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    for fence, (begin, end) in enumerate([(100, 300), (310, 500), (500, 800)], 1):
        story.call("launch", 10 * fence, 10 * fence + 5, A, fence=fence)
        story.job(begin, end, fence=fence, ring=1)
    story.wait(90, 850, A, fence=3)
    found = segments(story.analysis(tmp_path))
    assert pieces(found) == [
        (0, 10, Category.HOST_COMPUTE),
        (10, 100, Category.LAUNCH_QUEUE),
        (100, 300, Category.DEVICE_EXECUTION),
        (300, 310, Category.DEPENDENCY),
        (310, 500, Category.DEVICE_EXECUTION),
        (500, 800, Category.DEVICE_EXECUTION),
        (800, 850, Category.DRIVER),
        (850, 1000, Category.HOST_COMPUTE),
    ]
    assert found[4].rule == "toy.ring", "an edge without a gap is named by the segment it leads to"


def test_a_segment_is_no_surer_than_the_edge_that_led_to_it(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.call("launch", 30, 40, A, fence=2)
    story.job(100, 300, fence=1, ring=1)
    story.job(300, 800, fence=2, ring=1)
    story.wait(50, 850, A, fence=2)
    rules = [
        msgspec.structs.replace(rule, confidence=Confidence.BOUNDED) if rule.name == "toy.ring" else rule
        for rule in RULES
    ]
    found = segments(story.analysis(tmp_path, plugins(rules=rules)))
    ran = [(s.start_ns, s.end_ns, s.rule, s.confidence) for s in found if s.category is Category.DEVICE_EXECUTION]
    assert ran == [(100, 300, "toy.ring", Confidence.BOUNDED), (300, 800, None, Confidence.EXACT)]


def test_a_wait_for_what_was_done_before_it_began_is_not_left(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, 100, fence=1)
    story.wait(200, 300, A, fence=1)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 10, Category.HOST_COMPUTE),
        (10, 20, Category.API_CALL),
        (20, 200, Category.HOST_COMPUTE),
        (200, 300, Category.DEVICE_WAIT),
        (300, 1000, Category.HOST_COMPUTE),
    ]


def test_of_two_waits_the_earlier_one_is_followed_too(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, 300, fence=1)
    story.wait(40, 310, A, fence=1)
    story.call("launch", 400, 410, A, fence=2)
    story.job(420, 800, fence=2)
    story.wait(430, 810, A, fence=2)
    executed = [s for s in segments(story.analysis(tmp_path)) if s.category is Category.DEVICE_EXECUTION]
    assert [(s.start_ns, s.end_ns) for s in executed] == [(30, 300), (420, 800)]


def test_a_copy_keeps_its_category_and_an_api_call_that_blocks_does_not(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.copy(100, 200, A)
    story.sleep(A, 120, 150, 160)
    story.call("malloc", 300, 400, A)
    story.sleep(A, 320, 350, 360)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 100, Category.HOST_COMPUTE),
        (100, 150, Category.TRANSFER),
        (150, 160, Category.RUNQUEUE),
        (160, 200, Category.TRANSFER),
        (200, 300, Category.HOST_COMPUTE),
        (300, 320, Category.API_CALL),
        (320, 350, Category.BLOCKED),
        (350, 360, Category.RUNQUEUE),
        (360, 400, Category.API_CALL),
        (400, 1000, Category.HOST_COMPUTE),
    ]


def test_preempted_while_computing_is_runqueue_and_while_waiting_is_still_waiting(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.preempt(A, 100, 200)
    story.wait(300, 600, A)
    story.preempt(A, 400, 450)
    story.call("launch", 700, 800, A)
    story.preempt(A, 710, 720)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 100, Category.HOST_COMPUTE),
        (100, 200, Category.RUNQUEUE),
        (200, 300, Category.HOST_COMPUTE),
        (300, 600, Category.DEVICE_WAIT),
        (600, 700, Category.HOST_COMPUTE),
        (700, 710, Category.API_CALL),
        (710, 720, Category.RUNQUEUE),
        (720, 800, Category.API_CALL),
        (800, 1000, Category.HOST_COMPUTE),
    ]


def test_woken_inside_a_wait_is_runqueue_and_the_rest_of_the_wait_names_the_rule(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, 500, fence=1)
    story.wait(100, 600, A, fence=1)
    story.sleep(A, 110, 520, 560)
    found = segments(story.analysis(tmp_path))
    assert pieces(found)[-4:] == [
        (500, 520, Category.DRIVER),
        (520, 560, Category.RUNQUEUE),
        (560, 600, Category.DRIVER),
        (600, 1000, Category.HOST_COMPUTE),
    ]
    assert [s.rule for s in found[-4:]] == ["toy.done", None, "toy.done", None]


def test_when_nothing_is_left_of_the_wait_the_segment_before_names_the_rule(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, 500, fence=1)
    story.wait(100, 560, A, fence=1)
    story.sleep(A, 110, 500, 560)
    found = segments(story.analysis(tmp_path))
    assert pieces(found)[-3:] == [
        (30, 500, Category.DEVICE_EXECUTION),
        (500, 560, Category.RUNQUEUE),
        (560, 1000, Category.HOST_COMPUTE),
    ]
    assert [s.rule for s in found[-3:]] == ["toy.done", None, None]


def test_a_wake_up_by_a_thread_is_followed_to_that_thread(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.sleep(A, 200, 600, 650, by=B)
    story.call("work", 300, 590, B)
    found = segments(story.analysis(tmp_path))
    assert [(*piece, thread_of(s), s.rule) for piece, s in zip(pieces(found), found, strict=True)] == [
        (0, 300, Category.HOST_COMPUTE, B, None),
        (300, 590, Category.API_CALL, B, None),
        (590, 600, Category.HOST_COMPUTE, B, WAKE_RULE),
        (600, 650, Category.RUNQUEUE, A, None),
        (650, 1000, Category.HOST_COMPUTE, A, None),
    ]


def test_wake_ups_are_followed_from_thread_to_thread_and_back(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.thread(B)
    story.sleep(A, 200, 600, 650, by=B)
    story.sleep(B, 100, 190, 210, by=A)
    found = segments(story.analysis(tmp_path))
    assert [(*piece, thread_of(s)) for piece, s in zip(pieces(found), found, strict=True)] == [
        (0, 190, Category.HOST_COMPUTE, A),
        (190, 210, Category.RUNQUEUE, B),
        (210, 600, Category.HOST_COMPUTE, B),
        (600, 650, Category.RUNQUEUE, A),
        (650, 1000, Category.HOST_COMPUTE, A),
    ]


def test_a_wake_up_by_an_interrupt_cannot_be_followed_and_stays_blocked(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.sleep(A, 200, 600, 650)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 200, Category.HOST_COMPUTE),
        (200, 600, Category.BLOCKED),
        (600, 650, Category.RUNQUEUE),
        (650, 1000, Category.HOST_COMPUTE),
    ]


def test_a_thread_that_is_nobodys_target_is_not_followed_and_never_said_to_have_computed(tmp_path: Path) -> None:
    """Of a kernel worker only its wake-ups of targets are there, and switches between it and them."""
    worker = 77
    story = Story()
    story.request("r", 0, 1000, A)
    story.sleep(A, 200, 600, 650, by=worker)
    story.switch(700, A, worker, runnable=True)
    story.switch(750, worker, A)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 200, Category.HOST_COMPUTE),
        (200, 600, Category.BLOCKED),
        (600, 650, Category.RUNQUEUE),
        (650, 700, Category.HOST_COMPUTE),
        (700, 750, Category.RUNQUEUE),
        (750, 1000, Category.HOST_COMPUTE),
    ]


@pytest.mark.parametrize("interrupt", [True, False])
def test_an_edge_from_what_leads_nowhere_does_not_take_the_walk_along(tmp_path: Path, interrupt: bool) -> None:
    """A wake-up by an interrupt has no thread: a rule that names it as the cause of a wait must not end the path."""
    woken = JoinRule(
        name="toy.woken", cause=Select(kind="sched.waking"), effect=Select(kind="toy.wait"), on=(("wakee_tid", "tid"),),
        relation=Relation.ENDS, order=Order.FINISH_FINISH, gap=Category.DRIVER,
    )  # fmt: skip
    story = Story()
    story.request("r", 0, 1000, A)
    story.thread(B)
    story.wait(100, 700, A)
    story.sleep(A, 200, 600, 650, by=None if interrupt else B)
    found = segments(story.analysis(tmp_path, plugins(rules=(woken,))))
    assert {thread_of(s) for s in found} == ({A} if interrupt else {A, B})
    assert {s.category for s in found} <= {
        Category.HOST_COMPUTE,
        Category.DEVICE_WAIT,
        Category.RUNQUEUE,
        Category.DRIVER,
    }


def test_who_wakes_a_thread_inside_a_device_wait_is_not_its_cause(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.wait(100, 700, A)
    story.sleep(A, 200, 600, 650, by=B)
    assert {thread_of(s) for s in segments(story.analysis(tmp_path))} == {A}


def test_a_second_wake_up_of_a_running_thread_changes_nothing(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.thread(B)
    story.sleep(A, 200, 600, 650, by=B)
    story.wake(700, A, by=C)
    story.wake(620, A, by=C)
    found = segments(story.analysis(tmp_path))
    assert {thread_of(s) for s in found} == {A, B}
    assert (600, 650, Category.RUNQUEUE) in pieces(found)


def test_a_thread_made_within_the_request_leads_to_its_maker(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A, end_tid=B)
    story.fork(400, A, B)
    story.switch(450, 0, B)
    found = segments(story.analysis(tmp_path))
    assert [(*piece, thread_of(s), s.rule) for piece, s in zip(pieces(found), found, strict=True)] == [
        (0, 400, Category.HOST_COMPUTE, A, FORK_RULE),
        (400, 450, Category.RUNQUEUE, B, None),
        (450, 1000, Category.HOST_COMPUTE, B, None),
    ]


def test_a_thread_made_by_one_of_whom_nothing_is_known(tmp_path: Path) -> None:
    story = Story()
    story.thread(C, "maker")
    story.request("r", 0, 1000, A)
    story.request("other", 500, 1000, B)
    story.add("process.fork", 400, C, flags=Flags(0), child_tid=B, clone_flags=0x10000)
    analysis = story.analysis(tmp_path)
    path = analysis.path(analysis.request("other"))
    assert int((path.columns.end - path.columns.begin).sum()) == 500


def test_a_call_of_which_only_the_entry_is_known_lasts_to_the_next_record(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.entry("launch", 100, A)
    story.call("malloc", 400, 500, A)
    found = segments(story.analysis(tmp_path))
    assert (100, 400, Category.API_CALL) in pieces(found)
    (launch,) = [s for s in found if s.activity == "launch"]
    assert launch.confidence is Confidence.BOUNDED


def test_a_call_of_which_only_the_entry_is_known_lasts_one_millisecond_at_most(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 9_000_000, A)
    story.entry("launch", 100, A)
    assert pieces(segments(story.analysis(tmp_path)))[1:] == [
        (100, 100 + ENTRY_ONLY_LIMIT_NS, Category.API_CALL),
        (100 + ENTRY_ONLY_LIMIT_NS, 9_000_000, Category.HOST_COMPUTE),
    ]
    assert ENTRY_ONLY_LIMIT_NS == 1_000_000


def test_what_an_entry_only_call_submits_is_not_cut_by_its_bound(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 9_000_000, A)
    story.entry("launch", 100, A)
    story.submit(900_000, 3_000_000, A)
    story.submit(5_000_000, 5_100_000, A)
    story.submit(1_000, 1_000_000, B)
    assert pieces(segments(story.analysis(tmp_path)))[1:] == [
        (100, 900_000, Category.API_CALL),
        (900_000, 3_000_000, Category.DRIVER),
        (3_000_000, 5_000_000, Category.HOST_COMPUTE),
        (5_000_000, 5_100_000, Category.DRIVER),
        (5_100_000, 9_000_000, Category.HOST_COMPUTE),
    ]


def test_what_an_entry_only_call_contains_is_bounded(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.entry("launch", 100, A)
    story.submit(200, 300, A)
    story.call("launch", 400, 500, A)
    story.submit(450, 460, A)
    inside = JoinRule(
        name="toy.submit", cause=Select(kind="toy.call"), effect=Select(kind="toy.submit"), on=("thread",),
        relation=Relation.CONTAINS, pick=Pick.INNERMOST, order=Order.START_START, gap=Category.API_CALL,
    )  # fmt: skip
    edges = story.analysis(tmp_path, plugins(rules=(inside,))).edges
    found = {int(source): list(Confidence)[code] for source, code in zip(edges.source, edges.confidence, strict=True)}
    assert found == {100: Confidence.BOUNDED, 400: Confidence.EXACT}


def test_records_of_other_threads_and_of_the_scheduler_do_not_end_an_entry_only_call(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.entry("launch", 100, A)
    story.call("other", 150, 160, B)
    story.preempt(A, 200, 210)
    (first, queued, rest) = pieces(segments(story.analysis(tmp_path)))[1:]
    assert first == (100, 200, Category.API_CALL)
    assert queued == (200, 210, Category.RUNQUEUE)
    assert rest == (210, 1000, Category.API_CALL)


def test_without_the_scheduler_time_between_records_is_not_observed(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("malloc", 400, 500, A)
    story.sleep(A, 600, 700, 710)
    with_layer = segments(story.analysis(tmp_path))
    assert Category.NOT_OBSERVED not in {s.category for s in with_layer}
    without = segments(story.analysis(tmp_path, without=["sched"], name="without"))
    assert pieces(without) == [
        (0, 400, Category.NOT_OBSERVED),
        (400, 500, Category.API_CALL),
        (500, 1000, Category.NOT_OBSERVED),
    ]


def test_a_layer_that_was_never_there_is_the_same_as_one_left_out(tmp_path: Path) -> None:
    found = []
    for name, sched in (("with", True), ("without", False)):
        story = Story(sched=sched)
        story.request("r", 0, 1000, A)
        story.call("malloc", 400, 500, A)
        story.sleep(A, 600, 700, 710)
        found.append(segments(story.analysis(tmp_path, without=["sched"], name=name)))
    assert found[0] == found[1]


def test_without_the_device_its_share_is_the_wait_and_nothing_is_invented(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 100, 900, A)
    story.wait(250, 650, A, fence=1)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (100, 250, Category.HOST_COMPUTE),
        (250, 650, Category.DEVICE_WAIT),
        (650, 900, Category.HOST_COMPUTE),
    ]


def test_lost_scheduler_events_make_the_time_unexplained_until_the_next_event(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.switch(100, A, 0)
    story.wake(150, A, 0, interrupt=True)
    story.switch(160, 0, A)
    story.loss("sched.switch", 300, 400, 5)
    story.switch(600, 0, A)
    story.preempt(A, 800, 850)
    assert pieces(segments(story.analysis(tmp_path))) == [
        (0, 100, Category.HOST_COMPUTE),
        (100, 150, Category.BLOCKED),
        (150, 160, Category.RUNQUEUE),
        (160, 300, Category.HOST_COMPUTE),
        (300, 600, Category.UNEXPLAINED),
        (600, 800, Category.HOST_COMPUTE),
        (800, 850, Category.RUNQUEUE),
        (850, 1000, Category.HOST_COMPUTE),
    ]


@pytest.mark.parametrize(("kind", "explained"), [("", False), ("sched.waking", False), ("toy.call", True)])
def test_a_loss_matters_for_run_states_when_it_may_have_been_theirs(tmp_path: Path, kind: str, explained: bool) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.loss(kind, 300, 400, 1)
    analysis = story.analysis(tmp_path)
    assert (Category.UNEXPLAINED not in {s.category for s in segments(analysis)}) is explained
    assert analysis.report().requests[0].path.lost_events == 1


def back_in_time(done_ns: int) -> Story:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, done_ns, fence=1)
    story.wait(100, 500, A, fence=1)
    return story


def test_an_edge_back_in_time_is_kept_and_counted_and_not_followed(tmp_path: Path) -> None:
    analysis = back_in_time(507).analysis(tmp_path)
    report = analysis.report()
    (violation,) = report.requests[0].path.violations
    assert (violation.rule, violation.size_ns) == ("toy.done", 7)
    assert (100, 500, Category.DEVICE_WAIT) in pieces(report.requests[0].path.segments)
    graph = analysis.graph(analysis.requests[0])
    assert [data["back_ns"] for _, _, key, data in graph.edges(keys=True, data=True) if key == "toy.done"] == [7]


def test_an_edge_that_ends_exactly_with_the_wait_is_sound(tmp_path: Path) -> None:
    report = back_in_time(500).analysis(tmp_path).report()
    assert report.requests[0].path.violations == ()
    assert (30, 500, Category.DEVICE_EXECUTION) in pieces(report.requests[0].path.segments)


def test_of_two_equal_causes_both_edges_are_kept_and_the_path_says_it_was_a_choice(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.call("launch", 10, 20, A, fence=1)
    story.job(30, 500, fence=1, name="one")
    story.job(40, 500, fence=1, name="two")
    story.wait(100, 520, A, fence=1)
    analysis = story.analysis(tmp_path)
    (count,) = [count for count in analysis.joins if count.rule == "toy.done"]
    assert (count.ambiguous, count.unmatched) == (1, 0)
    found = segments(analysis)
    assert any(s.ambiguous for s in found)
    rest = next(s for s in found if (s.start_ns, s.end_ns) == (500, 520))
    assert rest.confidence is Confidence.INFERRED


def test_a_cycle_of_edges_does_not_hold_the_walk_up(tmp_path: Path) -> None:
    both_ways = tuple(
        JoinRule(
            name=name, cause=Select(kind="toy.job"), effect=Select(kind="toy.job"), on=(pair,),
            relation=Relation.SAME, pick=Pick.ALL, order=Order.START_START,
        )
        for name, pair in (("toy.there", ("fence_id", "ring_id")), ("toy.back", ("ring_id", "fence_id")))
    )  # fmt: skip
    done = JoinRule(
        name="toy.done", cause=Select(kind="toy.job"), effect=Select(kind="toy.wait"), on=("fence_id",),
        relation=Relation.SAME, order=Order.FINISH_FINISH, gap=Category.DRIVER,
    )  # fmt: skip
    story = Story()
    story.request("r", 0, 1000, A)
    for number in range(3):
        story.job(100, 500, fence=1, ring=1, name=f"job{number}")
    story.wait(90, 600, A, fence=1)
    registry = plugins(rules=(*both_ways, done))
    found = segments(story.analysis(tmp_path, registry))
    assert sum(s.duration_ns for s in found) == 1000


def test_targets_end_the_path_earlier(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    story.mark(Op.TOKEN, 300, A, "r", value=1)
    story.mark(Op.TOKEN, 400, A, "r", value=2)
    analysis = story.analysis(tmp_path)
    for target, end in (("first_token", 300), ("token:2", 400), ("end", 1000)):
        path = analysis.report(target=target).requests[0].path
        assert (path.target, path.end_ns, path.segments[-1].end_ns) == (target, end, end)
    with pytest.raises(UsageError, match="no mark of token 3"):
        analysis.path(analysis.requests[0], "token:3")
    with pytest.raises(UsageError, match="unknown target"):
        analysis.path(analysis.requests[0], "middle")


def test_a_request_without_end_is_open_and_its_path_goes_to_the_end_of_the_recording(tmp_path: Path) -> None:
    story = Story()
    story.request("hang", 100, None, A)
    story.call("forever", 200, 5000, A)
    report = story.analysis(tmp_path).report().requests[0]
    assert (report.state, report.end_ns) == ("open", 5000)
    assert report.path.segments[-1].activity == "forever"


def test_entities_carry_names_that_do_not_depend_on_the_run(tmp_path: Path) -> None:
    story = Story()
    story.process()
    story.thread(A, "engine")
    story.request("r", 0, 1000, A)
    analysis = story.analysis(tmp_path)
    thread = analysis.requests[0].end_thread
    assert analysis.entity_text(thread) == f"thread:process:{BOOT_ID}/{PID}@{PID}#0/{A}@{A}"
    assert analysis.thread_names[analysis.entity_text(thread)] == "engine"


def test_a_request_can_be_named_by_key_or_id(tmp_path: Path) -> None:
    story = Story()
    story.request("twice", 0, 100, A)
    story.request("twice", 200, 300, A)
    story.request("once", 0, 300, B)
    analysis = story.analysis(tmp_path)
    assert analysis.request("once").start_thread != analysis.request("twice@200").start_thread
    with pytest.raises(UsageError, match="2 requests are called twice"):
        analysis.request("twice")
    with pytest.raises(UsageError, match="no request other"):
        analysis.request("other")


def test_columns_are_integers_of_one_length(tmp_path: Path) -> None:
    story = back_in_time(400)
    analysis = story.analysis(tmp_path)
    columns = analysis.path(analysis.requests[0]).columns
    assert len({len(column) for column in columns}) == 1
    assert all(np.issubdtype(column.dtype, np.integer) for column in columns)


@pytest.mark.parametrize("scheduler", [True, False])
def test_an_edge_to_a_begin_binds_where_nothing_is_known_of_the_thread(tmp_path: Path, scheduler: bool) -> None:
    """With scheduler events B is known to have run before its wait: what A did is no reason for it any more."""
    handed = JoinRule(
        name="toy.handed", cause=Select(kind="toy.call"), effect=Select(kind="toy.wait"), on=("fence_id",),
        relation=Relation.LAST_BEFORE, order=Order.FINISH_START, gap=Category.BLOCKED_IPC,
    )  # fmt: skip
    story = Story()
    story.request("r", 100, 900, B)
    story.call("send", 150, 300, A, fence=1)
    story.wait(400, 850, B, fence=1)
    registry = plugins(rules=(handed,))
    found = segments(story.analysis(tmp_path, registry, without=() if scheduler else ("sched",)))
    assert sum(s.duration_ns for s in found) == 800
    if scheduler:
        assert {s.rule for s in found} == {None}
        assert {thread_of(s) for s in found} == {B}
        return
    gap = Category.NOT_OBSERVED
    assert [(*piece, s.rule) for piece, s in zip(pieces(found), found, strict=True)] == [
        (100, 150, gap, None),
        (150, 300, Category.API_CALL, None),
        (300, 400, Category.BLOCKED_IPC, "toy.handed"),
        (400, 850, Category.DEVICE_WAIT, None),
        (850, 900, gap, None),
    ]
    assert [thread_of(s) for s in found] == [A, A, B, B, B]
