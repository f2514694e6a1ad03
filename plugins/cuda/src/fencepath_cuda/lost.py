# SPDX-License-Identifier: Apache-2.0
"""When calls were lost."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from fencepath.joins import Events
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import Mask

__all__ = ["Lost", "may_be_another"]


class Loses(Protocol):
    """Events and entities, which both know what was lost."""

    def lost(self, *kinds: str) -> Ints:
        """Windows from and to, ascending by begin."""
        ...


class Lost:
    """Windows of time in which calls of some kinds were lost, so that what follows from calls there is not sure."""

    def __init__(self, source: Loses, *kinds: str) -> None:
        windows: npt.NDArray[np.int64] = source.lost(*kinds)
        self._from = windows[:, 0]
        self._reach = np.maximum.accumulate(windows[:, 1]) if len(windows) else windows[:, 1]

    def between(self, begin: Ints, end: Ints) -> Mask:
        """Whether something may be missing between two times."""
        at = np.searchsorted(self._from, end, "right") - 1
        if not len(self._from):
            return np.zeros(len(begin), np.bool_)
        return np.asarray((at >= 0) & (self._reach[at] >= begin))

    def before(self, time_ns: Ints) -> Mask:
        """Whether something may be missing up to a time."""
        return self.between(np.zeros(len(time_ns), np.int64), time_ns)


def may_be_another(events: Events, kind: str, column: str, entity: Ints, time_ns: Ints) -> Mask:
    """Whether each entity's handle may have been given to another one by a time, without its creation being recorded.

    Args:
        events: of the run.
        kind: calls that create such entities.
        column: theirs that names what they made.
        entity: used at `time_ns`, likewise.
        time_ns: see there.
    """
    creates = events.batch(kind)
    order = np.argsort(creates[column], kind="stable")
    made, ends = creates[column][order].astype(np.int64), creates["time_ns"][order].astype(np.int64)
    place = np.searchsorted(made, entity)
    found = np.append(made, -1)[place] == entity
    return Lost(events, kind).between(np.where(found, np.append(ends, 0)[place], 0), time_ns)
