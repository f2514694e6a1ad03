# SPDX-License-Identifier: Apache-2.0
"""The legacy default stream, which is in implicit order with the blocking streams of its context."""

from __future__ import annotations

import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import EdgeBatch, View
from fencepath_cuda.edges import StreamRule, completions, is_sure, submissions
from fencepath_cuda.events import StreamKind
from fencepath_cuda.operations import FOREVER, Mask, Operations, Rows
from fencepath_cuda.ordered import Ints, Ordered
from fencepath_cuda.pending import last_before_waits, next_begin

__all__ = ["LegacyStreamRule"]


class LegacyStreamRule(StreamRule):
    """``cuda.legacy_stream``: the order between a process's legacy default stream and its blocking streams.

    An operation on the legacy stream waits for the last one of every blocking stream, and the next one on each of those
    waits for it; a call that waits for the legacy stream waits for all of them. Created streams are blocking unless
    made with CU_STREAM_NON_BLOCKING; per-thread default streams are. Of streams created before the recording it is not
    known: their edges are ``inferred`` and counted as ambiguous, and no wait gets one.
    """

    name = "cuda.legacy_stream"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        rows = operations.rows
        legacy = rows.stream_kind == StreamKind.LEGACY
        blocking, unknown = _blocking(view, rows)
        first, second = _around_legacy(operations, legacy, blocking | unknown)
        cause, effect = rows.keep(first), rows.keep(second)
        known = ~unknown[first] & ~unknown[second]
        return [
            *submissions(cause, effect, is_sure(cause, effect) & known),
            *self._waits(view, operations, legacy, blocking),
        ]

    def _waits(self, view: View, operations: Operations, legacy: Mask, blocking: Mask) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.stream.synchronize")
        waits = waits.keep(waits.ok & (waits.stream_kind == StreamKind.LEGACY) & (waits.process != NO_ENTITY))
        rows = operations.rows
        _, later = _neighbours(rows, legacy)
        until = np.minimum(next_begin(operations), np.where(later >= 0, rows.begin[later], FOREVER))
        chosen = np.flatnonzero(blocking)
        last, wait = last_before_waits(rows.keep(chosen), until[chosen], waits)
        cause, effect = rows.keep(chosen[last]), waits.keep(wait)
        return completions(cause, effect, is_sure(cause, effect))


def _blocking(view: View, rows: Rows) -> tuple[Mask, Mask]:
    """Which operations are on streams that the legacy stream orders, and on which it is not known."""
    creates = view.batch("cuda.stream.create")
    created = creates["stream"] if "stream" in creates else np.empty(0, np.int64)
    flags = creates["stream_flags"] if "stream_flags" in creates else np.empty(0, np.int64)
    is_created = rows.stream_kind == StreamKind.CREATED
    known = np.isin(rows.stream, created)
    free = np.isin(rows.stream, created[(flags & NON_BLOCKING) != 0])
    blocking: Mask = (rows.stream_kind == StreamKind.PER_THREAD) | (is_created & known & ~free)
    return blocking, is_created & ~known


NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING of cuda.h."""


def _neighbours(rows: Rows, legacy: Mask) -> tuple[Ints, Ints]:
    """For each operation, the legacy operations of its process next before and after it, -1 for none."""
    which = np.flatnonzero(legacy)
    by_process = Ordered(rows.process[which], rows.begin[which])
    if not len(which):
        nothing = np.full(len(rows), -1, np.int64)
        return nothing, nothing
    earlier = by_process.last(rows.process, rows.begin)
    later = by_process.first_after(rows.process, rows.begin)
    position = which[by_process.order]
    return np.where(earlier >= 0, position[earlier], -1), np.where(later >= 0, position[later], -1)


def _around_legacy(operations: Operations, legacy: Mask, others: Mask) -> tuple[Ints, Ints]:
    """Pairs (cause, effect), by position: last before a legacy operation, to it; and it, to the first after it."""
    rows = operations.rows
    earlier, later = _neighbours(rows, legacy)
    following = next_begin(operations)
    previous = np.append(-1, rows.begin[:-1])[: len(rows)]
    previous[operations.by_stream.first_of_key] = -1
    into = np.flatnonzero(others & (later >= 0) & (following > rows.begin[later]))
    out_of = np.flatnonzero(others & (earlier >= 0) & (previous < rows.begin[earlier]))
    return np.concatenate([into, earlier[out_of]]), np.concatenate([later[into], out_of])
