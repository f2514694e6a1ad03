# SPDX-License-Identifier: Apache-2.0
"""Streams and CUDA events: their life, their order, waits and queries."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Out, Read
from fencepath_cuda.events import SemaphoreAction, ValueAction
from fencepath_cuda.functions.base import driver, event, per_thread, stream

__all__ = ["STREAMS"]

_NEW_STREAM = (Out("stream_handle", 0),)
_NEW_EVENT = (Out("event_handle", 0),)

_LIVES = driver(
    "stream and event",
    "sync",
    Function("cuStreamCreate", "cuda.stream.create", (Arg("stream_flags", 1, "u32"),), out=_NEW_STREAM),
    Function(
        "cuStreamCreateWithPriority",
        "cuda.stream.create",
        (Arg("stream_flags", 1, "u32"), Arg("priority", 2, "s32")),
        out=_NEW_STREAM,
    ),
    Function(
        "cuGreenCtxStreamCreate",
        "cuda.stream.create",
        (Arg("green_context", 1), Arg("stream_flags", 2, "u32"), Arg("priority", 3, "s32")),
        out=_NEW_STREAM,
    ),
    Function("cuStreamDestroy_v2", "cuda.stream.destroy", (stream(0),), aliases=("cuStreamDestroy",)),
    Function("cuEventCreate", "cuda.event.create", (Arg("event_flags", 1, "u32"),), out=_NEW_EVENT),
    # One of another process is always without timing and for several processes.
    Function("cuIpcOpenEventHandle", "cuda.event.create", out=_NEW_EVENT, constants={"event_flags": 2 | 4}),
    Function("cuEventDestroy_v2", "cuda.event.destroy", (event(0),), aliases=("cuEventDestroy",)),
    Function("cuIpcGetEventHandle", "cuda.event.export", (event(1),)),
    Function("cuImportExternalSemaphore", "cuda.semaphore.create", out=(Out("semaphore", 0),)),
    Function("cuDestroyExternalSemaphore", "cuda.semaphore.destroy", (Arg("semaphore", 0),)),
)

_ORDER = driver(
    "stream and event",
    "sync",
    *per_thread(
        "_ptsz",
        Function("cuStreamWaitEvent", "cuda.stream.wait_event", (stream(0), event(1), Arg("event_flags", 2, "u32"))),
        Function("cuEventRecord", "cuda.event.record", (event(0), stream(1))),
        Function("cuEventRecordWithFlags", "cuda.event.record", (event(0), stream(1), Arg("event_flags", 2, "u32"))),
    ),
    Function("cuCtxWaitEvent", "cuda.stream.wait_event", (Arg("context_handle", 0), event(1))),
    Function("cuGreenCtxWaitEvent", "cuda.stream.wait_event", (Arg("green_context", 0), event(1))),
    Function("cuCtxRecordEvent", "cuda.event.record", (Arg("context_handle", 0), event(1))),
    Function("cuGreenCtxRecordEvent", "cuda.event.record", (Arg("green_context", 0), event(1))),
)


def _value(name: str, action: ValueAction, bits: int) -> Function:
    """Return the first version's function: the second takes the same arguments."""
    args = (stream(0), Arg("address", 1), Arg("value", 2, f"u{bits}"), Arg("condition", 3, "u32"))
    constants = {"action": int(action)}
    return Function(f"{name}{bits}_v2", "cuda.stream.value", args, aliases=(f"{name}{bits}",), constants=constants)


_VALUES = driver(
    "stream and event",
    "launch",
    *per_thread(
        "_ptsz",
        _value("cuStreamWaitValue", ValueAction.WAIT, 32),
        _value("cuStreamWaitValue", ValueAction.WAIT, 64),
        _value("cuStreamWriteValue", ValueAction.WRITE, 32),
        _value("cuStreamWriteValue", ValueAction.WRITE, 64),
        Function(
            "cuStreamBatchMemOp_v2",
            "cuda.stream.value",
            (stream(0), Arg("operations", 1, "u32"), Arg("condition", 3, "u32")),
            aliases=("cuStreamBatchMemOp",),
            constants={"action": int(ValueAction.BATCH)},
        ),
    ),
)


def _semaphores(name: str, action: SemaphoreAction) -> Function:
    args = (Arg("semaphores", 2, "u32"), stream(3), Arg("semaphore", 4))
    return Function(name, "cuda.stream.semaphore", args, (Read(0, 0, 1, 4),), constants={"action": int(action)})


_SEMAPHORES = driver(
    "stream and event",
    "launch",
    *per_thread(
        "_ptsz",
        _semaphores("cuWaitExternalSemaphoresAsync", SemaphoreAction.WAIT),
        _semaphores("cuSignalExternalSemaphoresAsync", SemaphoreAction.SIGNAL),
    ),
)

_WAITS = driver(
    "wait",
    "sync",
    *per_thread("_ptsz", Function("cuStreamSynchronize", "cuda.stream.synchronize", (stream(0),))),
    Function("cuEventSynchronize", "cuda.event.synchronize", (event(0),)),
    Function("cuCtxSynchronize", "cuda.context.synchronize"),
    Function("cuCtxSynchronize_v2", "cuda.context.synchronize", (Arg("context_handle", 0),)),
)

_ELAPSED = driver(
    "wait",
    "launch",
    Function(
        "cuEventElapsedTime_v2",
        "cuda.event.elapsed",
        (event(1), Arg("end_event_handle", 2)),
        out=(Out("elapsed_float", 0, 0, 4),),
        aliases=("cuEventElapsedTime",),
    ),
)

_QUERIES = driver(
    "wait",
    "full",
    *per_thread("_ptsz", Function("cuStreamQuery", "cuda.stream.query", (stream(0),))),
    Function("cuEventQuery", "cuda.event.query", (event(0),)),
)

STREAMS = (*_WAITS, *_LIVES, *_ORDER, *_VALUES, *_SEMAPHORES, *_ELAPSED, *_QUERIES)
