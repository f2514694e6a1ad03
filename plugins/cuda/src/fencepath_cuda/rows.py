# SPDX-License-Identifier: Apache-2.0
"""Calls of several kinds in columns, with what is known of when each came back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch
from fencepath.joins import Events
from fencepath_cuda.events import StreamKind
from fencepath_cuda.ordered import Ints

__all__ = ["FOREVER", "RECORD", "SUBMITTING", "SYNCHRONIZING", "WAIT_EVENT", "Mask", "Rows"]

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
    "cuda.memory.prefetch",
    "cuda.stream.value",
    "cuda.stream.semaphore",
    RECORD,
    WAIT_EVENT,
)
"""Kinds whose calls put an operation on the stream they name; of allocations only those in stream order name one."""

SYNCHRONIZING = ("cuda.stream.synchronize", "cuda.event.synchronize", "cuda.context.synchronize")

FOREVER = np.iinfo(np.int64).max


class Rows(msgspec.Struct, frozen=True):
    """Calls of some kinds, in columns.

    Attributes:
        code: position of the call's kind in what was asked for.
        row: row of the call in its kind's batch.
        begin: CLOCK_MONOTONIC in ns.
        end: likewise; equal to `begin` where the end is not known.
        returned: when the call is known to have come back: its end, or, where that was not recorded, when its thread made
            the next of these calls; for ever if neither is known.
        thread: entity, or NO_ENTITY; likewise `process`, `context`, `stream` and `event`.
        stream_kind: see :class:`fencepath_cuda.events.StreamKind`.
        result: CUresult, 0 if not known.
        ok: not known to have failed.
        done: returned, and with success.
    """

    code: Ints
    row: Ints
    begin: Ints
    end: Ints
    returned: Ints
    thread: Ints
    process: Ints
    context: Ints
    stream: Ints
    event: Ints
    stream_kind: Ints
    result: Ints
    ok: Mask
    done: Mask

    @classmethod
    def read(cls, events: Events, *kinds: str) -> Rows:
        """Return all calls of `kinds`, kind after kind and each by time of return."""
        batches = [events.batch(kind) for kind in kinds]
        sizes = [len(batch) for batch in batches]
        begin, end, thread = (_column(batches, name) for name in ("begin_ns", "time_ns", "thread"))
        result = _column(batches, "result", missing=0)
        came_back: Mask = np.concatenate([_returned(batch) for batch in batches])
        ok: Mask = ~came_back | (result == 0)
        return cls(
            code=np.repeat(np.arange(len(kinds)), sizes),
            row=np.concatenate([np.arange(size) for size in sizes]),
            begin=begin,
            end=end,
            returned=np.where(came_back, end, _next_of_thread(thread, begin)),
            thread=thread,
            process=_column(batches, "process"),
            context=_column(batches, "context"),
            stream=_column(batches, "stream"),
            event=_column(batches, "event"),
            stream_kind=_column(batches, "stream_kind", missing=StreamKind.NONE),
            result=result,
            ok=ok,
            done=ok & came_back,
        )

    def __len__(self) -> int:
        return len(self.begin)

    def keep(self, chosen: Mask | Ints) -> Rows:
        """Return the rows that a mask or an index array selects."""
        return Rows(*(getattr(self, name)[chosen] for name in self.__struct_fields__))

    def plus(self, other: Rows) -> Rows:
        """Return these rows and those of another."""
        return Rows(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in self.__struct_fields__))


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
