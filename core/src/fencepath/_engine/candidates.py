# SPDX-License-Identifier: Apache-2.0
"""Finds, for many effects at once, the best candidate among the causes of a join rule, and whether another is as good.

The causes of one key stand together, sorted by the time that the relation bounds, so that the candidates of an effect
are one range of them: all of it, or (for ``contains``) those in it that end late enough. The best of a range is its
last row where the pick asks for the time that it is sorted by, else it is looked up in a table of range maxima.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import ActivityTable
from fencepath.joins import Activities, JoinRule, Pick, Relation

__all__ = ["CauseIndex"]

Ints = npt.NDArray[np.int64]
_LEAST = np.iinfo(np.int64).min


class CauseIndex:
    """Causes of one rule, sorted for its relation and pick.

    Attributes:
        causes: activity indices in the index's order; what :meth:`choose` returns are positions in it.
    """

    def __init__(self, rule: JoinRule, table: ActivityTable, causes: Activities, key: Ints) -> None:
        self._rule = rule
        self._table = table
        by_begin = rule.relation is Relation.CONTAINS or (
            rule.relation is Relation.SAME and rule.pick is Pick.INNERMOST
        )
        begin, end = table.begin[causes], table.end[causes]
        # of calls that began at the same time the longest is the outermost, so it stands first
        order = np.lexsort((-end, begin, key) if by_begin else (begin, end, key))
        self.causes = causes[order]
        self._key = key[order]
        self._begin = begin[order]
        self._end = end[order]
        self._time = self._begin if by_begin else self._end
        self._value = self._begin if rule.pick is Pick.INNERMOST else self._end
        self._times = np.unique(self._time)
        self._code = self._codes(self._key, np.searchsorted(self._times, self._time))
        self._maxima = None if self._value is self._time else _RangeMaxima(self._value)

    def choose(self, effects: Activities, key: Ints, error_ns: int) -> tuple[Ints, Ints]:
        """Return for each effect the position of the chosen cause and of one that is equally good; -1 if there is none.

        Equally good is one whose picked time is within `error_ns` of the chosen one's. Of two calls of which one
        contains the other, the inner one is better, however close their begins are.
        """
        begin, end = self._table.begin[effects], self._table.end[effects]
        left, right = self._ranges(begin, end, key)
        itself = self._positions(effects)
        if self._rule.relation is not Relation.CONTAINS:
            chosen = self._best(left, right, [itself])
            return chosen, self._near(chosen, self._best(left, right, [itself, chosen]), error_ns)
        if self._rule.pick is Pick.LATEST:
            chosen = self._reaching(self._best(left, right, [itself]), begin)
            rival = self._reaching(self._best(left, right, [itself, chosen]), begin)
            return chosen, self._near(chosen, rival, error_ns)
        chosen = self._innermost(left, right, begin, itself)
        return chosen, self._not_nested(chosen, left, begin, itself, error_ns)

    def _codes(self, key: Ints, rank: Ints) -> Ints:
        """Key and rank of the time in one integer, ascending in both."""
        return key * (len(self._times) + 1) + rank

    def _ranges(self, begin: Ints, end: Ints, key: Ints) -> tuple[Ints, Ints]:
        """First and last position of the causes of the key within the relation's bounds; last < first if none are."""
        relation = self._rule.relation
        first = np.searchsorted(self._key, key, "left")
        if relation is Relation.SAME:
            return first, np.searchsorted(self._key, key, "right") - 1
        if relation is Relation.ENDS:
            first = np.searchsorted(self._code, self._codes(key, np.searchsorted(self._times, begin, "left")), "left")
        until = end if relation is Relation.ENDS else begin
        rank = np.searchsorted(self._times, until, "right")
        return first, np.searchsorted(self._code, self._codes(key, rank), "left") - 1

    def _positions(self, effects: Activities) -> Ints:
        """Where an effect stands among the causes itself; -1 where it does not."""
        order = np.argsort(self.causes)
        at = np.minimum(np.searchsorted(self.causes, effects, sorter=order), len(order) - 1)
        return np.where(self.causes[order[at]] == effects, order[at], -1)

    def _best(self, left: Ints, right: Ints, excluded: list[Ints]) -> Ints:
        """Position of the greatest value in left..right but for the excluded positions; the last of equal ones."""
        best = np.full(len(left), -1, np.int64)
        borders = np.sort(np.stack(excluded), axis=0)
        low = left
        for border in (*borders, right + 1):
            inside = (border >= low) & (border <= right + 1)
            best = self._better(best, self._last_greatest(low, np.where(inside, border - 1, low - 1)))
            low = np.where(inside, border + 1, low)
        return best

    def _better(self, one: Ints, other: Ints) -> Ints:
        wins = (other >= 0) & ((one < 0) | (self._value[other] >= self._value[one]))
        return np.where(wins, other, one)

    def _last_greatest(self, low: Ints, high: Ints) -> Ints:
        if self._maxima is not None:
            return self._maxima.last_greatest(low, high)
        return np.where(high >= low, high, -1)

    def _near(self, chosen: Ints, rival: Ints, error_ns: int) -> Ints:
        close = (chosen >= 0) & (rival >= 0) & (self._value[chosen] - self._value[rival] <= error_ns)
        return np.where(close, rival, -1)

    def _reaching(self, at: Ints, time: Ints) -> Ints:
        return np.where((at >= 0) & (self._end[at] >= time), at, -1)

    def _innermost(self, left: Ints, right: Ints, time: Ints, itself: Ints) -> Ints:
        longer = _previous_longer(self._key, self._end)
        at = np.where(right >= left, right, -1)
        while True:
            own = (at >= 0) & (at == itself)
            short = (at >= 0) & ~own & (self._end[at] < time)
            if not (own.any() or short.any()):
                return at
            at = np.where(own, np.where(at > left, at - 1, -1), np.where(short, longer[at], at))

    def _not_nested(self, chosen: Ints, left: Ints, time: Ints, itself: Ints, error_ns: int) -> Ints:
        """Another call around the moment that began as late within the error, and does not contain the chosen one."""
        at = np.where(chosen > left, chosen - 1, -1)
        while True:
            near = (at >= 0) & (self._begin[chosen] - self._begin[at] <= error_ns)
            same = (self._begin[at] == self._begin[chosen]) & (self._end[at] == self._end[chosen])
            rival = near & (self._end[at] >= time) & (at != itself) & (same | (self._end[at] < self._end[chosen]))
            if not (near & ~rival).any():
                return np.where(rival, at, -1)
            at = np.where(rival, at, np.where(near & (at > left), at - 1, -1))


def _previous_longer(key: Ints, end: Ints) -> Ints:
    """For each cause the nearest earlier one of its key that ends later; -1 if there is none.

    Whatever lies between ends no later, so it cannot reach a moment that the cause itself does not reach.
    """
    ends, keys = end.tolist(), key.tolist()
    result = np.full(len(ends), -1, np.int64)
    stack: list[int] = []
    for i in range(len(ends)):
        if stack and keys[stack[-1]] != keys[i]:
            stack.clear()
        while stack and ends[stack[-1]] <= ends[i]:
            stack.pop()
        if stack:
            result[i] = stack[-1]
        stack.append(i)
    return result


class _RangeMaxima:
    """Positions of the greatest value in any range, by a sparse table: n log n once, then two look-ups a range."""

    def __init__(self, values: Ints) -> None:
        self._values = np.append(values, _LEAST)
        rows = [np.arange(len(values), dtype=np.int64)]
        width = 1
        while 2 * width <= len(values):
            last = rows[-1]
            rows.append(self._later_greater(last[:-width], last[width:]))
            width *= 2
        self._rows = rows

    def _later_greater(self, one: Ints, other: Ints) -> Ints:
        return np.where(self._values[other] >= self._values[one], other, one)

    def last_greatest(self, low: Ints, high: Ints) -> Ints:
        """Return the last position of the greatest value in low..high; -1 for an empty range."""
        result = np.full(len(low), -1, np.int64)
        length = high - low + 1
        for level, row in enumerate(self._rows):
            # a range of width 2^level to 2^(level+1) - 1 is covered by two of this level
            here = (length >> level) == 1
            if here.any():
                first, last = low[here], high[here] - (1 << level) + 1
                result[here] = self._later_greater(row[first], row[last])
        return result
