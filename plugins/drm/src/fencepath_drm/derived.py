# SPDX-License-Identifier: Apache-2.0
"""What follows from the recorded events: jobs on their rings, jobs held up, threads that slept for a fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, Column
from fencepath.joins import Events, GraphRule
from fencepath.records import Flags
from fencepath_drm.busy import Busy
from fencepath_drm.edges import derived_rules
from fencepath_drm.holds import Holds
from fencepath_drm.jobs import NEVER, Jobs
from fencepath_drm.lookup import at
from fencepath_drm.parts import Parts
from fencepath_drm.sleeps import Sleeps
from fencepath_drm.story import Story

__all__ = ["DrmDerived"]

Ints = npt.NDArray[np.int64]

EXECUTE, HOLD, SLEEP = "drm.job.execute", "drm.job.hold", "drm.fence.sleep"


class DrmDerived:
    """Implements :class:`fencepath.joins.Derived`."""

    kinds = (EXECUTE, HOLD, SLEEP)

    def __init__(self) -> None:
        self._story = Story()

    def derive(self, events: Events, entities: Entities) -> Sequence[Batch]:
        """Join the jobs, and return what they and their waiters did."""
        del entities
        jobs = Jobs(events)
        busy = Busy(jobs, _last_ns(events))
        story = self._story
        story.jobs, story.busy, story.parts = jobs, busy, Parts(events, jobs)
        story.holds = Holds(events, jobs, story.parts)
        story.sleeps = _sleeps(events, jobs, story.parts)
        _forget_ends_that_may_be_lost(events, jobs, busy)
        story.executes = _by_end(np.flatnonzero(busy.begin >= 0), busy.end)
        story.held = _by_end(np.flatnonzero(story.holds.binding), story.holds.until)
        return [self._executions(events), self._holds(), self._sleeping()]

    def rules(self) -> Sequence[GraphRule]:
        """Return the rules over what was derived."""
        return derived_rules(self._story)

    def _executions(self, events: Events) -> Batch:
        jobs, busy, rows = self._story.jobs, self._story.busy, self._story.executes
        labels, label = _ring_labels(events, jobs, rows)
        columns = {
            **_head(busy.begin[rows], busy.end[rows], np.where(busy.is_open[rows], int(Flags.OPEN), 0)),
            **_of_jobs(jobs, rows),
            "label": label,
            "fence_context": jobs.context[rows],
            "fence_seqno": jobs.seqno[rows],
        }
        return Batch(EXECUTE, columns, labels)

    def _holds(self) -> Batch:
        jobs, holds, rows = self._story.jobs, self._story.holds, self._story.held
        job = holds.job[rows]
        head = _head(jobs.queued[job], holds.until[rows], np.zeros(len(rows), np.int64))
        return Batch(HOLD, {**head, **_of_jobs(jobs, job), "dependency": holds.fence[rows]})

    def _sleeping(self) -> Batch:
        sleeps = self._story.sleeps
        columns: dict[str, Column] = {
            **_head(sleeps.begin, sleeps.end, np.full(len(sleeps.end), int(Flags.TASK))),
            "tgid": sleeps.tgid.astype(np.uint32),
            "tid": sleeps.tid.astype(np.uint32),
            "thread": sleeps.thread,
            "process": sleeps.process,
            "fence": sleeps.fence,
        }
        return Batch(SLEEP, columns)


def _head(begin: Ints, end: Ints, flags: Ints) -> dict[str, Column]:
    """Columns of every event; nobody's, until somebody says otherwise."""
    rows = len(begin)
    return {
        "time_ns": end.astype(np.uint64),
        "begin_ns": begin.astype(np.uint64),
        "tgid": np.zeros(rows, np.uint32),
        "tid": np.zeros(rows, np.uint32),
        "cpu": np.zeros(rows, np.uint16),
        "flags": flags.astype(np.uint32),
        "thread": np.full(rows, NO_ENTITY),
    }


def _of_jobs(jobs: Jobs, rows: Ints) -> Mapping[str, Column]:
    return {name: getattr(jobs, name)[rows] for name in ("fence", "ring", "gpu", "process")}


def _by_end(rows: Ints, end: Ints) -> Ints:
    return rows[np.argsort(end[rows], kind="stable")]


def _last_ns(events: Events) -> int:
    return max((int(events.batch(kind)["time_ns"][-1]) for kind in events.kinds), default=0)


def _sleeps(events: Events, jobs: Jobs, parts: Parts) -> Sleeps:
    """Sleeps that are not already in a wait of which the kernel said that it is for a job's fence."""
    sleeps = Sleeps(events, jobs, parts)
    waits = events.batch("drm.fence.wait")
    sleeps.keep(np.flatnonzero(~sleeps.within(waits.take(parts.job_of(waits["fence"]) >= 0))))
    return sleeps


def _forget_ends_that_may_be_lost(events: Events, jobs: Jobs, busy: Busy) -> None:
    """A job that seems to run still may have ended in a moment of which records were lost: then nothing is said of it."""
    windows = events.lost("drm.job.done", "drm.fence.signaled")
    if len(windows):
        doubtful = busy.is_open & (jobs.run < int(windows[:, 1].max()))
        busy.is_open[doubtful], busy.lost[doubtful] = False, True
        busy.begin[doubtful] = busy.end[doubtful] = NEVER


def _ring_labels(events: Events, jobs: Jobs, rows: Ints) -> tuple[tuple[str, ...], Column]:
    """What to call jobs: their ring's name."""
    queue_row = jobs.queue_row[rows]
    names = events.batch("drm.job.queue")["ring_name"]
    texts, code = np.unique(names.astype("U"), return_inverse=True)
    label = np.where(queue_row >= 0, at(code.reshape(-1), queue_row), len(texts))
    return (*(f"job on {text}" for text in texts.tolist()), "job"), label.astype(np.int32)
