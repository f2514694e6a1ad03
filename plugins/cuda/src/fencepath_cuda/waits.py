# SPDX-License-Identifier: Apache-2.0
"""Calls that come back only when operations have finished, and queries that say so."""

from __future__ import annotations

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_cuda.events import Direction
from fencepath_cuda.links import Waits, is_sure
from fencepath_cuda.lost import Lost
from fencepath_cuda.operations import Operations
from fencepath_cuda.order import HANDLES, sure_record
from fencepath_cuda.ordered import Ints
from fencepath_cuda.pending import last_before_waits
from fencepath_cuda.places import Places
from fencepath_cuda.rows import SUBMITTING, Mask, Rows

__all__ = ["blocking_copies", "context_waits", "event_queries", "event_waits", "stream_queries", "stream_waits"]

_COPY = "cuda.memcpy"


def stream_waits(events: Events, operations: Operations) -> Waits:
    """``cuda.stream_synchronize``: the last item put on a stream, and the call that waits for the stream.

    Taken is the last one whose call had begun when the wait began, and besides it the last whose call began while another
    thread was waiting. The latter may be waited for or not (CUDA does not say; a driver that looks once, at the begin, does
    not), as may the former if its call had not come back: those are not sure, and ambiguous.
    """
    kinds = ("cuda.stream.synchronize",)
    waits = Rows.read(events, *kinds)
    waits = waits.keep(waits.ok & (waits.stream != NO_ENTITY))
    before = operations.by_stream.last(waits.stream, waits.begin)
    latest = operations.by_stream.last(waits.stream, waits.end, before=True)
    during, found = latest > before, before >= 0
    item = np.concatenate([before[found], latest[during]])
    calls = waits.keep(np.concatenate([np.flatnonzero(found), np.flatnonzero(during)]))
    late = np.arange(len(item)) >= np.count_nonzero(found)
    return _of_items(events, operations, item, calls, ~late, kinds, int(np.count_nonzero(~found & ~during)))


def stream_queries(events: Events, operations: Operations) -> Waits:
    """``cuda.stream_query``: the last item put on a stream, and a query that found the stream idle."""
    kinds = ("cuda.stream.query",)
    queries = Rows.read(events, *kinds)
    queries = queries.keep(queries.done & (queries.stream != NO_ENTITY))
    item = operations.by_stream.last(queries.stream, queries.begin)
    found = item >= 0
    return _of_items(events, operations, item[found], queries.keep(found), np.ones(int(found.sum()), np.bool_), kinds)


def _of_items(
    events: Events,
    operations: Operations,
    item: Ints,
    calls: Rows,
    sure: Mask,
    kinds: tuple[str, ...],
    unmatched: int = 0,
) -> Waits:
    items = operations.items.keep(item)
    sure = sure & is_sure(items, calls) & ~Lost(events, *HANDLES).between(items.begin, calls.begin)
    place, cause = operations.lasts(item)
    return Waits.of(cause, calls.keep(place), sure[place], kinds, whole=True, unmatched=unmatched)


def context_waits(events: Events, operations: Operations) -> Waits:
    """``cuda.context_synchronize``: the last item on every stream of a context, and the call that waits for all.

    An item that an earlier wait for everything has already seen finished is left out, as is one whose call began only
    during the wait. Where the context is not known, it is all such streams of the process, which is not sure if the process
    is known to have several contexts.
    """
    kinds = ("cuda.context.synchronize",)
    waits = Rows.read(events, *kinds)
    waits = waits.keep(waits.ok & (waits.process != NO_ENTITY))
    places = Places(events)
    item, wait = last_before_waits(places, operations.items, operations.next_begin(), waits)
    unmatched = len(waits) - len(np.unique(wait))
    sure = places.known(operations.items)[item] & places.known(waits)[wait]
    return _of_items(events, operations, item, waits.keep(wait), sure, kinds, unmatched)


def event_waits(events: Events, operations: Operations) -> Waits:
    """``cuda.event_synchronize``: a CUDA event's last record before a wait for it began, and the wait.

    The record completes when what was on its stream before has; one made later does not concern the wait. Where the record
    had not come back, or another was begun during the wait, it is not sure which one was meant.
    """
    kinds = ("cuda.event.synchronize",)
    waits = Rows.read(events, *kinds)
    return _of_records(events, operations, waits.keep(waits.ok & (waits.event != NO_ENTITY)), kinds, count=True)


def event_queries(events: Events, operations: Operations) -> Waits:
    """``cuda.event_query``: a CUDA event's last record, and a call that found it complete: a query, or for elapsed time."""
    kinds = ("cuda.event.query", "cuda.event.elapsed")
    queries = Rows.read(events, *kinds)
    elapsed = Rows.read(events, *kinds[1:])
    code = np.ones(len(elapsed), np.int64)
    ends = msgspec.structs.replace(elapsed, code=code, event=events.batch(kinds[1])["end_event"].astype(np.int64))
    queries = queries.plus(ends)
    queries = queries.keep(queries.done & (queries.event != NO_ENTITY))
    return _of_records(events, operations, queries, kinds, count=False)


def _of_records(events: Events, operations: Operations, calls: Rows, kinds: tuple[str, ...], *, count: bool) -> Waits:
    at = operations.records.before(calls.event, calls.begin)
    found = calls.keep(at >= 0)
    unmatched = int(np.count_nonzero(at < 0)) if count else 0
    at = at[at >= 0]
    sure = is_sure(operations.items.keep(operations.records.item[at]), found)
    sure &= sure_record(events, operations, at, found.event, found.returned)
    return Waits.of(operations.records.operation[at], found, sure, kinds, whole=False, unmatched=unmatched)


def blocking_copies(events: Events, operations: Operations) -> Waits:
    """``cuda.blocking_copy``: a copy to the host by a function of the blocking family, and its own call.

    Of the blocking family it alone is always done when it returns: a copy from pageable memory may still be on its way, and
    one within the device is not waited for.
    """
    kinds = (_COPY,)
    items, directions = operations.items, events.batch(_COPY)["direction"]
    copies = np.flatnonzero((items.code == SUBMITTING.index(_COPY)) & items.done)
    copies = copies[directions[items.row[copies]] == Direction.DEVICE_TO_HOST]
    calls = items.keep(copies)
    every = np.zeros(len(copies), np.int64)
    return Waits(operations.first[copies], every, calls.row, calls.end, every == 0, kinds, whole=True)
