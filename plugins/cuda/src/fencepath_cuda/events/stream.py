# SPDX-License-Identifier: Apache-2.0
"""Streams: their life, waits for them, and what makes them wait."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import S32, U8, U32, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, EVENT, STREAM, CudaCall, OnStream

__all__ = [
    "SemaphoreAction",
    "SemaphoreCreate",
    "SemaphoreDestroy",
    "StreamCreate",
    "StreamDestroy",
    "StreamQuery",
    "StreamSemaphore",
    "StreamSynchronize",
    "StreamValue",
    "StreamWaitEvent",
    "ValueAction",
]


class ValueAction(enum.IntEnum):
    """What a stream does with a value in memory."""

    WAIT = 0
    WRITE = 1
    BATCH = 2
    """Several waits and writes; which is not recorded."""


class SemaphoreAction(enum.IntEnum):
    """What a stream does with external semaphores."""

    WAIT = 0
    SIGNAL = 1


class StreamCreate(OnStream, frozen=True, kw_only=True, tag="cuda.stream.create"):
    """A stream was created.

    Attributes:
        stream_flags: 1 is CU_STREAM_NON_BLOCKING: no implicit order with the legacy default stream.
        priority: 0 unless asked for; lower numbers come first.
        green_context: CUgreenCtx whose stream it is (cuGreenCtxStreamCreate), else 0.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(STREAM, CONTEXT), keep=True)

    stream_flags: U32
    priority: S32
    green_context: U64


class StreamDestroy(OnStream, frozen=True, kw_only=True, tag="cuda.stream.destroy"):
    """A stream was destroyed; work on it still runs to its end."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keys=(STREAM, CONTEXT), keep=True)


class StreamWaitEvent(OnStream, frozen=True, kw_only=True, tag="cuda.stream.wait_event"):
    """What is put on the stream from now on waits for what the CUDA event had recorded. The thread does not wait.

    Attributes:
        event_handle: CUevent.
        event_flags: 1 is CU_EVENT_WAIT_EXTERNAL: in a capture the wait becomes a node and joins no streams.
        context_handle: of cuCtxWaitEvent, which makes every stream of a context wait: CUcontext. Else 0.
        green_context: of cuGreenCtxWaitEvent, likewise: CUgreenCtx. Else 0.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, EVENT, CONTEXT))

    event_handle: U64
    event_flags: U32
    context_handle: U64
    green_context: U64


class StreamSynchronize(OnStream, frozen=True, kw_only=True, tag="cuda.stream.synchronize"):
    """The thread waits for a stream."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(STREAM, CONTEXT))


class StreamQuery(OnStream, frozen=True, kw_only=True, tag="cuda.stream.query"):
    """Asked whether a stream is idle; ``result`` 600 (CUDA_ERROR_NOT_READY) means not yet."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))


class StreamValue(OnStream, frozen=True, kw_only=True, tag="cuda.stream.value"):
    """The stream waits for a value in memory or writes one. The thread does not wait.

    Attributes:
        action: see :class:`ValueAction`.
        address: device address, 0 for a batch.
        value: what is waited for or written.
        condition: flags of the call; the lowest two bits of a wait's: 0 at least, 1 equal, 2 any bit, 3 no bit.
        operations: how many a batch has.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    action: U8
    address: U64
    value: U64
    condition: U32
    operations: U32


class StreamSemaphore(OnStream, frozen=True, kw_only=True, tag="cuda.stream.semaphore"):
    """The stream waits for external semaphores or signals them. The thread does not wait.

    Attributes:
        action: see :class:`SemaphoreAction`.
        semaphores: how many.
        semaphore: CUexternalSemaphore, the first.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    action: U8
    semaphores: U32
    semaphore: U64


class SemaphoreCreate(CudaCall, frozen=True, kw_only=True, tag="cuda.semaphore.create"):
    """A semaphore of another API was taken in.

    Attributes:
        semaphore: CUexternalSemaphore.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    semaphore: U64


class SemaphoreDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.semaphore.destroy"):
    """A semaphore of another API was given back."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    semaphore: U64
