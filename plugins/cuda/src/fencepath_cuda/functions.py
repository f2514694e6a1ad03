# SPDX-License-Identifier: Apache-2.0
"""The functions of CUDA that are recorded, as data, by the headers of CUDA 13 (cuda.h, cuda_runtime_api.h).

cuda.h renames functions: what a program calls ``cuMemAlloc`` is exported as ``cuMemAlloc_v2``, and compiled for
per-thread default streams ``cuMemcpyHtoD`` is ``cuMemcpyHtoD_v2_ptds`` and ``cuStreamQuery`` is ``cuStreamQuery_ptsz``.
Those mean another stream by handle 0, so they are functions of their own here, with the constant ``per_thread``. Left
out are versions that take 32-bit device pointers (``cuMemAlloc`` without suffix), which no program has been compiled
against since CUDA 3.2.

Which default stream a function without a stream argument works on is a constant too: ``stream_handle=0``.
"""

from __future__ import annotations

from functools import cache
from itertools import chain

import msgspec

from fencepath.calls import Arg, CallTable, Function, Out, Read
from fencepath.plugin import Detail
from fencepath_cuda.events import Direction, Place

__all__ = ["TABLE", "table_for"]

DRIVER_LIBRARIES = ("libcuda.so*",)
RUNTIME_LIBRARIES = ("libcudart.so*", "libcudart-*.so*")
"""The second is what auditwheel makes of the first when a wheel brings its own copy."""

_Functions = tuple[Function, ...]

_OTHER = int(Direction.UNKNOWN)
_HTOD, _DTOH, _DTOD = int(Direction.HOST_TO_DEVICE), int(Direction.DEVICE_TO_HOST), int(Direction.DEVICE_TO_DEVICE)


def _per_thread(suffix: str, *functions: Function) -> _Functions:
    """Add to each function the one that means the calling thread's default stream by handle 0."""
    return tuple(chain.from_iterable((function, function.variant(suffix, per_thread=1)) for function in functions))


def _driver(group: str, detail: Detail, *functions: Function) -> _Functions:
    return tuple(_placed(function, group, detail, "driver") for function in functions)


def _placed(function: Function, group: str, detail: Detail, api: str) -> Function:
    return msgspec.structs.replace(function, group=group, detail=detail, api=api)


def _stream(slot: int) -> Arg:
    return Arg("stream_handle", slot)


def _event(slot: int) -> Arg:
    return Arg("event_handle", slot)


# Launches.

_SHAPE = tuple(
    Arg(name, slot, "u32")
    for slot, name in enumerate(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes"), 1)
)
_LAUNCH_ARGS = (Arg("kernel", 0), *_SHAPE, _stream(8))

# CUlaunchConfig: u32 grid[3], block[3], shared; then at 32 the stream, at 40 the attributes and at 48 their u32 count.
_LAUNCH_CONFIG_ARGS = (
    Arg("kernel", 1),
    Arg("grid_x", 2, "u32"),
    Arg("grid_y", 2, "u32", 32),
    Arg("grid_z", 3, "u32"),
    Arg("block_x", 3, "u32", 32),
    Arg("block_y", 4, "u32"),
    Arg("block_z", 4, "u32", 32),
    Arg("shared_bytes", 5, "u32"),
    _stream(6),
    Arg("attributes", 7, "u32"),
)
_LAUNCH_CONFIG_READS = (Read(0, 0, 5, 2), Read(0, 48, 1, 7))

_LAUNCHES = _driver(
    "launch",
    "launch",
    *_per_thread(
        "_ptsz",
        Function("cuLaunchKernel", "cuda.launch", _LAUNCH_ARGS, hot=True),
        Function("cuLaunchKernelEx", "cuda.launch", _LAUNCH_CONFIG_ARGS, _LAUNCH_CONFIG_READS, hot=True),
        Function("cuLaunchCooperativeKernel", "cuda.launch", _LAUNCH_ARGS, hot=True, constants={"cooperative": 1}),
        Function(
            "cuLaunchHostFunc",
            "cuda.host_func",
            (_stream(0), Arg("callback", 1), Arg("user_data", 2)),
            aliases=("cuLaunchHostFunc_v2",),
        ),
        Function("cuStreamAddCallback", "cuda.host_func", (_stream(0), Arg("callback", 1), Arg("user_data", 2))),
        Function("cuGraphLaunch", "cuda.graph.launch", (Arg("graph_exec", 0), _stream(1))),
    ),
)

# Copies.

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


def _copy_async(
    name: str,
    args: tuple[Arg, ...],
    stream: int,
    direction: int,
    reads: tuple[Read, ...] = (),
    aliases: tuple[str, ...] = (),
) -> Function:
    return Function(
        name, "cuda.memcpy.async", (*args, _stream(stream)), reads, aliases=aliases, constants={"direction": direction}
    )


_COPIES = _driver(
    "copy",
    "sync",
    *_per_thread(
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

_ASYNC_COPIES = _driver(
    "copy",
    "launch",
    *_per_thread(
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
    ),
)

_UNITS = ((8, 1), (16, 2), (32, 4))
"""Bits in the name, bytes of one unit."""


def _sets(suffix: str, more: str) -> _Functions:
    """The six functions that set memory: one dimension and two, units of one, two and four bytes."""
    on_default = {} if more else {"stream_handle": 0}
    flat = tuple(
        Function(
            f"cuMemsetD{bits}{more}{suffix}",
            "cuda.memset",
            (Arg("destination", 0), Arg("count", 2), *((_stream(3),) if more else ())),
            constants={**on_default, "unit_bytes": unit},
        )
        for bits, unit in _UNITS
    )
    pitched = tuple(
        Function(
            f"cuMemsetD2D{bits}{more}{suffix}",
            "cuda.memset",
            (Arg("destination", 0), Arg("count", 3), Arg("height", 4), *((_stream(5),) if more else ())),
            constants={**on_default, "unit_bytes": unit},
        )
        for bits, unit in _UNITS
    )
    return flat + pitched


_MEMSETS = _driver(
    "copy", "launch", *_per_thread("_ptds", *_sets("_v2", "")), *_per_thread("_ptsz", *_sets("", "Async"))
)

# Memory.


def _allocate(name: str, place: Place, size: int = 1, more: tuple[Arg, ...] = ()) -> Function:
    return Function(
        name, "cuda.malloc", (Arg("bytes", size), *more), out=(Out("address", 0),), constants={"place": int(place)}
    )


def _release(name: str, place: Place, more: tuple[Arg, ...] = (), aliases: tuple[str, ...] = ()) -> Function:
    return Function(name, "cuda.free", (Arg("address", 0), *more), aliases=aliases, constants={"place": int(place)})


_MEMORY = _driver(
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
    _release("cuMemFree_v2", Place.UNKNOWN),
    _release("cuMemFreeHost", Place.HOST),
    _release("cuMemHostUnregister", Place.HOST),
    _release("cuMemRelease", Place.PHYSICAL),
)

_POOLS = _driver(
    "memory",
    "launch",
    *_per_thread(
        "_ptsz",
        _allocate("cuMemAllocAsync", Place.POOL, more=(_stream(2),)),
        _allocate("cuMemAllocFromPoolAsync", Place.POOL, more=(_stream(3),)),
        _release("cuMemFreeAsync", Place.POOL, (_stream(1),)),
    ),
)

# Streams, CUDA events, the context.

_LIVES = _driver(
    "stream and event",
    "sync",
    Function("cuStreamCreate", "cuda.stream.create", (Arg("stream_flags", 1, "u32"),), out=(Out("stream_handle", 0),)),
    Function(
        "cuStreamCreateWithPriority",
        "cuda.stream.create",
        (Arg("stream_flags", 1, "u32"), Arg("priority", 2, "s32")),
        out=(Out("stream_handle", 0),),
    ),
    Function(
        "cuGreenCtxStreamCreate",
        "cuda.stream.create",
        (Arg("stream_flags", 2, "u32"), Arg("priority", 3, "s32")),
        out=(Out("stream_handle", 0),),
    ),
    Function("cuStreamDestroy_v2", "cuda.stream.destroy", (_stream(0),), aliases=("cuStreamDestroy",)),
    Function("cuEventCreate", "cuda.event.create", (Arg("event_flags", 1, "u32"),), out=(Out("event_handle", 0),)),
    Function("cuEventDestroy_v2", "cuda.event.destroy", (_event(0),), aliases=("cuEventDestroy",)),
)

_ORDER = _driver(
    "stream and event",
    "sync",
    *_per_thread(
        "_ptsz",
        Function("cuStreamWaitEvent", "cuda.stream.wait_event", (_stream(0), _event(1))),
        Function("cuEventRecord", "cuda.event.record", (_event(0), _stream(1))),
        Function("cuEventRecordWithFlags", "cuda.event.record", (_event(0), _stream(1))),
    ),
)

_WAITS = _driver(
    "wait",
    "sync",
    *_per_thread("_ptsz", Function("cuStreamSynchronize", "cuda.stream.synchronize", (_stream(0),))),
    Function("cuEventSynchronize", "cuda.event.synchronize", (_event(0),)),
    Function("cuCtxSynchronize", "cuda.context.synchronize"),
    Function("cuCtxSynchronize_v2", "cuda.context.synchronize", (Arg("context", 0),)),
)

_QUERIES = _driver(
    "wait",
    "full",
    *_per_thread("_ptsz", Function("cuStreamQuery", "cuda.stream.query", (_stream(0),))),
    Function("cuEventQuery", "cuda.event.query", (_event(0),)),
)

# Graphs.

_GRAPHS = _driver(
    "graph",
    "launch",
    *_per_thread(
        "_ptsz",
        Function("cuStreamBeginCapture", "cuda.graph.capture_begin", (_stream(0),)),
        Function("cuStreamBeginCapture_v2", "cuda.graph.capture_begin", (_stream(0), Arg("mode", 1, "u32"))),
        Function("cuStreamBeginCaptureToGraph", "cuda.graph.capture_begin", (_stream(0), Arg("mode", 5, "u32"))),
        Function("cuStreamEndCapture", "cuda.graph.capture_end", (_stream(0),), out=(Out("graph", 1),)),
    ),
    Function(
        "cuGraphInstantiateWithFlags",
        "cuda.graph.instantiate",
        (Arg("graph", 1),),
        out=(Out("graph_exec", 0),),
        aliases=(
            "cuGraphInstantiate",
            "cuGraphInstantiate_v2",
            "cuGraphInstantiateWithParams",
            "cuGraphInstantiateWithParams_ptsz",
        ),
    ),
)

# The runtime API: what it alone knows. Its calls put nothing on a stream; the driver calls inside them do.


def _runtime(name: str, *args: Arg, reads: tuple[Read, ...] = (), **constants: int) -> Function:
    return Function(name, "cuda.runtime.call", args, reads, constants=constants)


_KIND = "direction"
_HOST_LAUNCH = (Arg("host_function", 0), _stream(7))

_RUNTIME = tuple(
    _placed(function, "runtime", "full", "runtime")
    for function in (
        *_per_thread(
            "_ptsz",
            _runtime("cudaLaunchKernel", *_HOST_LAUNCH),
            _runtime("cudaLaunchCooperativeKernel", *_HOST_LAUNCH),
            # cudaLaunchConfig_t: the stream is at 32, as in CUlaunchConfig.
            _runtime("cudaLaunchKernelExC", Arg("host_function", 1), _stream(2), reads=(Read(0, 32, 1, 2),)),
            _runtime("cudaLaunchHostFunc", Arg("host_function", 1), _stream(0)),
            _runtime("cudaGraphLaunch", _stream(1)),
            _runtime("cudaMemcpyAsync", Arg("bytes", 2), Arg(_KIND, 3, "u32"), _stream(4)),
            _runtime("cudaMemsetAsync", Arg("bytes", 2), _stream(3)),
            _runtime("cudaMallocAsync", Arg("bytes", 1), _stream(2)),
            _runtime("cudaFreeAsync", _stream(1)),
            _runtime("cudaStreamSynchronize", _stream(0)),
            _runtime("cudaStreamWaitEvent", _stream(0), _event(1)),
            _runtime("cudaEventRecord", _event(0), _stream(1)),
        ),
        *_per_thread(
            "_ptds",
            _runtime("cudaMemcpy", Arg("bytes", 2), Arg(_KIND, 3, "u32"), stream_handle=0),
            _runtime("cudaMemset", Arg("bytes", 2), stream_handle=0),
        ),
        _runtime("cudaMalloc", Arg("bytes", 1)),
        _runtime("cudaMallocManaged", Arg("bytes", 1)),
        _runtime("cudaMallocHost", Arg("bytes", 1)),
        _runtime("cudaHostAlloc", Arg("bytes", 1)),
        _runtime("cudaFree"),
        _runtime("cudaFreeHost"),
        _runtime("cudaEventSynchronize", _event(0)),
        _runtime("cudaDeviceSynchronize"),
    )
)

FUNCTIONS: _Functions = (
    *_LAUNCHES,
    *_WAITS,
    *_COPIES,
    *_ASYNC_COPIES,
    *_MEMSETS,
    *_ORDER,
    *_LIVES,
    *_QUERIES,
    *_MEMORY,
    *_POOLS,
    *_GRAPHS,
    *_RUNTIME,
)

TABLE = CallTable("cuda", (*DRIVER_LIBRARIES, *RUNTIME_LIBRARIES), FUNCTIONS)
"""All functions; what decoders and docs use."""


@cache
def table_for(detail: Detail) -> CallTable:
    """Return the table of what is on at `detail`, which is what gets probed.

    A table of its own, so that a recording declares no kind that it cannot have (rules that need one are off and
    say so), and libcudart is not touched where nothing in it is asked for.
    """
    chosen = TABLE.selected(detail)
    apis = {function.api for function in chosen}
    return CallTable("cuda", TABLE.libraries if "runtime" in apis else DRIVER_LIBRARIES, chosen)
