# SPDX-License-Identifier: Apache-2.0
"""Where the kernel keeps the return addresses that return probes have replaced, from its BTF.

A function that is jumped to from one with a return probe finds the probe's trampoline as its return address. What it
would have found is in the task: ``task_struct.utask->return_instances->orig_ret_vaddr``; ``stack`` beside it says which
place on the stack was replaced (kernel/events/uprobes.c).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

__all__ = ["VMLINUX_BTF", "member_offsets", "return_defines"]

VMLINUX_BTF = Path("/sys/kernel/btf/vmlinux")

_WANTED = {
    "FP_TASK_UTASK": ("task_struct", "utask"),
    "FP_UTASK_RETURNS": ("uprobe_task", "return_instances"),
    "FP_RETURN_ADDRESS": ("return_instance", "orig_ret_vaddr"),
    "FP_RETURN_STACK": ("return_instance", "stack"),
}
_MAGIC = 0xEB9F
_KIND_STRUCT = 4


def return_defines(path: Path = VMLINUX_BTF) -> dict[str, int]:
    """Return the byte offsets as macros for calls.h; none of them if the kernel does not say all."""
    try:
        offsets = member_offsets(path.read_bytes(), list(_WANTED.values()))
    except (OSError, ValueError, struct.error):
        return {}
    return dict(zip(_WANTED, offsets, strict=True))


def member_offsets(btf: bytes, wanted: list[tuple[str, str]]) -> list[int]:
    """Return the byte offset of each (struct, member).

    Types have no index by name, and to walk over all 150,000 takes 0.3 s. A struct is found instead by its name's
    offset: a word with this value, followed by words that make a struct with the member.

    Raises:
        ValueError: if a member is not there, or this is not BTF.
    """
    magic, _, _, head, types_at, types_length, strings_at, strings_length = struct.unpack_from("=HBBIIIII", btf)
    if magic != _MAGIC:
        raise ValueError("not the btf of this machine")
    types = np.frombuffer(btf, "<u4", types_length // 4, head + types_at)
    strings = btf[head + strings_at : head + strings_at + strings_length]
    return [_member_offset(types, _text_at(strings, of), _text_at(strings, member)) for of, member in wanted]


def _text_at(strings: bytes, text: str) -> int:
    return strings.index(b"\0" + text.encode() + b"\0") + 1


def _member_offset(types: np.ndarray[tuple[int], np.dtype[np.uint32]], struct_name: int, member_name: int) -> int:
    for at in np.flatnonzero(types == struct_name).tolist():
        information = int(types[at + 1]) if at + 1 < len(types) else 0
        if (information >> 24) & 0x1F != _KIND_STRUCT:
            continue
        members = types[at + 3 : at + 3 + 3 * (information & 0xFFFF)]
        found = np.flatnonzero(members[::3] == member_name)
        if len(found):
            # With bit 31 of the information, the upper byte is a bit field's width.
            bits = int(members[3 * int(found[0]) + 2])
            return (bits & 0xFFFFFF if information >> 31 else bits) // 8
    raise ValueError("this kernel has no such struct or member")
