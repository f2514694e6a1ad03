# SPDX-License-Identifier: Apache-2.0
"""Which context is current in which thread when: cuCtxCreate, SetCurrent, Push, Pop and Destroy change it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch, Column
from fencepath_cuda.events import ContextChange
from fencepath_cuda.lost import Lost
from fencepath_cuda.ordered import Ints, Ordered

__all__ = ["CONTEXT_CHANGES", "UNKNOWN", "CurrentContexts"]

CONTEXT_CHANGES = ("cuda.context.create", "cuda.context.set", "cuda.context.destroy")
"""Kinds that make another context current."""

UNKNOWN = 0
"""Handle of a context that is not known; CUDA's own null handle means that a thread has none."""

_CREATE, _DESTROY = 3, 4
"""What besides :class:`ContextChange` changes a thread's context."""


class CurrentContexts:
    """Follows the current context of every thread, and which contexts a process is known to have.

    Where a change may have been lost, a thread's context is not known until the next one that is told.
    """

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, int, int]] = []
        self._known: dict[int, set[int]] = defaultdict(set)
        self._of_thread: tuple[Ordered, npt.NDArray[np.uint64]] | None = None

    def add(self, batch: Batch) -> None:
        """Take the calls of a batch of ``cuda.context.create``, ``.set`` or ``.destroy`` into account."""
        if batch.kind == "cuda.context.create":
            # of cuCtxCreate alone: retaining a primary context, or making one of a green context, makes nothing current
            what = np.where(batch["primary"] | (batch["green_context"] != 0), -1, _CREATE)
        elif batch.kind == "cuda.context.destroy":
            what = np.where(batch["primary"], -1, _DESTROY)
        else:
            what = batch["how"].astype(np.int64)
        done = batch["returned"] & (batch["result"] == 0)
        handles = batch["context_handle"].tolist()
        self._of_thread = None
        for row in np.flatnonzero(done).tolist():
            if handles[row] and batch.kind != "cuda.context.destroy":
                self._known[int(batch["process"][row])].add(handles[row])
            if what[row] >= 0 and batch["thread"][row] != NO_ENTITY:
                self._changes.append(
                    (int(batch["thread"][row]), int(batch["time_ns"][row]), int(what[row]), handles[row])
                )

    def current(self, thread: Column, process: Column, time_ns: Column, lost: Lost) -> npt.NDArray[np.uint64]:
        """Return the handle of the context that is current in each thread at each time.

        Of a thread of which it is not known it is the only one that its process is known to have, else :data:`UNKNOWN`.

        Args:
            thread: entity of each call, likewise `process`.
            process: see there.
            time_ns: when each call began.
            lost: changes that were lost.
        """
        if self._of_thread is None:
            self._of_thread = self._follow(lost)
        ordered, handles = self._of_thread
        times = time_ns.astype(np.int64)
        at = ordered.last(thread.astype(np.int64), times)
        found = np.full(len(times), UNKNOWN, np.uint64)
        told = at >= 0
        found[told] = handles[ordered.order][at[told]]
        found[told] = np.where(lost.between(ordered.time[at[told]], times[told]), UNKNOWN, found[told])
        only = np.where(lost.before(times), np.uint64(UNKNOWN), self._only(process))
        return np.where(found != UNKNOWN, found, only).astype(np.uint64)

    def several(self, process: Column, time_ns: Column, lost: Lost) -> npt.NDArray[np.bool_]:
        """Return whether each process may have more than one context at a time: it is known to, or a change was lost."""
        known = np.isin(process, [owner for owner, handles in self._known.items() if len(handles) > 1])
        return np.asarray(known | lost.before(time_ns.astype(np.int64)))

    def _only(self, process: Column) -> npt.NDArray[np.uint64]:
        alone = {owner: next(iter(handles)) for owner, handles in self._known.items() if len(handles) == 1}
        owners, inverse = np.unique(process, return_inverse=True)
        values = [alone.get(owner, UNKNOWN) for owner in owners.tolist()]
        return np.array(values, np.uint64)[inverse] if len(owners) else np.empty(0, np.uint64)

    def _follow(self, lost: Lost) -> tuple[Ordered, npt.NDArray[np.uint64]]:
        """Replay the changes of each thread on a stack; of what was on it before the recording, or a loss, nothing is known."""
        stacks: dict[int, list[int]] = defaultdict(lambda: [UNKNOWN])
        threads: list[int] = []
        times: list[int] = []
        after: list[int] = []
        changes = sorted(self._changes)
        ends = np.array([time_ns for _, time_ns, _, _ in changes], np.int64)
        forgets = np.append(False, lost.between(ends[:-1], ends[1:])) if changes else ends
        for (thread, time_ns, what, handle), forget in zip(changes, forgets.tolist(), strict=True):
            stack = stacks[thread]
            if forget:
                stack[:] = [UNKNOWN]
            _change(stack, what, handle)
            threads.append(thread)
            times.append(time_ns)
            after.append(stack[-1])
        key: Ints = np.array(threads, np.int64)
        return Ordered(key, np.array(times, np.int64)), np.array(after, np.uint64)


def _change(stack: list[int], what: int, handle: int) -> None:
    # Setting none is taking off the one on top.
    gone = what == ContextChange.POP or (what == ContextChange.SET and not handle)
    if what == ContextChange.SET and handle:
        stack[-1] = handle
    elif what in (ContextChange.PUSH, _CREATE):
        stack.append(handle)
    elif gone or (what == _DESTROY and stack[-1] == handle):
        stack.pop()
        if not stack:
            stack.append(UNKNOWN)
