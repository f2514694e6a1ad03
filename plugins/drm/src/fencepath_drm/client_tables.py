# SPDX-License-Identifier: Apache-2.0
"""Tables of clients: how long their engines were busy as the driver says, beside what their jobs say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.joins import View
from fencepath.plugin import AttributeValue
from fencepath.requests import Request
from fencepath_drm.busy import Busy
from fencepath_drm.clients import FACT, Reading, readings
from fencepath_drm.jobs import Jobs
from fencepath_drm.lookup import at

__all__ = ["Clients", "Engines", "Window", "windows"]

Mask = npt.NDArray[np.bool_]
Row = Mapping[str, AttributeValue | None]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A client between its first and its last reading, which are one if it was seen once.

    Attributes:
        first: the earlier reading.
        last: the later one.
    """

    first: Reading
    last: Reading

    @property
    def over_ns(self) -> int:
        """Time between both."""
        return self.last.time_ns - self.first.time_ns

    @property
    def busy_ns(self) -> dict[str, int] | None:
        """Busy time of each engine between both; None if the driver does not say, or it was read once only.

        An engine of which there are several counts each of them. A driver lists an engine from its first use on. Where it gives
        cycles, they are a part of the cycles of the clock in that time.
        """
        first, last = self.first, self.last
        if self.over_ns <= 0:
            return None
        found = {name: max(0, end - first.engine_ns.get(name, 0)) for name, end in last.engine_ns.items()}
        for name in last.cycles.keys() & first.cycles.keys() & last.total_cycles.keys() & first.total_cycles.keys():
            clock = last.total_cycles[name] - first.total_cycles[name]
            if name not in found and clock > 0:
                found[name] = max(0, last.cycles[name] - first.cycles[name]) * self.over_ns // clock
        return found or None


def windows(view: View) -> list[Window]:
    """All clients of a recording."""
    found = readings(view.facts(f"drm.{FACT}"))
    return [Window(first=several[0], last=several[-1]) for several in found.values()]


class _Worked:
    """When the recorded jobs had their rings, and whose they are."""

    def __init__(self, view: View) -> None:
        jobs, queue = Jobs(view), view.batch("drm.job.queue")
        busy = Busy(jobs, view.extent_ns[1])
        queued = (jobs.queue_row >= 0) & (busy.begin >= 0)
        row = jobs.queue_row[queued]
        self.begin, self.end = busy.begin[queued], busy.end[queued]
        self.pid = at(queue["tgid"].astype(np.int64), row)
        self.client = at(queue["client_id"].astype(np.int64), row)
        self.devices = [str(queue["dev"][one]) for one in row.tolist()]

    def of_device(self, device: str) -> Mask:
        """Jobs of a device, and those of which the device is not known."""
        wanted = (device, "") if device else None
        return np.array([wanted is None or name in wanted for name in self.devices], np.bool_)

    def busy_ns(self, rows: Mask, window: Window) -> int:
        """Busy time of some jobs, summed over rings, in a client's window."""
        begin = np.maximum(self.begin[rows], window.first.time_ns)
        return int(np.maximum(0, np.minimum(self.end[rows], window.last.time_ns) - begin).sum())


class Clients:
    """Busy time of each client by both sources."""

    name = "clients"
    title = "how long each client's engines were busy by the driver's fdinfo, and by the jobs recorded in the same time"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a client, the busiest first."""
        del requests
        every = windows(view)
        if not every:
            return []
        worked = _Worked(view)
        rows = [self._row(window, worked, every) for window in every]
        return sorted(
            rows, key=lambda row: (-int(row["engines_ns"] or 0), int(row["pid"] or 0), int(row["client"] or 0))
        )

    @staticmethod
    def _row(window: Window, worked: _Worked, every: Sequence[Window]) -> Row:
        client, busy = window.last, window.busy_ns
        engines = None if busy is None else sum(busy.values())
        mine, by = _jobs_of(window, worked, every)
        jobs = None if mine is None or window.over_ns <= 0 else worked.busy_ns(mine, window)
        return {
            "pid": window.first.pid,
            "device": client.device or None,
            "driver": client.driver,
            "client": client.client_id or None,
            "over_ns": window.over_ns,
            "engines_ns": engines,
            "jobs_ns": jobs,
            "difference_ns": jobs - engines if jobs is not None and engines is not None else None,
            "jobs_by": None if jobs is None else by,
        }


def _jobs_of(window: Window, worked: _Worked, every: Sequence[Window]) -> tuple[Mask | None, str]:
    """A client's jobs, and by what they are its; None if that cannot be told, or no job of its device was recorded."""
    client = window.last
    here = worked.of_device(client.device)
    if not here.any():
        return None, ""
    if client.client_id and worked.client[here].any():
        return here & (worked.client == client.client_id), "client"
    pid = window.first.pid
    others = sum(other.first.pid == pid and other.last.device == client.device for other in every)
    return (here & (worked.pid == pid), "process") if others == 1 else (None, "")


class Engines:
    """Busy time of each engine that a client used."""

    name = "engines"
    title = "how long each engine was busy with each client, by the driver's fdinfo"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Row]:
        """Return one row a client and engine, the busiest first."""
        del requests
        rows = [row for window in windows(view) for row in self._rows(window)]
        return sorted(rows, key=lambda row: -int(row["busy_ns"] or 0))

    @staticmethod
    def _rows(window: Window) -> Iterator[Row]:
        client = window.last
        for engine, busy in sorted((window.busy_ns or {}).items()):
            count = max(1, client.engines.get(engine, 1))
            if busy:
                yield {
                    "pid": window.first.pid,
                    "device": client.device or None,
                    "client": client.client_id or None,
                    "engine": engine,
                    "engines": count,
                    "busy_ns": busy,
                    "utilisation": busy / (window.over_ns * count),
                }
