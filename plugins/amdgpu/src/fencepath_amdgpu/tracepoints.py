# SPDX-License-Identifier: Apache-2.0
"""What is taken from which tracepoint, with every name that a kernel since 4.16 has for it.

Nothing here is looked up: the formats of the kernel that is recorded decide.
"""

from __future__ import annotations

from fencepath.tracepoints import Always, From, Take, TracepointRecord
from fencepath_amdgpu.kinds import (
    BO_CREATE,
    BO_MOVE,
    CLEANER,
    CS,
    FLUSH,
    GRAB_ID,
    INTERRUPT,
    ISOLATION,
    KFD_EVICT,
    KFD_EVICTED,
    KFD_RESIDENT,
    MAP,
    PASID_ALLOCATE,
    PASID_FREE,
    PIPE_SYNC,
    RING_NAME_BYTES,
    RUN,
    UNMAP,
    USERQ_CREATE,
    USERQ_DESTROY,
    USERQ_SIGNAL,
    USERQ_STATE,
    USERQ_WAIT,
)

__all__ = [
    "EVICTIONS",
    "INTERRUPTS",
    "ISOLATION_RECORDS",
    "JOBS",
    "JOB_STEPS",
    "MEMORY",
    "PASIDS",
    "PASID_NOTES",
    "USER_QUEUES",
]

_GROUP = "amdgpu"
_NAME = f"char[{RING_NAME_BYTES}]"


def _record(kind: str, event: str, *fields: Take, alternatives: tuple[From, ...] = ()) -> TracepointRecord:
    return TracepointRecord(kind=kind, group=_GROUP, event=event, fields=fields, alternatives=alternatives)


_JOB = (
    # 32 bits before 6.17
    Take("context", "u64", as_="fence_context"),
    Take("seqno", "u64", as_="fence_seqno"),
    Take("num_ibs", "u32", as_="ibs"),
    # before 5.5 a pointer to it
    Take("ring", _NAME, other_names=("ring_name",)),
)
_RANGE = (
    Take("bo", "u64", identity=True),
    # in pages of the GPU, which have 4096 bytes
    Take("start", "u64"),
    Take("last", "u64"),
    Take("offset", "u64"),
    Take("flags", "u64", as_="mapping_flags"),
)
_PLACEMENTS = (
    Take("bo", "u64", identity=True),
    Take("bo_size", "u64", as_="size_bytes"),
    Take("old_placement", "u32", as_="source"),
    Take("new_placement", "u32", as_="target"),
)

JOBS = {
    "on_cs": _record(CS, "amdgpu_cs_ioctl", *_JOB),
    "on_run": _record(RUN, "amdgpu_sched_run_job", *_JOB),
}
"""BPF programs and the events they are attached to: submission, and what the scheduler does with it."""

JOB_STEPS = {
    "on_flush": _record(
        FLUSH,
        "amdgpu_vm_flush",
        Take("pd_addr", "u64", as_="page_directory"),
        Take("vmid", "u32", other_names=("id",)),
        Take("vm_hub", "u32", as_="hub", optional=True),
    ),
    "on_pipe_sync": _record(
        PIPE_SYNC,
        "amdgpu_ib_pipe_sync",
        Take("ctx", "u64", as_="dependency_context"),
        Take("seqno", "u64", as_="dependency_seqno"),
    ),
}
"""What the scheduler's thread does for the job that it hands over."""

MEMORY = {
    "on_bo_create": _record(
        BO_CREATE,
        "amdgpu_bo_create",
        Take("bo", "u64", identity=True),
        Take("pages", "u32"),
        Take("type", "u32", as_="placement"),
        Take("prefer", "u32", as_="preferred_domains"),
        Take("allow", "u32", as_="allowed_domains"),
        Take("visible", "u32", as_="create_flags"),
    ),
    "on_bo_move": _record(
        BO_MOVE, "amdgpu_bo_move", *_PLACEMENTS, alternatives=(From(_GROUP, "amdgpu_ttm_bo_move", _PLACEMENTS),)
    ),
    "on_map": _record(MAP, "amdgpu_vm_bo_map", *_RANGE),
    "on_unmap": _record(UNMAP, "amdgpu_vm_bo_unmap", *_RANGE),
}
"""Buffers and their mappings."""

_PASID = Take("pasid", "u32", other_names=("pas_id",))

PASIDS = {
    "on_pasid_allocate": _record(PASID_ALLOCATE, "amdgpu_pasid_allocated", _PASID),
    "on_pasid_free": _record(PASID_FREE, "amdgpu_pasid_freed", _PASID),
    "on_grab_id": _record(
        GRAB_ID,
        "amdgpu_vm_grab_id",
        _PASID,
        # there are two fields called ring in one event: the one that fits is the text
        Take("ring", _NAME, optional=True),
        Take("vmid", "u32"),
        Take("vm_hub", "u32", as_="hub", optional=True),
        Take("pd_addr", "u64", as_="page_directory"),
        Take("needs_flush", "u32"),
    ),
}
"""Address spaces: whose they are, and which of the hardware's they get."""

INTERRUPTS = {
    "on_interrupt": _record(
        INTERRUPT,
        "amdgpu_iv",
        Take("ih", "u32", as_="ring", optional=True),
        Take("client_id", "u32", as_="client"),
        Take("src_id", "u32", as_="source"),
        Take("ring_id", "u32", as_="client_ring"),
        Take("vmid", "u32", other_names=("vm_id",)),
        Take("vmid_src", "u32", as_="vmid_source", other_names=("vm_id_src",)),
        Take("timestamp", "u64", as_="gpu_ticks"),
        Take("timestamp_src", "u32", as_="gpu_ticks_source"),
        _PASID,
        Take("src_data", "u32[4]", as_="data", narrow=True),
    )
}
"""Entries of the GPU's interrupt ring."""

PASID_NOTES = {
    # nothing is recorded by these: they keep the set of address spaces for the interrupts
    "note_pasid_allocate": _record(INTERRUPT, "amdgpu_pasid_allocated", _PASID),
    "note_pasid_free": _record(INTERRUPT, "amdgpu_pasid_freed", _PASID),
}
"""Programs that only learn whose an address space is."""

ISOLATION_RECORDS = (
    TracepointRecord(
        kind=ISOLATION,
        group=_GROUP,
        event="amdgpu_isolation",
        fields=(Take("prev", "u64", as_="previous", identity=True), Take("next", "u64", identity=True)),
        when=(Always(),),
    ),
    TracepointRecord(
        kind=CLEANER,
        group=_GROUP,
        event="amdgpu_cleaner_shader",
        fields=(Take("seqno", "u64"), Take("ring", _NAME)),
        when=(Always(),),
    ),
)
"""Changes of the GPU's owner, whoever they are."""

_USERQ_LIFE = (
    Take("queue", "u64", identity=True),
    Take("doorbell_index", "u64", as_="doorbell"),
    Take("queue_type", "s32"),
    Take("state", "s32"),
    Take("xcp_id", "u32", as_="partition", optional=True),
)
_USERQ_CLIENT = (
    Take("doorbell_index", "u64", as_="doorbell"),
    Take("client_id", "u64"),
    Take("queue_type", "s32"),
)
_RESULT = Take("result", "s32")
_DEVICE = Take("dev", "char[16]", as_="device")

USER_QUEUES = {
    "on_userq_create_start": _record(USERQ_CREATE, "amdgpu_userq_create_start", Take("queue", "u64", identity=True)),
    "on_userq_create_end": _record(USERQ_CREATE, "amdgpu_userq_create_end", *_USERQ_LIFE, _RESULT),
    "on_userq_destroy_start": _record(USERQ_DESTROY, "amdgpu_userq_destroy_start", Take("queue", "u64", identity=True)),
    "on_userq_destroy_end": _record(USERQ_DESTROY, "amdgpu_userq_destroy_end", *_USERQ_LIFE, _RESULT),
    "on_userq_state_start": _record(
        USERQ_STATE, "amdgpu_userq_state_start", Take("doorbell_index", "u64", as_="doorbell"), Take("from", "u32", as_="from_state")
    ),
    "on_userq_state_changed": _record(
        USERQ_STATE, "amdgpu_userq_state_changed", *_USERQ_CLIENT, Take("to", "u32", as_="to_state")
    ),
    "on_userq_signal": _record(
        USERQ_SIGNAL,
        "amdgpu_userq_emit_fence",
        Take("fence_context", "u64"),
        Take("fence_seqno", "u64"),
        *_USERQ_CLIENT,
        _DEVICE,
    ),
    "on_userq_wait": _record(
        USERQ_WAIT,
        "amdgpu_userq_wait_deps",
        Take("context", "u64", as_="queue_context"),
        Take("dep_context", "u64", as_="dependency_context"),
        Take("dep_seqno", "u64", as_="dependency_seqno"),
        *_USERQ_CLIENT,
        _DEVICE,
    ),
}  # fmt: skip
"""Queues that programs fill by themselves (7.3)."""


def _eviction(kind: str, event: str) -> TracepointRecord:
    return TracepointRecord(
        kind=kind,
        group="dma_fence",
        event=event,
        fields=(
            Take("driver", "char[24]"),
            Take("timeline", "char[16]"),
            Take("context", "u32", narrow=True),
            Take("seqno", "u32", narrow=True),
        ),
        # every fence of the machine passes these: only where there can be fences of amdkfd
        needs=(f"{_GROUP}:amdgpu_bo_create",),
    )


EVICTIONS = {
    "on_evict": _eviction(KFD_EVICT, "dma_fence_enable_signal"),
    "on_evicted": _eviction(KFD_EVICTED, "dma_fence_signaled"),
    "on_resident": _eviction(KFD_RESIDENT, "dma_fence_init"),
}
"""Fences of amdkfd, which stand for the memory of ROCm processes."""
