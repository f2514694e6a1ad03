# SPDX-License-Identifier: Apache-2.0
"""Memory: allocations, pools, virtual addresses, other processes' and other APIs' memory."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Out
from fencepath_cuda.events import Mapping, PeerAccess, Place, PoolAction
from fencepath_cuda.functions.base import driver, per_thread, stream

__all__ = ["MEMORY"]


def _allocate(name: str, place: Place, size: int = 1, more: tuple[Arg, ...] = ()) -> Function:
    return Function(
        name, "cuda.malloc", (Arg("bytes", size), *more), out=(Out("address", 0),), constants={"place": int(place)}
    )


def _release(name: str, place: Place, more: tuple[Arg, ...] = ()) -> Function:
    return Function(name, "cuda.free", (Arg("address", 0), *more), constants={"place": int(place)})


_ALLOCATIONS = driver(
    "memory",
    "sync",
    _allocate("cuMemAlloc_v2", Place.DEVICE),
    Function(
        "cuMemAllocPitch_v2",
        "cuda.malloc",
        (Arg("height", 3),),
        out=(Out("address", 0), Out("pitch_bytes", 1)),
        constants={"place": int(Place.DEVICE)},
    ),
    _allocate("cuMemAllocManaged", Place.MANAGED),
    _allocate("cuMemAllocHost_v2", Place.HOST),
    _allocate("cuMemHostAlloc", Place.HOST),
    Function(
        "cuMemHostRegister_v2",
        "cuda.malloc",
        (Arg("address", 0), Arg("bytes", 1)),
        aliases=("cuMemHostRegister",),
        constants={"place": int(Place.HOST)},
    ),
    _allocate("cuMemCreate", Place.PHYSICAL),
    # The handle is a struct of 64 bytes by value, on the stack.
    Function(
        "cuIpcOpenMemHandle_v2",
        "cuda.malloc",
        out=(Out("address", 0),),
        aliases=("cuIpcOpenMemHandle",),
        constants={"place": int(Place.IPC)},
    ),
    _release("cuMemFree_v2", Place.UNKNOWN),
    _release("cuMemFreeHost", Place.HOST),
    _release("cuMemHostUnregister", Place.HOST),
    _release("cuMemRelease", Place.PHYSICAL),
    _release("cuIpcCloseMemHandle", Place.IPC),
)

_IN_STREAM_ORDER = driver(
    "memory",
    "launch",
    *per_thread(
        "_ptsz",
        _allocate("cuMemAllocAsync", Place.POOL, more=(stream(2),)),
        _allocate("cuMemAllocFromPoolAsync", Place.POOL, more=(stream(3),)),
        _release("cuMemFreeAsync", Place.POOL, (stream(1),)),
    ),
)


def _map(name: str, action: Mapping, *args: Arg, out: tuple[Out, ...] = ()) -> Function:
    return Function(name, "cuda.memory.map", args, out=out, constants={"action": int(action)})


_RANGE = (Arg("address", 0), Arg("bytes", 1))

_MAPPINGS = driver(
    "memory",
    "sync",
    _map("cuMemAddressReserve", Mapping.RESERVE, Arg("bytes", 1), out=(Out("address", 0),)),
    _map("cuMemAddressFree", Mapping.UNRESERVE, *_RANGE),
    _map("cuMemMap", Mapping.MAP, *_RANGE, Arg("handle", 3)),
    _map("cuMemUnmap", Mapping.UNMAP, *_RANGE),
    _map("cuMemSetAccess", Mapping.ACCESS, *_RANGE),
    _map("cuMemRetainAllocationHandle", Mapping.RETAIN, Arg("address", 1), out=(Out("handle", 0),)),
    _map("cuMemExportToShareableHandle", Mapping.EXPORT, Arg("handle", 1)),
    _map("cuMemImportFromShareableHandle", Mapping.IMPORT, out=(Out("handle", 0),)),
    _map("cuMemGetHandleForAddressRange", Mapping.EXPORT, Arg("address", 1), Arg("bytes", 2)),
    _map("cuMemPoolExportPointer", Mapping.EXPORT, Arg("address", 1)),
    _map("cuMemPoolImportPointer", Mapping.IMPORT, out=(Out("address", 0),)),
    _map("cuIpcGetMemHandle", Mapping.EXPORT, Arg("address", 1)),
    _map("cuImportExternalMemory", Mapping.IMPORT, out=(Out("handle", 0),)),
    _map("cuExternalMemoryGetMappedBuffer", Mapping.MAP, Arg("handle", 1), out=(Out("address", 0),)),
    _map("cuDestroyExternalMemory", Mapping.RELEASE, Arg("handle", 0)),
)


def _pool(name: str, action: PoolAction, *args: Arg, out: tuple[Out, ...] = ()) -> Function:
    return Function(name, "cuda.memory.pool", args, out=out, constants={"action": int(action)})


_POOLS = driver(
    "memory",
    "launch",
    _pool("cuMemPoolCreate", PoolAction.CREATE, out=(Out("pool", 0),)),
    _pool("cuMemPoolDestroy", PoolAction.DESTROY, Arg("pool", 0)),
    _pool("cuMemPoolTrimTo", PoolAction.TRIM, Arg("pool", 0), Arg("bytes", 1)),
    _pool("cuDeviceGraphMemTrim", PoolAction.TRIM),
    _pool("cuMemPoolSetAttribute", PoolAction.SET_ATTRIBUTE, Arg("pool", 0)),
    _pool("cuMemPoolSetAccess", PoolAction.ACCESS, Arg("pool", 0)),
    _pool("cuMemPoolExportToShareableHandle", PoolAction.EXPORT, Arg("pool", 1)),
    _pool("cuMemPoolImportFromShareableHandle", PoolAction.IMPORT, out=(Out("pool", 0),)),
    _pool("cuDeviceSetMemPool", PoolAction.SELECT, Arg("pool", 1)),
    _pool("cuMemSetMemPool", PoolAction.SELECT, Arg("pool", 2)),
)

_POOL_QUERIES = driver("memory", "full", _pool("cuMemPoolGetAttribute", PoolAction.GET_ATTRIBUTE, Arg("pool", 0)))

_ADVICE = driver(
    "memory",
    "launch",
    Function("cuMemAdvise_v2", "cuda.memory.advise", (*_RANGE, Arg("advice", 2, "u32")), aliases=("cuMemAdvise",)),
)


def _peer(name: str, action: PeerAccess) -> Function:
    return Function(name, "cuda.memory.peer", (Arg("context_handle", 0),), constants={"action": int(action)})


_PEERS = driver(
    "memory",
    "sync",
    _peer("cuCtxEnablePeerAccess", PeerAccess.ENABLE),
    _peer("cuCtxDisablePeerAccess", PeerAccess.DISABLE),
)

MEMORY = (*_ALLOCATIONS, *_IN_STREAM_ORDER, *_MAPPINGS, *_POOLS, *_POOL_QUERIES, *_ADVICE, *_PEERS)
