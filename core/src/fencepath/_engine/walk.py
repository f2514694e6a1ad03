# SPDX-License-Identifier: Apache-2.0
"""The walk: from a request's end back along what arrived last, to the one chain that set its latency.

The walk holds a thread or a device activity, and a time. On a thread it goes back through the slices of the thread's
timeline (program order) until an edge from elsewhere arrived later than the slice began: a wake-up at the end of a
blocked slice, the completion of what a wait waited for, which binds at the moment the cause finished if that lies
inside the wait, or an edge to an activity's begin before which nothing is known of the thread. What the thread then still did before the wait returned (it waited for a CPU, an interrupt ran) keeps
its own category; what remains of the wait gets the edge's gap category. On a device activity the edge with the latest
source time is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import ActivityTable, category_code
from fencepath._engine.edges import FINISH_FINISH, EdgeTable
from fencepath._engine.runstate import RunStates
from fencepath._engine.timeline import ThreadTimeline, Timelines
from fencepath.entities import NO_ENTITY
from fencepath.errors import FencepathError
from fencepath.events import Category

__all__ = ["FORK_RULE", "WAKE_RULE", "PathColumns", "Walker"]

Ints = npt.NDArray[np.int64]

WAKE_RULE = "core.wake"
FORK_RULE = "core.fork"
_BLOCKED = category_code(Category.BLOCKED)
_INTERRUPT = category_code(Category.INTERRUPT)
NO_RULE = -1


class PathColumns(NamedTuple):
    """A path's segments, ascending, each an array of shape (n,).

    ``rule`` indexes :attr:`Walker.rules`, -1 for none; ``activity`` and ``thread`` are -1 where there is none.
    """

    begin: Ints
    end: Ints
    category: Ints
    activity: Ints
    thread: Ints
    confidence: Ints
    rule: Ints
    error: Ints
    ambiguous: Ints


class _Jump(NamedTuple):
    """An edge by which a walk can leave a thread at `time`, when its cause finished. `edge` is < 0 for wake-ups."""

    time: int
    cause: int
    edge: int
    effect: int


class _Builder:
    """Collects segments from the end backwards."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.parts: list[tuple[Ints, ...]] = []
        self.arrived: tuple[int, int, int, int] | None = None

    def add(
        self,
        begin: Ints,
        end: Ints,
        category: Ints,
        activity: Ints,
        thread: int,
        confidence: Ints,
        rule: Ints,
        error: int = 0,
        ambiguous: bool = False,
    ) -> None:
        keep = end > begin
        if not keep.any():
            return
        rule = rule[keep]
        ambiguous_column = np.full(len(rule), int(ambiguous))
        confidence, errors = confidence[keep], np.full(len(rule), error)
        if self.arrived is not None:
            # an edge without a gap is named by the segment it leads to, the last in time, which is no surer than the edge
            arrived_rule, arrived_confidence, arrived_error, arrived_ambiguous = self.arrived
            if rule[-1] == NO_RULE:
                rule[-1], errors[-1], ambiguous_column[-1] = arrived_rule, arrived_error, arrived_ambiguous
                confidence[-1] = max(int(confidence[-1]), arrived_confidence)
            self.arrived = None
        size = len(rule)
        self.parts.append(
            (
                begin[keep],
                end[keep],
                category[keep],
                activity[keep],
                np.full(size, thread),
                confidence,
                rule,
                errors,
                ambiguous_column,
            )
        )

    def one(
        self,
        begin: int,
        end: int,
        category: int,
        activity: int,
        thread: int,
        confidence: int,
        rule: int,
        error: int = 0,
        ambiguous: bool = False,
    ) -> None:
        begin = max(begin, self.start)
        if end <= begin:
            return
        row = [np.array([value], np.int64) for value in (begin, end, category, activity, confidence, rule)]
        self.add(row[0], row[1], row[2], row[3], thread, row[4], row[5], error, ambiguous)

    def columns(self) -> PathColumns:
        if not self.parts:
            empty = np.empty(0, np.int64)
            return PathColumns(*([empty] * 9))
        return PathColumns(*(np.concatenate(column) for column in zip(*reversed(self.parts), strict=True)))


class Walker:
    """Walks the paths of one run.

    Attributes:
        rules: names of rules, indexed by a path's ``rule``.
    """

    def __init__(
        self,
        table: ActivityTable,
        edges: EdgeTable,
        timelines: Timelines,
        states: RunStates,
        births: Callable[[int], tuple[int, int] | None],
        error_ns: int,
    ) -> None:
        self._table = table
        self._edges = edges
        self._timelines = timelines
        self._states = states
        self._births = births
        self._error_ns = error_ns
        self.rules = (*edges.rules, WAKE_RULE, FORK_RULE)
        self._wake_rule = self.rules.index(WAKE_RULE)
        self._fork_rule = self.rules.index(FORK_RULE)
        self._jumps: dict[int, list[_Jump]] = {}
        self._completion = edges.completions(table)

    def path(self, thread: int, start_ns: int, end_ns: int) -> PathColumns:
        """Walk from (`thread`, `end_ns`) back to `start_ns`; segments add up to their difference exactly.

        Raises:
            FencepathError: they do not, which is a fault of this program.
        """
        builder = _Builder(start_ns)
        used: set[int] = set()
        time_ns, activity = end_ns, -1
        while time_ns > start_ns:
            if activity >= 0:
                thread, time_ns, activity = self._from_activity(builder, activity, time_ns, used)
            elif thread == NO_ENTITY:
                builder.one(start_ns, time_ns, self._timelines.gap, -1, NO_ENTITY, 0, NO_RULE)
                break
            else:
                thread, time_ns, activity = self._from_thread(builder, thread, time_ns, used)
        path = builder.columns()
        if int((path.end - path.begin).sum()) != end_ns - start_ns or (path.begin[1:] != path.end[:-1]).any():
            raise FencepathError(
                f"the segments of a path add up to {int((path.end - path.begin).sum())} ns, not {end_ns - start_ns} ns"
            )
        return path

    def _arrive(self, cause: int, source: int) -> tuple[int, int, int]:
        thread = int(self._table.thread[cause])
        return (thread, source, -1) if thread != NO_ENTITY else (NO_ENTITY, source, cause)

    def _from_thread(self, builder: _Builder, thread: int, time_ns: int, used: set[int]) -> tuple[int, int, int]:
        timeline = self._timelines.of(thread)
        jump, ambiguous = self._latest_jump(thread, timeline, time_ns, builder.start, used)
        if jump is None:
            return self._to_birth(builder, thread, timeline, time_ns, used)
        used.add(jump.edge)
        named = self._slices(builder, thread, timeline, jump.time, time_ns, jump)
        if ambiguous or not named:
            error = int(self._edges.error[jump.edge]) if jump.edge >= 0 else 0
            confidence = int(self._edges.confidence[jump.edge]) if jump.edge >= 0 else 0
            builder.arrived = (self._rule_of(jump), confidence, error, int(ambiguous))
        return self._arrive(jump.cause, jump.time)

    def _to_birth(
        self, builder: _Builder, thread: int, timeline: ThreadTimeline, time_ns: int, used: set[int]
    ) -> tuple[int, int, int]:
        """No edge is left: go back to the thread's creation, if that was seen and lies within the request."""
        birth_ns, parent = self._births(thread) or (builder.start, NO_ENTITY)
        edge = -2 - len(self._table) - thread
        follow = builder.start < birth_ns <= time_ns and parent not in (NO_ENTITY, thread) and edge not in used
        self._slices(builder, thread, timeline, birth_ns if follow else builder.start, time_ns, None)
        if not follow:
            return thread, builder.start, -1
        used.add(edge)
        builder.arrived = (self._fork_rule, 0, 0, 0)
        return parent, birth_ns, -1

    def _slices(
        self, builder: _Builder, thread: int, timeline: ThreadTimeline, low: int, high: int, jump: _Jump | None
    ) -> bool:
        """Add what the thread did between two times; time outside its timeline has no evidence.

        Returns:
            Whether some of it is the rest of the wait that `jump` ended, and so carries its rule.
        """
        low = max(low, builder.start)
        if not len(timeline.begin):
            builder.one(low, high, self._timelines.gap, -1, thread, 0, NO_RULE)
            return False
        first, last = int(timeline.begin[0]), int(timeline.end[-1])
        builder.one(max(last, low), high, self._timelines.gap, -1, thread, 0, NO_RULE)
        i = max(0, int(np.searchsorted(timeline.begin, low, "right")) - 1)
        j = int(np.searchsorted(timeline.begin, min(high, last), "left"))
        named = j > i and self._evidence(builder, thread, timeline, slice(i, j), (low, high), jump)
        builder.one(low, min(first, high), self._timelines.gap, -1, thread, 0, NO_RULE)
        return named

    def _evidence(
        self,
        builder: _Builder,
        thread: int,
        timeline: ThreadTimeline,
        rows: slice,
        window: tuple[int, int],
        jump: _Jump | None,
    ) -> bool:
        begin = np.maximum(timeline.begin[rows], window[0])
        end = np.minimum(timeline.end[rows], window[1])
        category, confidence = timeline.category[rows].copy(), timeline.confidence[rows].copy()
        activity, rule = timeline.activity[rows], np.full(len(begin), NO_RULE)
        named = False
        if jump is not None and jump.edge >= 0:
            if int(self._edges.order[jump.edge]) == FINISH_FINISH:
                own = (activity == jump.effect) & (category == self._table.category[jump.effect]) & (end > begin)
            else:
                own = (category == self._timelines.gap) & (end > begin) & (end <= self._table.begin[jump.effect])
            category[own] = self._edges.gap[jump.edge]
            rule[own] = self._edges.rule[jump.edge]
            confidence[own] = np.maximum(confidence[own], self._edges.confidence[jump.edge])
            named = bool(own.any())
        self._name_waits(activity, category, confidence, rule)
        builder.add(begin, end, category, activity, thread, confidence, rule)
        return named

    def waited_for(self, activity: int) -> int:
        """The work with bounds for times that an activity is known to have waited for, -1 if none is known."""
        edge = int(self._completion[activity])
        return int(self._edges.cause[edge]) if edge >= 0 else -1

    def _name_waits(self, activity: Ints, category: Ints, confidence: Ints, rule: Ints) -> None:
        """Say by which rule a wait is known to have waited for work whose times are bounds, and how surely."""
        edge = np.where(activity >= 0, self._completion[activity], -1) if len(self._completion) else activity
        waits = (activity >= 0) & (edge >= 0) & (rule == NO_RULE) & (category == self._table.category[activity])
        rule[waits] = self._edges.rule[edge[waits]]
        confidence[waits] = np.maximum(confidence[waits], self._edges.confidence[edge[waits]])

    def _latest_jump(
        self, thread: int, timeline: ThreadTimeline, time_ns: int, start_ns: int, used: set[int]
    ) -> tuple[_Jump | None, bool]:
        jumps = self._jumps_of(thread)
        index = _last_at_or_before(jumps, time_ns)
        while index >= 0 and jumps[index].time > start_ns:
            jump = jumps[index]
            if jump.edge not in used and self._binds(timeline, jump):
                rival = (
                    index > 0
                    and jump.time - jumps[index - 1].time <= self._error_ns
                    and jumps[index - 1].cause != jump.cause
                )
                return jump, rival and self._binds(timeline, jumps[index - 1])
            index -= 1
        return None, False

    def _binds(self, timeline: ThreadTimeline, jump: _Jump) -> bool:
        """A wake-up binds only if the thread was blocked for a reason that nothing else explains; edges as they order."""
        if jump.edge >= 0:
            return int(self._edges.order[jump.edge]) == FINISH_FINISH or self._starts(timeline, jump)
        index = timeline.ending_at(jump.time)
        return index >= 0 and int(timeline.category[index]) == _BLOCKED

    def _starts(self, timeline: ThreadTimeline, jump: _Jump) -> bool:
        """An edge to an activity's begin binds if nothing is known of the thread between the edge's source and that begin.

        Where something is known, what the thread did last is what the activity had to wait for.
        """
        index = timeline.ending_at(int(self._table.begin[jump.effect]))
        if index < 0:
            return True
        return int(timeline.category[index]) == self._timelines.gap and int(timeline.begin[index]) <= jump.time

    def _jumps_of(self, thread: int) -> list[_Jump]:
        found = self._jumps.get(thread)
        if found is None:
            found = self._jumps[thread] = sorted([*self._wake_jumps(thread), *self._edge_jumps(thread)])
        return found

    def _wake_jumps(self, thread: int) -> list[_Jump]:
        """Wake-ups by other threads of targets.

        One made in interrupt context has no thread, and of a thread that is nobody's target nothing is known: the walk
        stays with the thread that slept, which says more than a chain that ends there.
        """
        times, wakes = self._states.wakes(thread)
        wakers = self._table.thread[wakes]
        rows = np.flatnonzero((wakers != NO_ENTITY) & (wakers != thread))
        rows = np.array([row for row in rows.tolist() if self._states.follows(int(wakers[row]))], np.int64)
        return [_Jump(int(times[row]), int(wakes[row]), -2 - int(wakes[row]), -1) for row in rows.tolist()]

    def _edge_jumps(self, thread: int) -> list[_Jump]:
        edges, table = self._edges, self._table
        into = edges.into_thread(thread)
        effect, cause, source = edges.effect[into], edges.cause[into], edges.source[into]
        finish = edges.order[into] == FINISH_FINISH
        within = np.where(finish, source > table.begin[effect], source <= table.begin[effect])
        bind = (
            within
            & edges.timed[into]
            & (table.thread[cause] != thread)
            & (edges.back[into] == 0)
            & self._leads_on(cause)
        )
        return [
            _Jump(int(source[i]), int(cause[i]), int(into[i]), int(effect[i])) for i in np.flatnonzero(bind).tolist()
        ]

    def _leads_on(self, cause: Ints) -> npt.NDArray[np.bool_]:
        """Whether a walk that arrives at an activity can explain time: in a thread, or as work of a device.

        An instant without a thread (a wake-up by an interrupt) or the interrupt itself would end the path there, and lose
        what the waiting thread's own timeline says.
        """
        category = self._table.category[cause]
        leads: npt.NDArray[np.bool_] = (self._table.thread[cause] != NO_ENTITY) | (
            (category >= 0) & (category != _INTERRUPT)
        )
        return leads

    def _rule_of(self, jump: _Jump) -> int:
        return int(self._edges.rule[jump.edge]) if jump.edge >= 0 else self._wake_rule

    def _from_activity(self, builder: _Builder, activity: int, time_ns: int, used: set[int]) -> tuple[int, int, int]:
        table, edges = self._table, self._edges
        category = int(table.category[activity])
        category = category if category >= 0 else self._timelines.gap
        into = edges.into(activity)
        usable = (
            edges.timed[into]
            & (edges.back[into] == 0)
            & (edges.arrival[into] <= time_ns)
            & (edges.source[into] <= time_ns)
        )
        finish = edges.order[into] == FINISH_FINISH
        usable &= ~finish | (edges.source[into] > table.begin[activity])
        usable &= np.array([edge not in used for edge in into.tolist()], bool)
        if not usable.any():
            begin = int(table.begin[activity])
            builder.one(
                min(begin, time_ns), time_ns, category, activity, NO_ENTITY, int(table.confidence[activity]), NO_RULE
            )
            return NO_ENTITY, min(max(begin, builder.start), time_ns), -1
        into = into[usable]
        order = np.argsort(edges.source[into], kind="stable")
        edge = int(into[order[-1]])
        ambiguous = len(order) > 1 and int(edges.source[edge] - edges.source[into[order[-2]]]) <= self._error_ns
        used.add(edge)
        source, arrival = int(edges.source[edge]), int(edges.arrival[edge])
        rule, confidence, error = int(edges.rule[edge]), int(edges.confidence[edge]), int(edges.error[edge])
        builder.one(arrival, time_ns, category, activity, NO_ENTITY, int(table.confidence[activity]), NO_RULE)
        if source < arrival:
            builder.one(
                source,
                min(arrival, time_ns),
                int(edges.gap[edge]),
                activity,
                NO_ENTITY,
                confidence,
                rule,
                error,
                ambiguous,
            )
        else:
            builder.arrived = (rule, confidence, error, int(ambiguous))
        return self._arrive(int(edges.cause[edge]), min(source, time_ns))


def _last_at_or_before(jumps: list[_Jump], time_ns: int) -> int:
    low, high = 0, len(jumps)
    while low < high:
        middle = (low + high) // 2
        if jumps[middle].time <= time_ns:
            low = middle + 1
        else:
            high = middle
    return low - 1
