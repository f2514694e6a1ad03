# SPDX-License-Identifier: Apache-2.0
"""Look-ups of many rows at once: by key and time, and in intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["at", "contains", "find", "first", "latest"]

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]


def at(column: Keys, row: Ints) -> Keys:
    """Return values at rows; what stands at rows below 0 means nothing."""
    return column[row] if len(column) else np.zeros(len(row), column.dtype)


def first(keys: Keys) -> tuple[Keys, Ints]:
    """Return each key once, ascending, with the first row that has it."""
    unique, rows = np.unique(keys, return_index=True)
    return unique, rows.astype(np.int64)


def find(known: Keys, wanted: Keys) -> Ints:
    """Return where each wanted key is among the known ones, which are ascending and each there once; -1 if it is not."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, -1).astype(np.int64)


def latest(known: Keys, known_ns: Ints, wanted: Keys, wanted_ns: Ints) -> Ints:
    """Return for each wanted key the row of the known one that is equal and came last until then, else the first after it.

    -1 if none is equal.
    """
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    _, code = np.unique(np.concatenate([known, wanted]), return_inverse=True)
    code = code.reshape(-1).astype(np.int64)
    mine, theirs = code[: len(known)], code[len(known) :]
    times = np.sort(known_ns)
    span = np.int64(len(times) + 1)
    rank = mine * span + np.searchsorted(times, known_ns, "right")
    order = np.argsort(rank, kind="stable")
    ranks, owner = rank[order], mine[order]
    place = np.searchsorted(ranks, theirs * span + np.searchsorted(times, wanted_ns, "right"), "right") - 1
    before = (place >= 0) & (owner[place] == theirs)
    after = np.minimum(place + 1, len(owner) - 1)
    found = np.where(before, place, np.where(owner[after] == theirs, after, -1))
    return np.where(found >= 0, order[found], -1)


def contains(owner: Ints, begin: Ints, end: Ints, wanted: Ints, time_ns: Ints) -> Ints:
    """Return for each wanted owner and time the interval of that owner that contains it; -1 if none does.

    Intervals of one owner do not overlap, as a thread is in one system call at a time. An owner below 0 is nobody.
    """
    if not len(owner) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((begin, owner))
    begins = np.unique(begin)
    span = np.int64(len(begins) + 1)
    base = min(int(owner.min()), int(wanted.min()), 0)
    code = (owner[order] - base) * span + np.searchsorted(begins, begin[order], "right")
    place = np.searchsorted(code, (wanted - base) * span + np.searchsorted(begins, time_ns, "right"), "right") - 1
    row = order[place]
    inside = (place >= 0) & (owner[row] == wanted) & (time_ns <= end[row]) & (wanted >= 0)
    return np.where(inside, row, -1)
