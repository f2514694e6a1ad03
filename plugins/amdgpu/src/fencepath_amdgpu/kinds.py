# SPDX-License-Identifier: Apache-2.0
"""Names of the layer's kinds, and the layouts of the records that its own BPF programs write."""

from __future__ import annotations

from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "BO_CREATE",
    "BO_MOVE",
    "CLEANER",
    "CS",
    "FLUSH",
    "GRAB_ID",
    "INTERRUPT",
    "ISOLATION",
    "KFD_EVICT",
    "KFD_EVICTED",
    "KFD_RESIDENT",
    "LAYOUTS",
    "MAP",
    "PASID_ALLOCATE",
    "PASID_FREE",
    "PIPE_SYNC",
    "RING_NAME_BYTES",
    "RUN",
    "UNMAP",
    "USERQ_CREATE",
    "USERQ_DESTROY",
    "USERQ_SIGNAL",
    "USERQ_STATE",
    "USERQ_WAIT",
]

CS, RUN, FLUSH, PIPE_SYNC = "amdgpu.cs", "amdgpu.run", "amdgpu.vm.flush", "amdgpu.pipe_sync"
BO_CREATE, BO_MOVE, MAP, UNMAP = "amdgpu.bo.create", "amdgpu.bo.move", "amdgpu.vm.map", "amdgpu.vm.unmap"
PASID_ALLOCATE, PASID_FREE, GRAB_ID = "amdgpu.pasid.allocate", "amdgpu.pasid.free", "amdgpu.vm.grab_id"
INTERRUPT, ISOLATION, CLEANER = "amdgpu.interrupt", "amdgpu.isolation", "amdgpu.cleaner"
USERQ_CREATE, USERQ_DESTROY, USERQ_STATE = "amdgpu.userq.create", "amdgpu.userq.destroy", "amdgpu.userq.state"
USERQ_SIGNAL, USERQ_WAIT = "amdgpu.userq.signal", "amdgpu.userq.wait"
KFD_EVICT, KFD_EVICTED, KFD_RESIDENT = "amdgpu.kfd.evict", "amdgpu.kfd.evicted", "amdgpu.kfd.resident"

RING_NAME_BYTES = 16
"""Room for the name of a ring, NUL included: as ``name`` of the driver's ``struct amdgpu_ring``."""

_DEVICE_NAME_BYTES = 16
_TASK_NAME_BYTES = 16

_FENCE = {"fence_context": "u64", "fence_seqno": "u64"}
_DEPENDENCY = {"dependency_context": "u64", "dependency_seqno": "u64"}
_JOB = {**_FENCE, "ibs": "u32", "ring": f"char[{RING_NAME_BYTES}]"}
_MAPPING: dict[str, str] = dict.fromkeys(("bo", "address", "size_bytes", "offset_bytes", "mapping_flags"), "u64")
_USERQ_LIFE = {
    "queue": "u64", "doorbell": "u64", "queue_type": "s32", "state": "s32", "partition": "u32", "result": "s32",
}  # fmt: skip
_USERQ_CLIENT = {
    "doorbell": "u64", "client_id": "u64", "queue_type": "s32", "device": f"char[{_DEVICE_NAME_BYTES}]",
}  # fmt: skip
_EVICTION = {"context": "u32", "seqno": "u32", "owner_tgid": "u32", "timeline": f"char[{_TASK_NAME_BYTES}]"}

_INSTANTS: dict[str, dict[str, str]] = {
    CS: _JOB,
    RUN: _JOB,
    FLUSH: {**_FENCE, "page_directory": "u64", "vmid": "u32", "hub": "u32"},
    PIPE_SYNC: {**_FENCE, **_DEPENDENCY},
    BO_CREATE: {
        "bo": "u64", "size_bytes": "u64",
        **dict.fromkeys(("placement", "preferred_domains", "allowed_domains", "create_flags"), "u32"),
    },
    BO_MOVE: {"bo": "u64", "size_bytes": "u64", "source": "u32", "target": "u32", "owner_tgid": "u32"},
    MAP: _MAPPING,
    UNMAP: _MAPPING,
    PASID_ALLOCATE: {"pasid": "u32"},
    PASID_FREE: {"pasid": "u32"},
    GRAB_ID: {
        "page_directory": "u64", "pasid": "u32", "vmid": "u32", "hub": "u32", "needs_flush": "u32",
        "ring": f"char[{RING_NAME_BYTES}]",
    },
    INTERRUPT: {
        "gpu_ticks": "u64",
        **dict.fromkeys(
            ("ring", "client", "source", "client_ring", "vmid", "vmid_source", "pasid", "gpu_ticks_source"), "u32"
        ),
        "data": "u32[4]",
    },
    USERQ_SIGNAL: {**_FENCE, **_USERQ_CLIENT},
    USERQ_WAIT: {"queue_context": "u64", **_DEPENDENCY, **_USERQ_CLIENT},
    KFD_EVICT: _EVICTION,
    KFD_EVICTED: _EVICTION,
    KFD_RESIDENT: _EVICTION,
}  # fmt: skip
_INTERVALS: dict[str, dict[str, str]] = {
    USERQ_CREATE: _USERQ_LIFE,
    USERQ_DESTROY: _USERQ_LIFE,
    USERQ_STATE: {
        "doorbell": "u64", "client_id": "u64", "queue_type": "s32", "from_state": "u32", "to_state": "u32",
    },
}  # fmt: skip


def _layouts(head: tuple[Field, ...], kinds: dict[str, dict[str, str]]) -> dict[str, RecordLayout]:
    return {
        kind: RecordLayout(kind, (*head, *(Field(name, type_) for name, type_ in fields.items())))
        for kind, fields in kinds.items()
    }


LAYOUTS = _layouts(HEADER, _INSTANTS) | _layouts(INTERVAL, _INTERVALS)
"""By kind. Isolation and cleaner shaders have none: their programs are generated."""
