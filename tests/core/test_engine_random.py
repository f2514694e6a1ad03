# SPDX-License-Identifier: Apache-2.0
"""Properties of paths over random recordings: exact sums, independence of the order of records, and an oracle."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.synthetic import Story, plugins

from fencepath._engine.timeline import innermost
from fencepath.analysis import Analysis
from fencepath.events import Category
from fencepath.report import Report

THREADS = (7, 8, 9, 10)
END = 2000
few = settings(max_examples=40, deadline=None)
randoms = st.integers(0, 2**32).map(random.Random)


@contextmanager
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Times:
    """Hands out times that were not used before, so that the order of records is never a matter of taste."""

    def __init__(self, rng: random.Random) -> None:
        self._free = list(range(1, END))
        rng.shuffle(self._free)

    def take(self, count: int) -> list[int]:
        taken, self._free = self._free[:count], self._free[count:]
        return sorted(taken)


def chaos(rng: random.Random) -> Story:
    """Anything at any time: calls that overlap as no stack does, wake-ups of running threads, edges back in time."""
    story, times = Story(), Times(rng)
    for number in range(rng.randint(1, 3)):
        begin, end = times.take(2)
        story.request(f"r{number}", begin, end, rng.choice(THREADS), end_tid=rng.choice(THREADS))
    for _ in range(rng.randint(0, 60)):
        begin, middle, end = times.take(3)
        tid, other = rng.choice(THREADS), rng.choice(THREADS)
        fence, ring = rng.randint(0, 5), rng.randint(0, 2)
        what = rng.randrange(9)
        if what == 0:
            story.call("call", begin, end, tid, fence=fence)
        elif what == 1:
            story.wait(begin, end, tid, fence=fence)
        elif what == 2:
            story.copy(begin, end, tid, fence=fence)
        elif what in (3, 4):
            story.job(begin, end, fence=max(1, fence), ring=ring)
        elif what == 5:
            story.entry("entry", begin, tid, fence=fence)
        elif what == 6:
            story.sleep(tid, begin, middle, end, by=rng.choice((None, other)))
        elif what == 7:
            story.preempt(tid, begin, end)
        else:
            story.fork(begin, tid, other)
    if rng.random() < 0.3:
        begin, end = times.take(2)
        story.loss(rng.choice(("sched.switch", "toy.job", "")), begin, end, 3)
    return story


def check_sums(report: Report) -> None:
    for request in report.requests:
        path = request.path
        assert path.segments[0].start_ns == path.start_ns == request.start_ns
        assert path.segments[-1].end_ns == path.end_ns == request.end_ns
        for left, right in zip(path.segments, path.segments[1:], strict=False):
            assert left.end_ns == right.start_ns
        assert all(segment.duration_ns > 0 for segment in path.segments)
        assert sum(path.by_category_ns.values()) == request.end_ns - request.start_ns
        assert sum(path.by_confidence_ns.values()) == request.end_ns - request.start_ns


@few
@given(randoms)
def test_segments_follow_each_other_and_add_up_whatever_happened(rng: random.Random) -> None:
    with folder() as path:
        analysis = chaos(rng).analysis(path)
        report = analysis.report()
        assert report.problems == ()
        assert report.requests
        check_sums(report)


@few
@given(randoms)
def test_the_order_in_which_records_were_written_does_not_matter(rng: random.Random) -> None:
    with folder() as path:
        story = chaos(rng)
        orderly = Analysis(story.write(path / "a.fencepath"), plugins()).report()
        shuffled = Analysis(story.write(path / "b.fencepath", shuffled=rng), plugins()).report()
        assert orderly.requests == shuffled.requests
        assert orderly.joins == shuffled.joins


@few
@given(randoms)
def test_ids_of_activities_are_unique_and_the_same_in_every_run(rng: random.Random) -> None:
    with folder() as path:
        story = chaos(rng)
        tables = [
            Analysis(story.write(path / "a.fencepath"), plugins()).table,
            Analysis(story.write(path / "b.fencepath", shuffled=rng), plugins()).table,
        ]
        first, second = ([table.id(activity) for activity in range(len(table))] for table in tables)
        assert len(set(first)) == len(first)
        assert first == second


@few
@given(randoms)
def test_without_the_scheduler_nothing_is_said_that_only_the_scheduler_knows(rng: random.Random) -> None:
    with folder() as path:
        recording = chaos(rng).write(path / "a.fencepath")
        report = Analysis(recording, plugins(), without=["sched"]).report()
        check_sums(report)
        categories = {segment.category for request in report.requests for segment in request.path.segments}
        assert not categories & {
            Category.HOST_COMPUTE,
            Category.RUNQUEUE,
            Category.BLOCKED,
            Category.UNEXPLAINED,
        }


KEEPS = {"wait": Category.DEVICE_WAIT, "copy": Category.TRANSFER}


class Life:
    """One thread: calls inside each other, and what the scheduler did, each known for every nanosecond."""

    def __init__(self, rng: random.Random, tid: int) -> None:
        self.story = Story()
        self.calls: list[tuple[int, int, str]] = []
        self.state = ["running"] * END
        self._rng, self._tid = rng, tid
        self.story.request("r", 0, END, tid)
        self._nest(0, END, 0)
        at = 0
        while (at := at + rng.randint(1, 300)) < END - 60:
            at = self._off_cpu(at)

    def _nest(self, low: int, high: int, depth: int) -> None:
        at = low
        while depth < 4 and (at := at + self._rng.randint(1, 400)) < high - 2:
            end = self._rng.randint(at + 1, high - 1)
            name = self._rng.choice(("call", "wait", "copy"))
            self.calls.append((at, end, name))
            {"call": self._call, "wait": self.story.wait, "copy": self.story.copy}[name](at, end, self._tid)
            self._nest(at, end, depth + 1)
            at = end

    def _call(self, begin: int, end: int, tid: int) -> None:
        self.story.call("call", begin, end, tid)

    def _off_cpu(self, at: int) -> int:
        woken, runs = at + self._rng.randint(1, 30), at + self._rng.randint(31, 59)
        if self._rng.random() < 0.5:
            self.story.preempt(self._tid, at, runs)
            self.state[at:runs] = ["preempted"] * (runs - at)
        else:
            self.story.sleep(self._tid, at, woken, runs)
            self.state[at:woken] = ["blocked"] * (woken - at)
            self.state[woken:runs] = ["woken"] * (runs - woken)
        return runs

    def category(self, at: int, *, sched: bool) -> Category:
        """What the thread did in the nanosecond from `at`, by the definition."""
        inside = [call for call in self.calls if call[0] <= at < call[1]]
        innermost_call = min(inside, key=lambda call: call[1] - call[0])[2] if inside else ""
        if not sched:
            return KEEPS.get(innermost_call, Category.API_CALL if inside else Category.NOT_OBSERVED)
        state = self.state[at]
        if state == "woken" or (state == "preempted" and innermost_call not in KEEPS):
            return Category.RUNQUEUE
        if innermost_call in KEEPS:
            return KEEPS[innermost_call]
        if state == "blocked":
            return Category.BLOCKED
        return Category.API_CALL if inside else Category.HOST_COMPUTE


@pytest.mark.parametrize("sched", [True, False])
@few
@given(rng=randoms)
def test_one_thread_is_split_as_the_definition_says_nanosecond_by_nanosecond(rng: random.Random, sched: bool) -> None:
    life = Life(rng, THREADS[0])
    with folder() as path:
        analysis = life.story.analysis(path, without=[] if sched else ["sched"])
        found = analysis.report().requests[0].path.segments
    spread = [segment.category for segment in found for _ in range(segment.duration_ns)]
    assert spread == [life.category(at, sched=sched) for at in range(END)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=12))
def test_flattening_names_the_innermost_at_every_moment(found: list[tuple[int, int]]) -> None:
    """A child that outlasts its parent is cut at the parent's end: apply that first, then the latest begun wins."""
    rows = sorted(((b, b + d) for b, d in found), key=lambda row: (row[0], -row[1]))
    expected: dict[int, int] = {}
    cut: list[tuple[int, int]] = []
    for number, (begin, end) in enumerate(rows):
        around = [other for other in cut if other[0] <= begin < other[1]]
        cut.append((begin, min([end, *(other[1] for other in around)])))
        for at in range(*cut[-1]):
            expected[at] = number
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(2)]
    begins, ends, activities = innermost(columns[0], columns[1], np.arange(len(rows)))
    slices = zip(begins.tolist(), ends.tolist(), activities.tolist(), strict=True)
    assert {at: activity for begin, end, activity in slices for at in range(begin, end)} == expected
    assert (begins[1:] >= ends[:-1]).all()
