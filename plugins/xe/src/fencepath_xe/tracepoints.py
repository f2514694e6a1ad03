# SPDX-License-Identifier: Apache-2.0
"""What is taken from which tracepoint. Nothing is looked up here: the formats of the kernel that is recorded decide.

Before 6.11 most events have no name of the device; ``gt_id`` of jobs, ``vm`` of ranges and ``flags`` of address spaces came
later still. Where a field is not there, its column is empty or 0.
"""

from __future__ import annotations

from fencepath.tracepoints import Always, From, Take, TracepointRecord
from fencepath_xe.kinds import (
    ACTIONS,
    BO_CREATE,
    BO_FAULT,
    BO_MOVE,
    BO_VALIDATE,
    DEVICE_NAME_BYTES,
    FENCE_CREATE,
    FENCE_SIGNAL,
    JOB_CREATE,
    JOB_ERROR,
    JOB_EXEC,
    JOB_FREE,
    JOB_RUN,
    PLACE_NAME_BYTES,
    QUEUE_CREATE,
    QUEUE_DESTROY,
    QUEUE_ERROR,
    QUEUE_STATE,
    TLB_RECV,
    TLB_SEND,
    TLB_SIGNAL,
    TLB_TIMEOUT,
    VM_CREATE,
    VM_ERROR,
    VM_FREE,
    VM_REBIND,
    VM_UPDATE,
    VMA_BIND,
    VMA_EVICT,
    VMA_FAULT,
    VMA_UNBIND,
)

__all__ = ["BOS", "EXTRA_JOBS", "EXTRA_QUEUES", "EXTRA_VMS", "JOBS", "MOVES", "QUEUES", "TLB", "VMS"]

_GROUP = "xe"
_DEVICE = Take("dev", f"char[{DEVICE_NAME_BYTES}]", as_="device", optional=True)

Programs = dict[str, TracepointRecord]


def _records(kind: str, prefix: str, names: tuple[str, ...], fields: tuple[Take, ...]) -> Programs:
    """Records of one kind from the events ``<prefix>_<name>``, by the name of their program."""
    return {
        f"on_{prefix.removeprefix('xe_')}_{name}": TracepointRecord(
            kind=kind, group=_GROUP, event=f"{prefix}_{name}", fields=fields
        )
        for name in names
    }


_JOB = (
    _DEVICE,
    Take("fence", "u64", as_="fence_address", identity=True),
    Take("batch_addr", "u64", as_="batch_address"),
    Take("seqno", "u32"),
    Take("lrc_seqno", "u32", optional=True),
    Take("guc_state", "u32"),
    Take("flags", "u32", as_="job_flags"),
    Take("error", "s32"),
    Take("gt_id", "u16", as_="gt", optional=True),
    Take("guc_id", "u16"),
)
_FENCE = (
    _DEVICE,
    Take("fence", "u64", as_="fence_address", identity=True),
    Take("ctx", "u64", as_="fence_context"),
    Take("seqno", "u32", as_="fence_seqno"),
)

JOBS: Programs = {
    **_records(JOB_CREATE, "xe_sched_job", ("create",), _JOB),
    **_records(JOB_EXEC, "xe_sched_job", ("exec",), _JOB),
    **_records(JOB_RUN, "xe_sched_job", ("run",), _JOB),
    **_records(JOB_FREE, "xe_sched_job", ("free",), _JOB),
    **_records(FENCE_CREATE, "xe_hw_fence", ("create",), _FENCE),
    **_records(FENCE_SIGNAL, "xe_hw_fence", ("signal",), _FENCE),
    **_records(JOB_ERROR, "xe_sched_job", ("timedout",), _JOB),
}
"""BPF programs and the events they are attached to: jobs from their creation to their end, and the hardware's fences."""

EXTRA_JOBS: Programs = _records(JOB_ERROR, "xe_sched_job", ACTIONS[JOB_ERROR][1:], _JOB)
"""Likewise, that a kernel may lack."""

_QUEUE = (
    _DEVICE,
    Take("class", "u32", as_="engine_class"),
    Take("logical_mask", "u32"),
    Take("guc_state", "u32", optional=True),
    Take("flags", "u32", as_="queue_flags", optional=True),
    Take("guc_id", "u32"),
    Take("gt_id", "u16", as_="gt", optional=True),
    Take("width", "u16", optional=True),
)

QUEUES: Programs = {
    **_records(QUEUE_CREATE, "xe_exec_queue", ("create",), _QUEUE),
    **_records(QUEUE_DESTROY, "xe_exec_queue", ("destroy",), _QUEUE),
    **_records(QUEUE_STATE, "xe_exec_queue", ("register",), _QUEUE),
    **_records(QUEUE_ERROR, "xe_exec_queue", ("reset",), _QUEUE),
}
"""Queues that jobs are put on, and what the GuC, which runs them, does with those."""

EXTRA_QUEUES: Programs = {
    **_records(QUEUE_CREATE, "xe_exec_queue", ACTIONS[QUEUE_CREATE][1:], _QUEUE),
    **_records(QUEUE_STATE, "xe_exec_queue", ACTIONS[QUEUE_STATE][1:], _QUEUE),
    **_records(QUEUE_ERROR, "xe_exec_queue", ACTIONS[QUEUE_ERROR][1:-1], _QUEUE),
    **_records(QUEUE_ERROR, "xe_guc", ACTIONS[QUEUE_ERROR][-1:], _QUEUE),
}
"""Likewise, that a kernel may lack."""

_BO = (
    Take("size", "u64", as_="size_bytes"),
    Take("vm", "u64", identity=True),
    Take("flags", "u32", as_="bo_flags"),
    _DEVICE,
)

MOVES: Programs = {
    "on_bo_move": TracepointRecord(
        kind=BO_MOVE,
        group=_GROUP,
        event="xe_bo_move",
        fields=(
            Take("bo", "u64", identity=True),
            Take("size", "u64", as_="size_bytes"),
            Take("move_lacks_source", "u32", as_="lacks_source", optional=True),
            Take("old_placement_name", f"char[{PLACE_NAME_BYTES}]", as_="source"),
            Take("new_placement_name", f"char[{PLACE_NAME_BYTES}]", as_="target"),
            Take("device_id", f"char[{DEVICE_NAME_BYTES}]", as_="device", optional=True),
        ),
    )
}
"""Buffer objects that go from one memory to another."""


def _bo(kind: str, event: str) -> TracepointRecord:
    return TracepointRecord(kind=kind, group=_GROUP, event=event, fields=_BO, in_task=True)


BOS = (_bo(BO_CREATE, "xe_bo_create"), _bo(BO_VALIDATE, "xe_bo_validate"), _bo(BO_FAULT, "xe_bo_cpu_fault"))
"""What threads do with buffer objects."""

_VM = (
    _DEVICE,
    Take("vm", "u64", identity=True),
    Take("asid", "u32"),
    Take("flags", "u32", as_="vm_flags", optional=True),
)
_VMA = (
    _DEVICE,
    Take("vma", "u64", identity=True),
    Take("vm", "u64", optional=True, identity=True),
    Take("asid", "u32"),
    Take("start", "u64"),
    Take("end", "u64"),
    Take("ptr", "u64", as_="user_address"),
)

VMS: Programs = {
    **_records(VM_CREATE, "xe_vm", ("create",), _VM),
    **_records(VM_FREE, "xe_vm", ("free",), _VM),
    **_records(VM_REBIND, "xe_vm", ("rebind_worker_enter", "rebind_worker_exit"), _VM),
    **_records(VM_UPDATE, "xe_vm", ("cpu_bind",), _VM),
    **_records(VM_ERROR, "xe_vm", ("kill",), _VM),
    **_records(VMA_BIND, "xe_vma", ("bind",), _VMA),
    **_records(VMA_UNBIND, "xe_vma", ("unbind",), _VMA),
    **_records(VMA_FAULT, "xe_vma", ("pagefault",), _VMA),
    **_records(VMA_EVICT, "xe_vma", ("evict",), _VMA),
}
"""Address spaces and the ranges in them."""

EXTRA_VMS: Programs = {
    **_records(VM_UPDATE, "xe_vm", ACTIONS[VM_UPDATE][1:], _VM),
    **_records(VM_ERROR, "xe_vm", ACTIONS[VM_ERROR][1:], _VM),
    **_records(VMA_BIND, "xe_vma", ACTIONS[VMA_BIND][1:], _VMA),
    **_records(VMA_FAULT, "xe_vma", ACTIONS[VMA_FAULT][1:], _VMA),
    **_records(VMA_EVICT, "xe_vma", ACTIONS[VMA_EVICT][1:], _VMA),
}
"""Likewise, that a kernel may lack."""

_TLB = (Take("fence", "u64", as_="fence_address", identity=True), Take("seqno", "s32"), _DEVICE)


def _tlb(kind: str, name: str) -> TracepointRecord:
    """Until 6.17 the events had a longer name."""
    return TracepointRecord(
        kind=kind,
        group=_GROUP,
        event=f"xe_tlb_inval_fence_{name}",
        fields=_TLB,
        alternatives=(From(_GROUP, f"xe_gt_tlb_invalidation_fence_{name}", _TLB),),
        when=(Always(),),
    )


TLB = (_tlb(TLB_SEND, "send"), _tlb(TLB_RECV, "recv"), _tlb(TLB_SIGNAL, "signal"), _tlb(TLB_TIMEOUT, "timeout"))
"""Invalidations of the GPU's translations, whoever they are for."""
