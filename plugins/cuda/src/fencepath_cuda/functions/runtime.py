# SPDX-License-Identifier: Apache-2.0
"""The runtime API: what it alone knows. Its calls put nothing on a stream; the driver calls inside them do.

CUDA 13 changed arguments of functions whose names it kept (cudaMemPrefetchAsync, cudaMemcpyBatchAsync,
cudaGraphAddDependencies). Of those only what is in the same place in both is recorded. Structs above 16 bytes by value
(cudaExtent, cudaPitchedPtr) are on the stack of x86-64 and behind a pointer on arm64, and are not.
"""

from __future__ import annotations

from fencepath.calls import Arg, Function, Read
from fencepath_cuda.events import Direction
from fencepath_cuda.functions.base import Functions, event, per_thread, placed, stream
from fencepath_cuda.functions.launch import shape_words

__all__ = ["RUNTIME"]


def _call(name: str, *args: Arg, reads: tuple[Read, ...] = (), **constants: int) -> Function:
    return Function(name, "cuda.runtime.call", args, reads, constants=constants)


def _kind(slot: int) -> Arg:
    """Return the argument that is the direction, cudaMemcpyKind."""
    return Arg("direction", slot, "u32")


def _bytes(slot: int) -> Arg:
    return Arg("bytes", slot)


def _area(width: int) -> tuple[Arg, ...]:
    """Return width and height, which follow one another."""
    return Arg("width_bytes", width), Arg("height", width + 1)


# A launch: what is launched; grid and block, each dim3 by value in two words, x and y in the first; the kernel's
# arguments; shared memory; stream.
_DIM3 = (
    Arg("grid_x", 1, "u32"),
    Arg("grid_y", 1, "u32", 32),
    Arg("grid_z", 2, "u32"),
    Arg("block_x", 3, "u32"),
    Arg("block_y", 3, "u32", 32),
    Arg("block_z", 4, "u32"),
    Arg("shared_bytes", 6),
    stream(7),
)

# cudaLaunchConfig_t: dim3 grid, block; then at 24 size_t shared and at 32 the stream.
_CONFIG = (*shape_words(2, 3, 4), Arg("shared_bytes", 5), stream(6))

_LAUNCHES = per_thread(
    "_ptsz",
    _call("cudaLaunchKernel", Arg("host_function", 0), *_DIM3),
    _call("cudaLaunchCooperativeKernel", Arg("host_function", 0), *_DIM3),
    # What code compiled by CUDA 13 calls (crt/host_runtime.h).
    _call("__cudaLaunchKernel", Arg("kernel", 0), *_DIM3),
    _call("cudaLaunchKernelExC", Arg("host_function", 1), *_CONFIG, reads=(Read(0, 0, 5, 2),)),
    _call("cudaLaunchHostFunc", Arg("host_function", 1), stream(0)),
    _call("cudaLaunchHostFunc_v2", Arg("host_function", 1), stream(0)),
    _call("cudaStreamAddCallback", Arg("host_function", 1), stream(0)),
)

# cudaMemcpy3DParms: width, height and depth at 128, the direction at 152; cudaMemcpy3DPeerParms: those three at 144.
_BOX = (Arg("width_bytes", 2), Arg("height", 3), Arg("depth", 4), _kind(5))
_BOX_READS = (Read(0, 128, 4, 2),)
_PEER_BOX = _BOX[:3]
_PEER_BOX_READS = (Read(0, 144, 3, 2),)
_DTOD = int(Direction.DEVICE_TO_DEVICE)


def _on_default(*functions: Function) -> Functions:
    return per_thread(
        "_ptds",
        *(_call(f.name, *f.args, reads=f.reads, stream_handle=0, **dict(f.constants)) for f in functions),
    )


_COPIES = (
    *_on_default(
        _call("cudaMemcpy", _bytes(2), _kind(3)),
        _call("cudaMemcpyToSymbol", _bytes(2), _kind(4)),
        _call("cudaMemcpyFromSymbol", _bytes(2), _kind(4)),
        _call("cudaMemcpyToArray", _bytes(4), _kind(5)),
        _call("cudaMemcpyFromArray", _bytes(4), _kind(5)),
        _call("cudaMemcpyArrayToArray", _bytes(6), _kind(7)),
        _call("cudaMemcpy2D", *_area(4), _kind(6)),
        _call("cudaMemcpy2DToArray", *_area(5), _kind(7)),
        _call("cudaMemcpy2DFromArray", *_area(5), _kind(7)),
        _call("cudaMemcpy2DArrayToArray", *_area(6), _kind(8)),
        _call("cudaMemcpy3D", *_BOX, reads=_BOX_READS),
        _call("cudaMemcpy3DPeer", *_PEER_BOX, reads=_PEER_BOX_READS, direction=_DTOD),
        _call("cudaMemset", _bytes(2)),
        _call("cudaMemset2D", *_area(3)),
        _call("cudaMemset3D"),
    ),
    _call("cudaMemcpyPeer", _bytes(4), stream_handle=0, direction=_DTOD),
    _call("cudaMemcpyPeerAsync", _bytes(4), stream(5), direction=_DTOD),
    *per_thread(
        "_ptsz",
        _call("cudaMemcpyAsync", _bytes(2), _kind(3), stream(4)),
        _call("cudaMemcpyToSymbolAsync", _bytes(2), _kind(4), stream(5)),
        _call("cudaMemcpyFromSymbolAsync", _bytes(2), _kind(4), stream(5)),
        _call("cudaMemcpyToArrayAsync", _bytes(4), _kind(5), stream(6)),
        _call("cudaMemcpyFromArrayAsync", _bytes(4), _kind(5), stream(6)),
        _call("cudaMemcpy2DAsync", *_area(4), _kind(6), stream(7)),
        _call("cudaMemcpy2DToArrayAsync", *_area(5), _kind(7), stream(8)),
        _call("cudaMemcpy2DFromArrayAsync", *_area(5), _kind(7), stream(8)),
        _call("cudaMemcpy3DAsync", *_BOX, stream(1), reads=_BOX_READS),
        _call("cudaMemcpy3DPeerAsync", *_PEER_BOX, stream(1), reads=_PEER_BOX_READS, direction=_DTOD),
        _call("cudaMemcpyBatchAsync"),
        _call("cudaMemcpy3DBatchAsync"),
        _call("cudaMemcpyWithAttributesAsync", _bytes(2), stream(4)),
        _call("cudaMemcpy3DWithAttributesAsync", stream(2)),
        _call("cudaMemsetAsync", _bytes(2), stream(3)),
        _call("cudaMemset2DAsync", *_area(3), stream(5)),
        _call("cudaMemset3DAsync"),
        _call("cudaMemPrefetchAsync", _bytes(1)),
        _call("cudaMemPrefetchAsync_v2", _bytes(1), stream(4)),
        _call("cudaMemPrefetchBatchAsync", stream(7)),
        _call("cudaMemDiscardBatchAsync", stream(4)),
        _call("cudaMemDiscardAndPrefetchBatchAsync", stream(7)),
        _call("cudaStreamAttachMemAsync", stream(0), _bytes(2)),
    ),
)

_MEMORY = (
    _call("cudaMalloc", _bytes(1)),
    _call("cudaMallocManaged", _bytes(1)),
    _call("cudaMallocHost", _bytes(1)),
    _call("cudaHostAlloc", _bytes(1)),
    _call("cudaHostRegister", _bytes(1)),
    _call("cudaMallocPitch", *_area(2)),
    _call("cudaMalloc3D"),
    _call("cudaMallocArray"),
    _call("cudaMalloc3DArray"),
    *per_thread(
        "_ptsz",
        _call("cudaMallocAsync", _bytes(1), stream(2)),
        _call("cudaMallocFromPoolAsync", _bytes(1), stream(3)),
        _call("cudaFreeAsync", stream(1)),
    ),
    _call("cudaFree"),
    _call("cudaFreeHost"),
    _call("cudaFreeArray"),
    _call("cudaHostUnregister"),
)

_STREAMS = (
    _call("cudaStreamCreate"),
    _call("cudaStreamCreateWithFlags"),
    _call("cudaStreamCreateWithPriority"),
    _call("cudaStreamDestroy", stream(0)),
    _call("cudaEventCreate"),
    _call("cudaEventCreateWithFlags"),
    _call("cudaEventDestroy", event(0)),
    *per_thread(
        "_ptsz",
        _call("cudaStreamSynchronize", stream(0)),
        _call("cudaStreamQuery", stream(0)),
        _call("cudaStreamWaitEvent", stream(0), event(1)),
        _call("cudaEventRecord", event(0), stream(1)),
        _call("cudaEventRecordWithFlags", event(0), stream(1)),
        _call("cudaWaitExternalSemaphoresAsync", stream(3)),
        _call("cudaWaitExternalSemaphoresAsync_v2", stream(3)),
        _call("cudaSignalExternalSemaphoresAsync", stream(3)),
        _call("cudaSignalExternalSemaphoresAsync_v2", stream(3)),
    ),
    _call("cudaEventSynchronize", event(0)),
    _call("cudaEventQuery", event(0)),
    _call("cudaEventElapsedTime", event(1)),
    _call("cudaEventElapsedTime_v2", event(1)),
    _call("cudaExecutionCtxStreamCreate"),
    _call("cudaExecutionCtxRecordEvent", event(1)),
    _call("cudaExecutionCtxWaitEvent", event(1)),
    _call("cudaExecutionCtxSynchronize"),
)

_DEVICE = Arg("device", 0, "s32")

_DEVICES = (
    _call("cudaSetDevice", _DEVICE),
    _call("cudaInitDevice", _DEVICE),
    _call("cudaDeviceReset"),
    _call("cudaDeviceSynchronize"),
    _call("cudaThreadSynchronize"),
    _call("cudaDeviceEnablePeerAccess", _DEVICE),
    _call("cudaDeviceDisablePeerAccess", _DEVICE),
    _call("cudaLaunchCooperativeKernelMultiDevice"),
)


def _kernel_node(name: str, slot: int, first: int) -> Function:
    """Return a function whose slot has cudaKernelNodeParams: the host function, dim3 grid, block, and u32 shared."""
    function, one, two, three, shared = range(first, first + 5)
    args = (
        Arg("host_function", function),
        *shape_words(one, two, three),
        Arg("shared_bytes", shared, "u32"),
    )
    return _call(name, *args, reads=(Read(slot, 0, 5, first),))


_GRAPHS = (
    *per_thread(
        "_ptsz",
        _call("cudaStreamBeginCapture", stream(0)),
        _call("cudaStreamBeginCaptureToGraph", stream(0)),
        _call("cudaStreamBeginRecaptureToGraph", stream(0)),
        _call("cudaStreamEndCapture", stream(0)),
        _call("cudaStreamUpdateCaptureDependencies", stream(0)),
        _call("cudaStreamUpdateCaptureDependencies_v2", stream(0)),
        _call("cudaGraphLaunch", stream(1)),
        _call("cudaGraphUpload", stream(1)),
        _call("cudaGraphInstantiateWithParams"),
    ),
    _call("cudaGraphCreate"),
    _call("cudaGraphDestroy"),
    _call("cudaGraphClone"),
    _call("cudaGraphInstantiate"),
    _call("cudaGraphInstantiateWithFlags"),
    _call("cudaGraphExecUpdate"),
    _call("cudaGraphExecDestroy"),
    _kernel_node("cudaGraphKernelNodeSetParams", 1, 2),
    _kernel_node("cudaGraphExecKernelNodeSetParams", 2, 3),
    # The words of the node's parameters take the place of those of the four handles before them, and one beyond.
    _call(
        "cudaGraphAddKernelNode",
        Arg("host_function", 0),
        *shape_words(1, 2, 3),
        Arg("shared_bytes", 5, "u32"),
        reads=(Read(4, 0, 4, 0), Read(4, 32, 1, 5)),
    ),
    _call("cudaGraphAddMemcpyNode"),
    _call("cudaGraphAddMemcpyNode1D", _bytes(6), _kind(7)),
    _call("cudaGraphAddMemcpyNodeToSymbol", _bytes(6), _kind(8)),
    _call("cudaGraphAddMemcpyNodeFromSymbol", _bytes(6), _kind(8)),
    _call("cudaGraphAddMemsetNode"),
    _call("cudaGraphAddHostNode"),
    _call("cudaGraphAddChildGraphNode"),
    _call("cudaGraphAddEmptyNode"),
    _call("cudaGraphAddEventRecordNode", event(4)),
    _call("cudaGraphAddEventWaitNode", event(4)),
    _call("cudaGraphAddMemAllocNode"),
    _call("cudaGraphAddMemFreeNode"),
    _call("cudaGraphAddNode"),
    _call("cudaGraphAddNode_v2"),
    _call("cudaGraphAddDependencies"),
    _call("cudaGraphAddDependencies_v2"),
)

RUNTIME = tuple(
    placed(function, "runtime", "full", "runtime")
    for function in (*_LAUNCHES, *_COPIES, *_MEMORY, *_STREAMS, *_DEVICES, *_GRAPHS)
)
