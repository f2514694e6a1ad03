# SPDX-License-Identifier: Apache-2.0
"""When operations ran at the earliest and at the latest."""

from __future__ import annotations

import pytest
from plugins.cuda.tests.story import LEGACY, OPEN, Span, Story

from fencepath.records import Flags
from fencepath_cuda.events import Direction

S1, S2, S3, E1, E2 = 0x5100, 0x5200, 0x5300, 0xE100, 0xE200
NEVER = -1


def bounds(story: Story) -> dict[int, tuple[int, int]]:
    """Earliest start and latest end by the number of the call; -1 where no end is known."""
    return {span.name[0]: (span.earliest, span.latest) for span in story.run().spans()}


def test_what_nothing_waited_for_has_no_end() -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=S1)
    story.call("cuda.stream.synchronize", 5, 9, stream=S2)
    assert bounds(story) == {launch: (1, NEVER)}
    operation = story.run().operation(launch)
    assert Flags(operation.flags) == Flags.BOUNDS | Flags.OPEN
    assert operation.time_ns >= operation.begin_ns


def test_a_wait_ends_all_that_was_on_its_stream() -> None:
    story = Story()
    first = story.call("cuda.launch", 1, 2, stream=S1)
    second = story.call("cuda.launch", 3, 4, stream=S1)
    story.call("cuda.stream.synchronize", 5, 90, stream=S1)
    third = story.call("cuda.launch", 91, 92, stream=S1)
    assert bounds(story) == {first: (1, 90), second: (3, 90), third: (91, NEVER)}


def test_the_earliest_of_several_ends_counts() -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=S1)
    record = story.call("cuda.event.record", 3, 4, stream=S1, event=E1)
    story.call("cuda.event.query", 5, 6, event=E1, result=600)
    story.call("cuda.event.query", 7, 8, event=E1)
    story.call("cuda.context.synchronize", 9, 90)
    assert bounds(story) == {launch: (1, 8), record: (3, 8)}


@pytest.mark.parametrize("flags", [OPEN, int(Flags.TASK | Flags.ENTRY_ONLY)])
def test_a_wait_that_is_not_known_to_have_come_back_ends_nothing(flags: int) -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=S1)
    story.call("cuda.stream.synchronize", 5, 90 if flags == OPEN else 5, stream=S1, flags=flags)
    assert bounds(story) == {launch: (1, NEVER)}


def test_a_wait_that_is_not_sure_ends_nothing() -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 50, stream=S1, tid=2)
    story.call("cuda.stream.synchronize", 5, 90, stream=S1)
    assert bounds(story) == {launch: (1, NEVER)}


def test_an_end_is_passed_on_over_streams() -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=S1)
    record = story.call("cuda.event.record", 3, 4, stream=S1, event=E1)
    wait = story.call("cuda.stream.wait_event", 5, 6, stream=S2, event=E1)
    other = story.call("cuda.launch", 7, 8, stream=S2)
    free = story.call("cuda.launch", 9, 10, stream=S1)
    story.call("cuda.stream.synchronize", 11, 90, stream=S2)
    assert bounds(story) == {launch: (1, 90), record: (3, 90), wait: (5, 90), other: (7, 90), free: (9, NEVER)}


def test_a_copy_to_the_host_ends_what_was_before_it() -> None:
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=LEGACY)
    copy = story.call("cuda.memcpy", 3, 80, stream=LEGACY, direction=int(Direction.DEVICE_TO_HOST))
    assert bounds(story) == {launch: (1, 80), copy: (3, 80)}


def test_what_was_found_unfinished_bounds_nothing() -> None:
    """The device makes an end known a little after it."""
    story = Story()
    record = story.call("cuda.event.record", 1, 2, stream=S1, event=E1)
    wait = story.call("cuda.stream.wait_event", 5, 6, stream=S2, event=E1)
    story.call("cuda.event.query", 40, 41, event=E1, result=600)
    assert bounds(story) == {record: (1, NEVER), wait: (5, NEVER)}


def test_no_bound_reaches_over_a_loss_of_handles() -> None:
    story = Story()
    early = story.call("cuda.launch", 1, 2, stream=S1)
    record = story.call("cuda.event.record", 20, 21, stream=S1, event=E1)
    story.call("cuda.event.query", 22, 23, event=E1, result=600)
    story.lose("cuda.stream.create", 10, 11)
    late = story.call("cuda.launch", 30, 31, stream=S1)
    story.call("cuda.stream.synchronize", 40, 50, stream=S1)
    assert bounds(story) == {early: (1, NEVER), record: (20, 50), late: (30, 50)}


def test_one_node_of_a_graph_says_nothing_of_the_others() -> None:
    story = Story()
    story.call("cuda.graph.capture_begin", 1, 2, stream=S1)
    kernel = story.call("cuda.launch", 3, 4, stream=S1)
    record = story.call("cuda.event.record", 5, 6, stream=S1, event=E1, event_flags=1)
    story.call("cuda.graph.capture_end", 7, 8, stream=S1, graph=0x6100)
    story.call("cuda.graph.instantiate", 9, 10, graph=0x6100, graph_exec=0xA100)
    launch = story.call("cuda.graph.launch", 11, 12, stream=S1, graph_exec=0xA100)
    story.call("cuda.event.synchronize", 13, 50, event=E1)
    story.call("cuda.stream.synchronize", 51, 60, stream=S1)
    assert story.run().spans() == [Span((launch, maker), 11, 60) for maker in (kernel, record)]
