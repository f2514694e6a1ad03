# SPDX-License-Identifier: Apache-2.0
"""Threads that slept until the signal of a fence woke them, from the scheduler's events of the layer ``host``.

Which signal a wake-up came from is recorded (``drm.fence.wake``) where the kernel shows the addresses of its functions. Where
it does not, nearness must do: a waiter is woken by the code that signals its fence, on the same CPU and with the same thread
interrupted, right after the signal's event. Either way it is found wherever it waits: in a driver, for a syncobj, on a
sync_file in poll.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import Events
from fencepath_drm.jobs import Jobs
from fencepath_drm.lookup import at, contains, latest
from fencepath_drm.parts import Parts

__all__ = ["LONGEST_NS", "Sleeps"]

Ints = npt.NDArray[np.int64]

LONGEST_NS = 1_000_000
"""From a signal to the last wake-up that it makes; more than a slow machine needs for a few callbacks."""

_BITS = 32


class Sleeps:
    """Sleeps that ended so, one row each, by the time of the wake-up. Times are CLOCK_MONOTONIC in ns.

    Attributes:
        begin: when the thread left its CPU.
        end: when it was woken.
        job: row of the job that woke it, -1 if it is not known.
        fence: entity of the fence: the job's if that is known.
        exact: whether the signal said so itself, and the fence is the job's or known to stand for it.
        thread: who slept.
        process: its process.
        tid: its number.
        tgid: its process's.
    """

    def __init__(self, events: Events, jobs: Jobs, parts: Parts) -> None:
        wakes, signal, said = _wakes(events)
        switches = events.batch("host.switch")
        asleep = _left_cpu(switches, wakes) if len(switches) else np.full(len(wakes), -1)
        fence: Ints = signal["fence"]
        job = parts.job_of(fence)
        exact = np.full(len(wakes), said) & (job >= 0)
        job = np.where(job >= 0, job, _job_right_before(signal, events, jobs))
        fence = np.where(job >= 0, at(jobs.fence, job), fence)
        rows = np.flatnonzero((asleep >= 0) & (fence != NO_ENTITY))
        sleepers = switches.take(asleep[rows])
        self.begin = sleepers["time_ns"].astype(np.int64)
        self.end = wakes["time_ns"].astype(np.int64)[rows]
        self.job, self.fence, self.exact = job[rows], fence[rows], exact[rows]
        self.thread, self.process = sleepers["thread"], sleepers["process"]
        self.tid, self.tgid = sleepers["tid"], sleepers["tgid"]

    def keep(self, rows: Ints) -> None:
        """Leave only some."""
        for name in ("begin", "end", "job", "fence", "exact", "thread", "process", "tid", "tgid"):
            setattr(self, name, getattr(self, name)[rows])

    def within(self, waits: Batch) -> npt.NDArray[np.bool_]:
        """Which of them lie in a wait of their thread."""
        thread, begin, end = (waits[name].astype(np.int64) for name in ("thread", "begin_ns", "time_ns"))
        inside: npt.NDArray[np.bool_] = contains(thread, begin, end, self.thread, self.end) >= 0
        return inside


def _wakes(events: Events) -> tuple[Batch, Batch, bool]:
    """Wake-ups by signals, the signal of each, and whether it was recorded which it is.

    Where one was, all were: what seems to be woken by a signal besides is woken by something else.
    """
    said = events.batch("drm.fence.wake")
    if len(said):
        return said, said, True
    signals, wakings = events.batch("drm.fence.signaled"), events.batch("host.waking")
    if not len(signals):
        wakings = wakings.take(np.empty(0, np.int64))
    signal = _followed(wakings, signals)
    return wakings.take(np.flatnonzero(signal >= 0)), signals.take(signal[signal >= 0]), False


def _job_right_before(wakes: Batch, events: Events, jobs: Jobs) -> Ints:
    """Row of the job whose fence was signalled right before each event, -1 for none.

    Fences that stand for others are signalled by the last one that they stand for.
    """
    signals = events.batch("drm.fence.signaled")
    job = jobs.find(signals["fence"])
    rows = np.flatnonzero(job >= 0)
    row = _followed(wakes, signals.take(rows))
    return np.where(row >= 0, at(job, at(rows, row)), -1)


def _followed(events: Batch, signals: Batch) -> Ints:
    """Row of the signal that each event followed, -1 for none: the last one on its CPU, with the same current thread."""
    where, event_where = (
        batch["cpu"].astype(np.int64) << _BITS | batch["tid"].astype(np.int64) for batch in (signals, events)
    )
    times, event_times = signals["time_ns"].astype(np.int64), events["time_ns"].astype(np.int64)
    row = latest(where, times, event_where, event_times)
    since = event_times - at(times, row)
    return np.where((row >= 0) & (since >= 0) & (since <= LONGEST_NS), row, -1)


def _left_cpu(switches: Batch, wakes: Batch) -> Ints:
    """Row of the switch by which each woken thread had gone to sleep, -1 if it was not seen to."""
    blocked = np.flatnonzero((switches["prev_state"] != 0) & (switches["thread"] != NO_ENTITY))
    times = switches["time_ns"].astype(np.int64)
    wake_times = wakes["time_ns"].astype(np.int64)
    wakee = wakes["wakee_tid"].astype(np.int64)
    row = latest(switches["prev_tid"][blocked].astype(np.int64), times[blocked], wakee, wake_times)
    left = np.where(row >= 0, at(blocked, row), -1)
    entered = latest(switches["next_tid"].astype(np.int64), times, wakee, wake_times)
    # on a CPU again before this wake-up: it did not sleep then
    back = (entered >= 0) & (left >= 0) & (times[entered] > times[left]) & (times[entered] <= wake_times)
    return np.where((left >= 0) & (times[left] <= wake_times) & ~back, left, -1)
