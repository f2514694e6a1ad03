# SPDX-License-Identifier: Apache-2.0
"""All edges of a run in columns, with the times at which each leaves its cause and reaches its effect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import CONFIDENCES, ActivityTable, category_code
from fencepath.joins import EdgeBatch, Order

__all__ = ["ORDERS", "EdgeTable"]

Ints = npt.NDArray[np.int64]
ORDERS = tuple(Order)
FINISH_FINISH = ORDERS.index(Order.FINISH_FINISH)


class EdgeTable:
    """Edges between activities.

    Attributes:
        rules: names, indexed by ``rule``.
        cause, effect: activity indices, shape (n,).
        order, gap, confidence, rule: codes, shape (n,).
        source: when the edge leaves the cause, ns.
        arrival: when it reaches the effect, ns.
        back: by how much it goes back in time beyond the clock error; 0 for a sound edge.
        error: clock error that had to be allowed, ns.
        timed: whether both ends have times; a path follows no other edges.
    """

    def __init__(self, batches: Sequence[tuple[str, EdgeBatch]], table: ActivityTable, error_ns: int) -> None:
        self.rules = tuple(dict.fromkeys(name for name, _ in batches))
        number = {name: i for i, name in enumerate(self.rules)}

        def spread(code: list[int]) -> Ints:
            return np.repeat(np.array(code, np.int64), [len(batch.cause) for _, batch in batches])

        def column(parts: list[Ints]) -> Ints:
            return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

        self.cause = column([batch.cause for _, batch in batches])
        self.effect = column([batch.effect for _, batch in batches])
        self.order = spread([ORDERS.index(batch.order) for _, batch in batches])
        self.gap = spread([category_code(batch.gap) for _, batch in batches])
        self.confidence = spread([CONFIDENCES.index(batch.confidence) for _, batch in batches])
        self.rule = spread([number[name] for name, _ in batches])
        starts = self.order == ORDERS.index(Order.START_START)
        source = np.where(starts, table.begin[self.cause], table.end[self.cause])
        self.arrival = np.where(self.order == FINISH_FINISH, table.end[self.effect], table.begin[self.effect])
        self.timed = ~(table.bounds[self.cause] | table.bounds[self.effect])
        # bounds overlap as a matter of course: what finished by then may have been long before
        late = np.where(self.timed, source - self.arrival, 0)
        self.back = np.where(late > error_ns, late, 0)
        self.error = np.where(late > 0, np.minimum(late, error_ns), 0)
        self.source = np.where(self.back == 0, np.minimum(source, self.arrival), source)
        self._by_effect = np.argsort(self.effect, kind="stable")
        self._effects = self.effect[self._by_effect]
        threads = table.thread[self.effect]
        self._by_thread = np.argsort(threads, kind="stable")
        self._threads = threads[self._by_thread]

    def __len__(self) -> int:
        return len(self.cause)

    def into(self, activity: int) -> Ints:
        """Indices of the edges into an activity."""
        left, right = (
            np.searchsorted(self._effects, activity, "left"),
            np.searchsorted(self._effects, activity, "right"),
        )
        return self._by_effect[left:right]

    def into_thread(self, thread: int) -> Ints:
        """Indices of the edges into activities of a thread."""
        left, right = np.searchsorted(self._threads, thread, "left"), np.searchsorted(self._threads, thread, "right")
        return self._by_thread[left:right]

    def completions(self, table: ActivityTable) -> Ints:
        """For each activity the edge that says what it waited for though that has bounds for times, -1 for none.

        Of several it is the one whose cause can have begun last, of equals the least sure, so that what is said of the wait
        is no surer than the weakest of them.
        """
        found = np.full(len(table), -1, np.int64)
        rows = np.flatnonzero((self.order == FINISH_FINISH) & table.bounds[self.cause] & ~table.bounds[self.effect])
        rows = rows[np.lexsort((self.confidence[rows], table.begin[self.cause[rows]]))]
        found[self.effect[rows]] = rows
        return found
