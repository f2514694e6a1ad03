# SPDX-License-Identifier: Apache-2.0
"""Jobs, joined from their events by the finished fence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_drm.lookup import at, find, first

__all__ = ["NEVER", "Jobs"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEVER = -1
"""In place of a time: it was not seen."""


class Jobs:
    """One row a job that a target's thread queued, or that was seen to run. Times are CLOCK_MONOTONIC in ns.

    Attributes:
        fence: entity of the finished fence, ascending; each once.
        queued: when it was queued, or NEVER (the record was lost).
        queue_row: row of ``drm.job.queue``, -1 if there is none.
        run: when it was handed to the hardware, for the first time if it was resubmitted.
        run_row: row of ``drm.job.run``, likewise.
        done: when the driver said that it is done.
        signaled: when its finished fence was signalled.
        ring: entity of its ring, or NO_ENTITY.
        gpu: likewise.
        process: who queued it.
    """

    def __init__(self, events: Events) -> None:
        queue, run = events.batch("drm.job.queue"), events.batch("drm.job.run")
        self.fence = np.unique(np.concatenate([batch["fence"] for batch in (queue, run)]))
        self.fence = self.fence[self.fence != NO_ENTITY]
        self.queue_row, self.queued = self._first(events, "drm.job.queue")
        self.run_row, self.run = self._first(events, "drm.job.run")
        self.done = self._first(events, "drm.job.done")[1]
        self.signaled = self._first(events, "drm.fence.signaled")[1]
        self.ring, self.gpu, self.process = (
            np.where(self.queue_row >= 0, at(queue[name], self.queue_row), NO_ENTITY)
            for name in ("ring", "gpu", "process")
        )
        self.context, self.seqno = self._names(events)

    def __len__(self) -> int:
        return len(self.fence)

    @property
    def end(self) -> Ints:
        """When a job ended: as the driver says, else when its fence was signalled, as that of a cancelled job is."""
        return np.where(self.done >= 0, self.done, self.signaled)

    @property
    def cancelled(self) -> Mask:
        """Jobs that ended without having run, as those of a killed process."""
        return (self.run < 0) & (self.end >= 0)

    def find(self, fence: Ints) -> Ints:
        """Rows of jobs by their fences; -1 where there is none."""
        return np.where(fence != NO_ENTITY, find(self.fence, fence), -1)

    def _first(self, events: Events, kind: str) -> tuple[Ints, Ints]:
        batch = events.batch(kind)
        fences, rows = first(batch["fence"])
        row = find(fences, self.fence)
        row = np.where(row >= 0, at(rows, row), -1)
        return row, np.where(row >= 0, at(batch["time_ns"].astype(np.int64), row), NEVER)

    def _names(self, events: Events) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        queue, run = events.batch("drm.job.queue"), events.batch("drm.job.run")
        context, seqno = (
            np.where(self.queue_row >= 0, at(queue[name], self.queue_row), at(run[name], self.run_row)).astype(
                np.uint64
            )
            for name in ("fence_context", "fence_seqno")
        )
        return context, seqno
