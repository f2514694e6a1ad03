# SPDX-License-Identifier: Apache-2.0
"""When each job had its ring.

A job is handed over while the ring is still busy with those before it, so it begins when it was handed over or when the
one before was done, whichever came last. That holds where a ring runs its jobs one after another. Several schedulers can
have one name (every queue of xe has the name of its engine), and before they are told apart by anything else they show
by overtaking: then each fence context, whose jobs never overtake one another, is taken as a ring of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath_drm.jobs import NEVER, Jobs

__all__ = ["Busy"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Busy:
    """Busy time of jobs.

    Attributes:
        lane: what runs one job after another: a ring, or one context of it; any number.
        begin: when a job began, or NEVER.
        end: when it ended; the end of the recording for a job that has not.
        before: row of the job that was done last before, in the same lane; -1 if there is none.
        is_open: jobs that had begun and were not done.
        lost: jobs that ran and must have ended, as later ones of their lane did, but of whose end nothing was seen.
    """

    def __init__(self, jobs: Jobs, until_ns: int) -> None:
        ended = jobs.end >= 0
        ran = jobs.run >= 0
        self.lane = _lanes(jobs, ran & ended)
        self.begin = np.full(len(jobs), NEVER)
        self.end = np.full(len(jobs), NEVER)
        self.before = np.full(len(jobs), -1)
        self.is_open = np.zeros(len(jobs), np.bool_)
        self.lost = np.zeros(len(jobs), np.bool_)
        order = np.flatnonzero(ran)[np.lexsort((jobs.run[ran], self.lane[ran]))]
        if len(order):
            self._fill(jobs, order, ended[order], until_ns)

    def _fill(self, jobs: Jobs, order: Ints, ended: Mask, until_ns: int) -> None:
        """Work all of it out; `order` is by lane and hand-over."""
        position = np.arange(len(order))
        lane = self.lane[order]
        starts = np.flatnonzero(np.concatenate([[True], lane[1:] != lane[:-1]]))
        group = np.searchsorted(starts, position, "right") - 1
        before = _last_to_end(np.where(ended, jobs.end[order], NEVER), group, starts[group])
        last_ended = np.maximum.reduceat(np.where(ended, position, -1), starts)[group]
        # of those that follow it only the first can have begun
        leading = position == np.maximum(last_ended + 1, starts[group])
        has = ended | leading
        stop = np.where(ended, jobs.end[order], until_ns)
        # one that was done before the one before it did not wait for it
        before = np.where((before >= 0) & (jobs.end[order][before] <= stop), before, -1)
        reach = np.where(before >= 0, jobs.end[order][before], NEVER)
        self.begin[order] = np.where(has, np.minimum(np.maximum(jobs.run[order], reach), stop), NEVER)
        self.end[order] = np.where(has, stop, NEVER)
        self.before[order] = np.where(has & (before >= 0), order[before], -1)
        self.is_open[order] = leading & ~ended
        self.lost[order] = ~ended & (position < last_ended)


def _lanes(jobs: Jobs, complete: Mask) -> Ints:
    """A number for each job: its ring, or its context where jobs of the ring overtook one another."""
    context = np.unique(jobs.context, return_inverse=True)[1].reshape(-1).astype(np.int64)
    rings = np.unique(jobs.ring, return_inverse=True)[1].reshape(-1).astype(np.int64)
    rows = np.flatnonzero(complete)[np.lexsort((jobs.run[complete], rings[complete]))]
    back = (rings[rows[1:]] == rings[rows[:-1]]) & (jobs.end[rows[1:]] < jobs.end[rows[:-1]])
    apart = np.isin(rings, rings[rows[1:]][back]) | (jobs.ring < 0)
    return np.where(apart, context + len(jobs), rings)


def _last_to_end(end: Ints, group: Ints, start: Ints) -> Ints:
    """For each row that one of its group before it that ended last; -1 if none did."""
    # ranks in place of times, so that the number of a group fits beside them
    rank = np.unique(end, return_inverse=True)[1].reshape(-1).astype(np.int64)
    code = group * np.int64(len(end) + 1) + rank
    holds = np.where(code == np.maximum.accumulate(code), np.arange(len(end)), 0)
    before = np.concatenate([[-1], np.maximum.accumulate(holds)[:-1]]).astype(np.int64)
    return np.where((before >= start) & (end[before] >= 0), before, -1)
