# SPDX-License-Identifier: Apache-2.0
"""A path of thousands of segments as a few runs that a person or a tracing backend can look at.

For display only. A run is what follows one another, so runs add up to the path as exactly as its segments do, and a run of
different things knows the share of each.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.report import Segment

__all__ = ["Run", "coalesce", "thread_number", "thread_of"]

_THREAD = re.compile(r"thread:.*/(\d+)@[^/]*")
_NO_LIMIT = 1 << 63
_CONFIDENCES = (Confidence.EXACT, Confidence.BOUNDED, Confidence.INFERRED)


class Run:
    """Neighbouring segments of a path shown as one.

    Attributes:
        categories: their time in ns, by category.
        names: their time in ns, by activity; segments without one are left out.
        phases: their time in ns, by phase.
    """

    def __init__(self, path: Sequence[Segment], index: int) -> None:
        segment = path[index]
        self._path = path
        self._first = index
        self._last = index
        self.categories: Counter[Category] = Counter({segment.category: segment.duration_ns})
        self.names: Counter[str] = Counter({segment.activity: segment.duration_ns} if segment.activity else {})
        self.phases: Counter[str] = Counter({segment.phase: segment.duration_ns})

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, ascending, at least one."""
        return self._path[self._first : self._last + 1]

    @property
    def start_ns(self) -> int:
        """Begin."""
        return self._path[self._first].start_ns

    @property
    def end_ns(self) -> int:
        """End."""
        return self._path[self._last].end_ns

    @property
    def duration_ns(self) -> int:
        """Length."""
        return self.end_ns - self.start_ns

    @property
    def category(self) -> Category:
        """The one that took most of the time; of equal ones the first."""
        return self.categories.most_common(1)[0][0]

    @property
    def name(self) -> str:
        """The activity that took most of the time; "" if there is none in the run."""
        return self.names.most_common(1)[0][0] if self.names else ""

    @property
    def longest(self) -> Segment:
        """The longest segment of the category that took most of the time."""
        return max((s for s in self.segments if s.category is self.category), key=lambda s: s.duration_ns)

    @property
    def confidence(self) -> Confidence:
        """The least sure of all."""
        return max((segment.confidence for segment in self.segments), key=_CONFIDENCES.index)

    @property
    def thread(self) -> str:
        """Text of the thread of the first segment; "" if that is none's, as on a device."""
        return thread_of(self._path[self._first])

    @property
    def phase(self) -> str:
        """The phase that took most of the time."""
        return self.phases.most_common(1)[0][0]

    def take(self, following: Run) -> None:
        """Become one with the run that follows."""
        self._last = following._last
        self.categories += following.categories
        self.names += following.names
        self.phases += following.phases


_Fits: TypeAlias = Callable[[Run, Run], bool]


def thread_of(segment: Segment) -> str:
    """Return the text of the thread a segment is on, "" if it is on none."""
    first = segment.entities[0] if segment.entities else ""
    return first if first.startswith("thread:") else ""


def thread_number(text: str) -> str:
    """Return the tid in a thread's text, "" if it is no thread."""
    match = _THREAD.fullmatch(text)
    return match[1] if match else ""


def coalesce(segments: Sequence[Segment], limit: int, *, across: bool = False, least_ns: int = 0) -> list[Run]:
    """Return runs: at most `limit` of them if that can be done.

    Neighbours that are alike are always one run. While there are too many, the shortest run is taken into its shorter
    neighbour, but only within a thread and a phase unless `across` is true.

    Args:
        segments: of one path, ascending.
        limit: how many runs there may be.
        across: keep to the limit even if runs of several threads and phases come of it.
        least_ns: runs shorter than this are taken into a neighbour of the same thread, whatever its phase, even if there
            is room.
    """
    runs = _merge_alike([Run(segments, index) for index in range(len(segments))])
    runs = _shrunk(runs, limit, _same_place)
    runs = _shrunk(runs, 1, _same_thread, least_ns)
    return _shrunk(runs, limit, _anything) if across else runs


def _shrunk(runs: list[Run], limit: int, fits: _Fits, below_ns: int = _NO_LIMIT) -> list[Run]:
    return _merge_alike(_Shrinking(runs).to(limit, fits, below_ns)) if len(runs) > limit else runs


def _anything(left: Run, right: Run) -> bool:
    del left, right
    return True


def _same_thread(left: Run, right: Run) -> bool:
    return left.thread == right.thread


def _same_place(left: Run, right: Run) -> bool:
    return left.thread == right.thread and left.phase == right.phase


def _alike(left: Run, right: Run) -> bool:
    return _same_place(left, right) and left.category is right.category and left.name == right.name


def _merge_alike(runs: Sequence[Run]) -> list[Run]:
    merged: list[Run] = []
    for run in runs:
        if merged and _alike(merged[-1], run):
            merged[-1].take(run)
        else:
            merged.append(run)
    return merged


class _Shrinking:
    """Runs as a linked list, from which the shortest are taken by a heap."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs: list[Run | None] = list(runs)
        self._before = list(range(-1, len(runs) - 1))
        self._after = [*range(1, len(runs)), -1]

    def to(self, limit: int, fits: _Fits, below_ns: int) -> list[Run]:
        """Merge the shortest runs, as long as they are shorter than `below_ns`, into neighbours that fit."""
        heap = [(run.duration_ns, index) for index, run in enumerate(self._runs) if run]
        heapq.heapify(heap)
        left = len(heap)
        while left > limit and heap:
            length, index = heapq.heappop(heap)
            if length >= below_ns:
                break
            run = self._runs[index]
            if run is None or run.duration_ns != length:
                continue
            kept = self._merge(index, fits)
            if kept is not None:
                left -= 1
                heapq.heappush(heap, (self._of(kept).duration_ns, kept))
        return [run for run in self._runs if run]

    def _of(self, index: int) -> Run:
        run = self._runs[index]
        assert run is not None
        return run

    def _merge(self, index: int, fits: _Fits) -> int | None:
        """Merge a run with a neighbour; return the index under which they go on, None if none fits."""
        near = [
            other
            for other in (self._before[index], self._after[index])
            if other >= 0 and fits(self._of(other), self._of(index))
        ]
        if not near:
            return None
        other = min(near, key=lambda neighbour: self._of(neighbour).duration_ns)
        first, second = min(index, other), max(index, other)
        self._of(first).take(self._of(second))
        self._runs[second] = None
        self._after[first] = self._after[second]
        if self._after[second] >= 0:
            self._before[self._after[second]] = first
        return first
