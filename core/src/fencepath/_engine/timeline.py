# SPDX-License-Identifier: Apache-2.0
"""What each thread did at each moment: the innermost activity, split by the scheduler's evidence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import ActivityTable, category_code
from fencepath._engine.runstate import RunState, RunStates
from fencepath.entities import NO_ENTITY
from fencepath.events import Category

__all__ = ["ThreadTimeline", "Timelines"]

Ints = npt.NDArray[np.int64]

_KEEP_WHEN_BLOCKED = np.array(
    [
        category_code(category)
        for category in (
            Category.DEVICE_WAIT, Category.FENCE_WAIT, Category.TRANSFER, Category.DRIVER, Category.DEPENDENCY,
            Category.COLLECTIVE_WAIT, Category.ADMISSION_QUEUE, Category.SLEEP, Category.PAGE_FAULT,
            Category.BLOCKED_LOCK, Category.BLOCKED_IO, Category.BLOCKED_IPC,
        )
    ]
)  # fmt: skip
"""Categories that already say what is waited for; a blocked thread within another is just blocked."""


class ThreadTimeline:
    """Slices of one thread, ascending, without gap.

    Attributes:
        begin: begins, shape (n,), CLOCK_MONOTONIC in ns.
        end: ends; ``end[i] == begin[i + 1]``.
        activity: innermost activity or -1.
        category: category codes.
        confidence: 0 exact, 1 bounded.
    """

    def __init__(self, begin: Ints, end: Ints, activity: Ints, category: Ints, confidence: Ints) -> None:
        self.begin = begin
        self.end = end
        self.activity = activity
        self.category = category
        self.confidence = confidence

    def ending_at(self, time_ns: int) -> int:
        """Index of the slice with begin < time <= end; -1 if the timeline does not cover it."""
        index = int(np.searchsorted(self.begin, time_ns, "left")) - 1
        return index if index >= 0 and time_ns <= int(self.end[index]) else -1


class Timelines:
    """Timelines of all threads, made when asked for.

    Attributes:
        gap: category of time for which there is no evidence: not_observed when no scheduler events were recorded.
    """

    def __init__(self, table: ActivityTable, states: RunStates) -> None:
        self._table = table
        self._states = states
        self.gap = category_code(Category.UNEXPLAINED if states.observed else Category.NOT_OBSERVED)
        lasting = np.flatnonzero((table.thread != NO_ENTITY) & (table.end >= table.begin))
        order = np.lexsort((-table.end[lasting], table.begin[lasting], table.thread[lasting]))
        self._rows = lasting[order]
        self._thread = table.thread[self._rows]
        self._extent = (int(table.begin.min()), int(table.end.max())) if len(table) else (0, 0)
        self._cache: dict[int, ThreadTimeline] = {}

    def of(self, thread: int) -> ThreadTimeline:
        """Return the timeline of a thread, as far as there is evidence of what it did."""
        found = self._cache.get(thread)
        if found is None:
            found = self._cache[thread] = self._make(thread)
        return found

    def _make(self, thread: int) -> ThreadTimeline:
        table = self._table
        rows = self._rows[
            np.searchsorted(self._thread, thread, "left") : np.searchsorted(self._thread, thread, "right")
        ]
        times, states = self._states.states(thread)
        evidence = np.concatenate([table.begin[rows], table.end[rows], times[1:]])
        if not len(evidence):
            empty = np.empty(0, np.int64)
            return ThreadTimeline(empty, empty, empty, empty, empty)
        lasting = rows[(table.category[rows] >= 0) & (table.end[rows] > table.begin[rows])]
        begin, end, activity = innermost(table.begin[lasting], table.end[lasting], lasting)
        first, last = int(evidence.min()), int(evidence.max())
        if self._states.observed and self._states.follows(thread):
            # no switch is evidence too: the thread went on as it was from the begin of the recording to its end
            first, last = min(first, self._extent[0]), max(last, self._extent[1])
        return self._overlay(first, last, (begin, end, activity), (times, states))

    def _overlay(
        self, first: int, last: int, slices: tuple[Ints, Ints, Ints], run: tuple[Ints, Ints]
    ) -> ThreadTimeline:
        begin, end, activity = slices
        times, states = run
        losses = [edge for window in self._states.lost for edge in window]
        cuts = _distinct(np.concatenate([[first, last], begin, end, times, np.array(losses, np.int64)]))
        cuts = cuts[(cuts >= first) & (cuts <= last)]
        if len(cuts) == 1:
            cuts = np.repeat(cuts, 2)
        at = cuts[:-1]
        state = states[np.searchsorted(times, at, "right") - 1]
        for from_ns, to_ns in self._states.lost:
            state = np.where((at >= from_ns) & (at < to_ns), int(RunState.UNKNOWN), state)
        inner = np.full(len(at), -1, np.int64)
        if len(begin):
            index = np.searchsorted(begin, at, "right") - 1
            inside = (index >= 0) & (at < end[index])
            inner[inside] = activity[index[inside]]
        category = self._categories(inner, state)
        confidence = np.where(inner >= 0, self._table.confidence[inner], 0).astype(np.int64)
        new = np.ones(len(at), np.bool_)
        new[1:] = (inner[1:] != inner[:-1]) | (category[1:] != category[:-1])
        begin = at[new]
        return ThreadTimeline(begin, np.append(begin[1:], cuts[-1]), inner[new], category[new], confidence[new])

    def _categories(self, inner: Ints, state: Ints) -> Ints:
        by_state = np.array(
            [
                self.gap,
                category_code(Category.HOST_COMPUTE),
                category_code(Category.RUNQUEUE),
                category_code(Category.RUNQUEUE),
                category_code(Category.BLOCKED),
            ]
        )
        own = self._table.category[inner].astype(np.int64)
        keeps = np.isin(own, _KEEP_WHEN_BLOCKED)
        within = np.where((state == RunState.BLOCKED) & ~keeps, by_state[RunState.BLOCKED], own)
        off_cpu = (state == RunState.WOKEN) | ((state == RunState.PREEMPTED) & ~keeps)
        within = np.where(off_cpu, by_state[RunState.WOKEN], within)
        return np.where(inner >= 0, within, by_state[state])


def innermost(begin: Ints, end: Ints, activity: Ints) -> tuple[Ints, Ints, Ints]:
    """Flatten intervals of one thread, sorted by (begin, -end), to slices that name the innermost one.

    A child that outlasts its parent (a bound, or a call that was open) is cut at the parent's end.
    """
    if not len(begin):
        return begin, end, activity
    alone = _touch_nothing(begin, end)
    if alone.all():
        return begin, end, activity
    nested = _flatten(begin[~alone], end[~alone], activity[~alone])
    begin, end, activity = (
        np.concatenate([column[alone], flat]) for column, flat in zip((begin, end, activity), nested, strict=True)
    )
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order], activity[order]


def _touch_nothing(begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Which intervals, sorted by begin, overlap no other: nearly all, and they need no flattening."""
    reach = np.maximum.accumulate(end)
    starts = np.ones(len(begin) + 1, np.bool_)
    starts[1:-1] = begin[1:] >= reach[:-1]
    return starts[:-1] & starts[1:]


def _distinct(times: Ints) -> Ints:
    """Sorted times, each once. They come as a few ascending runs, which a stable sort merges."""
    ordered = np.sort(times, kind="stable")
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def _flatten(begin: Ints, end: Ints, activity: Ints) -> tuple[Ints, Ints, Ints]:
    slices: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []
    now = 0
    for b, e, a in zip(begin.tolist(), end.tolist(), activity.tolist(), strict=True):
        while stack and stack[-1][0] <= b:
            until, inner = stack.pop()
            if until > now:
                slices.append((now, until, inner))
                now = until
        if stack and b > now:
            slices.append((now, b, stack[-1][1]))
        now = b
        stack.append((min(e, stack[-1][0]) if stack else e, a))
    while stack:
        until, inner = stack.pop()
        if until > now:
            slices.append((now, until, inner))
            now = until
    columns = np.array(slices, np.int64).reshape(-1, 3)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()
