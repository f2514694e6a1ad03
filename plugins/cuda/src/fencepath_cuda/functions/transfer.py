# SPDX-License-Identifier: Apache-2.0
"""Copies, sets, and moves of managed memory."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Read
from fencepath_cuda.events import Direction, Move
from fencepath_cuda.functions.base import Functions, driver, per_thread, stream

__all__ = ["TRANSFERS"]

_OTHER = int(Direction.UNKNOWN)
_HTOD, _DTOH, _DTOD = int(Direction.HOST_TO_DEVICE), int(Direction.DEVICE_TO_HOST), int(Direction.DEVICE_TO_DEVICE)

_LINEAR = (Arg("destination", 0), Arg("source", 1), Arg("bytes", 2))
_TO_ARRAY = (Arg("source", 2), Arg("bytes", 3))
_FROM_ARRAY = (Arg("destination", 0), Arg("bytes", 3))
_PEER = (Arg("destination", 0), Arg("source", 2), Arg("bytes", 4))

_MEMORY_TYPES = (Arg("source_type", 2, "u32"), Arg("destination_type", 3, "u32"))
_RECTANGLE = (*_MEMORY_TYPES, Arg("width_bytes", 4), Arg("height", 5))
_BOX = (*_RECTANGLE, Arg("depth", 6))

# CUDA_MEMCPY2D: the memory types are at 16 and 72, width and height at 112.
_RECTANGLE_READS = (Read(0, 16, 1, 2), Read(0, 72, 1, 3), Read(0, 112, 2, 4))
# CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER: at 32 and 120; width, height and depth at 176.
_BOX_READS = (Read(0, 32, 1, 2), Read(0, 120, 1, 3), Read(0, 176, 3, 4))


def _copy(name: str, args: tuple[Arg, ...], direction: int, reads: tuple[Read, ...] = ()) -> Function:
    return Function(name, "cuda.memcpy", args, reads, constants={"stream_handle": 0, "direction": direction})


def _copy_async(name: str, args: tuple[Arg, ...], slot: int, direction: int, reads: tuple[Read, ...] = ()) -> Function:
    return Function(name, "cuda.memcpy.async", (*args, stream(slot)), reads, constants={"direction": direction})


_COPIES = driver(
    "copy",
    "sync",
    *per_thread(
        "_ptds",
        _copy("cuMemcpy", _LINEAR, _OTHER),
        _copy("cuMemcpyHtoD_v2", _LINEAR, _HTOD),
        _copy("cuMemcpyDtoH_v2", _LINEAR, _DTOH),
        _copy("cuMemcpyDtoD_v2", _LINEAR, _DTOD),
        _copy("cuMemcpyPeer", _PEER, _DTOD),
        _copy("cuMemcpyHtoA_v2", _TO_ARRAY, _HTOD),
        _copy("cuMemcpyDtoA_v2", _TO_ARRAY, _DTOD),
        _copy("cuMemcpyAtoH_v2", _FROM_ARRAY, _DTOH),
        _copy("cuMemcpyAtoD_v2", _FROM_ARRAY, _DTOD),
        _copy("cuMemcpyAtoA_v2", (Arg("bytes", 4),), _DTOD),
        _copy("cuMemcpy2D_v2", _RECTANGLE, _OTHER, _RECTANGLE_READS),
        _copy("cuMemcpy2DUnaligned_v2", _RECTANGLE, _OTHER, _RECTANGLE_READS),
        _copy("cuMemcpy3D_v2", _BOX, _OTHER, _BOX_READS),
        _copy("cuMemcpy3DPeer", _BOX, _DTOD, _BOX_READS),
    ),
)

_ASYNC_COPIES = driver(
    "copy",
    "launch",
    *per_thread(
        "_ptsz",
        _copy_async("cuMemcpyAsync", _LINEAR, 3, _OTHER),
        _copy_async("cuMemcpyHtoDAsync_v2", _LINEAR, 3, _HTOD),
        _copy_async("cuMemcpyDtoHAsync_v2", _LINEAR, 3, _DTOH),
        _copy_async("cuMemcpyDtoDAsync_v2", _LINEAR, 3, _DTOD),
        _copy_async("cuMemcpyPeerAsync", _PEER, 5, _DTOD),
        _copy_async("cuMemcpyHtoAAsync_v2", _TO_ARRAY, 4, _HTOD),
        _copy_async("cuMemcpyAtoHAsync_v2", _FROM_ARRAY, 4, _DTOH),
        _copy_async("cuMemcpy2DAsync_v2", _RECTANGLE, 1, _OTHER, _RECTANGLE_READS),
        _copy_async("cuMemcpy3DAsync_v2", _BOX, 1, _OTHER, _BOX_READS),
        _copy_async("cuMemcpy3DPeerAsync", _BOX, 1, _DTOD, _BOX_READS),
        _copy_async("cuMemcpyWithAttributesAsync", _LINEAR, 4, _OTHER),
        # Many copies at once: their sizes are in arrays of the caller. CUDA 12.8 had one argument more.
        _copy_async("cuMemcpyBatchAsync", (), 8, _OTHER),
        _copy_async("cuMemcpyBatchAsync_v2", (), 7, _OTHER),
        _copy_async("cuMemcpy3DBatchAsync", (), 4, _OTHER),
        _copy_async("cuMemcpy3DBatchAsync_v2", (), 3, _OTHER),
        _copy_async("cuMemcpy3DWithAttributesAsync", (), 2, _OTHER),
        _copy_async("cuFabricCpyBatchAsync", (), 3, _OTHER),
    ),
)

_UNITS = ((8, 1), (16, 2), (32, 4))
"""Bits in the name, bytes of one unit."""


def _sets(suffix: str, more: str) -> Functions:
    """The six functions that set memory: one dimension and two, units of one, two and four bytes."""
    on_default = {} if more else {"stream_handle": 0}
    flat = tuple(
        Function(
            f"cuMemsetD{bits}{more}{suffix}",
            "cuda.memset",
            (Arg("destination", 0), Arg("count", 2), *((stream(3),) if more else ())),
            constants={**on_default, "unit_bytes": unit},
        )
        for bits, unit in _UNITS
    )
    pitched = tuple(
        Function(
            f"cuMemsetD2D{bits}{more}{suffix}",
            "cuda.memset",
            (Arg("destination", 0), Arg("count", 3), Arg("height", 4), *((stream(5),) if more else ())),
            constants={**on_default, "unit_bytes": unit},
        )
        for bits, unit in _UNITS
    )
    return flat + pitched


_SETS = driver("copy", "launch", *per_thread("_ptds", *_sets("_v2", "")), *per_thread("_ptsz", *_sets("", "Async")))


def _move(name: str, action: Move, slot: int, *args: Arg) -> Function:
    return Function(name, "cuda.memory.prefetch", (*args, stream(slot)), constants={"action": int(action)})


_RANGE = (Arg("address", 0), Arg("bytes", 1))

_MOVES = driver(
    "copy",
    "launch",
    *per_thread(
        "_ptsz",
        _move("cuMemPrefetchAsync", Move.PREFETCH, 3, *_RANGE),
        _move("cuMemPrefetchAsync_v2", Move.PREFETCH, 4, *_RANGE),
        _move("cuMemPrefetchBatchAsync", Move.PREFETCH, 7),
        _move("cuMemDiscardBatchAsync", Move.DISCARD, 4),
        _move("cuMemDiscardAndPrefetchBatchAsync", Move.DISCARD_AND_PREFETCH, 7),
        _move("cuStreamAttachMemAsync", Move.ATTACH, 0, Arg("address", 1), Arg("bytes", 2)),
        _move("cuMemMapArrayAsync", Move.MAP_ARRAY, 2),
        _move("cuMemBatchDecompressAsync", Move.DECOMPRESS, 4),
    ),
)

TRANSFERS = (*_COPIES, *_ASYNC_COPIES, *_SETS, *_MOVES)
