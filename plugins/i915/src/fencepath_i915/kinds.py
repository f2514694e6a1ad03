# SPDX-License-Identifier: Apache-2.0
"""Names of the layer's kinds, and the layouts of their records."""

from __future__ import annotations

from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "ADD",
    "BIND",
    "CLFLUSH",
    "CONTEXT_CREATE",
    "CONTEXT_FREE",
    "EVICT",
    "EVICT_ACTIONS",
    "EXECUTE",
    "FAULT",
    "GUC_CONTEXT",
    "GUC_CONTEXT_ACTIONS",
    "GUC_SUBMIT",
    "LAYOUTS",
    "OBJECT_CREATE",
    "OBJECT_DESTROY",
    "PREAD",
    "PWRITE",
    "QUEUE",
    "RETIRE",
    "RUN",
    "SHRINK",
    "SUBMIT",
    "UNBIND",
    "VM_CREATE",
    "VM_RELEASE",
    "WAIT",
]

QUEUE, ADD, RETIRE, WAIT = "i915.request.queue", "i915.request.add", "i915.request.retire", "i915.request.wait"
SUBMIT, EXECUTE, GUC_SUBMIT = "i915.request.submit", "i915.request.execute", "i915.request.guc_submit"
RUN, GUC_CONTEXT = "i915.request.run", "i915.guc_context"
OBJECT_CREATE, OBJECT_DESTROY = "i915.object.create", "i915.object.destroy"
PREAD, PWRITE, CLFLUSH, FAULT = "i915.object.pread", "i915.object.pwrite", "i915.object.clflush", "i915.object.fault"
BIND, UNBIND = "i915.vma.bind", "i915.vma.unbind"
EVICT, SHRINK = "i915.evict", "i915.shrink"
VM_CREATE, VM_RELEASE = "i915.vm.create", "i915.vm.release"
CONTEXT_CREATE, CONTEXT_FREE = "i915.context.create", "i915.context.free"

EVICT_ACTIONS = ("evict", "evict_node", "evict_vm")
"""What the field ``action`` of an eviction's record indexes."""

GUC_CONTEXT_ACTIONS = (
    "create", "free", "register", "deregister", "deregister_done", "sched_enable", "sched_disable", "sched_done",
    "do_pin", "do_unpin", "fence_release", "steal_guc_id", "set_prio", "reset", "ban",
)  # fmt: skip
"""Likewise of a context's at the GuC; each is an event ``intel_context_<action>``."""

_REQUEST = {"context": "u64", "seqno": "u32", "device": "u32", "engine_class": "u16", "engine_instance": "u16"}
_TAIL = {**_REQUEST, "tail": "u32"}
_RANGE = {"object": "u64", "offset_bytes": "u64", "size_bytes": "u64"}
_VMA = {
    "object": "u64", "vm": "u64", "address": "u64", "size_bytes": "u64", "bind_flags": "u32", "owner_tgid": "u32",
}  # fmt: skip
_VM = {"vm": "u64", "device": "u32"}
_CONTEXT = {"context_pointer": "u64", **_VM}

_INSTANTS: dict[str, dict[str, str]] = {
    QUEUE: {**_REQUEST, "request_flags": "u32"},
    ADD: _TAIL,
    RETIRE: _TAIL,
    SUBMIT: _TAIL,
    EXECUTE: _TAIL,
    GUC_SUBMIT: _TAIL,
    GUC_CONTEXT: {"action": "u32", "guc_id": "u32", "pin_count": "s32", "sched_state": "u32", "guc_priority": "u32"},
    OBJECT_CREATE: {"object": "u64", "size_bytes": "u64"},
    OBJECT_DESTROY: {"object": "u64", "size_bytes": "u64", "owner_tgid": "u32"},
    PREAD: _RANGE,
    PWRITE: _RANGE,
    CLFLUSH: {"object": "u64"},
    FAULT: {"object": "u64", "page": "u64", "through_gtt": "u32", "is_write": "u32"},
    BIND: _VMA,
    UNBIND: _VMA,
    EVICT: {
        "vm": "u64", "address": "u64", "size_bytes": "u64", "alignment_bytes": "u64", "color": "u64",
        "action": "u32", "device": "u32", "evict_flags": "u32",
    },
    VM_CREATE: _VM,
    VM_RELEASE: _VM,
    CONTEXT_CREATE: _CONTEXT,
    CONTEXT_FREE: _CONTEXT,
}  # fmt: skip
_INTERVALS: dict[str, dict[str, str]] = {
    WAIT: {**_REQUEST, "wait_flags": "u32"},
    RUN: {**_REQUEST, "port": "u32", "priority": "s32", "completed": "u32"},
    SHRINK: {"target_pages": "u64", "freed_pages": "s64", "calls": "u32", "device": "s32", "shrink_flags": "u32"},
}  # fmt: skip


def _layouts(head: tuple[Field, ...], kinds: dict[str, dict[str, str]]) -> dict[str, RecordLayout]:
    return {
        kind: RecordLayout(kind, (*head, *(Field(name, type_) for name, type_ in fields.items())))
        for kind, fields in kinds.items()
    }


LAYOUTS = _layouts(HEADER, _INSTANTS) | _layouts(INTERVAL, _INTERVALS)
"""By kind."""
