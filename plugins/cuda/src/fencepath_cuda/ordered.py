# SPDX-License-Identifier: Apache-2.0
"""Rows sorted by an entity and a time, searched by both at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "Ordered", "least_from", "most_so_far", "ranges"]

Ints = npt.NDArray[np.int64]


class Ordered:
    """Rows in the order of (key, time); positions are indices in that order, -1 stands for none.

    Attributes:
        order: row at each position, shape (n,).
        key: entity at each position.
        time: time at each position, CLOCK_MONOTONIC in ns.
    """

    def __init__(self, key: Ints, time: Ints) -> None:
        self.order = np.lexsort((time, key))
        self.key = key[self.order]
        self.time = time[self.order]
        # A rank stands for a time, so that one integer holds key and time.
        self._times = np.sort(time)
        self._span = len(self._times) + 1
        self._code = self.key * self._span + np.searchsorted(self._times, self.time)

    def last(self, key: Ints, time: Ints, *, before: bool = False) -> Ints:
        """Return the position of the last row of each key at or before each time; with `before` strictly before it."""
        at = self._insertion(key, time, "left" if before else "right") - 1
        found = at >= 0
        found[found] = self.key[at[found]] == key[found]
        return np.where(found, at, -1)

    def first_after(self, key: Ints, time: Ints) -> Ints:
        """Return the position of the first row of each key after each time."""
        return self._first(key, time, "right")

    def first_from(self, key: Ints, time: Ints) -> Ints:
        """Return the position of the first row of each key at or after each time."""
        return self._first(key, time, "left")

    def _first(self, key: Ints, time: Ints, side: str) -> Ints:
        at = self._insertion(key, time, side)
        found = at < len(self.key)
        found[found] = self.key[at[found]] == key[found]
        return np.where(found, at, -1)

    def _insertion(self, key: Ints, time: Ints, side: str) -> Ints:
        rank = np.searchsorted(self._times, time, "left" if side == "left" else "right")
        return np.searchsorted(self._code, key * self._span + rank, "left")

    @property
    def first_of_key(self) -> npt.NDArray[np.bool_]:
        """Whether each position is the first of its key."""
        return np.append(True, self.key[1:] != self.key[:-1]) if len(self.key) else np.empty(0, np.bool_)


def most_so_far(values: Ints, first: npt.NDArray[np.bool_]) -> Ints:
    """Return the most of each value and those before it in its group; groups begin where `first` is true."""
    if not len(values):
        return values
    rank_of, rank = np.unique(values, return_inverse=True)
    # Groups are laid one above the other, so that a running maximum never crosses from one to the next.
    offset = np.cumsum(first) * (len(rank_of) + 1)
    return np.asarray(rank_of[np.maximum.accumulate(rank + offset) - offset])


def least_from(values: Ints, first: npt.NDArray[np.bool_]) -> Ints:
    """Return the least of each value and those after it in its group; groups begin where `first` is true."""
    last = np.append(first[1:], True)[: len(first)]
    return -most_so_far(-values[::-1], last[::-1])[::-1]


def ranges(sizes: Ints) -> Ints:
    """Return 0, 1, … for each size, one after the other: ``[2, 0, 3]`` gives ``[0, 1, 0, 1, 2]``."""
    total = int(sizes.sum())
    return np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
