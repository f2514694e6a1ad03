# SPDX-License-Identifier: Apache-2.0
"""Which context calls were in, and what follows where that is not known."""

from __future__ import annotations

import pytest
from plugins.cuda.tests.story import LEGACY, Edge, Run, Story

from fencepath_cuda.events import ContextChange

C1, C2, S1, S2 = 0xC100, 0xC200, 0x5100, 0x5200
SET, PUSH, POP = (int(change) for change in (ContextChange.SET, ContextChange.PUSH, ContextChange.POP))


def of(run: Run, *numbers: int) -> list[str]:
    """Handles of the contexts of calls, "" where they are not known."""
    return [run.text(number, "context").rpartition("/")[2] for number in numbers]


def test_a_thread_has_what_it_set_pushed_and_popped() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1)
    made = story.call("cuda.launch", 3, 4, stream=LEGACY)
    story.call("cuda.context.create", 5, 6, context_handle=C2)
    second = story.call("cuda.launch", 7, 8, stream=LEGACY)
    story.call("cuda.context.set", 9, 10, context_handle=C2, how=POP)
    popped = story.call("cuda.launch", 11, 12, stream=LEGACY)
    story.call("cuda.context.set", 13, 14, context_handle=C2, how=SET)
    replaced = story.call("cuda.launch", 15, 16, stream=LEGACY)
    story.call("cuda.context.set", 17, 18, context_handle=C1, how=PUSH)
    pushed = story.call("cuda.launch", 19, 20, stream=LEGACY)
    other = story.call("cuda.launch", 21, 22, stream=LEGACY, tid=2)
    told = of(story.run(), made, second, popped, replaced, pushed, other)
    assert told == ["0xc100#1", "0xc200#1", "0xc100#1", "0xc200#1", "0xc100#1", ""]


def test_setting_none_uncovers_the_one_below() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1)
    story.call("cuda.context.create", 3, 4, context_handle=C2)
    story.call("cuda.context.set", 5, 6, how=SET)
    below = story.call("cuda.launch", 7, 8, stream=LEGACY)
    story.call("cuda.context.set", 9, 10, how=SET)
    none = story.call("cuda.launch", 11, 12, stream=LEGACY)
    assert of(story.run(), below, none) == ["0xc100#1", ""]


def test_destroying_the_current_one_takes_it_off() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1)
    story.call("cuda.context.create", 3, 4, context_handle=C2)
    story.call("cuda.context.destroy", 5, 6, context_handle=C1)
    still = story.call("cuda.launch", 7, 8, stream=LEGACY)
    story.call("cuda.context.destroy", 9, 10, context_handle=C2)
    story.call("cuda.context.create", 11, 12, context_handle=C2)
    again = story.call("cuda.launch", 13, 14, stream=LEGACY)
    assert of(story.run(), still, again) == ["0xc200#1", "0xc200#2"]


def test_calls_that_failed_change_nothing() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1)
    story.call("cuda.context.create", 3, 4, result=2)
    story.call("cuda.context.set", 5, 6, context_handle=C2, how=SET, result=201)
    launch = story.call("cuda.launch", 7, 8, stream=LEGACY)
    assert of(story.run(), launch) == ["0xc100#1"]


def test_the_only_context_of_a_process_is_that_of_all_its_threads() -> None:
    story = Story()
    before = story.call("cuda.launch", 1, 2, stream=LEGACY)
    story.call("cuda.context.create", 3, 4, context_handle=C1, primary=1, tid=2)
    after = story.call("cuda.launch", 5, 6, stream=LEGACY)
    elsewhere = story.call("cuda.launch", 7, 8, stream=LEGACY, pid=2, tid=5)
    # An entity has the number of creations so far, so the one from before is told from the one after.
    assert of(story.run(), before, after, elsewhere) == ["0xc100#0", "0xc100#1", ""]


def test_a_primary_context_is_created_by_the_first_that_asks_for_it() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1, primary=1)
    story.call("cuda.context.create", 3, 4, context_handle=C1, primary=1, tid=2)
    launch = story.call("cuda.launch", 5, 6, stream=LEGACY)
    assert of(story.run(), launch) == ["0xc100#1"]


def test_a_stream_stays_in_the_context_in_which_it_was_created() -> None:
    story = Story()
    story.call("cuda.context.create", 1, 2, context_handle=C1)
    story.call("cuda.stream.create", 3, 4, stream=S1)
    story.call("cuda.context.create", 5, 6, context_handle=C2)
    launch = story.call("cuda.event.record", 7, 8, stream=S1, event=0xE100)
    run = story.run()
    assert of(run, launch) == ["0xc100#1"]
    assert run.text(launch, "stream").endswith("/0xc100/0x5100#1")


def two_contexts() -> Story:
    """Thread 1 has the first context, thread 2 the second; each has a stream."""
    story = Story()
    for number, (context, stream) in enumerate(((C1, S1), (C2, S2)), 1):
        story.call("cuda.context.create", 10 * number, 10 * number + 1, context_handle=context, tid=number)
        story.call("cuda.stream.create", 10 * number + 2, 10 * number + 3, stream=stream, tid=number)
    return story


def test_each_context_has_a_legacy_stream_of_its_own() -> None:
    story = two_contexts()
    one, other = (story.call("cuda.launch", 30 + tid, 31 + tid, stream=LEGACY, tid=tid) for tid in (1, 2))
    mine = story.call("cuda.launch", 40, 41, stream=S1)
    run = story.run()
    assert run.text(one, "stream") != run.text(other, "stream")
    assert run.edges("cuda.stream_order") == []
    assert run.edges("cuda.legacy_stream") == [Edge((one, -1), (mine, -1), "finish_start", "bounded")]


@pytest.mark.parametrize(("handle", "expected"), [(0, "one"), (C2, "other")])
def test_a_wait_for_a_context_waits_for_its_streams_alone(handle: int, expected: str) -> None:
    story = two_contexts()
    launches = {name: story.call("cuda.launch", begin, begin + 1, stream=stream, tid=tid)
                for name, begin, stream, tid in (("one", 30, S1, 1), ("other", 32, S2, 2))}  # fmt: skip
    wait = story.call("cuda.context.synchronize", 40, 50, context_handle=handle)
    edge = Edge((launches[expected], -1), (wait,), "finish_finish", "bounded")
    assert story.run().edges("cuda.context_synchronize") == [edge]


def test_a_thread_of_which_no_context_is_known_has_its_legacy_stream_to_itself() -> None:
    story = two_contexts()
    one, other = (story.call("cuda.launch", 30 + tid, 31 + tid, stream=LEGACY, tid=tid) for tid in (3, 4))
    again = story.call("cuda.launch", 40, 41, stream=LEGACY, tid=3)
    wait = story.call("cuda.context.synchronize", 50, 60, tid=3)
    run = story.run()
    assert of(run, one, other, wait) == ["", "", ""]
    assert run.edges("cuda.stream_order") == [Edge((one, -1), (again, -1), "finish_start", "bounded")]
    waited = [Edge((number, -1), (wait,), "finish_finish", "inferred") for number in (other, again)]
    assert run.edges("cuda.context_synchronize") == waited


def test_a_process_of_which_no_context_is_known_has_one() -> None:
    story = Story()
    one, other = (story.call("cuda.launch", tid, tid + 5, stream=LEGACY, tid=tid) for tid in (1, 7))
    wait = story.call("cuda.context.synchronize", 50, 60, tid=3)
    run = story.run()
    assert run.edges("cuda.stream_order") == [Edge((one, -1), (other, -1), "finish_start", "bounded")]
    assert run.edges("cuda.context_synchronize") == [Edge((other, -1), (wait,), "finish_finish", "bounded")]


@pytest.mark.parametrize("others", [0, 1])
def test_the_only_context_that_a_process_names_is_that_of_all_its_calls(others: int) -> None:
    """As when a recording begins after the contexts were made, and waits name theirs."""
    story = Story()
    launch = story.call("cuda.launch", 1, 2, stream=LEGACY)
    wait = story.call("cuda.context.synchronize", 3, 9, context_handle=C1)
    if others:
        story.call("cuda.context.synchronize", 10, 19, context_handle=C2)
    run = story.run()
    expected = [] if others else [Edge((launch, -1), (wait,), "finish_finish", "bounded")]
    assert run.edges("cuda.context_synchronize") == expected
