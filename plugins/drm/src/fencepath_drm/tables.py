# SPDX-License-Identifier: Apache-2.0
"""The layer's tables of the report: rings, processes, clients, requests, vertical blanks, and what could not be joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import View
from fencepath.plugin import AttributeValue, TableRule
from fencepath.requests import Request
from fencepath_drm.busy import Busy
from fencepath_drm.client_tables import Clients, Engines
from fencepath_drm.holds import Holds
from fencepath_drm.jobs import Jobs
from fencepath_drm.lookup import at, find, first, latest
from fencepath_drm.parts import Parts

__all__ = ["tables"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Row = Mapping[str, AttributeValue | None]


def tables() -> Sequence[TableRule]:
    """Return the tables of one report."""
    return (Rings(), Processes(), Clients(), Engines(), Requests(), Vblanks(), Unmatched())


class _Measured:
    """Times of all jobs, in ns; 0 where there is none."""

    def __init__(self, view: View) -> None:
        self.jobs = Jobs(view)
        self.busy = Busy(self.jobs, view.extent_ns[1])
        self.parts = Parts(view, self.jobs)
        self.holds = Holds(view, self.jobs, self.parts)
        jobs, busy = self.jobs, self.busy
        begun = busy.begin >= 0
        self.execute = np.where(begun, busy.end - busy.begin, 0)
        self.wait = np.where(begun & (jobs.queued >= 0), busy.begin - jobs.queued, 0)
        self.held = np.zeros(len(jobs), np.int64)
        job, until = self.holds.job[self.holds.binding], self.holds.until[self.holds.binding]
        self.held[job] = until - jobs.queued[job]
        self.wake = self._wakes(view)

    def _wakes(self, view: View) -> Ints:
        """From the end of a job to the end of the last wait for it."""
        found = np.zeros(len(self.jobs), np.int64)
        for kind in ("drm.fence.wait", "drm.fence.sleep"):
            waits = view.batch(kind)
            job = self.parts.job_of(waits["fence"])
            end = waits["time_ns"].astype(np.int64)
            done = at(self.jobs.end, job)
            good = (job >= 0) & (done >= 0) & (end >= done) & (waits["begin_ns"].astype(np.int64) <= done)
            np.maximum.at(found, job[good], (end - done)[good])
        return found

    def sums(self, rows: Mask) -> dict[str, AttributeValue | None]:
        """What is said of some jobs."""
        jobs = self.jobs
        return {
            "jobs": int(rows.sum()),
            "cancelled": int((rows & jobs.cancelled).sum()),
            "not_ended": int((rows & (jobs.end < 0)).sum()),
            "queue_ns": int((self.wait - self.held)[rows].sum()),
            "dependency_ns": int(self.held[rows].sum()),
            "execute_ns": int(self.execute[rows].sum()),
            "signal_to_wake_ns": int(self.wake[rows].sum()),
        }


class Rings:
    """Utilisation of each ring."""

    name = "rings"
    title = "what each ring did: jobs of the recorded processes, and how much of the time it was busy with them"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a ring, the busiest first."""
        del requests
        measured, queue = _Measured(view), view.batch("drm.job.queue")
        jobs, extent = measured.jobs, max(1, view.extent_ns[1] - view.extent_ns[0])
        rings, where = first(jobs.ring)
        rows: list[Row] = []
        for ring, job in zip(rings.tolist(), where.tolist(), strict=True):
            if ring == NO_ENTITY:
                continue
            mine = jobs.ring == ring
            busy = _union(measured.busy, mine)
            record = int(jobs.queue_row[job])
            rows.append(
                {
                    "device": str(queue["dev"][record]) or None,
                    "ring": str(queue["ring_name"][record]),
                    "busy_ns": busy,
                    "utilisation": busy / extent,
                    "most_queued": int(np.max(queue["job_count"][jobs.queue_row[mine]])),
                    **measured.sums(mine),
                }
            )
        return sorted(rows, key=lambda row: -int(row["busy_ns"] or 0))


class Processes:
    """Where the time of each process's jobs went."""

    name = "processes"
    title = "where the time of each process's jobs went, summed over jobs that overlap"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a process and client, the one with most device time first."""
        del requests
        measured, queue = _Measured(view), view.batch("drm.job.queue")
        jobs = measured.jobs
        tgid = np.where(jobs.queue_row >= 0, at(queue["tgid"].astype(np.int64), jobs.queue_row), -1)
        client = np.where(jobs.queue_row >= 0, at(queue["client_id"].astype(np.int64), jobs.queue_row), 0)
        rows: list[Row] = [
            {
                "pid": pid if pid >= 0 else None,
                "client": number or None,
                **measured.sums((tgid == pid) & (client == number)),
            }
            for pid, number in sorted(set(zip(tgid.tolist(), client.tolist(), strict=True)))
        ]
        return sorted(rows, key=lambda row: -int(row["execute_ns"] or 0))


class Requests:
    """Where the time of the jobs went that were queued during a request."""

    name = "requests"
    title = "where the time of the jobs went that a request's process queued during it, also for others"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a request, in their order; none where there was no job."""
        measured = _Measured(view)
        jobs = measured.jobs
        if not len(jobs):
            return []
        process = _processes(view)
        rows: list[Row] = []
        for request in requests:
            mine = (jobs.queued >= request.start_ns) & (jobs.queued <= request.end_ns)
            owners = [process[thread] for thread in (request.start_thread, request.end_thread) if thread in process]
            mine &= np.isin(jobs.process, owners)
            rows.append({"request": request.id, **measured.sums(mine)})
        return rows


class Vblanks:
    """Latency of the delivery of vertical blanks."""

    name = "vblank"
    title = "from the request to be told of a frame to the frame, and from the hardware's time to the delivery"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a pipe."""
        del requests
        queued, blanks, delivered = (view.batch(f"drm.vblank.{name}") for name in ("queued", "event", "delivered"))
        frame = delivered["crtc"].astype(np.int64) << 32 | delivered["seq"].astype(np.int64)
        frames, rows = first(blanks["crtc"].astype(np.int64) << 32 | blanks["seq"].astype(np.int64))
        blank = find(frames, frame)
        hardware = np.where(blank >= 0, at(blanks["vblank_ns"], at(rows, blank)), -1)
        times = delivered["time_ns"].astype(np.int64)
        asked = _asked(queued, delivered)
        table: list[Row] = []
        for crtc in np.unique(delivered["crtc"]).tolist():
            timed = (delivered["crtc"] == crtc) & (hardware > 0)
            waited = timed & (asked >= 0)
            table.append(
                {
                    "crtc": crtc,
                    "delivered": int((delivered["crtc"] == crtc).sum()),
                    "with_hardware_time": int(timed.sum()),
                    "target_wait_mean_ns": _mean((hardware - asked)[waited & (hardware >= asked)]),
                    "delivery_mean_ns": _mean((times - hardware)[timed]),
                    "delivery_most_ns": int((times - hardware)[timed].max()) if timed.any() else None,
                }
            )
        return table


class Unmatched:
    """What could not be joined."""

    name = "unmatched"
    title = "what could not be joined, and how much of it there is"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row for each thing that is not as it should be."""
        del requests
        measured = _Measured(view)
        return [{"what": what, "count": count} for what, count in self._counts(view, measured) if count]

    @staticmethod
    def _counts(view: View, measured: _Measured) -> Iterator[tuple[str, int]]:
        jobs, holds = measured.jobs, measured.holds
        declared = view.batch("drm.job.dependency")
        waits = view.batch("drm.fence.wait")
        yield "jobs that ran, of which the queueing was not seen", int((jobs.queued < 0).sum())
        yield "jobs that ran and must have ended, of which no end was seen", int(measured.busy.lost.sum())
        yield "jobs that had not ended", int((jobs.end < 0).sum() - measured.busy.lost.sum())
        yield "jobs that were cancelled before they ran", int(jobs.cancelled.sum())
        ambiguous = int((declared["candidates"] > 1).sum())
        yield "dependencies that may be of several jobs", ambiguous
        yield "dependencies of jobs that were not seen", max(0, holds.unmatched - ambiguous)
        yield "dependencies of which nothing says when they were there", holds.unknown
        yield "waits for fences that are no recorded job's", int((measured.parts.job_of(waits["fence"]) < 0).sum())


def _union(busy: Busy, rows: Mask) -> int:
    """Time in which at least one of some jobs had its ring."""
    begin, end = busy.begin[rows & (busy.begin >= 0)], busy.end[rows & (busy.begin >= 0)]
    if not len(begin):
        return 0
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reach = np.concatenate([[begin[0]], np.maximum.accumulate(end)[:-1]])
    return int(np.maximum(0, end - np.maximum(begin, reach)).sum())


def _processes(view: View) -> dict[int, int]:
    """Process of each thread that did anything."""
    found: dict[int, int] = {}
    for kind in view.kinds:
        batch = view.batch(kind)
        threads, rows = first(batch["thread"])
        found.update(zip(threads.tolist(), batch["process"][rows].tolist(), strict=True))
    found.pop(NO_ENTITY, None)
    return found


def _asked(queued: Batch, delivered: Batch) -> Ints:
    """When each delivered event was asked for, -1 if that was not seen: a page flip's is not."""
    if not len(queued):
        return np.full(len(delivered), -1)
    codes: list[Ints] = [np.zeros(len(batch), np.int64) for batch in (queued, delivered)]
    for column in ("file", "crtc", "seq"):
        values, part = np.unique(np.concatenate([queued[column], delivered[column]]), return_inverse=True)
        both = np.concatenate(codes) * len(values) + part.reshape(-1)
        both = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64)
        codes = [both[: len(queued)], both[len(queued) :]]
    times = [batch["time_ns"].astype(np.int64) for batch in (queued, delivered)]
    row = latest(codes[0], times[0], codes[1], times[1])
    return np.where((row >= 0) & (times[0][row] <= times[1]), times[0][row], -1)


def _mean(values: Ints) -> int | None:
    return int(values.mean()) if len(values) else None
