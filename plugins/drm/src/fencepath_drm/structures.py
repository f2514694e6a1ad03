# SPDX-License-Identifier: Apache-2.0
"""Where kernel structures keep what events do not say, from the kernel's own type information (BTF).

Before 6.17 the scheduler's events name a job by the address of its finished fence. Context and seqno are read through it,
and by way of the scheduler the device's name. The arguments of raw tracepoints are such addresses on every kernel. ``struct
dma_fence`` is in the kernel's own BTF, the scheduler's structures in that of the module ``gpu_sched``, whose numbers and texts
go on where the kernel's end. Format: Documentation/bpf/btf.rst. Only members of the structures themselves are found, none of
nameless ones inside them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["BTF_FOLDER", "structure_defines"]

BTF_FOLDER = Path("/sys/kernel/btf")

_MAGIC = 0xEB9F
_STRUCT = 4
# Words behind the three of every type: a fixed number, and some for each member (include/uapi/linux/btf.h).
_FIXED = {1: 1, 3: 3, 14: 1, 17: 1}
_PER_MEMBER = {4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3}

_KERNEL = {
    "dma_fence": ("context", "seqno", "ops"),
    "dma_fence_ops": ("get_driver_name",),
    "dma_fence_chain": ("fence", "prev", "prev_seqno"),
    "dma_fence_array": ("num_fences", "fences"),
    "task_struct": ("pid",),
    "device": ("kobj",),
    "kobject": ("name",),
}
_MODULE = {
    "drm_sched_fence": ("finished", "sched"),
    "drm_gpu_scheduler": ("dev",),
    "drm_sched_job": ("s_fence",),
}

Offsets = Mapping[str, int]
"""Bytes by ``structure.member``."""


def structure_defines(folder: Path = BTF_FOLDER) -> dict[str, int]:
    """Return the macros of bpf/jobs.c that this kernel's BTF gives; fewer where it lacks some, none without BTF."""
    kernel = _read(folder / "vmlinux")
    if kernel is None:
        return {}
    try:
        found = dict(_offsets(kernel, b"", _KERNEL))
        module = _read(folder / "gpu_sched")
        if module is not None:
            found |= _offsets(module, _strings(kernel), _MODULE)
    except (struct.error, ValueError, IndexError):
        # no BTF as it is known
        return {}
    return _defines(found)


def _defines(found: Offsets) -> dict[str, int]:
    named = {
        "DRM_FENCE_CONTEXT": _sum(found, "dma_fence.context"),
        "DRM_FENCE_SEQNO": _sum(found, "dma_fence.seqno"),
        "DRM_FENCE_OPS": _sum(found, "dma_fence.ops"),
        "DRM_OPS_NAME": _sum(found, "dma_fence_ops.get_driver_name"),
        "DRM_CHAIN_FENCE": _sum(found, "dma_fence_chain.fence"),
        "DRM_CHAIN_PREV": _sum(found, "dma_fence_chain.prev"),
        "DRM_CHAIN_PREV_SEQNO": _sum(found, "dma_fence_chain.prev_seqno"),
        "DRM_ARRAY_COUNT": _sum(found, "dma_fence_array.num_fences"),
        "DRM_ARRAY_FENCES": _sum(found, "dma_fence_array.fences"),
        "DRM_TASK_PID": _sum(found, "task_struct.pid"),
        "DRM_FENCE_FINISHED": _sum(found, "drm_sched_fence.finished"),
        "DRM_FENCE_TO_SCHEDULER": _sum(found, "drm_sched_fence.sched", less="drm_sched_fence.finished"),
        "DRM_SCHEDULER_DEVICE": _sum(found, "drm_gpu_scheduler.dev"),
        "DRM_DEVICE_NAME": _sum(found, "device.kobj", "kobject.name"),
        "DRM_JOB_FENCE": _sum(found, "drm_sched_job.s_fence"),
    }
    known = {name: value for name, value in named.items() if value is not None}
    # of no use one without the other
    for pair in (("DRM_FENCE_CONTEXT", "DRM_FENCE_SEQNO"), ("DRM_SCHEDULER_DEVICE", "DRM_DEVICE_NAME")):
        if not set(pair) <= set(known):
            known = {name: value for name, value in known.items() if name not in pair}
    return known


def _sum(found: Offsets, *members: str, less: str = "") -> int | None:
    needed = (*members, less) if less else members
    if any(member not in found for member in needed):
        return None
    return sum(found[member] for member in members) - (found[less] if less else 0)


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        magic = struct.unpack_from("=H", data)[0]
    except (OSError, struct.error):
        return None
    return data if magic == _MAGIC else None


def _strings(data: bytes) -> bytes:
    _, _, _, head, _, _, at, length = struct.unpack_from("=HBBIIIII", data)
    return data[head + at : head + at + length]


def _offsets(data: bytes, base: bytes, wanted: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Yield members and their offsets; `base` are the texts of what this BTF goes on from."""
    _, _, _, head, types_at, types_length, _, _ = struct.unpack_from("=HBBIIIII", data)
    texts = base + _strings(data)
    structures = {place: name for name in wanted for place in _places(texts, name)}
    words = array("I", data[head + types_at : head + types_at + types_length])
    at = 0
    while at + 2 < len(words):
        kind, count = (words[at + 1] >> 24) & 0x1F, words[at + 1] & 0xFFFF
        if kind == _STRUCT and count and words[at] in structures:
            name = structures[words[at]]
            yield from _members(words, at, name, {place: m for m in wanted[name] for place in _places(texts, m)})
        at += 3 + _FIXED.get(kind, 0) + count * _PER_MEMBER.get(kind, 0)


def _members(words: array[int], at: int, name: str, members: Mapping[int, str]) -> Iterator[tuple[str, int]]:
    has_widths = words[at + 1] >> 31
    for index in range(words[at + 1] & 0xFFFF):
        text, _, bits = words[at + 3 + 3 * index : at + 6 + 3 * index]
        if text in members:
            # with bit 31 of the information, the upper byte is a bit field's width
            yield f"{name}.{members[text]}", (bits & 0xFFFFFF if has_widths else bits) // 8


def _places(texts: bytes, name: str) -> Iterator[int]:
    """Where a text is; a name may be the end of a longer one."""
    sought = name.encode() + b"\0"
    at = texts.find(sought)
    while at >= 0:
        yield at
        at = texts.find(sought, at + 1)
