# SPDX-License-Identifier: Apache-2.0
"""When each item ran at the earliest and at the latest, by what its calls, waits and queries say.

An item starts no earlier than its call began; it has ended when a call that waited for it, or for what had to wait for it,
came back. Only what is sure counts, so that a bound that is stated always holds, if two things are so that no recording can
tell: that calls of which no result was recorded have succeeded (one that failed put nothing on a stream, and a wait for it
says nothing of what it would have waited for), and that no CUDA event was being recorded when the recording began.

How long things take on the device is not known, so items that wait for one another share bounds. That a query found something
unfinished gives no bound: the device makes an end known a little after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.joins import Events
from fencepath_cuda.links import Order, Waits
from fencepath_cuda.lost import Lost
from fencepath_cuda.operations import Operations
from fencepath_cuda.order import HANDLES
from fencepath_cuda.ordered import Ints, least_from
from fencepath_cuda.rows import FOREVER, Mask

__all__ = ["bounds"]

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
    lost = Lost(events, *HANDLES)
    latest[lost.between(operations.items.begin, latest)] = FOREVER
    return operations.items.begin, latest


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
