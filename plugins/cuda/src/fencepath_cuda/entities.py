# SPDX-License-Identifier: Apache-2.0
"""Follows the handles of contexts, streams and CUDA events, which CUDA hands out again after they are destroyed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities, EntityIds, generations
from fencepath.events import Batch, Column
from fencepath_cuda.contexts import CONTEXT_CHANGES, UNKNOWN, CurrentContexts
from fencepath_cuda.events import StreamKind
from fencepath_cuda.lost import Lost
from fencepath_cuda.ordered import Ordered

__all__ = ["CREATES", "CudaEntities"]

Ints = npt.NDArray[np.int64]
Handles = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

CONTEXT, STREAM, EVENT = "cuda.context", "cuda.stream", "cuda.event"
CREATES = {"cuda.context.create": CONTEXT, "cuda.stream.create": STREAM, "cuda.event.create": EVENT}
_HANDLE = {CONTEXT: "context_handle", STREAM: "stream_handle", EVENT: "event_handle"}


class _Births:
    """Creations of one type of handle seen so far, and the context of each."""

    def __init__(self) -> None:
        self.owner = np.empty(0, np.int64)
        self.handle = np.empty(0, np.uint64)
        self.time_ns = np.empty(0, np.int64)
        self.context = np.empty(0, np.uint64)

    def add(self, owner: Column, handle: Column, time_ns: Column, context: Column) -> None:
        self.owner = np.concatenate([self.owner, owner])
        self.handle = np.concatenate([self.handle, handle])
        self.time_ns = np.concatenate([self.time_ns, time_ns.astype(np.int64)])
        self.context = np.concatenate([self.context, context])

    def before(self, owner: Column, handle: Column, time_ns: Column) -> Ints:
        return generations(owner, handle, time_ns.astype(np.int64), self.owner, self.handle, self.time_ns)

    def context_of(self, owner: Column, handle: Column, time_ns: Column) -> Handles:
        """The context in which each handle was last created by a time; UNKNOWN if that was not seen."""
        if not len(self.handle) or not len(handle):
            return np.full(len(handle), UNKNOWN, np.uint64)
        values, code = np.unique(np.concatenate([handle, self.handle]), return_inverse=True)
        key = np.concatenate([owner, self.owner]).astype(np.int64) * (len(values) + 1) + code
        births = Ordered(key[len(handle) :], self.time_ns)
        at = births.last(key[: len(handle)], time_ns.astype(np.int64))
        return np.where(at >= 0, self.context[births.order][at], np.uint64(UNKNOWN)).astype(np.uint64)


class CudaEntities:
    """Implements :class:`fencepath.entities.EntityTracker`: adds the columns ``context``, ``stream``, ``event``, ``end_event``.

    A handle is told from later ones of the same value by its generation: how often it had been created when the
    call began, 0 for one that was there before the recording. A creation that failed creates nothing. A stream belongs to
    the context in which it was created, default streams to the one that is current in the calling thread: each context has
    one legacy stream, and one per-thread stream for each thread. Default streams are never created and have generation 0.
    Where a process may have several contexts and a thread's is not known, its legacy stream is taken for its own.
    """

    def __init__(self) -> None:
        self._births = {CONTEXT: _Births(), STREAM: _Births(), EVENT: _Births()}
        self._primary: set[tuple[int, int]] = set()
        self._contexts = CurrentContexts()

    def update(self, batch: Batch, entities: Entities) -> None:
        """Name the context, the stream and the CUDA event of each call; creations of a type come before its uses."""
        if batch.kind in CONTEXT_CHANGES:
            self._contexts.add(batch)
        lost = Lost(entities, *CONTEXT_CHANGES)
        current = self._contexts.current(batch["thread"], batch["process"], batch["begin_ns"], lost)
        created = CREATES.get(batch.kind)
        if created is not None:
            self._add_births(batch, created, current)
        if "stream_handle" in batch:
            owner = self._stream_contexts(batch, current)
            batch.columns["stream"] = self._streams(batch, entities, owner, lost)
            current = np.where(owner != UNKNOWN, owner, current)
        if "context_handle" in batch:
            current = np.where(batch["context_handle"] != 0, batch["context_handle"], current)
        batch.columns["context"] = self._context_ids(batch, entities, current)
        for column in ("event", "end_event"):
            if f"{column}_handle" in batch:
                batch.columns[column] = self._events(batch, entities, batch[f"{column}_handle"])

    def _add_births(self, batch: Batch, entity: str, current: Handles) -> None:
        handle = batch[_HANDLE[entity]]
        born = batch["returned"] & (batch["result"] == 0) & (handle != 0) & (batch["process"] != NO_ENTITY)
        if entity == CONTEXT:
            born &= self._is_new(batch)
        self._births[entity].add(batch["process"][born], handle[born], batch["time_ns"][born], current[born])

    def _is_new(self, batch: Batch) -> Mask:
        """Of a primary context only the first retain creates; it keeps its handle for as long as the process lives."""
        new = np.ones(len(batch), np.bool_)
        for row in np.flatnonzero(batch["primary"]).tolist():
            identity = int(batch["process"][row]), int(batch["context_handle"][row])
            new[row] = identity not in self._primary
            self._primary.add(identity)
        return new

    def _stream_contexts(self, batch: Batch, current: Handles) -> Handles:
        """The context of each call's stream: of a created one where it was created, of a default stream the current one."""
        created = batch["stream_kind"] == StreamKind.CREATED
        at = batch["time_ns"] if batch.kind == "cuda.stream.create" else batch["begin_ns"]
        own = self._births[STREAM].context_of(batch["process"], batch["stream_handle"], at)
        return np.where(created, own, current).astype(np.uint64)

    def _context_ids(self, batch: Batch, entities: Entities, context: Handles) -> EntityIds:
        columns = [batch["process"], context, self._births[CONTEXT].before(batch["process"], context, batch["time_ns"])]

        def text(process: int, handle: int, number: int) -> str:
            return f"{CONTEXT}:{entities.text(process)}/{handle:#x}#{number}"

        named = (context != UNKNOWN) & (batch["process"] != NO_ENTITY)
        return entities.intern_columns(CONTEXT, columns, text, named)

    def _streams(self, batch: Batch, entities: Entities, context: Handles, lost: Lost) -> EntityIds:
        kind = batch["stream_kind"]
        created = kind == StreamKind.CREATED
        generation = np.where(created, self._generation(batch, STREAM, batch["stream_handle"]), 0)
        several = self._contexts.several(batch["process"], batch["begin_ns"], lost)
        unplaced = (kind == StreamKind.LEGACY) & (context == UNKNOWN) & several
        owner_tid = np.where((kind == StreamKind.PER_THREAD) | unplaced, batch["tid"], 0)
        columns = [batch["process"], context, batch["stream_handle"], owner_tid.astype(np.int64), generation]

        def text(process: int, owner: int, handle: int, tid: int, number: int) -> str:
            thread = f"/{tid}" if tid else ""
            of = f"{owner:#x}" if owner else "-"
            return f"{STREAM}:{entities.text(process)}/{of}/{handle:#x}{thread}#{number}"

        named = (kind != StreamKind.NONE) & _succeeded(batch) & (batch["process"] != NO_ENTITY)
        return entities.intern_columns(STREAM, columns, text, named)

    def _events(self, batch: Batch, entities: Entities, handle: Column) -> EntityIds:
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
