# SPDX-License-Identifier: Apache-2.0
"""What events of CUDA calls have in common: the entities they name, and the head of every call."""

from __future__ import annotations

import enum

from fencepath.events import S32, U8, U64, Event, Key

__all__ = ["CONTEXT", "END_EVENT", "EVENT", "STREAM", "CudaCall", "OnStream", "StreamKind"]

STREAM = Key("stream", "cuda.stream")
EVENT = Key("event", "cuda.event")
END_EVENT = Key("end_event", "cuda.event")
CONTEXT = Key("context", "cuda.context")


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
    """A call that names a stream; the key columns ``stream`` and ``context`` are added by the entity tracker.

    Attributes:
        stream_handle: CUstream; 0x1 for the legacy and 0x2 for the per-thread default stream, however they were named.
        stream_kind: see :class:`StreamKind`.
    """

    stream_handle: U64
    stream_kind: U8
