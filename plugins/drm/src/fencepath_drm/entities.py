# SPDX-License-Identifier: Apache-2.0
"""Names fences, rings and GPUs.

A fence is the entity ``fence`` with the key (context, seqno), both in full; whoever else names fences by these meets this
layer's. Events that have the low 32 bits only are resolved by the fences that are known in full.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities, EntityIds
from fencepath.events import Batch, Column
from fencepath_drm.fences import FenceNames
from fencepath_drm.lookup import at, contains

__all__ = ["DrmEntities"]

Ints = npt.NDArray[np.int64]

_IOCTLS = frozenset({"drm.job.submit", "drm.ioctl"})
_MINOR_BITS = 20
_ONE = np.uint64(1)


class DrmEntities:
    """Implements :class:`fencepath.entities.EntityTracker`: the columns ``fence``, ``dependency``, ``ring`` and ``gpu``."""

    def __init__(self) -> None:
        self._fences = FenceNames()
        self._calls: list[tuple[Ints, ...]] = []
        self._instances: dict[tuple[str, str], list[int]] = {}

    def update(self, batch: Batch, entities: Entities) -> None:
        """Name what a batch is about; fences of jobs come before those known by 32 bits."""
        self._fences.boot = self._fences.boot or _boot_of(batch, entities)
        if batch.kind in _IOCTLS:
            names = ("thread", "begin_ns", "time_ns", "device")
            self._calls.append(tuple(batch[name].astype(np.int64) for name in names))
        if batch.kind.startswith("drm.job.") and "fence_context" in batch:
            self._name_jobs(batch, entities)
        elif batch.kind == "drm.fence.part":
            part = batch["part_context"], batch["part_seqno"]
            self._fences.add(*part, batch["time_ns"], finished=False)
            batch.columns["part"] = self._fences.ids(entities, *part)
            batch.columns["fence"] = self._fences.ids(entities, *self._fences.full(batch))
        elif "context" in batch:
            batch.columns["fence"] = self._fences.ids(entities, *self._fences.full(batch))
        if batch.kind == "drm.job.queue":
            batch.columns["ring"], batch.columns["gpu"] = self._places(batch, entities)

    def _name_jobs(self, batch: Batch, entities: Entities) -> None:
        context, seqno = batch["fence_context"], batch["fence_seqno"]
        batch.columns["fence"] = self._fences.ids(entities, context, seqno)
        self._fences.add(context, seqno, batch["time_ns"], finished=True)
        if "dependency_context" not in batch:
            return
        on, number = batch["dependency_context"], batch["dependency_seqno"]
        if batch.kind == "drm.job.blocked":
            # a finished fence's context is that of the scheduled one and 1
            finished = self._fences.are_finished(on, number)
            pipelined = ~finished & self._fences.are_finished(on + _ONE, number)
            batch.columns["pipelined"] = pipelined
            on = np.where(pipelined, on + _ONE, on)
        self._fences.add(on, number, batch["time_ns"], finished=False)
        batch.columns["dependency"] = self._fences.ids(entities, on, number)

    def _places(self, batch: Batch, entities: Entities) -> tuple[EntityIds, EntityIds]:
        """Ring and GPU of queued jobs; there are few different ones."""
        ring = np.full(len(batch), NO_ENTITY, np.int64)
        gpu = np.full(len(batch), NO_ENTITY, np.int64)
        texts = [_codes(batch["ring_name"]), _codes(batch["dev"])]
        columns = [texts[0][1], texts[1][1], batch["scheduler"].astype(np.int64), self._devices(batch)]
        # column by column, as sorting whole rows costs much more
        code = np.zeros(len(batch), np.int64)
        for column in columns:
            part = np.unique(column, return_inverse=True)[1].reshape(-1)
            code = np.unique(code * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1].reshape(-1)
        for row in np.unique(code, return_index=True)[1].tolist():
            name, dev, scheduler, number = (int(column[row]) for column in columns)
            where = texts[1][0][dev] or _device_text(number)
            mine = code == code[row]
            ring[mine] = self._ring(entities, where, texts[0][0][name], scheduler)
            if where:
                gpu[mine] = entities.intern("gpu", (where,), f"gpu:{where}".__str__)
        return ring, gpu

    def _ring(self, entities: Entities, where: str, name: str, scheduler: int) -> int:
        """Rings of one name on one device are told apart by their schedulers, where these are known."""
        instances = self._instances.setdefault((where, name), [])
        if scheduler not in instances:
            instances.append(scheduler)
        number = instances.index(scheduler)
        text = f"drm.ring:{where or '-'}/{name}" + (f"#{number}" if number else "")
        return entities.intern("drm.ring", (where, name, scheduler), text.__str__)

    def _devices(self, batch: Batch) -> Ints:
        """Number of the device of the ioctl in which each job was queued; 0 if that is not needed, or was not recorded.

        A card and a render node of one device have different numbers, and which belong together was not recorded.
        """
        unknown = batch["dev"] == ""
        if not self._calls or not unknown.any():
            return np.zeros(len(batch), np.int64)
        thread, begin, end, device = (np.concatenate(column) for column in zip(*self._calls, strict=True))
        call = contains(thread, begin, end, batch["thread"], batch["time_ns"].astype(np.int64))
        return np.where(unknown & (call >= 0), at(device, call), 0)


def _boot_of(batch: Batch, entities: Entities) -> str:
    """The boot id, which stands at the begin of every process's text."""
    processes = batch["process"]
    known = processes[processes != NO_ENTITY]
    return entities.text(int(known[0])).removeprefix("process:").split("/")[0] if len(known) else ""


def _codes(texts: Column) -> tuple[list[str], Ints]:
    """Each text once, and for every row which it is."""
    unique, code = np.unique(texts.astype("U"), return_inverse=True)
    return unique.tolist(), code.reshape(-1).astype(np.int64)


def _device_text(number: int) -> str:
    return f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}" if number else ""
