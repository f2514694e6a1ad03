# SPDX-License-Identifier: Apache-2.0
"""Memory copied, set and moved."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import U8, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, STREAM, OnStream

__all__ = ["Direction", "Memcpy", "MemcpyAsync", "MemoryPrefetch", "Memset", "Move"]


class Direction(enum.IntEnum):
    """Direction of a copy, numbered as cudaMemcpyKind (driver_types.h)."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    UNKNOWN = 4
    """cudaMemcpyDefault: found by CUDA from the addresses, or not recorded."""


class Move(enum.IntEnum):
    """What is to happen to the pages of memory, in stream order."""

    PREFETCH = 0
    """Managed memory is brought to a device or the host."""
    ATTACH = 1
    """Managed memory is bound to a stream."""
    DISCARD = 2
    """Its content is given up."""
    DISCARD_AND_PREFETCH = 3
    MAP_ARRAY = 4
    """Tiles of sparse arrays are mapped."""
    DECOMPRESS = 5
    """Data are decompressed."""


class Memcpy(OnStream, frozen=True, kw_only=True, tag="cuda.memcpy"):
    """A copy by a function of the blocking family, on a default stream.

    The thread's time is transfer: the function returns when the copy is done, or for pageable host memory when the
    data has been staged. Copies from device to device return earlier.

    Attributes:
        bytes: bytes copied, 0 where that is not in the arguments.
        direction: see :class:`Direction`.
        destination: address, 0 where the arguments name an array or a struct.
        source: likewise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, keys=(STREAM, CONTEXT))

    bytes: U64
    direction: U8
    destination: U64
    source: U64


class MemcpyAsync(OnStream, frozen=True, kw_only=True, tag="cuda.memcpy.async"):
    """A copy put on a stream; fields as of :class:`Memcpy`.

    A kind of its own because a category belongs to a kind: the call returns when the copy is queued, so its time
    is spent in the API and not in the transfer (with pageable host memory part of it is staging, which cannot be
    told apart).
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, category=Category.API_CALL, keys=(STREAM, CONTEXT))

    bytes: U64
    direction: U8
    destination: U64
    source: U64


class Memset(OnStream, frozen=True, kw_only=True, tag="cuda.memset"):
    """Memory set on a stream. Unless the memory is the host's, no variant waits for the device: the time is the API's.

    Attributes:
        bytes: bytes set.
        destination: device address.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, category=Category.API_CALL, keys=(STREAM, CONTEXT))

    bytes: U64
    destination: U64


class MemoryPrefetch(OnStream, frozen=True, kw_only=True, tag="cuda.memory.prefetch"):
    """Pages of memory moved, bound, given up or filled in stream order.

    Attributes:
        address: device address, 0 for calls that take many.
        bytes: likewise.
        action: see :class:`Move`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, category=Category.API_CALL, keys=(STREAM, CONTEXT))

    address: U64
    bytes: U64
    action: U8
