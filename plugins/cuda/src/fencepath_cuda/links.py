# SPDX-License-Identifier: Apache-2.0
"""Links: what had to wait for what, before it becomes edges between activities."""

from __future__ import annotations

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import FOREVER, Mask, Rows

__all__ = ["Order", "Waits", "is_sure"]


class Order(msgspec.Struct, frozen=True):
    """Operations of which the second starts only after the first has finished.

    Attributes:
        cause: operation.
        effect: operation.
        sure: whether the calls are known to have taken effect in this order.
        items: pairs of items of which the first is surely over, as a whole, before any of the second starts.
        unmatched: effects of which no cause is known.
    """

    cause: Ints
    effect: Ints
    sure: Mask
    items: tuple[Ints, Ints]
    unmatched: int = 0


class Waits(msgspec.Struct, frozen=True):
    """Operations that had finished when a call came back.

    Attributes:
        cause: operation.
        kind: of each call, as position in ``kinds``.
        row: of each call, in its kind's batch.
        end: when each call came back, CLOCK_MONOTONIC in ns; for ever if that is not known.
        sure: whether it is known that the call waited for this operation.
        kinds: kinds of the calls.
        whole: whether all operations with which an item ends are causes of a call, if one of them is.
        unmatched: calls of which no cause is known.
    """

    cause: Ints
    kind: Ints
    row: Ints
    end: Ints
    sure: Mask
    kinds: tuple[str, ...]
    whole: bool
    unmatched: int = 0

    @classmethod
    def of(
        cls, cause: Ints, calls: Rows, sure: Mask, kinds: tuple[str, ...], *, whole: bool, unmatched: int = 0
    ) -> Waits:
        """Make links to calls, row by row."""
        end = np.where(calls.done, calls.end, FOREVER)
        return cls(cause, calls.code, calls.row, end, sure, kinds, whole, unmatched)


def is_sure(cause: Rows, effect: Rows) -> Mask:
    """Whether each first call had surely done its work when the second began: it had come back, or they are one thread's.

    The begin of a call says little of when it takes effect: its thread can be held up on the way.
    """
    same = (cause.thread == effect.thread) & (cause.thread != NO_ENTITY)
    sure: Mask = same | (cause.returned <= effect.begin)
    return sure
