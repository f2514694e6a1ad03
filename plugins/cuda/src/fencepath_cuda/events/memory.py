# SPDX-License-Identifier: Apache-2.0
"""Memory allocated, freed, mapped and shared."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import U8, U32, U64, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, STREAM, CudaCall, OnStream

__all__ = [
    "Free",
    "Malloc",
    "Mapping",
    "MemoryAdvise",
    "MemoryMap",
    "MemoryPeer",
    "MemoryPool",
    "PeerAccess",
    "Place",
    "PoolAction",
]


class Place(enum.IntEnum):
    """What an allocation is of."""

    UNKNOWN = 0
    DEVICE = 1
    HOST = 2
    """Pinned host memory, allocated or registered."""
    MANAGED = 3
    POOL = 4
    """Device memory of a pool, in stream order."""
    PHYSICAL = 5
    """Physical device memory without an address (cuMemCreate); ``address`` is its handle."""
    IPC = 6
    """Device memory of another process (cuIpcOpenMemHandle)."""


class Mapping(enum.IntEnum):
    """What was done to addresses or to shared memory."""

    RESERVE = 0
    """A range of addresses was set aside."""
    UNRESERVE = 1
    MAP = 2
    UNMAP = 3
    ACCESS = 4
    """Who may use a range was set."""
    EXPORT = 5
    """A handle for other processes was made."""
    IMPORT = 6
    """Memory of another process or API was taken in."""
    RETAIN = 7
    """The handle of mapped physical memory was asked for, which keeps that alive."""
    RELEASE = 8
    """Imported memory was given back."""


class PoolAction(enum.IntEnum):
    """What was done to a memory pool."""

    CREATE = 0
    DESTROY = 1
    TRIM = 2
    """Memory that is not in use was given back; of a device's graphs if ``pool`` is 0."""
    SET_ATTRIBUTE = 3
    GET_ATTRIBUTE = 4
    ACCESS = 5
    """Who may use its memory was set."""
    EXPORT = 6
    IMPORT = 7
    SELECT = 8
    """It was made the one that a device allocates from."""


class PeerAccess(enum.IntEnum):
    """What was done to the access to another context's memory."""

    ENABLE = 0
    DISABLE = 1


class Malloc(OnStream, frozen=True, kw_only=True, tag="cuda.malloc"):
    """Memory allocated or registered. ``stream_kind`` is NONE but for allocations in stream order.

    Attributes:
        bytes: size asked for, of a pitched allocation rows times pitch; 0 for another process's memory.
        address: device or host address, or the handle of physical memory; 0 if there is none.
        place: see :class:`Place`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(STREAM, CONTEXT))

    bytes: U64
    address: U64
    place: U8


class Free(OnStream, frozen=True, kw_only=True, tag="cuda.free"):
    """Memory given back or unregistered. cuMemFree waits for the device; one in stream order does not."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(STREAM, CONTEXT))

    address: U64
    place: U8


class MemoryMap(CudaCall, frozen=True, kw_only=True, tag="cuda.memory.map"):
    """Addresses set aside, mapped or shared. cuMemUnmap can wait for the device.

    Attributes:
        address: device address, 0 if there is none.
        bytes: 0 where the arguments do not say.
        handle: of the physical or external memory (CUmemGenericAllocationHandle, CUexternalMemory), 0 if there is none.
        action: see :class:`Mapping`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    address: U64
    bytes: U64
    handle: U64
    action: U8


class MemoryPool(CudaCall, frozen=True, kw_only=True, tag="cuda.memory.pool"):
    """A memory pool created, destroyed or changed.

    Attributes:
        pool: CUmemoryPool.
        action: see :class:`PoolAction`.
        bytes: of a trim, what may stay.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    pool: U64
    action: U8
    bytes: U64


class MemoryAdvise(CudaCall, frozen=True, kw_only=True, tag="cuda.memory.advise"):
    """The driver was told how managed memory will be used.

    Attributes:
        address: device address.
        bytes: size of the range.
        advice: CUmem_advise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    address: U64
    bytes: U64
    advice: U32


class MemoryPeer(CudaCall, frozen=True, kw_only=True, tag="cuda.memory.peer"):
    """The current context may, or may no more, use another context's memory.

    Attributes:
        context_handle: CUcontext of the other.
        action: see :class:`PeerAccess`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(CONTEXT,))

    context_handle: U64
    action: U8
