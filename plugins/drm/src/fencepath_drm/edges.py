# SPDX-License-Identifier: Apache-2.0
"""Rules over derived events: from the queue to the ring, from ring to ring, from the ring to whoever waited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fencepath.events import Category
from fencepath.joins import Activities, Confidence, EdgeBatch, GraphRule, Order, View
from fencepath_drm.lookup import at
from fencepath_drm.story import Story

__all__ = ["derived_rules"]

Ints = npt.NDArray[np.int64]


def derived_rules(story: Story) -> Sequence[GraphRule]:
    """Return the rules of one run."""
    return tuple(
        make(story) for make in (ExecuteRule, HoldRule, DependencyRule, RingRule, FenceWaitRule, FenceSleepRule)
    )


class _Rule:
    """What the rules have in common.

    Attributes:
        name: of the rule.
        requires: kinds without which it is off.
    """

    name = ""
    requires: tuple[str, ...] = ("drm.job.queue",)

    def __init__(self, story: Story) -> None:
        self._story = story

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges; see :class:`fencepath.joins.GraphRule`."""
        raise NotImplementedError

    def _executions(self, view: View) -> Activities:
        """Activity of each job's time on its ring, -1 if it has none."""
        return self._spread(view.activities("drm.job.execute"), self._story.executes, len(self._story.jobs))

    def _held(self, view: View) -> Activities:
        """Activity of each job's time of being held up, -1 if it was not."""
        job = self._story.holds.job[self._story.held]
        return self._spread(view.activities("drm.job.hold"), job, len(self._story.jobs))

    def _queued(self, view: View) -> Activities:
        """Activity of each job's queueing, -1 if it was not seen."""
        row, queue = self._story.jobs.queue_row, view.activities("drm.job.queue")
        return np.where(row >= 0, at(queue, row), -1)

    @staticmethod
    def _spread(activities: Activities, rows: Ints, count: int) -> Activities:
        found = np.full(count, -1)
        found[rows] = activities
        return found


class ExecuteRule(_Rule):
    """``drm.execute``: a job's queueing, or what held it up, to its time on the ring."""

    name = "drm.execute"

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each job that began; those of which the queueing was not seen are unmatched."""
        held, effect = self._held(view), self._executions(view)
        cause = np.where(held >= 0, held, self._queued(view))
        return [_edges(cause, effect, Order.FINISH_START, Category.LAUNCH_QUEUE)]


class HoldRule(_Rule):
    """``drm.hold``: a job's queueing to its being held up, which begins there."""

    name = "drm.hold"

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each job that was held up."""
        return [_edges(self._queued(view), self._held(view), Order.START_START, Category.DEPENDENCY)]


class DependencyRule(_Rule):
    """``drm.dependency``: a job to the one that it held up until it was done."""

    name = "drm.dependency"
    requires: tuple[str, ...] = ("drm.job.dependency",)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each dependency on a job; one on a fence that is no job's has none."""
        holds = self._story.holds
        by_job = holds.finished & (holds.cause >= 0)
        executions, held = self._executions(view), self._held(view)
        cause, effect = executions[holds.cause[by_job]], held[holds.job[by_job]]
        edges = _edges(cause, effect, Order.FINISH_FINISH, Category.DEPENDENCY)
        lost = holds.unmatched + holds.unknown
        return [edges, _count(unmatched=lost)] if lost else [edges]


class RingRule(_Rule):
    """``drm.ring``: a job to the next on its ring, which it keeps from beginning.

    Bounded: that the ring runs one job after another is what the order of its completions shows.
    """

    name = "drm.ring"

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each job that had one before it."""
        before, executions = self._story.busy.before, self._executions(view)
        rows = np.flatnonzero(before >= 0)
        effect, cause = executions[rows], executions[before[rows]]
        return [_edges(cause, effect, Order.FINISH_START, Category.LAUNCH_QUEUE, Confidence.BOUNDED)]


class FenceWaitRule(_Rule):
    """``drm.fence_wait``: a job to the wait in the kernel for its fence."""

    name = "drm.fence_wait"
    requires: tuple[str, ...] = ("drm.fence.wait",)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each wait for a job that was done by then; waits for other fences are unmatched."""
        waits = view.batch("drm.fence.wait")
        job, end = self._story.parts.job_of(waits["fence"]), waits["time_ns"].astype(np.int64)
        return [self._completions(view, view.activities("drm.fence.wait"), job, end, Confidence.EXACT)]

    def _completions(self, view: View, effect: Activities, job: Ints, end: Ints, confidence: Confidence) -> EdgeBatch:
        cause = np.where(job >= 0, at(self._executions(view), job), -1)
        # a wait may have been given up before
        early = (cause >= 0) & (at(self._story.busy.end, job) > end)
        return _edges(cause, np.where(early, -1, effect), Order.FINISH_FINISH, Category.FENCE_WAIT, confidence)


class FenceSleepRule(FenceWaitRule):
    """``drm.fence_sleep``: a job to the sleep that the signal of its fence ended; inferred where nearness alone says so."""

    name = "drm.fence_sleep"
    requires: tuple[str, ...] = ("drm.fence.signaled", "host.switch")

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each sleep."""
        sleeps, effect = self._story.sleeps, view.activities("drm.fence.sleep")
        return [
            self._completions(view, effect[rows], sleeps.job[rows], sleeps.end[rows], confidence)
            for rows, confidence in ((sleeps.exact, Confidence.EXACT), (~sleeps.exact, Confidence.INFERRED))
        ]


def _edges(
    cause: Activities, effect: Activities, order: Order, gap: Category, confidence: Confidence = Confidence.EXACT
) -> EdgeBatch:
    """Edges where both are known; an effect without a cause is unmatched."""
    both = (cause >= 0) & (effect >= 0)
    return EdgeBatch(
        cause=cause[both],
        effect=effect[both],
        order=order,
        confidence=confidence,
        gap=gap,
        unmatched=int(np.count_nonzero((cause < 0) & (effect >= 0))),
    )


def _count(*, unmatched: int) -> EdgeBatch:
    """No edges, but a count."""
    none = np.empty(0, np.int64)
    return EdgeBatch(
        cause=none,
        effect=none,
        order=Order.FINISH_FINISH,
        confidence=Confidence.EXACT,
        gap=Category.DEPENDENCY,
        unmatched=unmatched,
    )
