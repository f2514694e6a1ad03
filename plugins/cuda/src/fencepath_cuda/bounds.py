# SPDX-License-Identifier: Apache-2.0
"""When each item ran at the earliest and at the latest, by what its calls, waits and queries say.

An item starts no earlier than its call began, nor than what it had to wait for was still seen unfinished; it has ended when
a call that waited for it, or for what had to wait for it, came back. Only what is sure counts, so that a bound that is
stated always holds. How long things take on the device is not known, so items that wait for one another share bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_cuda.links import Lost, Order, Waits, is_sure
from fencepath_cuda.operations import Operations
from fencepath_cuda.order import HANDLES, sure_record
from fencepath_cuda.ordered import Ints, Ordered, least_from, most_so_far
from fencepath_cuda.rows import FOREVER, Mask, Rows

__all__ = ["bounds"]

NOT_READY = 600
"""CUDA_ERROR_NOT_READY of cuda.h: what was asked after has not finished."""
MOST_ROUNDS = 32
"""How often bounds are passed on between streams; beyond that they would become tighter, but are right as they are."""


def bounds(
    events: Events, operations: Operations, orders: Sequence[Order], waits: Sequence[Waits]
) -> tuple[Ints, Ints]:
    """Return the earliest start and the latest end of each item, CLOCK_MONOTONIC in ns; FOREVER if no end is known.

    Args:
        events: all calls.
        operations: of them.
        orders: between operations; those within a stream need not be among them.
        waits: calls that waited.
    """
    cause, effect = _between_items(operations, orders)
    latest = _latest(operations, cause, effect, _seen_finished(operations, waits))
    earliest = _earliest(operations, cause, effect, _seen_unfinished(events, operations))
    lost = Lost(events, *HANDLES)
    latest[lost.between(operations.items.begin, latest)] = FOREVER
    return earliest, latest


def _between_items(operations: Operations, orders: Sequence[Order]) -> tuple[Ints, Ints]:
    """Pairs of items of which one is surely over before the other starts, apart from order within a stream."""
    cause = np.concatenate([np.empty(0, np.int64), *(order.items[0] for order in orders)])
    effect = np.concatenate([np.empty(0, np.int64), *(order.items[1] for order in orders)])
    apart = operations.items.stream[cause] != operations.items.stream[effect]
    return cause[apart], effect[apart]


def _is_end(operations: Operations, operation: Ints) -> Mask:
    """Whether an operation is all of its item: the end of one node says nothing of the rest of its graph."""
    return np.asarray(operations.node[operation] < 0)


def _seen_finished(operations: Operations, waits: Sequence[Waits]) -> Ints:
    latest = np.full(len(operations.items), FOREVER)
    for links in waits:
        sure = links.sure if links.whole else links.sure & _is_end(operations, links.cause)
        np.minimum.at(latest, operations.item[links.cause[sure]], links.end[sure])
    return latest


def _latest(operations: Operations, cause: Ints, effect: Ints, latest: Ints) -> Ints:
    """Pass ends on to what came before."""
    items = operations.items
    following = operations.by_stream.first_from(items.stream, items.returned)
    has_next = following >= 0
    for _ in range(MOST_ROUNDS):
        before = latest.copy()
        least = least_from(latest, operations.by_stream.first_of_key)
        latest[has_next] = np.minimum(latest[has_next], least[following[has_next]])
        np.minimum.at(latest, cause, latest[effect])
        if np.array_equal(before, latest):
            break
    return latest


def _seen_unfinished(events: Events, operations: Operations) -> Ints:
    """The latest time at which a query surely found each item unfinished; its begin where none did.

    Only of CUDA events: what a stream that is not idle has not finished may be something that was not recorded.
    """
    unfinished = operations.items.begin.copy()
    queries = Rows.read(events, "cuda.event.query")
    queries = queries.keep((queries.result == NOT_READY) & (queries.event != NO_ENTITY))
    at = operations.records.before(queries.event, queries.begin)
    queries, at = queries.keep(at >= 0), at[at >= 0]
    item = operations.records.item[at]
    sure = sure_record(events, operations, at, queries.event, queries.end) & is_sure(
        operations.items.keep(item), queries
    )
    sure &= _is_end(operations, operations.records.operation[at])
    np.maximum.at(unfinished, item[sure], queries.begin[sure])
    return unfinished


def _earliest(operations: Operations, cause: Ints, effect: Ints, unfinished: Ints) -> Ints:
    """Pass on to what comes after until when things were seen unfinished.

    A kernel that may start before the one before it has finished starts no earlier than that, so this holds for it too. Where
    handles were lost in between, the query itself was not sure.
    """
    items = operations.items
    earliest = items.begin.copy()
    if np.array_equal(unfinished, earliest):
        return earliest
    by_return = Ordered(items.stream, items.returned)
    before = by_return.last(items.stream, items.begin, before=True)
    has_before = before >= 0
    for _ in range(MOST_ROUNDS):
        last = earliest.copy()
        until = np.maximum(unfinished, earliest)
        most = most_so_far(until[by_return.order], by_return.first_of_key)
        earliest[has_before] = np.maximum(earliest[has_before], most[before[has_before]])
        np.maximum.at(earliest, effect, until[cause])
        if np.array_equal(last, earliest):
            break
    return earliest
