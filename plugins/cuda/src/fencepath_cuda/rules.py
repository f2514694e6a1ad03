# SPDX-License-Identifier: Apache-2.0
"""CUDA's rules of order, as edges between calls.

What ran on the device is not observed, so an edge goes from the call that submitted an operation to the call that
waited for it, or that submitted what had to wait for it. Times on the device lie somewhere between: such edges are
``bounded``. Calls that failed and calls that were captured into a graph give no edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.events import Category
from fencepath.joins import Confidence, EdgeBatch, GraphRule, JoinRule, Order, Pick, Relation, Select, View
from fencepath_cuda.edges import StreamRule, completions, is_sure, submissions
from fencepath_cuda.legacy import LegacyStreamRule
from fencepath_cuda.operations import WAIT_EVENT, Mask, OperationCache, Operations, Rows
from fencepath_cuda.ordered import Ints
from fencepath_cuda.pending import last_before_waits, next_begin

__all__ = ["cuda_rules"]


def cuda_rules() -> Sequence[JoinRule | GraphRule]:
    """Return new rules for one run of the engine."""
    cache = OperationCache()
    return (
        StreamSynchronizeRule(cache),
        ContextSynchronizeRule(cache),
        EventSynchronizeRule(cache),
        StreamWaitEventRule(cache),
        StreamOrderRule(cache),
        LegacyStreamRule(cache),
        *RUNTIME_RULES,
    )


class StreamSynchronizeRule(StreamRule):
    """``cuda.stream_synchronize``: the last operation put on a stream, to the call that waits for the stream.

    Taken is the last one whose call had begun when the wait began, and besides it the last whose call began while another
    thread was waiting. The latter may be waited for or not (CUDA does not say; a driver that looks once, at the begin, does
    not), as may the former if its call had not come back: those edges are ``inferred`` and counted as ambiguous.
    """

    name = "cuda.stream_synchronize"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.stream.synchronize")
        waits = waits.keep(waits.ok & (waits.stream != NO_ENTITY))
        before = operations.by_stream.last(waits.stream, waits.begin)
        latest = operations.by_stream.last(waits.stream, waits.end, before=True)
        during, found = latest > before, before >= 0
        first, later = operations.rows.keep(before[found]), operations.rows.keep(latest[during])
        return [
            *completions(
                first,
                waits.keep(found),
                is_sure(first, waits.keep(found)),
                unmatched=int(np.count_nonzero(~found & ~during)),
            ),
            *completions(later, waits.keep(during), np.zeros(len(later), np.bool_)),
        ]


class ContextSynchronizeRule(StreamRule):
    """``cuda.context_synchronize``: the last operation on every stream of the process, to the call that waits for all.

    Contexts are not followed yet: a process that uses several gets edges from the streams of all. An operation that an
    earlier wait for everything has already seen finished is left out, as is one whose call began only during the wait.
    """

    name = "cuda.context_synchronize"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.context.synchronize")
        waits = waits.keep(waits.ok & (waits.process != NO_ENTITY))
        last, wait = last_before_waits(operations.rows, next_begin(operations), waits)
        cause, effect = operations.rows.keep(last), waits.keep(wait)
        return completions(cause, effect, is_sure(cause, effect), unmatched=len(waits) - len(np.unique(wait)))


class EventSynchronizeRule(StreamRule):
    """``cuda.event_synchronize``: a CUDA event's last record before a wait for it began, to the wait.

    The record completes when what was on its stream before has; one made later does not concern the wait. It needs no
    launches, so it holds at every detail. Where the record had not come back, or another was begun during the wait, it is
    not sure which one was meant: ``inferred``.
    """

    name = "cuda.event_synchronize"
    requires = ("cuda.event.record",)

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.event.synchronize")
        waits = waits.keep(waits.ok & (waits.event != NO_ENTITY))
        at = operations.record_as_of(waits.event, waits.begin)
        found, unmatched = waits.keep(at >= 0), int(np.count_nonzero(at < 0))
        record = operations.records.keep(at[at >= 0])
        return completions(record, found, _sure_record(operations, at[at >= 0], found), unmatched=unmatched)


def _sure_record(operations: Operations, at: Ints, waits: Rows) -> Mask:
    """Whether the record at each position is surely what a call that names its CUDA event meant."""
    again = operations.recorded_until(waits.event, waits.end) > at
    return is_sure(operations.records.keep(at), waits) & ~again


class StreamWaitEventRule(StreamRule):
    """``cuda.stream_wait_event``: a CUDA event's record, to what next goes on a stream that was told to wait for it.

    The record counted is the last one begun before cuStreamWaitEvent was called. A CUDA event that was never recorded
    holds up nothing and is counted as unmatched, since the record may have been made before the recording began.
    Further waits put on the stream in between are passed over. A wait that nothing follows has no effect and no edge.
    """

    name = "cuda.stream_wait_event"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        del view
        rows = operations.rows
        positions = np.flatnonzero(operations.of(WAIT_EVENT))
        following = _next_that_is(~operations.of(WAIT_EVENT), positions)
        found = following >= 0
        found[found] = rows.stream[following[found]] == rows.stream[positions[found]]
        waits, following = rows.keep(positions[found]), following[found]
        at = operations.record_as_of(waits.event, waits.begin)
        sure = _sure_record(operations, at, waits) & is_sure(waits, rows.keep(following))
        # Two waits for one record before the same operation are one edge, as sure as the surer of them.
        order = np.lexsort((~sure, following, at))
        at, following, sure = at[order], following[order], sure[order]
        first = np.append(True, (at[1:] != at[:-1]) | (following[1:] != following[:-1]))[: len(at)]
        cause, effect = operations.records.keep(at[first]), rows.keep(following[first])
        return submissions(cause, effect, sure[first], unmatched=operations.unbound)


class StreamOrderRule(StreamRule):
    """``cuda.stream_order``: each operation of a stream, to the next one put on it.

    Promised is the order of the two calls. That the second operation starts on the device only after the first has
    finished is CUDA's rule for streams, but for a launch whose attributes allow an earlier start (``attributes`` is
    not 0). The order is ``exact`` where one thread made both calls or the first is known to have come back before the
    second began; else two threads may have been in each other's way, and it is ``inferred`` and ambiguous.
    """

    name = "cuda.stream_order"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        del view
        rows = operations.rows
        second = np.flatnonzero(~operations.by_stream.first_of_key)
        cause, effect = rows.keep(second - 1), rows.keep(second)
        return submissions(cause, effect, is_sure(cause, effect), Confidence.EXACT)


def _next_that_is(wanted: Mask, positions: Ints) -> Ints:
    """Return for each position the next one that is wanted, -1 if there is none."""
    places = np.append(np.flatnonzero(wanted), -1)
    return places[np.searchsorted(places[:-1], positions, "right")]


RUNTIME = "cuda.runtime.call"
WRAPPED = (
    "cuda.launch",
    "cuda.graph.launch",
    "cuda.host_func",
    "cuda.memcpy",
    "cuda.memcpy.async",
    "cuda.memset",
    "cuda.malloc",
    "cuda.free",
    "cuda.event.record",
    "cuda.event.synchronize",
    "cuda.stream.wait_event",
    "cuda.stream.synchronize",
    "cuda.context.synchronize",
)
"""Driver calls that a recorded runtime function makes."""

RUNTIME_RULES = tuple(
    JoinRule(
        name=f"cuda.runtime.{kind.removeprefix('cuda.')}",
        cause=Select(kind=RUNTIME),
        effect=Select(kind=kind),
        on=("thread",),
        relation=Relation.CONTAINS,
        pick=Pick.INNERMOST,
        order=Order.START_START,
        confidence=Confidence.EXACT,
        gap=Category.API_CALL,
        requires=(RUNTIME,),
    )
    for kind in WRAPPED
)
"""A runtime call and the driver calls inside it. What is unmatched came to the driver past the shared libcudart."""
