# SPDX-License-Identifier: Apache-2.0
"""Names of fences: full ones, and what those of 32 bits stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.entities import NO_ENTITY, Entities, EntityIds
from fencepath.events import Batch, Column
from fencepath_drm.lookup import at, find, latest

__all__ = ["FenceNames"]

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class FenceNames:
    """The fences of one run.

    Attributes:
        boot: boot id, for their texts.
    """

    def __init__(self) -> None:
        self.boot = ""
        self._short = np.empty(0, np.uint64)
        self._ids = np.empty(0, np.int64)
        self._finished: list[Words] = []
        self._seen: list[tuple[Words, Words, Ints]] = []
        self._some_are_wide = False

    def ids(self, entities: Entities, context: Column, seqno: Column) -> EntityIds:
        """Return the entities of fences; context 0 names none: the kernel has it for fences that nobody made."""
        context, seqno = context.astype(np.uint64), seqno.astype(np.uint64)
        name = _short(context, seqno)
        narrow = ~_is_wide(context, seqno)
        known = np.where(narrow, find(self._short, name), -1)
        found = np.where(known >= 0, at(self._ids, known), NO_ENTITY)
        new = (known < 0) & (context != 0)
        if new.any():
            found[new] = entities.intern_columns("fence", [context[new], seqno[new]], self._text)
            self._learn(name[new & narrow], found[new & narrow])
        return found

    def add(self, context: Column, seqno: Column, time_ns: Column, *, finished: bool) -> None:
        """Take over names that are known in full, with when they were seen; `finished` if they are of jobs."""
        context, seqno = context.astype(np.uint64), seqno.astype(np.uint64)
        self._seen.append((context, seqno, time_ns.astype(np.int64)))
        self._some_are_wide |= bool(_is_wide(context, seqno).any())
        if finished:
            self._finished.append(_short(context, seqno))

    def are_finished(self, context: Column, seqno: Column) -> Mask:
        """Whether these are finished fences of jobs."""
        name = _short(context.astype(np.uint64), seqno.astype(np.uint64))
        return np.isin(name, np.concatenate([np.empty(0, np.uint64), *self._finished]))

    def full(self, batch: Batch) -> tuple[Words, Words]:
        """Names in full: of those that agree in 32 bits the one seen last before, else the first seen after.

        A number below 2^32 is its own low half, so that there is nothing to resolve unless some are wider.
        """
        context, seqno = batch["context"].astype(np.uint64), batch["seqno"].astype(np.uint64)
        if not self._some_are_wide:
            return context, seqno
        full_context, full_seqno, seen_ns = (np.concatenate(column) for column in zip(*self._seen, strict=True))
        times = batch["time_ns"].astype(np.int64)
        row = latest(_short(full_context, full_seqno), seen_ns, _short(context, seqno), times)
        return np.where(row >= 0, full_context[row], context), np.where(row >= 0, full_seqno[row], seqno)

    def _text(self, context: int, seqno: int) -> str:
        return f"fence:{self.boot}/{context}/{seqno}"

    def _learn(self, name: Words, found: Ints) -> None:
        names = np.concatenate([self._short, name])
        self._short, rows = np.unique(names, return_index=True)
        self._ids = np.concatenate([self._ids, found])[rows]


def _short(context: Words, seqno: Words) -> Words:
    return (context & _LOW) << _HALF | (seqno & _LOW)


def _is_wide(context: Words, seqno: Words) -> Mask:
    wide: Mask = (context >> _HALF != 0) | (seqno >> _HALF != 0)
    return wide
