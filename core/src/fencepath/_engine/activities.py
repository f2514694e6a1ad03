# SPDX-License-Identifier: Apache-2.0
"""The activity table: every event as an interval on an entity, in columns over all kinds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, Category, KindInfo, Role
from fencepath.joins import Activities
from fencepath.records import Flags

__all__ = ["CATEGORIES", "CONFIDENCES", "ENTRY_ONLY_LIMIT_NS", "ActivityTable", "category_code"]

CATEGORIES = tuple(Category)
CONFIDENCES = ("exact", "bounded", "inferred")
ENTRY_ONLY_LIMIT_NS = 1_000_000
"""A call whose end is not recorded is taken as running for at most this long."""
NO_CATEGORY = -1
_THREAD_ROLES = frozenset({Role.CALL, Role.WAIT, Role.TRANSFER, Role.MEMORY, Role.MARK})
"""Records of a thread that end an entry-only call before them: what a thread does of its own, not inside a call."""


def category_code(category: Category | None) -> int:
    """Return the number that stands for a category in columns."""
    return NO_CATEGORY if category is None else CATEGORIES.index(category)


class ActivityTable:
    """All activities of a run. An activity's index is valid for this run only; its id is the same in every run.

    Attributes:
        begin: begin in ns, CLOCK_MONOTONIC, shape (n,).
        end: end, likewise.
        thread: thread entity or NO_ENTITY.
        category: category code of its time, -1 for instants.
        confidence: 0 exact, 1 bounded (a time is a bound).
        bounds: whether begin and end are the earliest and the latest there can be, so that no path goes by them.
    """

    def __init__(self, batches: Mapping[str, Batch], infos: Mapping[str, KindInfo], entities: Entities) -> None:
        self.kinds = tuple(sorted(batches))
        self._batches = batches
        self._infos = infos
        self._entities = entities
        sizes = [len(batches[kind]) for kind in self.kinds]
        self._first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.begin = self._column("begin_ns", np.int64)
        self.end = self._column("time_ns", np.int64)
        self.thread = self._column("thread", np.int64)
        self.category = np.repeat([category_code(infos[kind].time_category) for kind in self.kinds], sizes).astype(
            np.int8
        )
        flags = self._column("flags", np.int64)
        entry_only = (flags & int(Flags.ENTRY_ONLY)) != 0
        self.bounds = (flags & int(Flags.BOUNDS)) != 0
        self.confidence = (entry_only | self.bounds).astype(np.int8)
        self._bound_entry_only(entry_only)
        self._ordinals: dict[str, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def _column(self, name: str, dtype: type[np.int64]) -> npt.NDArray[np.int64]:
        parts = [self._batches[kind][name].astype(dtype) for kind in self.kinds]
        return np.concatenate(parts) if parts else np.empty(0, dtype)

    def of_kind(self, kind: str) -> Activities:
        """Indices of all activities of a kind, in the order of its batch."""
        if kind not in self._batches:
            return np.empty(0, np.int64)
        position = self.kinds.index(kind)
        return np.arange(self._first[position], self._first[position + 1])

    def of_role(self, role: Role) -> Activities:
        """Indices of all activities of a role."""
        parts = [self.of_kind(kind) for kind in self.kinds if self._infos[kind].role is role]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def locate(self, activity: int) -> tuple[str, int]:
        """Return kind and row of an activity."""
        position = int(np.searchsorted(self._first, activity, "right")) - 1
        return self.kinds[position], activity - int(self._first[position])

    def column(self, kind_column: str, activities: Activities) -> npt.NDArray[np.int64]:
        """A key column over activities of several kinds; NO_ENTITY where the kind has no such column."""
        result = np.full(len(activities), NO_ENTITY, np.int64)
        position = np.searchsorted(self._first, activities, "right") - 1
        for code in np.unique(position).tolist():
            batch = self._batches[self.kinds[code]]
            if kind_column in batch:
                rows = position == code
                result[rows] = batch[kind_column][activities[rows] - self._first[code]].astype(np.int64)
        return result

    def name(self, activity: int) -> str:
        """What to call an activity: its label (a function's name), else its kind."""
        kind, row = self.locate(activity)
        batch = self._batches[kind]
        if batch.labels and "label" in batch:
            code = int(batch["label"][row])
            if 0 <= code < len(batch.labels):
                return batch.labels[code]
        return kind

    def entities(self, activity: int) -> tuple[str, ...]:
        """Texts of the entities an activity names, its thread first."""
        kind, row = self.locate(activity)
        batch = self._batches[kind]
        columns = ["thread", *(key.column for key in self._infos[kind].keys)]
        numbers = dict.fromkeys(int(batch[column][row]) for column in columns if column in batch)
        return tuple(self._entities.text(number) for number in numbers if number != NO_ENTITY)

    def id(self, activity: int) -> str:
        """16 hex digits: BLAKE2b-64 of kind, first entity, begin and the ordinal among equals."""
        kind, row = self.locate(activity)
        first = (self.entities(activity) or ("",))[0]
        begin = int(self.begin[activity])
        ordinal = self._ordinal(kind, row)
        text = "\0".join((kind, first, str(begin), str(ordinal)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _ordinal(self, kind: str, row: int) -> int:
        """How many rows before this one have the same thread and begin."""
        found = self._ordinals.get(kind)
        if found is None:
            found = self._ordinals[kind] = _ordinals(self._batches[kind])
        return int(found[row])

    def _bound_entry_only(self, entry_only: npt.NDArray[np.bool_]) -> None:
        """Give calls without a recorded end a bound: the thread's next record of its own, at most 1 ms later.

        A submission that began before the bound is not cut by it: its own end was recorded.
        """
        rows = np.flatnonzero(entry_only)
        if not len(rows):
            return
        own = np.concatenate([self.of_role(role) for role in _THREAD_ROLES])
        own = own[self.thread[own] != NO_ENTITY]
        order = np.lexsort((self.begin[own], self.thread[own]))
        own = own[order]
        following = np.full(len(self), np.iinfo(np.int64).max)
        same = self.thread[own[1:]] == self.thread[own[:-1]]
        following[own[:-1][same]] = self.begin[own[1:]][same]
        limit = self.begin[rows] + ENTRY_ONLY_LIMIT_NS
        limit = np.maximum(limit, self._end_of_last_submission(rows, limit))
        self.end[rows] = np.maximum(self.begin[rows], np.minimum(following[rows], limit))

    def _end_of_last_submission(self, rows: Activities, until: Activities) -> Activities:
        """End of the last submission that each activity's thread began before a time; 0 for none.

        A thread is in one at a time, so that one from before the activity ended before it began.
        """
        inside = self.of_role(Role.SUBMIT)
        inside = inside[self.thread[inside] != NO_ENTITY]
        if not len(inside):
            return np.zeros(len(rows), np.int64)
        begins = np.unique(self.begin[inside])
        span = np.int64(len(begins) + 1)
        code = self.thread[inside] * span + np.searchsorted(begins, self.begin[inside], "right")
        order = np.argsort(code, kind="stable")
        wanted = self.thread[rows] * span + np.searchsorted(begins, until, "right")
        last = inside[order[np.maximum(np.searchsorted(code[order], wanted, "right") - 1, 0)]]
        mine = (self.thread[last] == self.thread[rows]) & (self.begin[last] <= until)
        return np.where(mine, self.end[last], 0)

    def counts(self) -> Counter[str]:
        """Events by kind."""
        return Counter({kind: len(self._batches[kind]) for kind in self.kinds})


def _ordinals(batch: Batch) -> npt.NDArray[np.int64]:
    begin, thread = batch["begin_ns"], batch["thread"]
    order = np.lexsort((begin, thread))
    first = np.ones(len(order), np.bool_)
    first[1:] = (begin[order[1:]] != begin[order[:-1]]) | (thread[order[1:]] != thread[order[:-1]])
    position = np.arange(len(order))
    result = np.empty(len(order), np.int64)
    result[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return result
