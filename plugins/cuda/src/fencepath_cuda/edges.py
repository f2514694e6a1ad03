# SPDX-License-Identifier: Apache-2.0
"""What an edge between two CUDA calls claims, and how sure it is."""

from __future__ import annotations

import numpy as np

from fencepath.events import Category
from fencepath.joins import Confidence, EdgeBatch, Order, View
from fencepath_cuda.operations import Mask, OperationCache, Operations, Rows

__all__ = ["StreamRule", "completions", "is_sure", "submissions"]


class StreamRule:
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


def is_sure(cause: Rows, effect: Rows) -> Mask:
    """Whether each first call had surely done its work when the second began: it had come back, or they are one thread's.

    The begin of a call says little of when it takes effect: its thread can be held up on the way.
    """
    sure: Mask = (cause.thread == effect.thread) | (cause.returned <= effect.begin)
    return sure


def completions(cause: Rows, wait: Rows, sure: Mask, *, unmatched: int = 0) -> list[EdgeBatch]:
    """Waits that end after what `cause` submitted has finished, row by row.

    A call can return later than the wait for what it submitted. Of such a pair only the beginnings have a known order.
    """
    outlasts = cause.latest_end > wait.end
    edges: list[EdgeBatch] = []
    for order, possible in (
        (Order.FINISH_FINISH, ~outlasts),
        (Order.START_START, outlasts & (cause.begin <= wait.begin)),
    ):
        edges += _by_confidence(cause, wait, sure, possible, order, Category.DEVICE_EXECUTION)
    edges.append(_nothing(unmatched=unmatched, ambiguous=int(np.count_nonzero(~sure))))
    return edges


def submissions(
    cause: Rows, effect: Rows, sure: Mask, confidence: Confidence = Confidence.BOUNDED, *, unmatched: int = 0
) -> list[EdgeBatch]:
    """What `effect` submitted starts after what `cause` submitted finished; of the calls, after its call started."""
    every = np.ones(len(cause), np.bool_)
    edges = _by_confidence(cause, effect, sure, every, Order.START_START, Category.DEPENDENCY, confidence)
    edges.append(_nothing(unmatched=unmatched, ambiguous=int(np.count_nonzero(~sure))))
    return edges


def _by_confidence(
    cause: Rows,
    effect: Rows,
    sure: Mask,
    possible: Mask,
    order: Order,
    gap: Category,
    confidence: Confidence = Confidence.BOUNDED,
) -> list[EdgeBatch]:
    return [
        EdgeBatch(cause=cause.activity[rows], effect=effect.activity[rows], order=order, confidence=how, gap=gap)
        for how, rows in ((confidence, sure & possible), (Confidence.INFERRED, ~sure & possible))
        if rows.any()
    ]


def _nothing(*, unmatched: int, ambiguous: int) -> EdgeBatch:
    """No edges, but the counts of a rule."""
    none = np.empty(0, np.int64)
    return EdgeBatch(
        cause=none,
        effect=none,
        order=Order.START_START,
        confidence=Confidence.INFERRED,
        gap=Category.UNEXPLAINED,
        unmatched=unmatched,
        ambiguous=ambiguous,
    )
