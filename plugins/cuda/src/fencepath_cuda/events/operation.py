# SPDX-License-Identifier: Apache-2.0
"""What the device is to do: derived from the calls, never recorded."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import S32, U8, KindInfo, Role
from fencepath.events import Event as AnyEvent
from fencepath_cuda.events.base import CONTEXT, EVENT, STREAM

__all__ = ["Operation", "OperationKind"]


class OperationKind(enum.IntEnum):
    """What an operation does."""

    KERNEL = 0
    COPY = 1
    SET = 2
    HOST_FUNCTION = 3
    ALLOCATE = 4
    FREE = 5
    PREFETCH = 6
    VALUE = 7
    """Waits for, or writes, a value in memory."""
    RECORD = 8
    """Completes a CUDA event."""
    WAIT = 9
    """Waits for a CUDA event."""
    GRAPH = 10
    """A whole graph, of which no nodes are known."""
    OTHER = 11


class Operation(AnyEvent, frozen=True, kw_only=True, tag="cuda.operation"):
    """An operation of the device: what one call put on a stream, or one node of a graph that was launched.

    ``begin_ns`` is the earliest time at which it can have started and ``time_ns`` the latest at which it can have ended, by
    what the calls say (BOUNDS). Where nothing waited for it, its end is not bounded: OPEN, and ``time_ns`` is the end of
    what was recorded. ``thread`` is none; ``tgid`` and ``tid`` are of the call that submitted it.

    Attributes:
        label: its name, as index in the batch's ``labels``: of a kernel the kernel's, if that is known.
        operation: see :class:`OperationKind`.
        node: position in the graph that was launched, in order of dependencies; -1 if it is no node.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(STREAM, CONTEXT, EVENT), derived=True)

    label: S32
    operation: U8
    node: S32
