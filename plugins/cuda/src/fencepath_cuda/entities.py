# SPDX-License-Identifier: Apache-2.0
"""Follows the handles of streams and CUDA events, which CUDA hands out again after they are destroyed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities, EntityIds, generations
from fencepath.events import Batch, Column
from fencepath_cuda.events import StreamKind

__all__ = ["CudaEntities"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

STREAM, EVENT = "cuda.stream", "cuda.event"
CREATES = {"cuda.stream.create": STREAM, "cuda.event.create": EVENT}


class _Births:
    """Creations of one type of handle seen so far."""

    def __init__(self) -> None:
        self.owner = np.empty(0, np.int64)
        self.handle = np.empty(0, np.uint64)
        self.time_ns = np.empty(0, np.int64)

    def add(self, owner: Column, handle: Column, time_ns: Column) -> None:
        self.owner = np.concatenate([self.owner, owner])
        self.handle = np.concatenate([self.handle, handle])
        self.time_ns = np.concatenate([self.time_ns, time_ns.astype(np.int64)])

    def before(self, owner: Column, handle: Column, time_ns: Column) -> Ints:
        return generations(owner, handle, time_ns.astype(np.int64), self.owner, self.handle, self.time_ns)


class CudaEntities:
    """Implements :class:`fencepath.entities.EntityTracker`: adds the columns ``stream`` and ``event``.

    A handle is told from later ones of the same value by its generation: how often it had been created when the
    call began, 0 for one that was there before the recording. A creation that failed creates nothing. Default
    streams are never created and have generation 0: one legacy stream a process (contexts are not followed yet)
        and one per-thread stream a thread.
    """

    def __init__(self) -> None:
        self._births = {STREAM: _Births(), EVENT: _Births()}

    def update(self, batch: Batch, entities: Entities) -> None:
        """Name the stream and the CUDA event of each call; creations of a type come before its uses."""
        created = CREATES.get(batch.kind)
        if created is not None:
            self._add_births(batch, created)
        if "stream_handle" in batch:
            batch.columns["stream"] = self._streams(batch, entities)
        if "event_handle" in batch:
            batch.columns["event"] = self._events(batch, entities)

    def _add_births(self, batch: Batch, entity: str) -> None:
        handle = batch["stream_handle" if entity == STREAM else "event_handle"]
        born = batch["returned"] & (batch["result"] == 0) & (handle != 0) & (batch["process"] != NO_ENTITY)
        self._births[entity].add(batch["process"][born], handle[born], batch["time_ns"][born])

    def _streams(self, batch: Batch, entities: Entities) -> EntityIds:
        kind = batch["stream_kind"]
        created = kind == StreamKind.CREATED
        generation = np.where(created, self._generation(batch, STREAM, batch["stream_handle"]), 0)
        owner_tid = np.where(kind == StreamKind.PER_THREAD, batch["tid"], 0)
        columns = [batch["process"], batch["stream_handle"], owner_tid.astype(np.int64), generation]

        def text(process: int, handle: int, tid: int, number: int) -> str:
            thread = f"/{tid}" if tid else ""
            return f"{STREAM}:{entities.text(process)}/-/{handle:#x}{thread}#{number}"

        named = (kind != StreamKind.NONE) & _succeeded(batch) & (batch["process"] != NO_ENTITY)
        return entities.intern_columns(STREAM, columns, text, named)

    def _events(self, batch: Batch, entities: Entities) -> EntityIds:
        handle = batch["event_handle"]
        columns = [batch["process"], handle, self._generation(batch, EVENT, handle)]

        def text(process: int, handle: int, number: int) -> str:
            return f"{EVENT}:{entities.text(process)}/{handle:#x}#{number}"

        named = (handle != 0) & _succeeded(batch) & (batch["process"] != NO_ENTITY)
        return entities.intern_columns(EVENT, columns, text, named)

    def _generation(self, batch: Batch, entity: str, handle: Column) -> Ints:
        """Generation of the handle when the call began; a creation is the first use of what it made."""
        at = batch["time_ns"] if CREATES.get(batch.kind) == entity else batch["begin_ns"]
        return self._births[entity].before(batch["process"], handle, at)


def _succeeded(batch: Batch) -> Mask:
    """Whether the handle a call was to make exists; handles that are merely used were there whatever the result."""
    if batch.kind not in CREATES:
        return np.ones(len(batch), np.bool_)
    made: Mask = batch["returned"] & (batch["result"] == 0)
    return made
