# SPDX-License-Identifier: Apache-2.0
"""Layouts of the records that the layer's own BPF programs write. Those of system calls are core's."""

from __future__ import annotations

from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "BLOCKED",
    "DELIVERED",
    "DEPENDENCY",
    "DONE",
    "FENCE_WAIT",
    "INIT",
    "LAYOUTS",
    "PART",
    "QUEUE",
    "QUEUED",
    "RUN",
    "SIGNALED",
    "VBLANK",
    "WAKE",
]

_JOB = (Field("fence_context", "u64"), Field("fence_seqno", "u64"))
_ON = (Field("dependency_context", "u64"), Field("dependency_seqno", "u64"))
_COUNTS = (Field("job_count", "u32"), Field("hw_job_count", "s32"))
_SHORT = (Field("context", "u32"), Field("seqno", "u32"))
# with the header and a fence, what makes a record 128 bytes
_NAMES = (Field("driver", "char[32]"), Field("timeline", "char[56]"))

QUEUE = RecordLayout(
    "drm.job.queue",
    (
        *HEADER,
        *_JOB,
        Field("client_id", "u64"),
        Field("id", "u64"),
        Field("scheduler", "u64"),
        *_COUNTS,
        Field("dev", "char[24]"),
        Field("ring", "char[32]"),
    ),
)
RUN = RecordLayout("drm.job.run", (*HEADER, *_JOB, *_COUNTS))
DONE = RecordLayout("drm.job.done", (*HEADER, *_JOB))
DEPENDENCY = RecordLayout("drm.job.dependency", (*HEADER, *_JOB, *_ON, Field("candidates", "u32")))
BLOCKED = RecordLayout("drm.job.blocked", (*HEADER, *_JOB, *_ON))
INIT = RecordLayout("drm.fence.init", (*HEADER, *_SHORT, *_NAMES))
SIGNALED = RecordLayout("drm.fence.signaled", (*HEADER, *_SHORT))
WAKE = RecordLayout("drm.fence.wake", (*HEADER, *_SHORT, Field("wakee_tid", "u32")))
PART = RecordLayout(
    "drm.fence.part",
    (
        *HEADER,
        *_SHORT,
        Field("part_context", "u64"),
        Field("part_seqno", "u64"),
        Field("prev_seqno", "u64"),
        Field("is_point", "u32"),
    ),
)
FENCE_WAIT = RecordLayout("drm.fence.wait", (*INTERVAL, *_SHORT, *_NAMES))
_FRAME = (Field("crtc", "s32"), Field("seq", "u32"))
QUEUED = RecordLayout("drm.vblank.queued", (*HEADER, Field("file", "u64"), *_FRAME))
VBLANK = RecordLayout(
    "drm.vblank.event",
    (*HEADER, Field("vblank_ns", "s64"), *_FRAME, Field("high_precision", "u32"), Field("reserved", "u32")),
)
DELIVERED = RecordLayout("drm.vblank.delivered", (*HEADER, Field("file", "u64"), *_FRAME))

LAYOUTS = {
    layout.kind: layout
    for layout in (
        QUEUE,
        RUN,
        DONE,
        DEPENDENCY,
        BLOCKED,
        INIT,
        SIGNALED,
        WAKE,
        PART,
        FENCE_WAIT,
        QUEUED,
        VBLANK,
        DELIVERED,
    )
}
"""By kind."""
