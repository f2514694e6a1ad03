# SPDX-License-Identifier: Apache-2.0
"""Runs of segments: they are the path, whatever was made one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepath._coalesce import coalesce, thread_number
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.report import Segment

THREADS = ("thread:process:b/1@2#0/7@3", "thread:process:b/1@2#0/8@3", "")


@st.composite
def paths(draw: st.DrawFn) -> list[Segment]:
    at = draw(st.integers(0, 1000))
    found: list[Segment] = []
    for _ in range(draw(st.integers(1, 40))):
        length = draw(st.integers(1, 100))
        thread = draw(st.sampled_from(THREADS))
        found.append(
            Segment(
                start_ns=at,
                end_ns=at + length,
                category=draw(st.sampled_from([Category.API_CALL, Category.DRIVER, Category.RUNQUEUE])),
                phase=draw(st.sampled_from(["none", "decode"])),
                activity=draw(st.sampled_from(["", "launch"])),
                entities=(thread,) if thread else (),
                confidence=draw(st.sampled_from(list(Confidence))),
            )
        )
        at += length
    return found


@settings(max_examples=200, deadline=None)
@given(paths(), st.integers(1, 12), st.booleans())
def test_runs_are_the_path(path: list[Segment], limit: int, across: bool) -> None:
    runs = coalesce(path, limit, across=across)
    assert [segment for run in runs for segment in run.segments] == path
    for run in runs:
        assert run.duration_ns == sum(segment.duration_ns for segment in run.segments) == run.categories.total()
        assert run.category in {segment.category for segment in run.segments}
        assert run.longest in run.segments
        named = Counter[str]()
        for segment in run.segments:
            named[segment.activity] += segment.duration_ns
        del named[""]
        assert run.names == named


@settings(max_examples=200, deadline=None)
@given(paths(), st.integers(1, 12))
def test_across_keeps_to_the_limit(path: list[Segment], limit: int) -> None:
    assert len(coalesce(path, limit, across=True)) <= limit


@settings(max_examples=200, deadline=None)
@given(paths(), st.integers(1, 12))
def test_without_across_a_run_is_of_one_thread_and_phase(path: list[Segment], limit: int) -> None:
    for run in coalesce(path, limit):
        assert len({(segment.entities[:1], segment.phase) for segment in run.segments}) == 1


def row(begin: int, end: int, category: Category, thread: str = THREADS[0]) -> Segment:
    return Segment(start_ns=begin, end_ns=end, category=category, entities=(thread,))


def test_alike_neighbours_are_one_even_if_there_is_room() -> None:
    path = [row(0, 5, Category.DRIVER), row(5, 9, Category.DRIVER), row(9, 10, Category.RUNQUEUE)]
    assert [(run.start_ns, run.end_ns, len(run.segments)) for run in coalesce(path, 100)] == [(0, 9, 2), (9, 10, 1)]


def test_the_shortest_goes_first_and_the_long_ones_stay() -> None:
    path = [
        row(0, 100, Category.DRIVER),
        row(100, 101, Category.RUNQUEUE),
        row(101, 200, Category.DRIVER),
        row(200, 300, Category.API_CALL),
    ]
    runs = coalesce(path, 2)
    assert [(run.start_ns, run.end_ns, run.category) for run in runs] == [
        (0, 200, Category.DRIVER),
        (200, 300, Category.API_CALL),
    ]
    assert runs[0].categories == {Category.DRIVER: 199, Category.RUNQUEUE: 1}


def test_confidence_is_that_of_the_least_sure() -> None:
    path = [
        Segment(start_ns=0, end_ns=9, category=Category.DRIVER, confidence=Confidence.EXACT),
        Segment(start_ns=9, end_ns=10, category=Category.DRIVER, confidence=Confidence.INFERRED),
    ]
    assert coalesce(path, 1)[0].confidence is Confidence.INFERRED


def test_ten_thousand_segments_of_two_threads_take_no_quadratic_time() -> None:
    path = [row(i, i + 1, Category.DRIVER, THREADS[i % 2]) for i in range(10_000)]
    assert len(coalesce(path, 50, across=True)) <= 50


def test_the_number_of_a_thread() -> None:
    assert thread_number("thread:process:b/1@2#0/77@~3") == "77"
    assert thread_number("toy.ring:1") == ""


def test_what_is_shorter_than_said_goes_into_its_thread_whatever_the_phase() -> None:
    path = [
        Segment(start_ns=0, end_ns=2, category=Category.DRIVER, phase="none", entities=(THREADS[0],)),
        Segment(start_ns=2, end_ns=100, category=Category.DRIVER, phase="decode", entities=(THREADS[0],)),
        Segment(start_ns=100, end_ns=102, category=Category.DRIVER, phase="decode", entities=(THREADS[1],)),
    ]
    runs = coalesce(path, 100, least_ns=10)
    assert [(run.start_ns, run.end_ns, run.phase) for run in runs] == [(0, 100, "decode"), (100, 102, "decode")]
