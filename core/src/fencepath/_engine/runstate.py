# SPDX-License-Identifier: Apache-2.0
"""Thread states from scheduler events, for whichever kinds have the roles ``run_state`` and ``wake``."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY

__all__ = ["RunState", "RunStates"]

Ints = npt.NDArray[np.int64]


class RunState(enum.IntEnum):
    """What the scheduler was doing with a thread."""

    UNKNOWN = 0
    RUNNING = 1
    PREEMPTED = 2
    """Could run, was taken off its CPU."""
    WOKEN = 3
    """Could run again after being blocked, waits for a CPU."""
    BLOCKED = 4


class _Change(enum.IntEnum):
    """In the order in which changes of one moment are taken: a thread is woken before it gets a CPU."""

    OUT_RUNNABLE = 0
    OUT_BLOCKED = 1
    WAKE = 2
    IN = 3
    LOST = 4
    """The end of a window in which events were lost: what the state was before says nothing any more."""
    BORN = 5
    """A new thread waits for a CPU from the moment it is made."""


_AFTER = np.array(
    [RunState.PREEMPTED, RunState.BLOCKED, RunState.WOKEN, RunState.RUNNING, RunState.UNKNOWN, RunState.WOKEN], np.int64
)
_BEFORE = np.array(
    [RunState.RUNNING, RunState.RUNNING, RunState.BLOCKED, RunState.UNKNOWN, RunState.UNKNOWN, RunState.UNKNOWN],
    np.int64,
)
"""What the state must have been before a change of which nothing earlier is known."""


class RunStates:
    """States of all threads, and the wake-ups that ended their blocked times.

    Attributes:
        observed: whether scheduler events were recorded at all.
        lost: windows (from_ns, to_ns) in which some were lost; the state there is unknown.
        followed: threads of which all scheduler events were recorded. Of others only those that touch a followed one are
            there (it was woken by them, or took turns with them on a CPU), which says nothing about the time between.
    """

    def __init__(
        self, *, observed: bool, lost: Sequence[tuple[int, int]] = (), followed: Collection[int] | None = None
    ) -> None:
        self.observed = observed
        self.lost = tuple(lost)
        self.followed = followed
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._sorted: tuple[Ints, Ints, Ints, Ints] | None = None

    def follows(self, thread: int) -> bool:
        """Whether all scheduler events of a thread were recorded."""
        return self.followed is None or thread in self.followed

    def add_switches(self, time_ns: Ints, prev: Ints, prev_runnable: npt.NDArray[np.bool_], following: Ints) -> None:
        """Add switches: at `time_ns` thread `prev` left a CPU and thread `following` got it (entities)."""
        out = np.where(prev_runnable, int(_Change.OUT_RUNNABLE), int(_Change.OUT_BLOCKED))
        nothing = np.full(len(time_ns), -1)
        self._add(prev, time_ns, out, nothing)
        self._add(following, time_ns, np.full(len(time_ns), int(_Change.IN)), nothing)

    def add_wakes(self, time_ns: Ints, wakee: Ints, activity: Ints) -> None:
        """Add wake-ups of threads `wakee`, each with its activity index."""
        self._add(wakee, time_ns, np.full(len(time_ns), int(_Change.WAKE)), activity)

    def add_births(self, time_ns: Ints, thread: Ints) -> None:
        """Add when threads were created, as far as that was seen."""
        self._add(thread, time_ns, np.full(len(time_ns), int(_Change.BORN)), np.full(len(time_ns), -1))

    def _add(self, thread: Ints, time_ns: Ints, change: Ints, activity: Ints) -> None:
        known = thread != NO_ENTITY
        self._parts.append((thread[known], time_ns[known].astype(np.int64), change[known], activity[known]))
        self._sorted = None

    def _rows(self, thread: int) -> tuple[Ints, Ints, Ints]:
        if self._sorted is None:
            empty = np.empty(0, np.int64)
            columns = [np.concatenate([part[i] for part in self._parts]) if self._parts else empty for i in range(4)]
            order = np.lexsort((columns[2], columns[1], columns[0]))
            self._sorted = (columns[0][order], columns[1][order], columns[2][order], columns[3][order])
        threads, times, changes, activities = self._sorted
        rows = slice(np.searchsorted(threads, thread, "left"), np.searchsorted(threads, thread, "right"))
        return times[rows], changes[rows], activities[rows]

    def states(self, thread: int) -> tuple[Ints, Ints]:
        """Return (times, states): state ``states[i]`` holds from ``times[i]`` to the next time; ``times[0]`` is 0.

        Before its first event, and after events were lost, a thread that is then switched out was running, and one that
        is then woken was blocked. Within a window of loss the state is unknown; :attr:`lost` names them.
        """
        times, changes, _ = self._with_losses(thread)
        if not self.follows(thread):
            return np.zeros(1, np.int64), np.array([RunState.UNKNOWN], np.int64)
        if not len(times):
            return np.zeros(1, np.int64), np.array([RunState.RUNNING if self.observed else RunState.UNKNOWN], np.int64)
        lost = changes == _Change.LOST
        following = np.append(changes[1:], int(_Change.LOST))
        after = np.where(lost, _BEFORE[following], _AFTER[changes])
        first = int(_BEFORE[changes[0]])
        before = np.concatenate([[first], after[:-1]])
        useless = (changes == _Change.WAKE) & (before != RunState.BLOCKED)
        # a wake-up of a thread that is not blocked changes nothing; chains of them take the state before the chain
        if useless.any():
            position = np.arange(len(after))
            source = np.maximum.accumulate(np.where(useless, -1, position))
            after = np.where(useless, np.where(source >= 0, after[source], first), after)
        return np.concatenate([[0], times]), np.concatenate([[first], after])

    def _with_losses(self, thread: int) -> tuple[Ints, Ints, Ints]:
        """The thread's changes, and one more where a window of loss ends."""
        times, changes, activities = self._rows(thread)
        ends = np.array([to_ns for _, to_ns in self.lost], np.int64)
        if not len(ends) or not len(times):
            return times, changes, activities
        times = np.concatenate([times, ends])
        changes = np.concatenate([changes, np.full(len(ends), int(_Change.LOST))])
        activities = np.concatenate([activities, np.full(len(ends), -1)])
        order = np.lexsort((changes, times))
        return times[order], changes[order], activities[order]

    def wakes(self, thread: int) -> tuple[Ints, Ints]:
        """Return (times, activities) of the wake-ups that ended a blocked time of `thread`."""
        times, changes, activities = self._with_losses(thread)
        if not len(times) or not self.follows(thread):
            return times[:0], activities[:0]
        _, states = self.states(thread)
        real = (changes == _Change.WAKE) & (states[:-1] == RunState.BLOCKED)
        return times[real], activities[real]
