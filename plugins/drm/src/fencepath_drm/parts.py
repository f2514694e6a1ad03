# SPDX-License-Identifier: Apache-2.0
"""Fences that stand for jobs' fences: points of timelines, and merged ones.

A merged fence is signalled by the last of its members, a point of a timeline by the last of its own fence and those of the
points before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import Events
from fencepath_drm.jobs import Jobs
from fencepath_drm.lookup import at, find

__all__ = ["Parts"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_DEEPEST = 4
"""How far a part may itself have parts: points that hold merged fences, and merges of points."""


class Parts:
    """Which job a fence is of, directly or by its parts."""

    def __init__(self, events: Events, jobs: Jobs) -> None:
        self._jobs = jobs
        self._whole = np.empty(0, np.int64)
        self._job = np.empty(0, np.int64)
        parts = events.batch("drm.fence.part")
        if not len(parts):
            return
        parts = parts.take(np.lexsort((parts["seqno"], _lines(parts))))
        line, gap = _lines(parts), _gaps(parts)
        for _ in range(_DEEPEST):
            before = self._job
            self._whole, self._job = self._last_to_end(parts, line, gap)
            if len(before) and np.array_equal(before, self._job):
                break

    def job_of(self, fence: Ints) -> Ints:
        """Rows of the jobs that fences are of, or that were the last of what they stand for; -1 where none is known."""
        job = self._jobs.find(fence)
        place = np.where(fence != NO_ENTITY, find(self._whole, fence), -1)
        return np.where((job < 0) & (place >= 0), at(self._job, place), job)

    def _last_to_end(self, parts: Batch, line: Ints, gap: Mask) -> tuple[Ints, Ints]:
        """Each fence that has parts, ascending, with its job; -1 where one of the parts is not known to have ended, or not seen.

        A part without a fence never had to be waited for: the kernel has context 0 for those.
        """
        job = self.job_of(parts["part"])
        jobs = self._jobs
        ended = np.where(jobs.signaled >= 0, jobs.signaled, jobs.end)
        end = np.where(job >= 0, at(ended, job), -1)
        # by line, the last to end so far: ranks in place of times, so that a line's number fits beside them
        rank = np.unique(end, return_inverse=True)[1].reshape(-1).astype(np.int64)
        group = np.unique(line, return_inverse=True)[1].reshape(-1).astype(np.int64)
        code = group * np.int64(len(end) + 1) + rank
        holds = np.maximum.accumulate(np.where(code == np.maximum.accumulate(code), np.arange(len(end)), 0))
        unknown = np.cumsum(gap | ((end < 0) & (parts["part"] != NO_ENTITY)))
        first = np.searchsorted(group, group, "left")
        known: Mask = unknown == np.where(first > 0, unknown[first - 1], 0)
        # the last row of each fence has seen all of its parts
        wholes, rows = np.unique(parts["fence"][::-1], return_index=True)
        rows = len(parts) - 1 - rows
        return wholes.astype(np.int64), np.where(known[rows], job[holds[rows]], -1)


def _lines(parts: Batch) -> Ints:
    """What each part is in line with: those of the timeline, else those of the same merged fence."""
    timeline: Ints = parts["context"].astype(np.int64)
    return np.where(parts["is_point"], timeline, -2 - parts["fence"])


def _gaps(parts: Batch) -> Mask:
    """Before which points of timelines there is another that was not seen, as one made before the recording; `parts` are in order."""
    line, seqno = _lines(parts), parts["seqno"].astype(np.uint64)
    same = np.append(False, line[1:] == line[:-1])[: len(line)]
    before = np.where(same, np.append(np.uint64(0), seqno[:-1]), np.uint64(0))
    prev = parts["prev_seqno"]
    # seen twice, the second one stands behind itself
    follows = (prev & np.uint64(0xFFFFFFFF) == before) & (prev != np.iinfo(np.uint64).max)
    return np.asarray(parts["is_point"] & ~(follows | (same & (before == seqno))))
