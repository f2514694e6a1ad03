# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``cuda``: one event is one call.

Every event is in task context: ``tgid`` and ``tid`` made the call, ``begin_ns`` and ``time_ns`` are its entry and
return. A call recorded at entry only (ENTRY_ONLY) has both equal, and one that had not returned (OPEN) has the time of
reading; of both, ``result`` and whatever the function hands back are not known and 0, and ``returned`` is false.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import S32, U8, U32, U64, Category, Event, Key, KindInfo, Role

__all__ = [
    "EVENTS",
    "ContextSynchronize",
    "CudaCall",
    "Direction",
    "EventCreate",
    "EventDestroy",
    "EventQuery",
    "EventRecord",
    "EventSynchronize",
    "Free",
    "GraphCaptureBegin",
    "GraphCaptureEnd",
    "GraphInstantiate",
    "GraphLaunch",
    "HostFunc",
    "Launch",
    "Malloc",
    "Memcpy",
    "MemcpyAsync",
    "Memset",
    "OnStream",
    "Place",
    "RuntimeCall",
    "StreamCreate",
    "StreamDestroy",
    "StreamKind",
    "StreamQuery",
    "StreamSynchronize",
    "StreamWaitEvent",
]

STREAM = Key("stream", "cuda.stream")
EVENT = Key("event", "cuda.event")


class StreamKind(enum.IntEnum):
    """What the stream argument of a call named."""

    NONE = 0
    """No stream, or it could not be read."""
    LEGACY = 1
    """The context's legacy default stream: handle 0, or CU_STREAM_LEGACY (0x1)."""
    PER_THREAD = 2
    """The calling thread's default stream: handle 0 to a ``_ptsz`` function, or CU_STREAM_PER_THREAD (0x2)."""
    CREATED = 3
    """A stream that was created; its handle is an address."""


class Direction(enum.IntEnum):
    """Direction of a copy, numbered as cudaMemcpyKind (driver_types.h)."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    UNKNOWN = 4
    """cudaMemcpyDefault: found by CUDA from the addresses, or not recorded."""


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


class CudaCall(Event, frozen=True, kw_only=True):
    """What every call has.

    Attributes:
        label: the function, as index in the batch's ``labels``.
        result: CUresult or cudaError_t, 0 for success.
        returned: whether the return was recorded, without which ``result`` means nothing.
        caller_ip: return address: what library, or which function of it, made the call.
    """

    label: S32
    result: S32
    returned: bool
    caller_ip: U64


class OnStream(CudaCall, frozen=True, kw_only=True):
    """A call that names a stream; the key column ``stream`` is added by the entity tracker.

    Attributes:
        stream_handle: CUstream; 0x1 for the legacy and 0x2 for the per-thread default stream, however they were named.
        stream_kind: see :class:`StreamKind`.
    """

    stream_handle: U64
    stream_kind: U8


class Launch(OnStream, frozen=True, kw_only=True, tag="cuda.launch"):
    """A kernel launch. It returns when the launch is queued, not when the kernel has run.

    Attributes:
        kernel: CUfunction handle.
        grid_x, grid_y, grid_z: blocks.
        block_x, block_y, block_z: threads of a block.
        shared_bytes: dynamic shared memory of a block.
        attributes: launch attributes given (cuLaunchKernelEx). One of them can let the kernel begin before the one
            before it on the stream has ended (programmatic stream serialization).
        cooperative: launched by a cooperative function.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))

    kernel: U64
    grid_x: U32
    grid_y: U32
    grid_z: U32
    block_x: U32
    block_y: U32
    block_z: U32
    shared_bytes: U32
    attributes: U32
    cooperative: bool


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

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, keys=(STREAM,))

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

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, category=Category.API_CALL, keys=(STREAM,))

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

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, category=Category.API_CALL, keys=(STREAM,))

    bytes: U64
    destination: U64


class Malloc(OnStream, frozen=True, kw_only=True, tag="cuda.malloc"):
    """Memory allocated or registered. ``stream_kind`` is NONE but for allocations in stream order.

    Attributes:
        bytes: size asked for, of a pitched allocation rows times pitch.
        address: device or host address, or the handle of physical memory; 0 if there is none.
        place: see :class:`Place`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(STREAM,))

    bytes: U64
    address: U64
    place: U8


class Free(OnStream, frozen=True, kw_only=True, tag="cuda.free"):
    """Memory given back or unregistered. cuMemFree waits for the device; one in stream order does not."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(STREAM,))

    address: U64
    place: U8


class HostFunc(OnStream, frozen=True, kw_only=True, tag="cuda.host_func"):
    """A host function put on a stream; a thread of the driver calls it later.

    Attributes:
        callback: its address.
        user_data: the pointer it gets.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))

    callback: U64
    user_data: U64


class StreamCreate(OnStream, frozen=True, kw_only=True, tag="cuda.stream.create"):
    """A stream was created.

    Attributes:
        stream_flags: 1 is CU_STREAM_NON_BLOCKING: no implicit order with the legacy default stream.
        priority: 0 unless asked for; lower numbers come first.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(STREAM,), keep=True)

    stream_flags: U32
    priority: S32


class StreamDestroy(OnStream, frozen=True, kw_only=True, tag="cuda.stream.destroy"):
    """A stream was destroyed; work on it still runs to its end."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(STREAM,), keep=True)


class StreamWaitEvent(OnStream, frozen=True, kw_only=True, tag="cuda.stream.wait_event"):
    """What is put on the stream from now on waits for what the CUDA event had recorded. The thread does not wait.

    Attributes:
        event_handle: CUevent.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT))

    event_handle: U64


class StreamSynchronize(OnStream, frozen=True, kw_only=True, tag="cuda.stream.synchronize"):
    """The thread waits for a stream."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(STREAM,))


class StreamQuery(OnStream, frozen=True, kw_only=True, tag="cuda.stream.query"):
    """Asked whether a stream is idle; ``result`` 600 (CUDA_ERROR_NOT_READY) means not yet."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))


class EventCreate(CudaCall, frozen=True, kw_only=True, tag="cuda.event.create"):
    """A CUDA event was created.

    Attributes:
        event_handle: CUevent.
        event_flags: 1 blocking sync, 2 no timing, 4 inter-process.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(EVENT,), keep=True)

    event_handle: U64
    event_flags: U32


class EventDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.event.destroy"):
    """A CUDA event was destroyed."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(EVENT,), keep=True)

    event_handle: U64


class EventRecord(OnStream, frozen=True, kw_only=True, tag="cuda.event.record"):
    """A CUDA event was put on a stream: it completes when what was on the stream before has.

    Attributes:
        event_handle: CUevent.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT))

    event_handle: U64


class EventSynchronize(CudaCall, frozen=True, kw_only=True, tag="cuda.event.synchronize"):
    """The thread waits for what a CUDA event had recorded."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(EVENT,))

    event_handle: U64


class EventQuery(CudaCall, frozen=True, kw_only=True, tag="cuda.event.query"):
    """Asked whether a CUDA event has completed; ``result`` 600 (CUDA_ERROR_NOT_READY) means not yet."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT,))

    event_handle: U64


class GraphCaptureBegin(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_begin"):
    """From now on what is put on the stream becomes nodes of a graph and does not run.

    Attributes:
        mode: CUstreamCaptureMode: 0 global, 1 thread local, 2 relaxed.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))

    mode: U32


class GraphCaptureEnd(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_end"):
    """The capture that began on the stream ended.

    Attributes:
        graph: CUgraph made of it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))

    graph: U64


class GraphInstantiate(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.instantiate"):
    """A graph was made ready to launch.

    Attributes:
        graph: CUgraph.
        graph_exec: CUgraphExec made of it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keep=True)

    graph: U64
    graph_exec: U64


class GraphLaunch(OnStream, frozen=True, kw_only=True, tag="cuda.graph.launch"):
    """A graph was put on a stream, as one piece of work.

    Attributes:
        graph_exec: CUgraphExec.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM,))

    graph_exec: U64


class ContextSynchronize(CudaCall, frozen=True, kw_only=True, tag="cuda.context.synchronize"):
    """The thread waits for everything in a context.

    Attributes:
        context: CUcontext, 0 for the thread's current one.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT)

    context: U64


class RuntimeCall(OnStream, frozen=True, kw_only=True, tag="cuda.runtime.call"):
    """A call of the runtime API, around the driver calls it makes, which are events of their own.

    A kind apart from theirs, so that nothing is counted twice: this one puts nothing on a stream.

    Attributes:
        host_function: of a launch, the address of the host's stub for the kernel, which has its name as symbol.
        bytes: of copies, sets and allocations.
        direction: of copies, as the caller stated it; UNKNOWN for all else.
        event_handle: cudaEvent_t of the calls that take one.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT))

    host_function: U64
    bytes: U64
    direction: U8
    event_handle: U64


EVENTS: tuple[type[CudaCall], ...] = (
    Launch,
    Memcpy,
    MemcpyAsync,
    Memset,
    Malloc,
    Free,
    HostFunc,
    StreamCreate,
    StreamDestroy,
    StreamWaitEvent,
    StreamSynchronize,
    StreamQuery,
    EventCreate,
    EventDestroy,
    EventRecord,
    EventSynchronize,
    EventQuery,
    GraphCaptureBegin,
    GraphCaptureEnd,
    GraphInstantiate,
    GraphLaunch,
    ContextSynchronize,
    RuntimeCall,
)
"""Event classes of all kinds."""
