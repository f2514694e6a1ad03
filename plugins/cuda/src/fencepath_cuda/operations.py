# SPDX-License-Identifier: Apache-2.0
"""What was put on streams, in submission order: the ground that all rules of order stand on.

Device operations are not observed, the calls that submit them are. An operation here is such a call: it did not
fail as far as is known (the result of a call recorded at entry only is not), and it was not captured into a graph
instead of being run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import View
from fencepath.records import Flags
from fencepath_cuda.events import StreamKind
from fencepath_cuda.ordered import Ints, Ordered

__all__ = ["SUBMITTING", "OperationCache", "Operations", "Rows", "succeeded"]

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

_FOREVER = np.iinfo(np.int64).max


def succeeded(batch: Batch) -> Mask:
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
        end_known: whether it is: the return was recorded, or the call was still running.
        thread: entity, or NO_ENTITY; likewise `process`, `stream` and `event`.
        stream_kind: see :class:`fencepath_cuda.events.StreamKind`.
        code: position of the call's kind in what was asked for.
        ok: not known to have failed.
        done: returned, and with success.
    """

    activity: Ints
    begin: Ints
    end: Ints
    end_known: Mask
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
        ok: Mask = np.concatenate([succeeded(batch) for batch in batches])
        return cls(
            activity=np.concatenate([view.activities(kind) for kind in kinds]),
            begin=_column(batches, "begin_ns"),
            end=_column(batches, "time_ns"),
            end_known=(_column(batches, "flags") & int(Flags.ENTRY_ONLY)) == 0,
            thread=_column(batches, "thread"),
            process=_column(batches, "process"),
            stream=_column(batches, "stream"),
            event=_column(batches, "event"),
            stream_kind=_column(batches, "stream_kind", missing=StreamKind.NONE),
            code=np.repeat(np.arange(len(kinds)), [len(batch) for batch in batches]),
            ok=ok,
            done=ok & np.concatenate([_returned(batch) for batch in batches]),
        )

    def __len__(self) -> int:
        return len(self.activity)

    def keep(self, chosen: Mask | Ints) -> Rows:
        """Return the rows that a mask or an index array selects."""
        return Rows(*(getattr(self, name)[chosen] for name in self.__struct_fields__))


def _returned(batch: Batch) -> Mask:
    returned: Mask = batch["returned"] if "returned" in batch else np.zeros(len(batch), np.bool_)
    return returned


def _column(batches: Sequence[Batch], name: str, missing: int = NO_ENTITY) -> Ints:
    return np.concatenate(
        [batch[name].astype(np.int64) if name in batch else np.full(len(batch), missing, np.int64) for batch in batches]
    )


class Operations:
    """All operations of a run.

    Attributes:
        rows: the calls, sorted by stream and begin.
        captured: how many calls went into graphs instead.
    """

    def __init__(self, view: View) -> None:
        rows = Rows.read(view, *SUBMITTING)
        rows = rows.keep(rows.ok & (rows.stream != NO_ENTITY))
        captured = _captured(view, rows)
        rows = rows.keep(~captured)
        self.captured = int(np.count_nonzero(captured))
        self.by_stream = Ordered(rows.stream, rows.begin)
        self.rows = rows.keep(self.by_stream.order)

    def of(self, kind: str) -> Mask:
        """Which operations are of a kind."""
        mask: Mask = self.rows.code == SUBMITTING.index(kind)
        return mask

    @cached_property
    def records(self) -> Rows:
        """CUDA event records, sorted by CUDA event and begin."""
        rows = self.rows.keep(self.of(RECORD) & (self.rows.event != NO_ENTITY))
        return rows.keep(np.lexsort((rows.begin, rows.event)))

    def record_as_of(self, event: Ints, time_ns: Ints) -> Ints:
        """Return where in :attr:`records` each CUDA event's last record begun by a time is, -1 for none."""
        return Ordered(self.records.event, self.records.begin).last(event, time_ns)


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
    waits = rows.keep(rows.code == SUBMITTING.index(WAIT_EVENT))
    records = rows.keep((rows.code == SUBMITTING.index(RECORD)) & (rows.event != NO_ENTITY))
    by_event = Ordered(records.event, records.begin)
    at = by_event.last(waits.event, waits.begin)
    waits, record = waits.keep(at >= 0), by_event.order[at[at >= 0]]
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
    to_ns = np.full(len(begins), _FOREVER)
    to_ns[at >= 0] = ends.end[by_stream.order[at[at >= 0]]]
    return _Windows(begins.stream, begins.begin, to_ns)
