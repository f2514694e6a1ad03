# SPDX-License-Identifier: Apache-2.0
"""What rules and request sources see of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import ActivityTable
from fencepath._recording.rows import lost_windows
from fencepath.events import Batch, Column, Event, columns_of
from fencepath.joins import Activities
from fencepath.modules import Modules
from fencepath.recording import Fact, LossRow

__all__ = ["EngineEvents", "EngineView"]

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


class EngineEvents:
    """Implements :class:`fencepath.joins.Events`.

    Args:
        batches: of the kinds with events.
        events: classes of kinds, which say what columns a kind without events has.
        loss: what the recording knows to be lost.
        modules: code of the recorded processes; None for none.
        facts: what was said of the machine.
    """

    def __init__(
        self,
        batches: Mapping[str, Batch],
        events: Mapping[str, type[Event]] | None = None,
        loss: Sequence[LossRow] = (),
        modules: Modules | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        self._facts = facts
        self._batches = batches
        self._events = events or {}
        self._loss = loss
        self._modules = modules if modules is not None else Modules(None)

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

    @property
    def modules(self) -> Modules:
        """Whose code addresses are."""
        return self._modules

    def facts(self, name: str) -> Sequence[Mapping[str, Any]]:
        """What was said of the machine under a name."""
        return [fact.data for fact in self._facts if fact.type == name]

    def lost(self, *kinds: str) -> npt.NDArray[np.int64]:
        """Windows (from, to) in which records of these kinds, or of a kind that is not known, were lost."""
        return lost_windows(self._loss, *kinds)


class EngineView(EngineEvents):
    """Implements :class:`fencepath.joins.View`.

    Args:
        batches: of the kinds with events.
        table: their activities.
        error_ns: clock error.
        events: classes of kinds, which say what columns a kind without events has.
        loss: what the recording knows to be lost.
        modules: code of the recorded processes; None for none.
        facts: what was said of the machine.
    """

    def __init__(
        self,
        batches: Mapping[str, Batch],
        table: ActivityTable,
        error_ns: int,
        events: Mapping[str, type[Event]] | None = None,
        loss: Sequence[LossRow] = (),
        modules: Modules | None = None,
        facts: Sequence[Fact] = (),
    ) -> None:
        super().__init__(batches, events, loss, modules, facts)
        self._table = table
        self._error_ns = error_ns

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
