# SPDX-License-Identifier: Apache-2.0
"""What is taken from which tracepoint. Nothing is looked up here: the formats of the kernel that is recorded decide."""

from __future__ import annotations

from fencepath.tracepoints import From, Take, TracepointRecord
from fencepath_i915.kinds import (
    ADD,
    BIND,
    CLFLUSH,
    CONTEXT_CREATE,
    CONTEXT_FREE,
    EVICT,
    EXECUTE,
    FAULT,
    GUC_CONTEXT,
    GUC_CONTEXT_ACTIONS,
    GUC_SUBMIT,
    OBJECT_CREATE,
    OBJECT_DESTROY,
    PREAD,
    PWRITE,
    QUEUE,
    RETIRE,
    RUN,
    SHRINK,
    SUBMIT,
    UNBIND,
    VM_CREATE,
    VM_RELEASE,
    WAIT,
)

__all__ = ["GUC", "GUC_CONTEXTS", "LOW_LEVEL", "OBJECTS", "PRESSURE", "REQUESTS", "SHRINKS", "SLABS"]

_GROUP = "i915"


def _record(kind: str, event: str, *fields: Take) -> TracepointRecord:
    return TracepointRecord(kind=kind, group=_GROUP, event=event, fields=fields)


def _request(kind: str, event: str, *fields: Take) -> TracepointRecord:
    """Before 5.0 the events were called ``i915_gem_request_*``."""
    takes = (
        Take("dev", "u32", as_="device"),
        Take("ctx", "u64", as_="context"),
        Take("class", "u16", as_="engine_class"),
        Take("instance", "u16", as_="engine_instance"),
        Take("seqno", "u32"),
        *fields,
    )
    return TracepointRecord(
        kind=kind,
        group=_GROUP,
        event=f"i915_request_{event}",
        fields=takes,
        alternatives=(From(_GROUP, f"i915_gem_request_{event}", takes),),
    )


_TAIL = Take("tail", "u32", optional=True)

REQUESTS = {
    "on_queue": _request(QUEUE, "queue", Take("flags", "u32", as_="request_flags")),
    "on_add": _request(ADD, "add", _TAIL),
    "on_retire": _request(RETIRE, "retire", _TAIL),
    "on_wait_begin": _request(WAIT, "wait_begin", Take("flags", "u32", as_="wait_flags")),
    "on_wait_end": _request(WAIT, "wait_end"),
}
"""BPF programs and the events they are attached to: requests from submission to the end."""

LOW_LEVEL = {
    "on_submit": _request(SUBMIT, "submit", _TAIL),
    "on_execute": _request(EXECUTE, "execute", _TAIL),
    "on_in": _request(RUN, "in", Take("port", "u32"), Take("prio", "s32", as_="priority")),
    "on_out": _request(RUN, "out", Take("completed", "u32")),
}
"""Requests on the hardware: only with CONFIG_DRM_I915_LOW_LEVEL_TRACEPOINTS."""

GUC = {"on_guc_submit": _request(GUC_SUBMIT, "guc_submit", _TAIL)}
"""Likewise, where the driver can leave the scheduling to the GuC."""

GUC_CONTEXTS = {
    f"on_{action}": _record(
        GUC_CONTEXT,
        f"intel_context_{action}",
        Take("guc_id", "u32"),
        Take("pin_count", "s32"),
        Take("sched_state", "u32"),
        Take("guc_prio", "u32", as_="guc_priority"),
    )
    for action in GUC_CONTEXT_ACTIONS
}
"""Likewise: contexts at the GuC."""

_OBJECT = Take("obj", "u64", as_="object", identity=True)
_PART = (_OBJECT, Take("offset", "u64", as_="offset_bytes"), Take("len", "u64", as_="size_bytes"))
_VMA = (
    _OBJECT,
    Take("vm", "u64", identity=True),
    Take("offset", "u64", as_="address"),
    Take("size", "u64", as_="size_bytes"),
)

OBJECTS = {
    "on_object_create": _record(
        OBJECT_CREATE, "i915_gem_object_create", _OBJECT, Take("size", "u64", as_="size_bytes")
    ),
    "on_object_destroy": _record(OBJECT_DESTROY, "i915_gem_object_destroy", _OBJECT),
    "on_pread": _record(PREAD, "i915_gem_object_pread", *_PART),
    "on_pwrite": _record(PWRITE, "i915_gem_object_pwrite", *_PART),
    "on_clflush": _record(CLFLUSH, "i915_gem_object_clflush", _OBJECT),
    "on_fault": _record(
        FAULT,
        "i915_gem_object_fault",
        _OBJECT,
        Take("index", "u64", as_="page"),
        Take("gtt", "u32", as_="through_gtt"),
        Take("write", "u32", as_="is_write"),
    ),
    "on_bind": _record(BIND, "i915_vma_bind", *_VMA, Take("flags", "u32", as_="bind_flags")),
    "on_unbind": _record(UNBIND, "i915_vma_unbind", *_VMA),
}
"""Memory objects and their addresses."""

_DEVICE = Take("dev", "u32", as_="device")
_VM = Take("vm", "u64", identity=True)
_SIZE = Take("size", "u64", as_="size_bytes")
_EVICT_FLAGS = Take("flags", "u32", as_="evict_flags")
_CONTEXT = (Take("ctx", "u64", as_="context_pointer", identity=True), _VM, _DEVICE)

PRESSURE = {
    "on_vm_create": _record(VM_CREATE, "i915_ppgtt_create", _VM, _DEVICE),
    "on_vm_release": _record(VM_RELEASE, "i915_ppgtt_release", _VM, _DEVICE),
    "on_context_create": _record(CONTEXT_CREATE, "i915_context_create", *_CONTEXT),
    "on_context_free": _record(CONTEXT_FREE, "i915_context_free", *_CONTEXT),
    "on_evict": _record(
        EVICT, "i915_gem_evict", _DEVICE, _VM, _SIZE, Take("align", "u64", as_="alignment_bytes"), _EVICT_FLAGS
    ),
    "on_evict_node": _record(
        EVICT,
        "i915_gem_evict_node",
        _DEVICE,
        _VM,
        Take("start", "u64", as_="address"),
        _SIZE,
        Take("color", "u64"),
        _EVICT_FLAGS,
    ),
    "on_evict_vm": _record(EVICT, "i915_gem_evict_vm", _DEVICE, _VM),
}
"""Address spaces and what is pushed out of them."""

SHRINKS = {
    "on_shrink": _record(
        SHRINK,
        "i915_gem_shrink",
        Take("dev", "s32", as_="device"),
        Take("target", "u64", as_="target_pages"),
        Take("flags", "u32", as_="shrink_flags"),
    )
}
"""What the driver is asked to give back."""

SLABS = {
    "on_slab_start": TracepointRecord(kind=SHRINK, group="vmscan", event="mm_shrink_slab_start", fields=(Take("shr", "u64"),)),
    "on_slab_end": TracepointRecord(
        kind=SHRINK, group="vmscan", event="mm_shrink_slab_end", fields=(Take("shr", "u64"), Take("retval", "s64", as_="freed_pages"))
    ),
}  # fmt: skip
"""Reclaim around it, which says what was given back."""
