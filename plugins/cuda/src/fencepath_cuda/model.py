# SPDX-License-Identifier: Apache-2.0
"""The device's operations as events, and CUDA's rules of order as edges between them and the calls.

What ran on the device is not observed. An operation is therefore an event with bounds for times, and edges say what was
promised: a call submits operations, an operation starts after others have finished, a wait comes back after operations
have finished. All such edges are ``bounded``, or ``inferred`` where it is not known in which order calls took effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, Category
from fencepath.joins import Confidence, EdgeBatch, Events, GraphRule, View
from fencepath.joins import Order as Promise
from fencepath.records import Flags
from fencepath_cuda.bounds import bounds
from fencepath_cuda.describe import describe
from fencepath_cuda.legacy import legacy_order, legacy_waits
from fencepath_cuda.links import Order, Waits
from fencepath_cuda.operations import Operations
from fencepath_cuda.order import event_order, exec_order, graph_order, stream_order
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import FOREVER, SUBMITTING, Mask
from fencepath_cuda.waits import (
    blocking_copies,
    context_waits,
    event_queries,
    event_waits,
    stream_queries,
    stream_waits,
)

__all__ = ["ORDERS", "WAITS", "CudaModel", "SubmitRule"]

OPERATION = "cuda.operation"
SUBMIT = "cuda.submit"

ORDERS: Mapping[str, Callable[[Events, Operations], Order]] = {
    "cuda.stream_order": stream_order,
    "cuda.stream_wait_event": event_order,
    "cuda.legacy_stream": legacy_order,
    "cuda.graph_order": graph_order,
    "cuda.graph_exec": exec_order,
}
"""Rules of order between operations."""

WAITS: Mapping[str, Callable[[Events, Operations], Waits]] = {
    "cuda.stream_synchronize": stream_waits,
    "cuda.event_synchronize": event_waits,
    "cuda.context_synchronize": context_waits,
    "cuda.legacy_wait": legacy_waits,
    "cuda.blocking_copy": blocking_copies,
    "cuda.stream_query": stream_queries,
    "cuda.event_query": event_queries,
}
"""Rules of what a call has waited for, or found finished."""


class CudaModel:
    """Implements :class:`fencepath.joins.Derived`."""

    def __init__(self) -> None:
        self._operations: Operations | None = None
        self._orders: dict[str, Order] = {}
        self._waits: dict[str, Waits] = {}
        self._place: Ints = np.empty(0, np.int64)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it derives."""
        return (OPERATION,)

    def derive(self, events: Events, entities: Entities) -> Sequence[Batch]:
        """Work out the operations, and what had to wait for what."""
        del entities
        operations = self._operations = Operations(events)
        self._orders = {name: rule(events, operations) for name, rule in ORDERS.items()}
        self._waits = {name: rule(events, operations) for name, rule in WAITS.items()}
        earliest, latest = bounds(events, operations, list(self._orders.values()), list(self._waits.values()))
        batch = _batch(events, operations, earliest, latest)
        order = np.argsort(batch["time_ns"], kind="stable")
        self._place = np.empty(len(order), np.int64)
        self._place[order] = np.arange(len(order))
        return [batch.take(order)]

    def rules(self) -> Sequence[GraphRule]:
        """Return one rule for each way in which operations and calls are tied."""
        if self._operations is None:
            return ()
        return (
            SubmitRule(self._operations, self._place),
            *(_OrderRule(name, order, self._place) for name, order in self._orders.items()),
            *(_WaitRule(name, waits, self._place) for name, waits in self._waits.items()),
        )


def _batch(events: Events, operations: Operations, earliest: Ints, latest: Ints) -> Batch:
    item = operations.item
    items = operations.items.keep(item)
    start, end = earliest[item], latest[item]
    open_end = end == FOREVER
    last = int(
        max(
            operations.items.end.max(initial=0),
            *(_last_ns(events, kind) for kind in events.kinds),
            start.max(initial=0),
        )
    )
    meaning = describe(events, operations)
    flags = np.where(open_end, int(Flags.BOUNDS | Flags.OPEN), int(Flags.BOUNDS))
    columns = {
        "begin_ns": start.astype(np.uint64),
        "time_ns": np.where(open_end, last, end).astype(np.uint64),
        "tgid": meaning.tgid,
        "tid": meaning.tid,
        "cpu": np.zeros(len(item), np.uint16),
        "flags": flags.astype(np.uint32),
        "process": items.process,
        "thread": np.full(len(item), NO_ENTITY, np.int64),
        "stream": items.stream,
        "context": items.context,
        "event": meaning.event,
        "label": meaning.label,
        "operation": meaning.kind,
        "node": operations.node.astype(np.int32),
    }
    return Batch(OPERATION, columns, meaning.labels)


def _last_ns(events: Events, kind: str) -> int:
    return int(events.batch(kind)["time_ns"].max(initial=0))


class _Rule:
    """What the rules have in common: all need the launches, which are not recorded at the least detail."""

    name = ""
    requires: tuple[str, ...] = ("cuda.launch",)

    def __init__(self, place: Ints) -> None:
        self.place = place

    def _activities(self, view: View, operation: Ints) -> Ints:
        return view.activities(OPERATION)[self.place[operation]]


class SubmitRule(_Rule):
    """``cuda.submit``: a call, and the operations that it put on a stream."""

    name = SUBMIT

    def __init__(self, operations: Operations, place: Ints) -> None:
        super().__init__(place)
        self.operations = operations

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each operation."""
        items = self.operations.items
        calls = _calls(view, SUBMITTING, items.code, items.row)[self.operations.item]
        effect = self._activities(view, np.arange(len(self.operations)))
        every = np.ones(len(effect), np.bool_)
        return _edges(calls, effect, every, Promise.START_START, Category.LAUNCH_QUEUE, 0)


class _OrderRule(_Rule):
    def __init__(self, name: str, order: Order, place: Ints) -> None:
        super().__init__(place)
        self.name = name
        self._order = order

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each pair of operations."""
        order = self._order
        cause, effect = (self._activities(view, end) for end in (order.cause, order.effect))
        return _edges(cause, effect, order.sure, Promise.FINISH_START, Category.DEPENDENCY, order.unmatched)


class _WaitRule(_Rule):
    def __init__(self, name: str, waits: Waits, place: Ints) -> None:
        super().__init__(place)
        self.name = name
        self._waits = waits
        if name in ("cuda.event_synchronize", "cuda.event_query"):
            self.requires = ("cuda.event.record",)
        if name in ("cuda.stream_query", "cuda.event_query"):
            self.requires = (*self.requires, *waits.kinds[:1])

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return an edge for each operation and call that waited for it."""
        waits = self._waits
        cause, effect = self._activities(view, waits.cause), _calls(view, waits.kinds, waits.kind, waits.row)
        return _edges(cause, effect, waits.sure, Promise.FINISH_FINISH, Category.DEVICE_EXECUTION, waits.unmatched)


def _calls(view: View, kinds: Sequence[str], code: Ints, row: Ints) -> Ints:
    """Return the activities of calls, by the position of their kinds and their rows."""
    found = np.empty(len(code), np.int64)
    for number, kind in enumerate(kinds):
        mine = code == number
        found[mine] = view.activities(kind)[row[mine]]
    return found


def _edges(cause: Ints, effect: Ints, sure: Mask, order: Promise, gap: Category, unmatched: int) -> list[EdgeBatch]:
    """Edges of one rule; what is not sure is inferred, and ambiguous."""

    def batch(rows: Mask, confidence: Confidence, unmatched: int, ambiguous: int) -> EdgeBatch:
        return EdgeBatch(
            cause=cause[rows],
            effect=effect[rows],
            order=order,
            confidence=confidence,
            gap=gap,
            unmatched=unmatched,
            ambiguous=ambiguous,
        )

    unsure = int(np.count_nonzero(~sure))
    return [batch(sure, Confidence.BOUNDED, unmatched, 0), batch(~sure, Confidence.INFERRED, 0, unsure)]
