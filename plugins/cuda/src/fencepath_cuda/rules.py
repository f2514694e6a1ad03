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
from fencepath_cuda.events import StreamKind
from fencepath_cuda.operations import WAIT_EVENT, Mask, OperationCache, Operations, Rows
from fencepath_cuda.ordered import Ints, Ordered

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


class _StreamRule:
    """What the rules have in common: all need the launches, which are not recorded at the least detail."""

    name = ""
    requires: tuple[str, ...] = ("cuda.launch",)

    def __init__(self, cache: OperationCache) -> None:
        self._cache = cache

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the rule's edges; see :class:`fencepath.joins.GraphRule`."""
        return self._edges(view, self._cache.of(view))

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        raise NotImplementedError


def _completions(
    cause: Rows, wait: Rows, confidence: Confidence, *, unmatched: int = 0, ambiguous: int = 0
) -> list[EdgeBatch]:
    """Waits that end after what `cause` submitted has finished, row by row.

    A call can return later than the wait for what it submitted, when its thread is held up on its way out. Of such a
    pair only the beginnings have a sure order.
    """
    outlasts = cause.end > wait.end
    edges = [
        EdgeBatch(
            cause=cause.activity[~outlasts],
            effect=wait.activity[~outlasts],
            order=Order.FINISH_FINISH,
            confidence=confidence,
            gap=Category.DEVICE_EXECUTION,
            unmatched=unmatched,
            ambiguous=ambiguous,
        )
    ]
    begun = outlasts & (cause.begin <= wait.begin)
    if begun.any():
        edges.append(_submission(cause.activity[begun], wait.activity[begun], confidence))
    return edges


def _submission(cause: Ints, effect: Ints, confidence: Confidence, unmatched: int = 0, ambiguous: int = 0) -> EdgeBatch:
    """What `effect` submitted starts after what `cause` submitted finished; of the calls, after its call started."""
    return EdgeBatch(
        cause=cause,
        effect=effect,
        order=Order.START_START,
        confidence=confidence,
        gap=Category.DEPENDENCY,
        unmatched=unmatched,
        ambiguous=ambiguous,
    )


class StreamSynchronizeRule(_StreamRule):
    """``cuda.stream_synchronize``: the last operation put on a stream, to the call that waits for the stream.

    The last one whose call had begun when the wait began is surely waited for, since a stream runs in order:
    ``bounded``. One whose call began while another thread was waiting may be waited for or not (CUDA does not say;
    a driver that looks once, at the begin, does not): that edge is ``inferred``, given besides the other, and
    counted as ambiguous.
    """

    name = "cuda.stream_synchronize"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.stream.synchronize")
        waits = waits.keep(waits.ok & (waits.stream != NO_ENTITY))
        rows = operations.rows
        sure = operations.by_stream.last(waits.stream, waits.begin)
        latest = operations.by_stream.last(waits.stream, waits.end, before=True)
        found, during = sure >= 0, latest > sure
        unmatched = int(np.count_nonzero(~found & ~during))
        ambiguous = int(np.count_nonzero(during))
        return [
            *_completions(rows.keep(sure[found]), waits.keep(found), Confidence.BOUNDED, unmatched=unmatched),
            *_completions(rows.keep(latest[during]), waits.keep(during), Confidence.INFERRED, ambiguous=ambiguous),
        ]


class ContextSynchronizeRule(_StreamRule):
    """``cuda.context_synchronize``: the last operation on every stream of the process, to the call that waits for all.

    Contexts are not followed yet: a process that uses several gets edges from the streams of all. An operation
    that an earlier wait for everything has already seen finished is left out, as is one whose call began only
    during the wait.
    """

    name = "cuda.context_synchronize"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.context.synchronize")
        waits = waits.keep(waits.ok & (waits.process != NO_ENTITY))
        last, wait = _last_before_waits(operations.rows, _next_begin(operations), waits)
        unmatched = len(waits) - len(np.unique(wait))
        return _completions(operations.rows.keep(last), waits.keep(wait), Confidence.BOUNDED, unmatched=unmatched)


class EventSynchronizeRule(_StreamRule):
    """``cuda.event_synchronize``: a CUDA event's last record before a wait for it began, to the wait.

    The record completes when what was on its stream before has; one made later does not concern the wait. It needs no
    launches, so it holds at every detail.
    """

    name = "cuda.event_synchronize"
    requires = ("cuda.event.record",)

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.event.synchronize")
        waits = waits.keep(waits.ok & (waits.event != NO_ENTITY))
        record = operations.record_as_of(waits.event, waits.begin)
        found = record >= 0
        cause, unmatched = operations.records.keep(record[found]), int(np.count_nonzero(~found))
        return _completions(cause, waits.keep(found), Confidence.BOUNDED, unmatched=unmatched)


class StreamWaitEventRule(_StreamRule):
    """``cuda.stream_wait_event``: a CUDA event's record, to what next goes on a stream that was told to wait for it.

    The record counted is the last one begun before cuStreamWaitEvent was called. A CUDA event that was never recorded
    holds up nothing and is counted as unmatched, since the record may have been made before the recording began.
    Further waits put on the stream in between are passed over. A wait that nothing follows has no effect and no edge.
    """

    name = "cuda.stream_wait_event"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        del view
        rows = operations.rows
        waits = np.flatnonzero(operations.of(WAIT_EVENT))
        record = operations.record_as_of(rows.event[waits], rows.begin[waits])
        following = _next_that_is(~operations.of(WAIT_EVENT), waits)
        found = (record >= 0) & (following >= 0)
        found[found] = rows.stream[following[found]] == rows.stream[waits[found]]
        cause = operations.records.activity[record[found]]
        effect = rows.activity[following[found]]
        return [_submission(cause, effect, Confidence.BOUNDED, int(np.count_nonzero(record < 0)))]


class StreamOrderRule(_StreamRule):
    """``cuda.stream_order``: each operation of a stream, to the next one put on it.

    Promised is the order of the two calls. That the second operation starts on the device only after the first has
    finished is CUDA's rule for streams, but for a launch whose attributes allow an earlier start (``attributes``
    is not 0). The order is ``exact`` where one thread made both calls or the first had returned; ``bounded`` where
    another thread's call followed one whose return is not recorded; ``inferred``, and ambiguous, where calls of
    two threads overlap.
    """

    name = "cuda.stream_order"

    def _edges(self, view: View, operations: Operations) -> list[EdgeBatch]:
        del view
        rows = operations.rows
        effect = np.flatnonzero(~operations.by_stream.first_of_key)
        cause = effect - 1
        other = rows.thread[cause] != rows.thread[effect]
        overlap = other & (rows.end[cause] > rows.begin[effect])
        unknown = other & ~overlap & ~rows.end_known[cause]
        edges: list[EdgeBatch] = []
        for confidence, chosen in (
            (Confidence.EXACT, ~overlap & ~unknown),
            (Confidence.BOUNDED, unknown),
            (Confidence.INFERRED, overlap),
        ):
            ambiguous = int(np.count_nonzero(chosen)) if confidence is Confidence.INFERRED else 0
            edges.append(
                _submission(
                    rows.activity[cause[chosen]], rows.activity[effect[chosen]], confidence, ambiguous=ambiguous
                )
            )
        return edges


class LegacyStreamRule(_StreamRule):
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
        edges: list[EdgeBatch] = []
        if legacy.any():
            for others, confidence in ((blocking, Confidence.BOUNDED), (unknown, Confidence.INFERRED)):
                cause, effect = _around_legacy(operations, legacy, others)
                ambiguous = len(np.unique(effect)) if confidence is Confidence.INFERRED else 0
                edges.append(_submission(rows.activity[cause], rows.activity[effect], confidence, ambiguous=ambiguous))
        return [*edges, *self._waits(view, operations, legacy, blocking)]

    def _waits(self, view: View, operations: Operations, legacy: Mask, blocking: Mask) -> list[EdgeBatch]:
        waits = Rows.read(view, "cuda.stream.synchronize")
        waits = waits.keep(waits.ok & (waits.stream_kind == StreamKind.LEGACY) & (waits.process != NO_ENTITY))
        rows = operations.rows
        _, later = _neighbours(rows, legacy)
        until = np.minimum(_next_begin(operations), np.where(later >= 0, rows.begin[later], _FOREVER))
        chosen = np.flatnonzero(blocking)
        last, wait = _last_before_waits(rows.keep(chosen), until[chosen], waits)
        return _completions(rows.keep(chosen[last]), waits.keep(wait), Confidence.BOUNDED)


_FOREVER = np.iinfo(np.int64).max


def _next_that_is(wanted: Mask, positions: Ints) -> Ints:
    """Return for each position the next one that is wanted, -1 if there is none."""
    places = np.append(np.flatnonzero(wanted), -1)
    return places[np.searchsorted(places[:-1], positions, "right")]


def _next_begin(operations: Operations) -> Ints:
    """When the next operation of the same stream began; for ever where there is none."""
    begin = np.append(operations.rows.begin[1:], _FOREVER)
    begin[np.append(operations.by_stream.first_of_key[1:], True)] = _FOREVER
    return begin[: len(operations.rows)]


def _last_before_waits(rows: Rows, until: Ints, waits: Rows) -> tuple[Ints, Ints]:
    """Pairs (row, wait) of operations with waits for everything in their process, by position.

    An operation is paired with the waits that begin from its own begin to `until`, and after no earlier wait that
    began after it and had come back: what that one waited for is finished.
    """
    found_rows: list[Ints] = [np.empty(0, np.int64)]
    found_waits: list[Ints] = [np.empty(0, np.int64)]
    for process in np.unique(waits.process).tolist():
        mine = np.flatnonzero(waits.process == process)
        mine = mine[np.argsort(waits.begin[mine], kind="stable")]
        ours = np.flatnonzero(rows.process == process)
        first = np.searchsorted(waits.begin[mine], rows.begin[ours], "left")
        end = np.searchsorted(waits.begin[mine], until[ours], "left")
        settled = _settled_ns(waits.keep(mine))
        count = np.maximum(np.minimum(end, np.searchsorted(settled, rows.begin[ours], "left")) - first, 0)
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        found_rows.append(np.repeat(ours, count))
        found_waits.append(mine[np.repeat(first, count) + offset])
    return np.concatenate(found_rows), np.concatenate(found_waits)


def _settled_ns(waits: Rows) -> Ints:
    """For each wait, sorted by begin: up to which begin an operation is known to have finished when it began."""
    done = waits.keep(waits.done)
    done = done.keep(np.argsort(done.end, kind="stable"))
    latest = np.append(-1, np.maximum.accumulate(done.begin))
    return latest[np.searchsorted(done.end, waits.begin, "right")]


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
    following = _next_begin(operations)
    previous = np.append(-1, rows.begin[:-1])[: len(rows)]
    previous[operations.by_stream.first_of_key] = -1
    into = np.flatnonzero(others & (later >= 0) & (following > rows.begin[later]))
    out_of = np.flatnonzero(others & (earlier >= 0) & (previous < rows.begin[earlier]))
    return np.concatenate([into, earlier[out_of]]), np.concatenate([later[into], out_of])


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
