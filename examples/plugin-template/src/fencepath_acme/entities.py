# SPDX-License-Identifier: Apache-2.0
"""Follows the handles of streams, which libacme hands out again after they are destroyed."""

from __future__ import annotations

import numpy as np
from fencepath.entities import NO_ENTITY, Entities, generations
from fencepath.events import Batch, Column

from fencepath_acme.events import STREAM, STREAM_CREATE

__all__ = ["Streams"]


class Streams:
    """Implements :class:`fencepath.entities.EntityTracker`: adds the column ``stream``.

    A stream is told from later ones with the same handle by its generation: how often the handle had been created when
    the call began, 0 for one that was there before the recording.
    """

    def __init__(self) -> None:
        self._owner = np.empty(0, np.int64)
        self._handle = np.empty(0, np.uint64)
        self._born_ns = np.empty(0, np.int64)

    def update(self, batch: Batch, entities: Entities) -> None:
        """Name the stream of each call; creations come before all other kinds, as they are kept and listed first."""
        if "stream_handle" not in batch:
            return
        known = (batch["stream_handle"] != 0) & (batch["process"] != NO_ENTITY)
        if batch.kind == STREAM_CREATE:
            known &= batch["returned"] & (batch["result"] == 0)
            self._add(batch.take(known))
        # a creation is the first use of what it made, so it counts itself
        at_ns: Column = batch["time_ns" if batch.kind == STREAM_CREATE else "begin_ns"]
        generation = generations(
            batch["process"], batch["stream_handle"], at_ns.astype(np.int64), self._owner, self._handle, self._born_ns
        )

        def text(process: int, handle: int, number: int) -> str:
            return f"{STREAM}:{entities.text(process)}/{handle:#x}#{number}"

        columns = [batch["process"], batch["stream_handle"], generation]
        batch.columns["stream"] = entities.intern_columns(STREAM, columns, text, known)

    def _add(self, created: Batch) -> None:
        self._owner = np.concatenate([self._owner, created["process"]])
        self._handle = np.concatenate([self._handle, created["stream_handle"]])
        self._born_ns = np.concatenate([self._born_ns, created["time_ns"].astype(np.int64)])
