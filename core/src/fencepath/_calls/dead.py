# SPDX-License-Identifier: Apache-2.0
"""Which open calls will never return. `found` has a row a call: ``key`` and ``entry``, as calls.h lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from fencepath._calls.stacks import blocked_stack_pointer, on_one_stack
from fencepath.records import Flags, Records

__all__ = ["ended_ns", "inside", "stack_is_gone"]


def ended_ns(found: Records, threads: Mapping[int, int], processes: Mapping[int, int]) -> npt.NDArray[np.uint64]:
    """Return when the thread of each call ended, 0 if it has not: a call begun later is of a new thread of that id."""
    entries = found["entry"]
    ends = np.zeros(len(found), np.uint64)
    for field, known in (("tgid", processes), ("tid", threads)):
        for row in np.flatnonzero(np.isin(entries[field], list(known))).tolist():
            end_ns = known[int(entries[field][row])]
            # a free entry has no begin, and its time is when its last call began
            if max(entries["begin_ns"][row], entries["time_ns"][row]) <= end_ns:
                ends[row] = end_ns
    return ends


def inside(found: Records, returned: Iterable[Records]) -> npt.NDArray[np.bool_]:
    """Return which calls began inside one that has returned."""
    entries = found["entry"]
    dead = np.zeros(len(found), np.bool_)
    for records in returned:
        over = records[(records["flags"] & np.uint32(Flags.OPEN | Flags.ENTRY_ONLY)) == 0]
        over = over[np.isin(over["tid"], entries["tid"])] if len(found) else over[:0]
        for row in range(len(found) if len(over) else 0):
            begin_ns = entries["begin_ns"][row]
            around = (over["tid"] == entries["tid"][row]) & (over["begin_ns"] < begin_ns) & (begin_ns < over["time_ns"])
            dead[row] |= around.any()
    return dead


def stack_is_gone(found: Records) -> npt.NDArray[np.bool_]:
    """Return which calls lie below a stack pointer that their thread has had since."""
    dead = np.zeros(len(found), np.bool_)
    entries, pointers = found["entry"], found["key"]["sp"]
    for tid in np.unique(entries["tid"]).tolist():
        rows = np.flatnonzero(entries["tid"] == tid)
        rows = rows[np.argsort(entries["begin_ns"][rows], kind="stable")]
        tgid = int(entries["tgid"][rows[0]])
        # From the newest to the oldest: the highest stack pointer that came later.
        highest = blocked_stack_pointer(tgid, tid)
        for row in rows[::-1].tolist():
            pointer = int(pointers[row])
            dead[row] = highest > pointer and on_one_stack(tgid, pointer, highest)
            highest = max(highest, pointer)
    return dead
