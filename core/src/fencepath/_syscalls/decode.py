# SPDX-License-Identifier: Apache-2.0
"""Columns from records of system calls, by what the manifest says each row was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.events import Column
from fencepath.records import Records

__all__ = ["decode_syscalls", "row_text"]


def row_text(name: str, entry: Sequence[str], returned: Sequence[str]) -> str:
    """Return what a manifest keeps of a row: name, values at entry, values at return."""
    return f"{name} {','.join(entry)} {','.join(returned)}"


def decode_syscalls(records: Records, recorded: Sequence[str]) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Decode records of one kind of system calls.

    Args:
        records: of :func:`fencepath.syscalls.syscall_layout`.
        recorded: what the manifest keeps of the kind (:meth:`SyscallTable.recorded`).

    Returns:
        Columns: ``label`` (index of the name, -1 for a row that the manifest does not know), ``fd``, ``device``, ``command``,
        ``argument``, ``status``, and one u64 column for each value, 0 where a call has no such value; and the names.
    """
    names: list[str] = []
    columns: dict[str, Column] = {
        name: np.ascontiguousarray(records[name]) for name in ("fd", "device", "command", "argument", "status")
    }
    function = records["function"].astype(np.int64)
    columns["label"] = np.where(function < len(recorded), function, -1).astype(np.int32)
    for index, text in enumerate(recorded):
        name, entry, returned = [*text.split(" "), "", ""][:3]
        names.append(name)
        rows = function == index
        for field, values in (("before", entry), ("after", returned)):
            for slot, value in enumerate(filter(None, values.split(","))):
                column = columns.setdefault(value, np.zeros(len(records), np.uint64))
                column[rows] = records[field][rows, slot]
    return columns, tuple(names)
