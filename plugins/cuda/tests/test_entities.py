# SPDX-License-Identifier: Apache-2.0
"""Streams and CUDA events keep their names while handles are destroyed and handed out again."""

from __future__ import annotations

from plugins.cuda.tests.story import LEGACY, PER_THREAD, Story

from fencepath.records import Flags

HANDLE = 0x7F00


def test_a_handle_handed_out_again_is_another_stream() -> None:
    story = Story()
    before = story.call("cuda.launch", 1, 2, stream=HANDLE)
    first = story.call("cuda.stream.create", 3, 5, stream=HANDLE)
    used = story.call("cuda.launch", 6, 7, stream=HANDLE)
    destroyed = story.call("cuda.stream.destroy", 8, 9, stream=HANDLE)
    second = story.call("cuda.stream.create", 10, 12, stream=HANDLE)
    again = story.call("cuda.launch", 13, 14, stream=HANDLE)
    run = story.run()
    texts = [run.text(number, "stream") for number in (before, first, used, destroyed, second, again)]
    assert [text.rsplit("#", 1)[1] for text in texts] == ["0", "1", "1", "1", "2", "2"]
    assert texts[0] == "cuda.stream:process:boot/1@?#0/-/0x7f00#0"


def test_a_failed_or_unseen_creation_creates_nothing() -> None:
    story = Story()
    failed = story.call("cuda.stream.create", 1, 2, stream=HANDLE, result=2)
    entry_only = story.call("cuda.stream.create", 3, stream=0)
    running = story.call("cuda.stream.create", 5, 90, stream=0, flags=int(Flags.TASK | Flags.OPEN))
    used = story.call("cuda.launch", 6, 7, stream=HANDLE)
    run = story.run()
    assert [run.text(number, "stream") for number in (failed, entry_only, running)] == ["", "", ""]
    assert run.text(used, "stream").endswith("/0x7f00#0")


def test_a_failed_destruction_ends_nothing() -> None:
    story = Story()
    story.call("cuda.event.create", 1, 2, event=HANDLE)
    story.call("cuda.event.destroy", 3, 4, event=HANDLE, result=400)
    used = story.call("cuda.event.synchronize", 5, 6, event=HANDLE)
    assert story.run().text(used, "event") == "cuda.event:process:boot/1@?#0/0x7f00#1"


def test_default_streams_are_the_process_and_the_thread() -> None:
    story = Story()
    legacy = [story.call("cuda.launch", time, time + 1, tid=tid, stream=LEGACY) for time, tid in ((1, 1), (3, 2))]
    own = [story.call("cuda.launch", time, time + 1, tid=tid, stream=PER_THREAD) for time, tid in ((5, 1), (7, 2))]
    none = story.call("cuda.malloc", 9, 10)
    run = story.run()
    assert {run.text(number, "stream") for number in legacy} == {"cuda.stream:process:boot/1@?#0/-/0x1#0"}
    assert [run.text(number, "stream").split("/-/")[1] for number in own] == ["0x2/1#0", "0x2/2#0"]
    assert run.text(none, "stream") == ""


def test_processes_do_not_share_handles() -> None:
    story = Story()
    story.call("cuda.event.create", 1, 2, pid=1, event=HANDLE)
    one = story.call("cuda.event.record", 3, 4, pid=1, event=HANDLE, stream=LEGACY)
    other = story.call("cuda.event.record", 5, 6, pid=2, tid=2, event=HANDLE, stream=LEGACY)
    run = story.run()
    assert run.text(one, "event").endswith("/0x7f00#1")
    assert run.text(other, "event").endswith("/0x7f00#0")
    assert run.text(one, "stream") != run.text(other, "stream")


def test_a_call_that_names_two_cuda_events_has_both() -> None:
    story = Story()
    story.call("cuda.event.create", 1, 2, event=HANDLE)
    elapsed = story.call("cuda.event.elapsed", 3, 4, event=HANDLE, end_event_handle=0x7F80)
    run = story.run()
    assert run.text(elapsed, "event").endswith("/0x7f00#1")
    assert run.text(elapsed, "end_event").endswith("/0x7f80#0")
