# SPDX-License-Identifier: Apache-2.0
"""What the groups of the table are written with."""

from __future__ import annotations

from itertools import chain
from typing import TypeAlias

import msgspec

from fencepath.calls import Arg, Function, Read
from fencepath.plugin import Detail

__all__ = ["Functions", "array", "driver", "event", "per_thread", "placed", "stream"]

Functions: TypeAlias = tuple[Function, ...]


def per_thread(suffix: str, *functions: Function) -> Functions:
    """Add to each function the one that means the calling thread's default stream by handle 0."""
    return tuple(chain.from_iterable((function, function.variant(suffix, per_thread=1)) for function in functions))


def placed(function: Function, group: str, detail: Detail, api: str) -> Function:
    """Return the function with its place in the docs, the least detail at which it is on, and its API."""
    return msgspec.structs.replace(function, group=group, detail=detail, api=api)


def driver(group: str, detail: Detail, *functions: Function) -> Functions:
    """Return functions of the driver API with their group and detail."""
    return tuple(placed(function, group, detail, "driver") for function in functions)


def stream(slot: int) -> Arg:
    """Return the argument that is the stream."""
    return Arg("stream_handle", slot)


def event(slot: int) -> Arg:
    """Return the argument that is the CUDA event."""
    return Arg("event_handle", slot)


MOST = 4
"""How many handles of an array are recorded."""


def array(name: str, pointer: int, count: int, into: int) -> tuple[tuple[Arg, ...], Read]:
    """Return the columns ``<name>_0`` to ``<name>_3`` for the first handles of an array, and how to read them.

    Args:
        name: of the columns.
        pointer: slot of the array.
        count: slot of its length.
        into: slot of the first handle.
    """
    columns = tuple(Arg(f"{name}_{index}", into + index) for index in range(MOST))
    return columns, Read(pointer, 0, MOST, into, count)
