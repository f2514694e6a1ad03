# SPDX-License-Identifier: Apache-2.0
"""What was put on streams, in submission order: the ground that all rules of order stand on.

Device operations are not observed, the calls that submit them are. An operation here is such a call: it did not
fail as far as is known (the result of a call recorded at entry only is not), and it was not captured into a graph
instead of being run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import View
from fencepath.records import Flags
from fencepath_cuda.events import StreamKind
from fencepath_cuda.ordered import Ints, Ordered

__all__ = ["FOREVER", "SUBMITTING", "WAIT_EVENT", "Mask", "OperationCache", "Operations", "Rows"]

Mask = npt.NDArray[np.bool_]

RECORD, WAIT_EVENT = "cuda.event.record", "cuda.stream.wait_event"
SUBMITTING = (
    "cuda.launch",
    "cuda.graph.launch",
    "cuda.host_func",
    "cuda.memcpy",
    "cuda.memcpy.async",
    "cuda.memset",
    "cuda.malloc",
    "cuda.free",
    RECORD,
    WAIT_EVENT,
)
"""Kinds whose calls put an operation on the stream they name; of allocations only those in stream order name one."""

WAITING = ("cuda.stream.synchronize", "cuda.event.synchronize", "cuda.context.synchronize")

FOREVER = np.iinfo(np.int64).max
ENTRY_ONLY_LIMIT_NS = 1_000_000
"""For how long the engine takes a call whose end was not recorded as running, at most (docs/contracts.md)."""


def _succeeded(batch: Batch) -> Mask:
    """Whether each call is not known to have failed."""
    if "returned" not in batch:  # the empty batch of a kind that was not recorded
        return np.ones(len(batch), np.bool_)
    ok: Mask = ~batch["returned"] | (batch["result"] == 0)
    return ok


class Rows(msgspec.Struct, frozen=True):
    """Calls of some kinds, in columns.

    Attributes:
        activity: activity index of each call.
        begin: CLOCK_MONOTONIC in ns.
        end: likewise; equal to `begin` where the end is not known.
        returned: when the call is known to have come back: its end, or, where that was not recorded, when its thread made
            the next of these calls; for ever if neither is known.
        latest_end: the end that the engine gives the call at the latest: where it was not recorded, `returned` or 1 ms.
        thread: entity, or NO_ENTITY; likewise `process`, `stream` and `event`.
        stream_kind: see :class:`fencepath_cuda.events.StreamKind`.
        code: position of the call's kind in what was asked for.
        ok: not known to have failed.
        done: returned, and with success.
    """

    activity: Ints
    begin: Ints
    end: Ints
    returned: Ints
    latest_end: Ints
    thread: Ints
    process: Ints
    stream: Ints
    event: Ints
    stream_kind: Ints
    code: Ints
    ok: Mask
    done: Mask

    @classmethod
    def read(cls, view: View, *kinds: str) -> Rows:
        """Return all calls of `kinds`, kind after kind and each by time of return."""
        batches = [view.batch(kind) for kind in kinds]
        begin, end, thread = (_column(batches, name) for name in ("begin_ns", "time_ns", "thread"))
        came_back: Mask = np.concatenate([_returned(batch) for batch in batches])
        ok: Mask = np.concatenate([_succeeded(batch) for batch in batches])
        returned = np.where(came_back, end, _next_of_thread(thread, begin))
        entry_only = (_column(batches, "flags") & int(Flags.ENTRY_ONLY)) != 0
        return cls(
            activity=np.concatenate([view.activities(kind) for kind in kinds]),
            begin=begin,
            end=end,
            returned=returned,
            latest_end=np.where(entry_only, np.minimum(returned, begin + ENTRY_ONLY_LIMIT_NS), end),
            thread=thread,
            process=_column(batches, "process"),
            stream=_column(batches, "stream"),
            event=_column(batches, "event"),
            stream_kind=_column(batches, "stream_kind", missing=StreamKind.NONE),
            code=np.repeat(np.arange(len(kinds)), [len(batch) for batch in batches]),
            ok=ok,
            done=ok & came_back,
        )

    def __len__(self) -> int:
        return len(self.activity)

    def keep(self, chosen: Mask | Ints) -> Rows:
        """Return the rows that a mask or an index array selects."""
        return Rows(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


def _next_of_thread(thread: Ints, begin: Ints) -> Ints:
    """When the thread of each call began its next one; for ever where there is none."""
    order = np.lexsort((begin, thread))
    following = np.append(begin[order][1:], FOREVER)
    following[np.append(thread[order][1:] != thread[order][:-1], True)] = FOREVER
    result = np.empty(len(begin), np.int64)
    result[order] = following[: len(begin)]
    return result


def _returned(batch: Batch) -> Mask:
    returned: Mask = batch["returned"] if "returned" in batch else np.zeros(len(batch), np.bool_)
    return returned


def _column(batches: Sequence[Batch], name: str, missing: int = NO_ENTITY) -> Ints:
    return np.concatenate(
        [batch[name].astype(np.int64) if name in batch else np.full(len(batch), missing, np.int64) for batch in batches]
    )


class Operations:
    """All operations of a run.

    A wait for a CUDA event of which no record is known puts nothing on its stream that could be followed, and with a CUDA
    event never recorded it puts nothing there at all; it is counted and left out.

    Attributes:
        rows: the calls, sorted by stream and begin.
        records: the CUDA event records among them, sorted by CUDA event and begin.
        captured: how many calls went into graphs instead.
        unbound: how many waits for a CUDA event found no record of it.
    """

    def __init__(self, view: View) -> None:
        # The waits are there for when their thread had come back from the call before.
        rows = Rows.read(view, *SUBMITTING, *WAITING)
        rows = rows.keep(rows.ok & (rows.stream != NO_ENTITY) & (rows.code < len(SUBMITTING)))
        captured = _captured(view, rows)
        self.captured = int(np.count_nonzero(captured))
        rows = rows.keep(~captured) if self.captured else rows
        self.records = _records(rows)
        self._by_event = Ordered(self.records.event, self.records.begin)
        waits = np.flatnonzero(rows.code == SUBMITTING.index(WAIT_EVENT))
        unbound = waits[self.record_as_of(rows.event[waits], rows.begin[waits]) < 0]
        self.unbound = len(unbound)
        rows = rows.keep(np.delete(np.arange(len(rows)), unbound)) if self.unbound else rows
        self.by_stream = Ordered(rows.stream, rows.begin)
        self.rows = rows.keep(self.by_stream.order)

    def of(self, kind: str) -> Mask:
        """Which operations are of a kind."""
        mask: Mask = self.rows.code == SUBMITTING.index(kind)
        return mask

    def record_as_of(self, event: Ints, time_ns: Ints) -> Ints:
        """Return where in :attr:`records` each CUDA event's last record begun by a time is, -1 for none."""
        return self._by_event.last(event, time_ns)

    def recorded_until(self, event: Ints, time_ns: Ints) -> Ints:
        """Return the same of records begun before a time."""
        return self._by_event.last(event, time_ns, before=True)


def _records(rows: Rows) -> Rows:
    records = rows.keep((rows.code == SUBMITTING.index(RECORD)) & (rows.event != NO_ENTITY))
    return records.keep(np.lexsort((records.begin, records.event)))


class OperationCache:
    """Makes the operations of a view once for all rules of a run."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._operations: Operations | None = None

    def of(self, view: View) -> Operations:
        """Return the operations of `view`."""
        if self._operations is None or self._view is not view:
            self._view, self._operations = view, Operations(view)
        return self._operations


class _Windows:
    """Times during which streams were being captured; those of one stream in one capture end together."""

    def __init__(self, stream: Ints, from_ns: Ints, to_ns: Ints) -> None:
        self.stream, self.from_ns, self.to_ns = stream, from_ns, to_ns

    def __len__(self) -> int:
        return len(self.stream)

    def plus(self, other: _Windows) -> _Windows:
        return _Windows(
            np.concatenate([self.stream, other.stream]),
            np.concatenate([self.from_ns, other.from_ns]),
            np.concatenate([self.to_ns, other.to_ns]),
        )

    def until(self, stream: Ints, time_ns: Ints) -> Ints:
        """Return the end of the capture each call falls in, -1 if it falls in none."""
        if not len(self):
            return np.full(len(stream), -1, np.int64)
        ordered = Ordered(self.stream, self.from_ns)
        at = ordered.last(stream, time_ns)
        to_ns = np.where(at >= 0, self.to_ns[ordered.order][at], -1)
        return np.where(to_ns >= time_ns, to_ns, -1)


def _captured(view: View, rows: Rows) -> Mask:
    """Which calls were captured: within their stream's capture, or on a stream that joined one by a CUDA event."""
    windows = _origin_windows(view)
    if not len(windows):
        return np.zeros(len(rows), np.bool_)
    waits, records = rows.keep(rows.code == SUBMITTING.index(WAIT_EVENT)), _records(rows)
    record = Ordered(records.event, records.begin).last(waits.event, waits.begin)
    waits, record = waits.keep(record >= 0), record[record >= 0]
    while True:
        until = windows.until(records.stream[record], records.begin[record])
        joined = (until >= waits.begin) & (windows.until(waits.stream, waits.begin) < 0)
        if not joined.any():
            break
        windows = windows.plus(_Windows(waits.stream[joined], waits.begin[joined], until[joined]))
    return windows.until(rows.stream, rows.begin) >= 0


def _origin_windows(view: View) -> _Windows:
    begins, ends = Rows.read(view, "cuda.graph.capture_begin"), Rows.read(view, "cuda.graph.capture_end")
    begins = begins.keep(begins.ok & (begins.stream != NO_ENTITY))
    # A capture ends even if ending it gives an error.
    by_stream = Ordered(ends.stream, ends.begin)
    at = by_stream.first_after(begins.stream, begins.begin)
    to_ns = np.full(len(begins), FOREVER)
    to_ns[at >= 0] = ends.end[by_stream.order[at[at >= 0]]]
    return _Windows(begins.stream, begins.begin, to_ns)
