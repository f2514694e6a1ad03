# SPDX-License-Identifier: Apache-2.0
"""Where the kernel keeps the preempt count of a CPU, from its BTF: it tells a task's own wake-ups from an interrupt's.

On x86-64 the count is a per-CPU variable. A kernel without CONFIG_KALLSYMS_ALL tells nobody the address of its
variables, so the way goes by what can be reached: the current task leads to the run queue of its CPU
(``task_struct.se.cfs_rq->rq``, with CONFIG_FAIR_GROUP_SCHED), which is a per-CPU variable too, ``runqueues``, and BTF
says how far the others are from it. The BPF program believes an address only if the variable of the current task, found
by the same way, holds the current task.

The count is ``__preempt_count``; from 6.2 to 6.14 it was a member of ``pcpu_hot`` (commits 64701838bf05, 46e8fff6d45f).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

__all__ = ["VMLINUX_BTF", "preempt_count_defines"]

VMLINUX_BTF = Path("/sys/kernel/btf/vmlinux")

_MAGIC = 0xEB9F
_STRUCT, _UNION, _VAR, _DATASEC = 4, 5, 14, 15

# Words that follow the three of every type: a fixed number, and some for each member (include/uapi/linux/btf.h).
_FIXED = {1: 1, 3: 3, 14: 1, 17: 1}
_PER_MEMBER = {4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3}

_STRUCTS = ("task_struct", "sched_entity", "cfs_rq", "pcpu_hot")
_VARIABLES = ("runqueues", "current_task", "__preempt_count", "pcpu_hot")


def preempt_count_defines(path: Path = VMLINUX_BTF) -> dict[str, int]:
    """Return offsets in bytes as macros for host.c; none of them if the kernel does not say all."""
    try:
        return _Types(path.read_bytes()).defines()
    except (OSError, ValueError, IndexError, KeyError, struct.error):
        return {}


class _Types:
    """The few types of a BTF blob that matter here.

    Raises:
        ValueError: this is no BTF of this machine's byte order.
    """

    def __init__(self, btf: bytes) -> None:
        magic, _, _, head, types_at, types_length, strings_at, strings_length = struct.unpack_from("=HBBIIIII", btf)
        if magic != _MAGIC:
            raise ValueError("not the btf of this machine")
        self._strings = btf[head + strings_at : head + strings_at + strings_length]
        self._words = array("I", btf[head + types_at : head + types_at + types_length])
        # Where each type begins; a type's number is its place in the list, and 0 is void.
        self._begins = [0]
        self._structs: dict[str, int] = {}
        self._variables: dict[int, str] = {}
        self._sections: list[int] = []
        self._walk()

    def _walk(self) -> None:
        words, begins = self._words, self._begins
        structs = {self._text_at(name): name for name in _STRUCTS}
        variables = {self._text_at(name): name for name in _VARIABLES}
        at = 0
        while at < len(words):
            kind, count = (words[at + 1] >> 24) & 0x1F, words[at + 1] & 0xFFFF
            if kind == _STRUCT and words[at] in structs:
                self._structs.setdefault(structs[words[at]], at)
            elif kind == _VAR and words[at] in variables:
                self._variables[len(begins)] = variables[words[at]]
            elif kind == _DATASEC:
                self._sections.append(at)
            begins.append(at)
            at += 3 + _FIXED.get(kind, 0) + count * _PER_MEMBER.get(kind, 0)

    def _text_at(self, text: str) -> int:
        return self._strings.find(b"\0" + text.encode() + b"\0") + 1

    def defines(self) -> dict[str, int]:
        places = self._per_cpu()
        queue = places["runqueues"]
        if "pcpu_hot" in places:
            current = places["pcpu_hot"] + self._member("pcpu_hot", "current_task")
            count = places["pcpu_hot"] + self._member("pcpu_hot", "preempt_count")
        else:
            current, count = places["current_task"], places["__preempt_count"]
        return {
            "HOST_TASK_CFS_RQ": self._member("task_struct", "se") + self._member("sched_entity", "cfs_rq"),
            "HOST_CFS_RQ_RQ": self._member("cfs_rq", "rq"),
            "HOST_RQ_TO_CURRENT": current - queue,
            "HOST_RQ_TO_COUNT": count - queue,
        }

    def _per_cpu(self) -> dict[str, int]:
        """Offsets of the wanted variables in the section that holds the run queues."""
        for at in self._sections:
            entries = self._words[at + 3 : at + 3 + 3 * (self._words[at + 1] & 0xFFFF)]
            places = {
                self._variables[number]: offset
                for number, offset in zip(entries[::3], entries[1::3], strict=True)
                if number in self._variables
            }
            if "runqueues" in places:
                return places
        raise KeyError("runqueues")

    def _member(self, of: str, name: str) -> int:
        """Offset of a struct's member in bytes, inside its nameless structs and unions too."""
        found = next(self._members(self._structs[of], self._text_at(name)), None)
        if found is None:
            raise KeyError(f"{of}.{name}")
        return found

    def _members(self, at: int, name: int) -> Iterator[int]:
        count, has_widths = self._words[at + 1] & 0xFFFF, self._words[at + 1] >> 31
        for index in range(count):
            member, number, bits = self._words[at + 3 + 3 * index : at + 6 + 3 * index]
            # With bit 31 of the information, the upper byte is a bit field's width.
            offset = (bits & 0xFFFFFF if has_widths else bits) // 8
            if member == name:
                yield offset
            elif member == 0 and (self._words[self._begins[number] + 1] >> 24) & 0x1F in (_STRUCT, _UNION):
                yield from (offset + inner for inner in self._members(self._begins[number], name))
