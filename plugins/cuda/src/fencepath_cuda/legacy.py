# SPDX-License-Identifier: Apache-2.0
"""The legacy default stream, which is in implicit order with the blocking streams of its context."""

from __future__ import annotations

import numpy as np

from fencepath.joins import Events
from fencepath_cuda.events import StreamKind
from fencepath_cuda.links import Order, Waits, is_sure
from fencepath_cuda.lost import Lost, may_be_another
from fencepath_cuda.operations import Operations
from fencepath_cuda.order import HANDLES, items_in_order
from fencepath_cuda.ordered import Ints, Ordered
from fencepath_cuda.pending import last_before_waits
from fencepath_cuda.places import Places
from fencepath_cuda.rows import FOREVER, Mask, Rows

__all__ = ["legacy_order", "legacy_waits"]

NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING of cuda.h."""


def legacy_order(events: Events, operations: Operations) -> Order:
    """``cuda.legacy_stream``: the order between a context's legacy default stream and its blocking streams.

    An item on the legacy stream waits for the last one of every blocking stream, and the next one on each of those waits
    for it. Created streams are blocking unless made with CU_STREAM_NON_BLOCKING; per-thread default streams are. Of streams
    created before the recording, or perhaps again unseen, it is not known: not sure, and ambiguous. So it is where the context
    is not known and the process has several.
    """
    legacy = operations.items.stream_kind == StreamKind.LEGACY
    blocking, unknown = _blocking(events, operations.items)
    places = Places(events)
    cause, effect = _around_legacy(places, operations, legacy, blocking | unknown)
    known = places.known(operations.items) & ~unknown
    known = known[cause] & known[effect]
    return items_in_order(events, operations, cause, effect, known)


def legacy_waits(events: Events, operations: Operations) -> Waits:
    """``cuda.legacy_wait``: a call that waits for the legacy stream waits for the blocking streams of its context too.

    An operation that an earlier such wait has already seen finished is left out, as is one on a stream of which it is not
    known whether it is blocking.
    """
    kinds = ("cuda.stream.synchronize",)
    waits = Rows.read(events, *kinds)
    waits = waits.keep(waits.ok & (waits.stream_kind == StreamKind.LEGACY))
    items, places = operations.items, Places(events)
    blocking, _ = _blocking(events, items)
    _, later = _neighbours(places, items, items.stream_kind == StreamKind.LEGACY)
    until = np.minimum(operations.next_begin(), np.where(later >= 0, items.begin[later], FOREVER))
    chosen = np.flatnonzero(blocking)
    last, wait = last_before_waits(places, items.keep(chosen), until[chosen], waits)
    place, cause = operations.lasts(chosen[last])
    calls, of = waits.keep(wait[place]), items.keep(operations.item[cause])
    sure = is_sure(of, calls) & places.known(of) & places.known(calls)
    sure &= ~Lost(events, *HANDLES).between(of.begin, calls.begin)
    return Waits.of(cause, calls, sure, kinds, whole=True)


def _blocking(events: Events, items: Rows) -> tuple[Mask, Mask]:
    """Which items are on streams that the legacy stream orders, and on which it is not known."""
    creates = events.batch("cuda.stream.create")
    created, flags = creates["stream"], creates["stream_flags"]
    is_created = items.stream_kind == StreamKind.CREATED
    known = np.isin(items.stream, created)
    known &= ~may_be_another(events, "cuda.stream.create", "stream", items.stream, items.begin)
    free = np.isin(items.stream, created[(flags & NON_BLOCKING) != 0])
    blocking: Mask = (items.stream_kind == StreamKind.PER_THREAD) | (is_created & known & ~free)
    return blocking, is_created & ~known


def _neighbours(places: Places, items: Rows, legacy: Mask) -> tuple[Ints, Ints]:
    """For each item, the legacy items of its context next before and after it, -1 for none."""
    which = np.flatnonzero(legacy)
    if not len(which):
        nothing = np.full(len(items), -1, np.int64)
        return nothing, nothing
    context = places.of(items)
    ordered = Ordered(context[which], items.begin[which])
    earlier = ordered.last(context, items.begin)
    later = ordered.first_after(context, items.begin)
    position = which[ordered.order]
    return np.where(earlier >= 0, position[earlier], -1), np.where(later >= 0, position[later], -1)


def _around_legacy(places: Places, operations: Operations, legacy: Mask, others: Mask) -> tuple[Ints, Ints]:
    """Pairs of items (cause, effect): last before a legacy item, to it; and it, to the first after it."""
    items = operations.items
    earlier, later = _neighbours(places, items, legacy)
    following = operations.next_begin()
    previous = np.append(-1, items.begin[:-1])[: len(items)]
    previous[operations.by_stream.first_of_key] = -1
    into = np.flatnonzero(others & (later >= 0) & (following > items.begin[later]))
    out_of = np.flatnonzero(others & (earlier >= 0) & (previous < items.begin[earlier]))
    return np.concatenate([into, earlier[out_of]]), np.concatenate([later[into], out_of])
