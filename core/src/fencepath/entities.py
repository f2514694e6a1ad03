# SPDX-License-Identifier: Apache-2.0
"""Entities: the things events name (threads, streams, fences), as integers while the engine runs and as text for ever.

Integers are valid for one run of the engine and never stored; the text of an entity is the same in every run over the
same recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fencepath._recording.rows import LossRow, lost_windows
from fencepath.events import Batch, Column

__all__ = ["NO_ENTITY", "Entities", "EntityIds", "EntityTracker", "generations"]

EntityIds = npt.NDArray[np.int64]
"""One entity id a row; :data:`NO_ENTITY` where a row names none."""

NO_ENTITY = -1
"""Id of no entity. It equals nothing in a join, not even itself."""


class Entities:
    """Gives entities their integers and knows their text.

    Args:
        loss: what the recording knows to be lost, for trackers that follow what calls change.
    """

    def __init__(self, loss: Sequence[LossRow] = ()) -> None:
        self._loss = loss
        self._ids: dict[tuple[object, ...], int] = {}
        self._texts: list[str] = []
        self._types: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    def intern(self, entity: str, key: tuple[object, ...], text: Callable[[], str]) -> int:
        """Return the id of the entity of type `entity` with `key`; `text` is asked once, when it is new."""
        known = self._ids.get((entity, *key))
        if known is not None:
            return known
        number = len(self._texts)
        self._ids[(entity, *key)] = number
        self._texts.append(text())
        self._types.append(entity)
        return number

    def intern_columns(
        self,
        entity: str,
        columns: Sequence[Column],
        text: Callable[..., str],
        where: npt.NDArray[np.bool_] | None = None,
    ) -> EntityIds:
        """Return the ids of as many entities as the columns have rows.

        Args:
            entity: type.
            columns: integer columns of one length that together identify an entity; the order matters.
            text: called with one plain integer per column for each new entity.
            where: rows that name an entity at all; the others get :data:`NO_ENTITY`.
        """
        rows = len(columns[0])
        ids = np.full(rows, NO_ENTITY, np.int64)
        chosen = np.arange(rows) if where is None else np.flatnonzero(where)
        if not len(chosen):
            return ids
        values = [column[chosen] for column in columns]
        first, inverse = _distinct(values)
        keys = zip(*(value[first].tolist() for value in values), strict=True)
        numbers = np.array([self.intern(entity, key, partial(text, *key)) for key in keys], np.int64)
        ids[chosen] = numbers[inverse]
        return ids

    def lost(self, *kinds: str) -> npt.NDArray[np.int64]:
        """Windows in which records of these kinds, or of a kind not known, were lost; as :meth:`fencepath.joins.Events.lost`."""
        return lost_windows(self._loss, *kinds)

    def text(self, number: int) -> str:
        """Return the stable text of an entity, such as ``cuda.stream:process:…/0x1#0``.

        Raises:
            IndexError: there is no such entity; :data:`NO_ENTITY` has no text.
        """
        if number < 0:
            raise IndexError(f"{number} is no entity")
        return self._texts[number]

    def type_of(self, number: int) -> str:
        """Return the type of an entity, such as ``cuda.stream``; errors as :meth:`text`."""
        if number < 0:
            raise IndexError(f"{number} is no entity")
        return self._types[number]


def _distinct(columns: Sequence[Column]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows that are equal in all columns: one row of each, and for every row which of those it equals.

    Column by column, as sorting structured rows costs twenty times as much.
    """
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, part = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(part.max(initial=0)) + 1) + part, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return first.astype(np.int64), code.astype(np.int64)


class EntityTracker(Protocol):
    """Follows the life of a layer's handles and names them in batches."""

    def update(self, batch: Batch, entities: Entities) -> None:
        """Add the layer's key columns to `batch`.

        Called once for each kind of the plugin's layer that has events, with all of them in time order. Kinds that are
        ``keep`` or have the role ``life`` come before the others; apart from that, the order is the one in which
        ``fencepath_event_kinds`` lists them, so creations are to be listed before ends. The batch already has ``process``
        and ``thread``.
        """
        ...


def generations(
    owner: Column, handle: Column, time_ns: Column, born_owner: Column, born_handle: Column, born_ns: Column
) -> npt.NDArray[np.int64]:
    """Return how often each handle had been created at a time: 0 for one that was there before the recording began.

    A handle that was destroyed and handed out again is another entity; the number of creations so far tells them apart.

    Args:
        owner: process entity of each use, shape (n,).
        handle: handle used, shape (n,).
        time_ns: when it was used, shape (n,).
        born_owner: process entity of each creation, shape (m,).
        born_handle: handle created, shape (m,).
        born_ns: when the creation completed, shape (m,).
    """
    if not len(born_handle) or not len(handle):
        return np.zeros(len(handle), np.int64)
    _, code = _distinct([np.concatenate([owner, born_owner]), np.concatenate([handle, born_handle])])
    use, born = code[: len(handle)], code[len(handle) :]
    # A birth counts for a use if it came no later. Ranks among all births stand for times, so one integer holds both.
    at = np.sort(born_ns)
    span = np.int64(len(at) + 1)
    births = np.sort(born * span + np.searchsorted(at, born_ns, "left"))
    return np.searchsorted(births, use * span + np.searchsorted(at, time_ns, "right"), "left") - np.searchsorted(
        births, use * span, "left"
    )
