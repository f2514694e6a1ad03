# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``host``."""

from __future__ import annotations

import numpy as np

from fencepath.events import Batch, Column
from fencepath.records import Flags, Records
from fencepath_host.events import IRQ, SWITCH, WAKING

__all__ = ["HostDecoder"]

# include/linux/sched.h, TASK_REPORT | TASK_REPORT_IDLE. The bit above, TASK_REPORT_MAX, says that the thread was
# preempted whatever state it was about to enter.
_REPORTED_STATES = 0xFF
_PREEMPTED = 0x100


class HostDecoder:
    """Fields of the record become columns, and what follows from them is added."""

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; names that are not UTF-8 are shown with replacement characters."""
        batch = Batch.from_records(kind, records)
        columns = batch.columns
        if kind == SWITCH:
            columns["prev_tid"] = columns["tid"]
            raw = columns["prev_state"]
            columns["prev_state"] = np.where(raw & _PREEMPTED, 0, raw & _REPORTED_STATES).astype(np.uint16)
        elif kind == WAKING:
            by_task = (columns["flags"] & int(Flags.TASK)) != 0
            columns["interrupt_cpu"] = np.where(by_task, -1, columns["cpu"].astype(np.int32)).astype(np.int32)
        elif kind == IRQ:
            columns["name"] = _texts(columns["name"])
        return batch


def _texts(names: Column) -> Column:
    """Bytes as text; there are few different ones."""
    unique, inverse = np.unique(names, return_inverse=True)
    texts = np.array([name.decode(errors="replace") for name in unique.tolist()], object)
    return texts[inverse] if len(unique) else np.empty(0, object)
