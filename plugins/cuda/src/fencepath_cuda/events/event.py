# SPDX-License-Identifier: Apache-2.0
"""CUDA events: their life, what they record, and waits for them."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import U32, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, END_EVENT, EVENT, STREAM, CudaCall, OnStream

__all__ = [
    "EventCreate",
    "EventDestroy",
    "EventElapsed",
    "EventExport",
    "EventQuery",
    "EventRecord",
    "EventSynchronize",
]


class EventCreate(CudaCall, frozen=True, kw_only=True, tag="cuda.event.create"):
    """A CUDA event was created, or one of another process was taken in.

    Attributes:
        event_handle: CUevent.
        event_flags: 1 blocking sync, 2 no timing, 4 inter-process; of one taken in 6, the other's 1 is not known.
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
        event_flags: 1 is CU_EVENT_RECORD_EXTERNAL: in a capture the record becomes a node.
        context_handle: of cuCtxRecordEvent, which waits for all of a context and names no stream: CUcontext. Else 0.
        green_context: of cuGreenCtxRecordEvent, likewise: CUgreenCtx. Else 0.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT, CONTEXT))

    event_handle: U64
    event_flags: U32
    context_handle: U64
    green_context: U64


class EventSynchronize(CudaCall, frozen=True, kw_only=True, tag="cuda.event.synchronize"):
    """The thread waits for what a CUDA event had recorded."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(EVENT, CONTEXT))

    event_handle: U64


class EventQuery(CudaCall, frozen=True, kw_only=True, tag="cuda.event.query"):
    """Asked whether a CUDA event has completed; ``result`` 600 (CUDA_ERROR_NOT_READY) means not yet."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT,))

    event_handle: U64


class EventElapsed(CudaCall, frozen=True, kw_only=True, tag="cuda.event.elapsed"):
    """Asked how long it was on the device from one CUDA event to another; the second one must have completed.

    Attributes:
        event_handle: CUevent, the earlier.
        end_event_handle: CUevent, the later.
        elapsed_ns: the answer, in the device's time; CUDA gives a float of milliseconds, true to about 500 ns. 0 if it
            failed or is negative.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT, END_EVENT))

    event_handle: U64
    end_event_handle: U64
    elapsed_ns: U64


class EventExport(CudaCall, frozen=True, kw_only=True, tag="cuda.event.export"):
    """A handle was made by which another process can take in a CUDA event.

    Attributes:
        event_handle: CUevent.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT,))

    event_handle: U64
