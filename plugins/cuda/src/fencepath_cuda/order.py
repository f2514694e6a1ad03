# SPDX-License-Identifier: Apache-2.0
"""CUDA's rules of order between operations: streams, CUDA events, graphs."""

from __future__ import annotations

import numpy as np

from fencepath.joins import Events
from fencepath_cuda.links import Order, is_sure
from fencepath_cuda.lost import Lost, may_be_another
from fencepath_cuda.operations import Operations
from fencepath_cuda.ordered import Ints, Ordered
from fencepath_cuda.rows import RECORD, SUBMITTING, Mask

__all__ = [
    "HANDLES",
    "event_order",
    "exec_order",
    "graph_order",
    "items_in_order",
    "starts_early",
    "stream_order",
    "sure_record",
]

HANDLES = (
    "cuda.context.create",
    "cuda.context.set",
    "cuda.context.destroy",
    "cuda.stream.create",
    "cuda.event.create",
    "cuda.graph.capture_begin",
    "cuda.graph.capture_end",
    "cuda.graph.instantiate",
)
"""Kinds without which a handle may be taken for what it was before."""
_KERNEL, _LAUNCH = SUBMITTING.index("cuda.launch"), SUBMITTING.index("cuda.graph.launch")


def items_in_order(
    events: Events, operations: Operations, cause: Ints, effect: Ints, known: Mask | None = None
) -> Order:
    """Return the order of operations that follows from an order of items; where it is not `known` it is not sure."""
    items = operations.items
    first, second = items.keep(cause), items.keep(effect)
    sure = is_sure(first, second) & ~Lost(events, *HANDLES).between(first.begin, second.begin)
    sure = sure if known is None else sure & known
    place, before, after = operations.between(cause, effect)
    return Order(before, after, sure[place], (cause[sure], effect[sure]))


def stream_order(events: Events, operations: Operations) -> Order:
    """``cuda.stream_order``: each item of a stream, and the next one put on it.

    That the second starts on the device only after the first has finished is CUDA's rule for streams, but for a kernel after
    a kernel whose launch has attributes (``attributes`` is not 0), since one of them allows an earlier start. There, and
    where calls of two threads overlap, so that it is not known which took effect first, it is not sure, and ambiguous.
    """
    second = np.flatnonzero(~operations.by_stream.first_of_key)
    early = starts_early(events, operations.items.code, operations.items.row)
    kernel = operations.items.code[second - 1] == _KERNEL
    return items_in_order(events, operations, second - 1, second, ~(early[second] & kernel))


def starts_early(events: Events, code: Ints, row: Ints) -> Mask:
    """Whether each call is a launch that may let its kernel start before the kernel before it has finished."""
    early: Mask = code == _KERNEL
    early[early] = events.batch("cuda.launch")["attributes"][row[early]] != 0
    return early


def exec_order(events: Events, operations: Operations) -> Order:
    """``cuda.graph_exec``: the launches of an executable graph, which never run at once, on whichever streams."""
    items = operations.items
    launches = np.flatnonzero(items.code == _LAUNCH)
    process, row, begin = items.process[launches], items.row[launches], items.begin[launches]
    _, instance = operations.graphs.launched(process, row, begin)
    launches, begin, instance = (column[instance > 0] for column in (launches, begin, instance))
    ordered = Ordered(instance, begin)
    second = np.flatnonzero(~ordered.first_of_key)
    cause, effect = launches[ordered.order[second - 1]], launches[ordered.order[second]]
    apart = items.stream[cause] != items.stream[effect]
    return items_in_order(events, operations, cause[apart], effect[apart])


def graph_order(events: Events, operations: Operations) -> Order:
    """``cuda.graph_order``: the nodes of a launched graph, as they were captured or added; of kernels as on a stream."""
    cause, effect = operations.inside()
    code, row = operations.made_by()
    nothing = np.empty(0, np.int64)
    early = starts_early(events, code[effect], row[effect]) & (code[cause] == _KERNEL)
    return Order(cause, effect, ~early, (nothing, nothing))


def event_order(events: Events, operations: Operations) -> Order:
    """``cuda.stream_wait_event``: a CUDA event's record, and the wait for it that was put on another stream.

    The record counted is the last one begun before cuStreamWaitEvent was called, or, of a wait inside a graph, before the
    graph was launched. A CUDA event that was never recorded holds up nothing and is counted as unmatched, since the record
    may have been made before the recording began.
    """
    event, item, operation = operations.event_waits(events)
    begin, end = operations.items.begin[item], operations.items.returned[item]
    at = operations.records.before(event, begin, strictly=True)
    found = at >= 0
    at, item, operation = at[found], item[found], operation[found]
    waits = operations.items.keep(item)
    sure = is_sure(operations.items.keep(operations.records.item[at]), waits)
    sure &= sure_record(events, operations, at, event[found], end[found])
    cause = operations.records.operation[at]
    single = sure & (operations.node[cause] < 0) & (operations.node[operation] < 0)
    items = operations.item[cause[single]], item[single]
    return Order(cause, operation, sure, items, operations.unbound + int(np.count_nonzero(~found)))


def sure_record(events: Events, operations: Operations, at: Ints, event: Ints, end: Ints) -> Mask:
    """Whether each record is surely the last one of its CUDA event before a time.

    It is if those begun before had come back, none was begun since or lost, and nobody but the streams of the process records
    the CUDA event. Graphs of which no nodes are known are taken to record none.
    """
    records = operations.records
    begin = operations.items.begin[records.item[at]]
    again = (records.before(event, end, strictly=True) > at) | records.elsewhere(event, begin, end)
    sure = records.alone[at] & ~again & ~np.isin(event, operations.shared)
    sure &= ~may_be_another(events, "cuda.event.create", "event", event, begin)
    return np.asarray(sure & ~Lost(events, *HANDLES, RECORD, "cuda.graph.launch").between(begin, end))
