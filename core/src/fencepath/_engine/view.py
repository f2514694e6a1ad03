# SPDX-License-Identifier: Apache-2.0
"""What rules and request sources see of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fencepath._engine.activities import ActivityTable
from fencepath.events import Batch, Column, Event, columns_of
from fencepath.joins import Activities

__all__ = ["EngineView"]

_HEAD_DTYPES = {
    "time_ns": "u8",
    "begin_ns": "u8",
    "tgid": "u4",
    "tid": "u4",
    "cpu": "u2",
    "flags": "u4",
    "process": "i8",
    "thread": "i8",
}


class EngineView:
    """Implements :class:`fencepath.joins.View`.

    Args:
        batches: of the kinds with events.
        table: their activities.
        error_ns: clock error.
        events: classes of kinds, which say what columns a kind without events has.
    """

    def __init__(
        self,
        batches: Mapping[str, Batch],
        table: ActivityTable,
        error_ns: int,
        events: Mapping[str, type[Event]] | None = None,
    ) -> None:
        self._batches = batches
        self._table = table
        self._error_ns = error_ns
        self._events = events or {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds with at least one event."""
        return tuple(self._batches)

    def batch(self, kind: str) -> Batch:
        """All events of a kind by time. Of one that has none, an empty batch with the columns that its class declares."""
        found = self._batches.get(kind)
        return found if found is not None else self._empty(kind)

    def _empty(self, kind: str) -> Batch:
        columns: dict[str, Column] = {name: np.empty(0, dtype) for name, dtype in _HEAD_DTYPES.items()}
        event = self._events.get(kind)
        if event is not None:
            columns |= {key.column: np.empty(0, np.int64) for key in event.info.keys}
            columns |= {name: np.empty(0, dtype) for name, dtype in columns_of(event).items()}
        return Batch(kind, columns)

    def activities(self, kind: str) -> Activities:
        """Activity index of each row of a kind's batch."""
        return self._table.of_kind(kind)

    @property
    def extent_ns(self) -> tuple[int, int]:
        """Begin of the first and end of the last event; (0, 0) if there are none."""
        if not len(self._table):
            return 0, 0
        return int(self._table.begin.min()), int(self._table.end.max())

    @property
    def error_ns(self) -> int:
        """Clock error within one host: all times are one clock's, read by one instruction on each CPU."""
        return self._error_ns
