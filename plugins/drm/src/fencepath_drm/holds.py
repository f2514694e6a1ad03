# SPDX-License-Identifier: Apache-2.0
"""What held queued jobs up: dependencies that were there only after the job was queued.

That a job depends on a fence does not mean that it waited for it; the time at which the fence was signalled tells. A
dependency on a job of the same scheduler is there as soon as that job was handed to the hardware, which keeps the order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_drm.jobs import NEVER, Jobs
from fencepath_drm.lookup import at, find, first
from fencepath_drm.parts import Parts

__all__ = ["Holds"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Holds:
    """Dependencies that held jobs up, one row each.

    Attributes:
        job: row of the job.
        fence: entity of the dependency.
        cause: row of the job that it is of or stands for, -1 if it is none's.
        until: when the dependency was there.
        finished: whether that was the end of the job `cause`, and not its hand-over.
        binding: whether it was the last of its job.
        unknown: dependencies of which nothing says when they were there.
        unmatched: dependencies of no known job, or of one of several.
    """

    def __init__(self, events: Events, jobs: Jobs, parts: Parts) -> None:
        job, fence, pipelined = _dependencies(events, jobs)
        self.unmatched = int(np.count_nonzero(job < 0))
        known = job >= 0
        job, fence, pipelined = job[known], fence[known], pipelined[known]
        cause = parts.job_of(fence)
        ring = at(jobs.ring, job)
        early = (jobs.find(fence) >= 0) & (pipelined | ((ring == at(jobs.ring, cause)) & (ring >= 0)))
        until = _signals(events, fence)
        until = np.where((until < 0) & (cause >= 0), at(jobs.end, cause), until)
        until = np.where(early, at(jobs.run, cause), until)
        self.unknown = int(np.count_nonzero(until < 0))
        queued, run = at(jobs.queued, job), at(jobs.run, job)
        held = (queued >= 0) & (until > queued) & ((run < 0) | (until <= run))
        order = np.flatnonzero(held)
        order = order[np.lexsort((until[order], job[order]))]
        self.job, self.fence, self.cause = job[order], fence[order], cause[order]
        self.until, self.finished = until[order], ~early[order]
        self.binding = np.concatenate([self.job[1:] != self.job[:-1], np.ones(min(1, len(self.job)), np.bool_)])


def _dependencies(events: Events, jobs: Jobs) -> tuple[Ints, Ints, Mask]:
    """Job, fence, and whether it is the scheduled fence; each pair once, the surest evidence first."""
    blocked, declared = events.batch("drm.job.blocked"), events.batch("drm.job.dependency")
    named = declared["dependency"] != NO_ENTITY
    job = jobs.find(np.concatenate([blocked["fence"], declared["fence"][named]]))
    fence = np.concatenate([blocked["dependency"], declared["dependency"][named]])
    pipelined = np.concatenate([blocked["pipelined"], np.zeros(int(named.sum()), np.bool_)])
    span = np.int64(int(fence.max(initial=0)) + 2)
    _, rows = np.unique(np.where(job >= 0, (job + 1) * span + fence + 1, -1 - np.arange(len(job))), return_index=True)
    return job[rows], fence[rows], pipelined[rows]


def _signals(events: Events, fence: Ints) -> Ints:
    """When fences were signalled; NEVER if that was not seen."""
    signaled = events.batch("drm.fence.signaled")
    fences, rows = first(signaled["fence"])
    place = find(fences, fence)
    times = signaled["time_ns"].astype(np.int64)
    return np.where((place >= 0) & (fence != NO_ENTITY), at(times, at(rows, place)), NEVER)
