# SPDX-License-Identifier: Apache-2.0
"""From a wait of the CUDA API down to the interrupt that ended it, and from an allocation to the driver's.

A blocking wait is a call of the API that polls a device file; an interrupt of the driver wakes the thread, the poll returns, and
the call does. Whose work raised the interrupt the kernel does not know: it wakes everybody who waits for the vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fencepath.events import Batch, Category, Column
from fencepath.joins import Confidence, EdgeBatch, GraphRule, JoinRule, Order, Pick, Relation, Select, View
from fencepath_nvidia.kinds import ISR, ISR_THREAD, MEMORY_ALLOC, POLL, RECORDED_CALLS

__all__ = [
    "IRQ_NAME",
    "RULES",
    "WAIT_CALLS",
    "HalfWakes",
    "Halves",
    "HelperWaits",
    "WaitCalls",
    "WaitReturns",
    "WakeUps",
    "first_halves",
    "in_halves",
    "in_interrupts",
    "users",
    "wake_ups",
]

Ints = npt.NDArray[np.int64]

WAIT_CALLS = (
    "cuda.event.synchronize",
    "cuda.stream.synchronize",
    "cuda.context.synchronize",
    "cuda.memcpy",
    "cuda.free",
)
"""Calls of the API in which a thread may wait for the device."""

IRQ_NAME = "nvidia"
"""Name of every interrupt of every GPU of the driver."""

_WAKING, _IRQ = "host.waking", "host.irq"
_REQUIRES = f"{WAIT_CALLS[0]}>=1"
_THREAD_DOES_THE_REST = 2
"""IRQ_WAKE_THREAD: include/linux/irqreturn.h"""


def users(view: View) -> int:
    """How many of the recorded processes made calls to the driver."""
    found = [np.unique(view.batch(kind)["tgid"]) for kind in RECORDED_CALLS if kind in view.kinds]
    return len(np.unique(np.concatenate(found))) if found else 0


def wake_ups(polls: Batch, wakings: Batch) -> Ints:
    """For each poll the row of the last wake-up of its thread while it waited, -1 if there was none."""
    if not len(polls) or not len(wakings):
        return np.full(len(polls), -1, np.int64)
    order, first = _by_key(wakings["wakee_tid"], wakings["time_ns"], polls["tid"], polls["time_ns"])
    rows = np.where(first >= 0, order[first], -1)
    same = (rows >= 0) & (wakings["wakee_tid"][rows] == polls["tid"])
    return np.where(same & (wakings["time_ns"][rows] >= polls["begin_ns"]), rows, -1)


def in_interrupts(wakings: Batch, irqs: Batch) -> Ints:
    """For each wake-up the row of the interrupt handler that made it, -1 if none did."""
    if not len(wakings) or not len(irqs):
        return np.full(len(wakings), -1, np.int64)
    return _around(irqs, "cpu", wakings["interrupt_cpu"], wakings["time_ns"])


def in_halves(wakings: Batch, halves: Batch) -> Ints:
    """For each wake-up the row of the second half of an interrupt that made it, -1 if none did."""
    if not len(wakings) or not len(halves):
        return np.full(len(wakings), -1, np.int64)
    return np.where(wakings["interrupt_cpu"] < 0, _around(halves, "tid", wakings["tid"], wakings["time_ns"]), -1)


def _around(batch: Batch, key: str, wanted: Column, time_ns: Column) -> Ints:
    """For each wanted key and time the row that has the key and contains the time, -1 if none does; the last that began."""
    wanted = wanted.astype(np.int64)
    order, first = _by_key(batch[key], batch["begin_ns"], wanted, time_ns)
    rows = np.where(first >= 0, order[first], -1)
    return np.where((rows >= 0) & (batch[key][rows] == wanted) & (batch["time_ns"][rows] >= time_ns), rows, -1)


def first_halves(halves: Batch, isrs: Batch) -> Ints:
    """For each second half of an interrupt the row of the first half that left it the rest, -1 if that was not seen.

    Of the same GPU and vector, the last that ended before; a half that begins while the thread still serves an earlier one is
    served by it, or by the next run of the thread.
    """
    asking = np.flatnonzero(isrs["result"] == _THREAD_DOES_THE_REST) if len(isrs) else np.empty(0, np.int64)
    if not len(halves) or not len(asking):
        return np.full(len(halves), -1, np.int64)
    keys = np.concatenate([_pairs(isrs.take(asking)), _pairs(halves)])
    number = np.unique(keys, return_inverse=True)[1]
    mine, theirs = number[: len(asking)], number[len(asking) :]
    order, last = _by_key(mine, isrs["time_ns"][asking], theirs, halves["begin_ns"])
    row = order[np.maximum(last, 0)]
    return np.where((last >= 0) & (mine[row] == theirs), asking[row], -1)


def _pairs(batch: Batch) -> npt.NDArray[np.void]:
    pairs = np.empty(len(batch), np.dtype([("gpu", "u8"), ("irq", "i4")]))
    pairs["gpu"], pairs["irq"] = batch["gpu"], batch["irq"]
    return pairs


def _by_key(key: Column, time: Column, wanted_key: Column, wanted_time: Column) -> tuple[Ints, Ints]:
    """An order by key and time, and for each wanted the place in it of the last that is no later; -1 if there is none."""
    key, time, wanted_key, wanted_time = (column.astype(np.int64) for column in (key, time, wanted_key, wanted_time))
    order = np.lexsort((time, key))
    times = np.unique(time)
    # key and rank of the time in one integer, ascending in both
    span = np.int64(len(times) + 1)
    code = key[order] * span + np.searchsorted(times, time[order])
    wanted = wanted_key * span + np.searchsorted(times, wanted_time, "right")
    return order, np.searchsorted(code, wanted, "left") - 1


class WakeUps:
    """A wake-up ends the poll. Implements :class:`fencepath.joins.GraphRule`.

    Exact if an interrupt of the driver made the wake-up, in its first half or, where that is recorded, its second, and one recorded
    process alone used the driver; inferred if several did, since it may have been another's work; bounded if a thread made it of which
    is not known what it did.
    """

    name = "nvidia.wake"
    requires = (f"{_WAKING}>=1",)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges; polls that found an event at once have none and are counted as unmatched."""
        polls, wakings = view.batch(POLL), view.batch(_WAKING)
        irqs = view.batch(_IRQ)
        named = np.flatnonzero(irqs["name"] == IRQ_NAME) if len(irqs) else np.empty(0, np.int64)
        rows = wake_ups(polls, wakings)
        matched = np.flatnonzero((rows >= 0) & (polls["status"] > 0))
        woken = wakings.take(rows[matched])
        by_driver = (in_interrupts(woken, irqs.take(named)) >= 0) | (in_halves(woken, view.batch(ISR_THREAD)) >= 0)
        several = users(view) > 1
        unmatched = int((polls["status"] > 0).sum()) - len(matched)
        sure = Confidence.INFERRED if several else Confidence.EXACT
        return [
            _edges(view, rows, matched[by_driver], sure, unmatched),
            _edges(view, rows, matched[~by_driver], Confidence.BOUNDED, 0),
        ]


def _edges(view: View, rows: Ints, polls: Ints, confidence: Confidence, unmatched: int) -> EdgeBatch:
    return EdgeBatch(
        cause=view.activities(_WAKING)[rows[polls]],
        effect=view.activities(POLL)[polls],
        order=Order.FINISH_FINISH,
        confidence=confidence,
        gap=Category.DEVICE_WAIT,
        unmatched=unmatched,
    )


class Halves:
    """The first half of an interrupt leaves the rest to a thread. Implements :class:`fencepath.joins.GraphRule`."""

    name = "nvidia.isr_half"
    requires = (f"{ISR}>=1",)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges; second halves whose first was not seen are counted as unmatched."""
        rows = first_halves(view.batch(ISR_THREAD), view.batch(ISR))
        found = np.flatnonzero(rows >= 0)
        return [
            EdgeBatch(
                cause=view.activities(ISR)[rows[found]],
                effect=view.activities(ISR_THREAD)[found],
                order=Order.FINISH_START,
                confidence=Confidence.EXACT,
                gap=Category.INTERRUPT,
                unmatched=len(rows) - len(found),
            )
        ]


class HalfWakes:
    """The second half of an interrupt wakes a thread. Implements :class:`fencepath.joins.GraphRule`."""

    name = "nvidia.half_wake"
    requires = (f"{_WAKING}>=1", f"{ISR_THREAD}>=1")

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges; wake-ups by others have none and are not counted."""
        rows = in_halves(view.batch(_WAKING), view.batch(ISR_THREAD))
        found = np.flatnonzero(rows >= 0)
        return [
            EdgeBatch(
                cause=view.activities(ISR_THREAD)[rows[found]],
                effect=view.activities(_WAKING)[found],
                order=Order.START_START,
                confidence=Confidence.EXACT,
                gap=Category.INTERRUPT,
            )
        ]


class WaitCalls:
    """A call of the API polls. Implements :class:`fencepath.joins.GraphRule`."""

    name = "nvidia.wait_call"
    requires = (_REQUIRES,)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges; polls outside of such calls are counted as unmatched."""
        call, poll = _calls_of_polls(view)
        return [
            EdgeBatch(
                cause=call,
                effect=poll,
                order=Order.START_START,
                confidence=Confidence.EXACT,
                gap=Category.API_CALL,
                unmatched=len(view.batch(POLL)) - len(poll),
            )
        ]


class WaitReturns:
    """The last poll of a call of the API ends the wait. Implements :class:`fencepath.joins.GraphRule`."""

    name = "nvidia.wait_return"
    requires = (_REQUIRES,)

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges. Calls that do not poll wait by spinning; they are not counted as unmatched."""
        call, poll = _calls_of_polls(view)
        # polls come by time: of equal calls the last one stays
        last = dict(zip(call.tolist(), poll.tolist(), strict=True))
        return [
            EdgeBatch(
                cause=np.array(list(last.values()), np.int64),
                effect=np.array(list(last), np.int64),
                order=Order.FINISH_FINISH,
                confidence=Confidence.EXACT,
                gap=Category.API_CALL,
            )
        ]


def _calls_of_polls(view: View) -> tuple[Ints, Ints]:
    """Activities of calls and of the polls within them, by the polls' time; the innermost call."""
    polls = view.batch(POLL)
    best = np.full(len(polls), -1, np.int64)
    begin = np.zeros(len(polls), np.int64)
    for kind in WAIT_CALLS:
        calls = view.batch(kind)
        if not len(calls) or not len(polls):
            continue
        order, first = _by_key(calls["thread"], calls["begin_ns"], polls["thread"], polls["begin_ns"])
        rows = np.where(first >= 0, order[first], 0)
        inside = (
            (first >= 0) & (calls["thread"][rows] == polls["thread"]) & (calls["time_ns"][rows] >= polls["time_ns"])
        )
        later = inside & (calls["begin_ns"][rows].astype(np.int64) >= begin)
        best[later] = view.activities(kind)[rows[later]]
        begin[later] = calls["begin_ns"][rows[later]]
    found = np.flatnonzero(best >= 0)
    return best[found], view.activities(POLL)[found]


class HelperWaits:
    """The poll of a thread of CUDA's own ends a wait in another thread. Implements :class:`fencepath.joins.GraphRule`.

    Where CUDA keeps a thread that polls for all others, a waiting thread sleeps until that one wakes it. Which of the events
    that the helper was told of is the waiter's is not known: the edge is from its last poll that returned before it woke the
    waiter, bounded.
    """

    name = "nvidia.wait_helper"
    requires = (_REQUIRES, f"{_WAKING}>=1")

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges. Waits that end otherwise have none; they are not counted as unmatched."""
        polls, wakings = view.batch(POLL), view.batch(_WAKING)
        ended = np.flatnonzero(polls["status"] > 0)
        causes, effects = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for kind in WAIT_CALLS:
            calls = view.batch(kind)
            waking = wake_ups(calls, wakings)
            calls_woken = np.flatnonzero(waking >= 0)
            woken, helper = calls.take(calls_woken), wakings.take(waking[calls_woken])
            order, last = _by_key(polls["tid"][ended], polls["time_ns"][ended], helper["tid"], helper["time_ns"])
            if not len(ended) or not len(woken):
                continue
            poll = ended[order[np.maximum(last, 0)]]
            own = (polls["process"][poll] == woken["process"]) & (polls["tid"][poll] == helper["tid"])
            own &= (helper["process"] == woken["process"]) & (helper["tid"] != woken["tid"])
            found = (last >= 0) & own & (polls["time_ns"][poll] >= woken["begin_ns"])
            causes.append(view.activities(POLL)[poll[found]])
            effects.append(view.activities(kind)[calls_woken[found]])
        return [
            EdgeBatch(
                cause=np.concatenate(causes),
                effect=np.concatenate(effects),
                order=Order.FINISH_FINISH,
                confidence=Confidence.BOUNDED,
                gap=Category.API_CALL,
            )
        ]


RULES: Sequence[JoinRule | GraphRule] = (
    WaitCalls(),
    Halves(),
    HalfWakes(),
    WakeUps(),
    WaitReturns(),
    HelperWaits(),
    JoinRule(
        name="nvidia.malloc",
        cause=Select(kind="cuda.malloc"),
        effect=Select(kind=MEMORY_ALLOC),
        on=("thread",),
        relation=Relation.CONTAINS,
        pick=Pick.INNERMOST,
        order=Order.START_START,
        confidence=Confidence.EXACT,
        gap=Category.API_CALL,
        requires=("cuda.malloc>=1",),
    ),
)
"""The layer's rules, from the call down to the interrupt and back."""
