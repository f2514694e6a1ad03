# SPDX-License-Identifier: Apache-2.0
"""Names of the layer's kinds, the layouts of their records, and the numbers of actions in them."""

from __future__ import annotations

from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "ACTIONS",
    "BO_CREATE",
    "BO_FAULT",
    "BO_MOVE",
    "BO_VALIDATE",
    "DEVICE_NAME_BYTES",
    "FENCE_CREATE",
    "FENCE_SIGNAL",
    "JOB_CREATE",
    "JOB_ERROR",
    "JOB_EXEC",
    "JOB_FREE",
    "JOB_RUN",
    "LAYOUTS",
    "PLACE_NAME_BYTES",
    "QUEUE_CREATE",
    "QUEUE_DESTROY",
    "QUEUE_ERROR",
    "QUEUE_STATE",
    "TLB_RECV",
    "TLB_SEND",
    "TLB_SIGNAL",
    "TLB_TIMEOUT",
    "VMA_BIND",
    "VMA_EVICT",
    "VMA_FAULT",
    "VMA_UNBIND",
    "VM_CREATE",
    "VM_ERROR",
    "VM_FREE",
    "VM_REBIND",
    "VM_UPDATE",
]

JOB_CREATE, JOB_EXEC, JOB_RUN = "xe.job.create", "xe.job.exec", "xe.job.run"
JOB_FREE, JOB_ERROR = "xe.job.free", "xe.job.error"
FENCE_CREATE, FENCE_SIGNAL = "xe.hw_fence.create", "xe.hw_fence.signal"
QUEUE_CREATE, QUEUE_DESTROY = "xe.exec_queue.create", "xe.exec_queue.destroy"
QUEUE_STATE, QUEUE_ERROR = "xe.exec_queue.state", "xe.exec_queue.error"
BO_CREATE, BO_MOVE, BO_VALIDATE, BO_FAULT = "xe.bo.create", "xe.bo.move", "xe.bo.validate", "xe.bo.fault"
VM_CREATE, VM_FREE, VM_REBIND = "xe.vm.create", "xe.vm.free", "xe.vm.rebind"
VM_UPDATE, VM_ERROR = "xe.vm.update", "xe.vm.error"
VMA_BIND, VMA_UNBIND, VMA_FAULT, VMA_EVICT = "xe.vma.bind", "xe.vma.unbind", "xe.vma.fault", "xe.vma.evict"
TLB_SEND, TLB_RECV, TLB_SIGNAL, TLB_TIMEOUT = "xe.tlb.send", "xe.tlb.recv", "xe.tlb.signal", "xe.tlb.timeout"

ACTIONS: dict[str, tuple[str, ...]] = {
    JOB_ERROR: ("timedout", "set_error", "ban"),
    QUEUE_CREATE: ("create", "create_multi_queue"),
    QUEUE_STATE: (
        "register", "deregister", "deregister_done", "scheduling_enable", "scheduling_disable", "scheduling_done",
        "submit", "resubmit", "supress_resume", "stop", "close", "cleanup_entity", "lr_cleanup",
    ),
    QUEUE_ERROR: ("reset", "memory_cat_error", "kill", "cgp_context_error", "reach_max_job_count", "uncorrectable_error"),
    VM_UPDATE: ("cpu_bind", "restart", "rebind_worker_retry"),
    VM_ERROR: ("kill", "ops_fail"),
    VMA_BIND: (
        "bind", "pf_bind", "rebind_exec", "rebind_worker", "userptr_rebind_exec", "userptr_rebind_worker",
    ),
    VMA_FAULT: ("pagefault", "acc"),
    VMA_EVICT: (
        "evict", "invalidate", "userptr_invalidate", "userptr_invalidate_complete", "flush", "fail",
    ),
}  # fmt: skip
"""What ``action`` in the records of a kind indexes: the event's name behind what all events of the kind begin with."""

DEVICE_NAME_BYTES = 16
"""Room for a PCI address, NUL included."""

PLACE_NAME_BYTES = 12
"""Room for the name of a memory, NUL included; the longest is ``Stolen``."""

_DEVICE = {"device": f"char[{DEVICE_NAME_BYTES}]"}
_JOB = {
    "fence_address": "u64", "batch_address": "u64",
    **dict.fromkeys(("seqno", "lrc_seqno", "guc_state", "job_flags"), "u32"),
    "error": "s32", "gt": "u16", "guc_id": "u16", **_DEVICE,
}  # fmt: skip
_FENCE = {"fence_address": "u64", "fence_context": "u64", "fence_seqno": "u32", **_DEVICE}
_QUEUE = {
    **dict.fromkeys(("engine_class", "logical_mask", "guc_state", "queue_flags", "guc_id"), "u32"),
    "gt": "u16", "width": "u16", **_DEVICE,
}  # fmt: skip
_VM = {"vm": "u64", "asid": "u32", "vm_flags": "u32", **_DEVICE}
_VMA = {**dict.fromkeys(("vma", "vm", "address", "size_bytes", "user_address"), "u64"), "asid": "u32", **_DEVICE}
_ACTION = {"action": "u32"}

_INSTANTS: dict[str, dict[str, str]] = {
    JOB_CREATE: _JOB,
    JOB_EXEC: _JOB,
    JOB_RUN: _JOB,
    JOB_FREE: _JOB,
    JOB_ERROR: {**_ACTION, **_JOB},
    FENCE_CREATE: _FENCE,
    FENCE_SIGNAL: _FENCE,
    QUEUE_CREATE: {**_ACTION, **_QUEUE},
    QUEUE_DESTROY: _QUEUE,
    QUEUE_STATE: {**_ACTION, **_QUEUE},
    QUEUE_ERROR: {**_ACTION, **_QUEUE},
    BO_MOVE: {
        "bo": "u64", "size_bytes": "u64", "owner_tgid": "u32", "lacks_source": "u32",
        "source": f"char[{PLACE_NAME_BYTES}]", "target": f"char[{PLACE_NAME_BYTES}]", **_DEVICE,
    },
    VM_CREATE: _VM,
    VM_FREE: _VM,
    VM_UPDATE: {**_ACTION, **_VM},
    VM_ERROR: {**_ACTION, **_VM},
    VMA_BIND: {**_ACTION, **_VMA},
    VMA_UNBIND: _VMA,
    VMA_FAULT: {**_ACTION, **_VMA},
    VMA_EVICT: {**_ACTION, **_VMA},
}  # fmt: skip
_INTERVALS: dict[str, dict[str, str]] = {VM_REBIND: _VM}


def _layouts(head: tuple[Field, ...], kinds: dict[str, dict[str, str]]) -> dict[str, RecordLayout]:
    return {
        kind: RecordLayout(kind, (*head, *(Field(name, type_) for name, type_ in fields.items())))
        for kind, fields in kinds.items()
    }


LAYOUTS = _layouts(HEADER, _INSTANTS) | _layouts(INTERVAL, _INTERVALS)
"""By kind. Those that are not here are written by generated programs."""
