# SPDX-License-Identifier: Apache-2.0
"""What is taken from which tracepoint. Events of the GPU scheduler were renamed in 6.17; distributions backport that.

Accessors in bpf/jobs.c are named after the new events, on every kernel.
"""

from __future__ import annotations

from fencepath.tracepoints import From, Take, TracepointRecord

__all__ = [
    "BLOCKED",
    "DELIVERED",
    "DEPENDENCY",
    "DONE",
    "INIT",
    "MEMBERS",
    "PART",
    "QUEUE",
    "QUEUED",
    "RUN",
    "SIGNALED",
    "VBLANK",
    "WAIT_END",
    "WAIT_START",
    "WAKE",
]

_GROUP = "gpu_scheduler"
_FENCE = (Take("fence_context", "u64"), Take("fence_seqno", "u64"))
_ADDRESS = Take("fence", "u64", as_="fence_address")
_RING = Take("name", "char[32]", as_="ring")
_ID = Take("id", "u64")
_COUNTS = (Take("job_count", "u32", optional=True), Take("hw_job_count", "s32", optional=True))
_ON = (Take("ctx", "u64"), Take("seqno", "u64"))

QUEUE = TracepointRecord(
    kind="drm.job.queue",
    group=_GROUP,
    event="drm_sched_job_queue",
    fields=(*_FENCE, _RING, Take("dev", "char[24]", optional=True), Take("client_id", "u64", optional=True), *_COUNTS),
    alternatives=(From(_GROUP, "drm_sched_job", (_ADDRESS, _RING, _ID, *_COUNTS)),),
)
RUN = TracepointRecord(
    kind="drm.job.run",
    group=_GROUP,
    event="drm_sched_job_run",
    fields=(*_FENCE, *_COUNTS),
    alternatives=(From(_GROUP, "drm_run_job", (_ADDRESS, _RING, _ID, *_COUNTS)),),
)
DONE = TracepointRecord(
    kind="drm.job.done",
    group=_GROUP,
    event="drm_sched_job_done",
    fields=_FENCE,
    alternatives=(From(_GROUP, "drm_sched_process_job", (_ADDRESS,)),),
)
# Neither event means that the job waits: both come for fences that are signalled already, too.
DEPENDENCY = TracepointRecord(
    kind="drm.job.dependency",
    group=_GROUP,
    event="drm_sched_job_add_dep",
    fields=(*_FENCE, *_ON),
    alternatives=(From(_GROUP, "drm_sched_job_wait_dep", (_RING, _ID, *_ON)),),
)
BLOCKED = TracepointRecord(
    kind="drm.job.blocked", group=_GROUP, event="drm_sched_job_unschedulable", fields=(*_FENCE, *_ON)
)

# 32 bits in every kernel so far; the low ones if they ever become wider
_SHORT = (Take("context", "u32", narrow=True), Take("seqno", "u32", narrow=True))
_NAMES = (Take("driver", "char[32]"), Take("timeline", "char[56]"))

INIT = TracepointRecord(kind="drm.fence.init", group="dma_fence", event="dma_fence_init", fields=(*_SHORT, *_NAMES))
SIGNALED = TracepointRecord(kind="drm.fence.signaled", group="dma_fence", event="dma_fence_signaled", fields=_SHORT)
WAKE = TracepointRecord(
    kind="drm.fence.wake", group="sched", event="sched_waking", fields=(Take("pid", "u32", as_="wakee_tid"),)
)
PART = TracepointRecord(kind="drm.fence.part", group="dma_fence", event="dma_fence_init", fields=_SHORT)
MEMBERS = TracepointRecord(kind="drm.fence.part", group="dma_fence", event="dma_fence_signaled", fields=_SHORT)
WAIT_START = TracepointRecord(
    kind="drm.fence.wait", group="dma_fence", event="dma_fence_wait_start", fields=(*_SHORT, *_NAMES)
)
WAIT_END = TracepointRecord(kind="drm.fence.wait", group="dma_fence", event="dma_fence_wait_end", fields=_SHORT)

_FRAME = (Take("crtc", "s32"), Take("seq", "u32"))
_FILE = Take("file", "u64", identity=True)

QUEUED = TracepointRecord(
    kind="drm.vblank.queued", group="drm", event="drm_vblank_event_queued", fields=(_FILE, *_FRAME)
)
VBLANK = TracepointRecord(
    kind="drm.vblank.event",
    group="drm",
    event="drm_vblank_event",
    fields=(
        *_FRAME,
        Take("time", "s64", as_="vblank_ns", optional=True),
        Take("high_prec", "u32", as_="high_precision", optional=True),
    ),
)
DELIVERED = TracepointRecord(
    kind="drm.vblank.delivered", group="drm", event="drm_vblank_event_delivered", fields=(_FILE, *_FRAME)
)
