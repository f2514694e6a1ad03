# SPDX-License-Identifier: Apache-2.0
"""Makes records of system calls by the names of a table's rows, as the recorder would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fencepath.records import Flags, Records
from fencepath.syscalls import Row, SyscallTable, device_number, syscall_layout
from fencepath_nvidia.requests import ioctl_table, mapping_table, wait_table

__all__ = ["CTL", "DRIVER", "TABLE", "UVM_DEVICE", "Calls", "command_of", "row_of"]

DRIVER = (580, 159, 4)
TABLE = SyscallTable.merged([ioctl_table(DRIVER), wait_table(), mapping_table()])
CTL, UVM_DEVICE = device_number(195, 255), device_number(507, 0)
TASK = int(Flags.TASK)


def command_of(number: int, size: int) -> int:
    """_IOWR('F', number, size)."""
    return 3 << 30 | size << 16 | ord("F") << 8 | number


def row_of(name: str, *values: str, kind: str = "") -> Row:
    """The row of a name that takes all of the values, of a kind if it is given."""
    (row, *_) = (
        row
        for row in TABLE.rows
        if row.name == name and set(values) <= {*row.entry, *row.returned} and kind in ("", row.kind)
    )
    return row


class Calls:
    """Collects records by kind.

    Args:
        tgid: process, and thread unless a call says another.
    """

    def __init__(self, tgid: int = 41) -> None:
        self.tgid = tgid
        self.rows: dict[str, list[Mapping[str, Any]]] = {}

    def add(
        self,
        row: Row,
        time_ns: int,
        values: Mapping[str, int] | None = None,
        *,
        took_ns: int = 100,
        **fields: int,
    ) -> None:
        """Add a call that returned at `time_ns`."""
        values = values or {}
        assert set(values) <= {*row.entry, *row.returned}
        slots = [
            [values.get(name, 0) for name in names] + [0] * (4 - len(names)) for names in (row.entry, row.returned)
        ]
        defaults = {"tgid": self.tgid, "tid": self.tgid, "flags": TASK, "fd": 5, "device": CTL}
        self.rows.setdefault(row.kind, []).append(
            {
                **defaults,
                "time_ns": time_ns,
                "begin_ns": time_ns - took_ns,
                "function": row.function,
                "before": slots[0],
                "after": slots[1],
                **fields,
            }
        )

    def records(self, kind: str) -> Records:
        """The records of a kind."""
        return made(self.rows.get(kind, []), kind)


def made(rows: Sequence[Mapping[str, Any]], kind: str) -> Records:
    """Records of system calls with the given fields."""
    found = np.zeros(len(rows), syscall_layout(kind).dtype)
    for record, row in zip(found, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return found
