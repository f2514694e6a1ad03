# SPDX-License-Identifier: Apache-2.0
"""Which operations a wait for everything, or for a default stream, finds unfinished at the latest."""

from __future__ import annotations

import numpy as np

from fencepath_cuda.operations import FOREVER, Operations, Rows
from fencepath_cuda.ordered import Ints

__all__ = ["last_before_waits", "next_begin"]


def next_begin(operations: Operations) -> Ints:
    """When the next operation of the same stream began; for ever where there is none."""
    begin = np.append(operations.rows.begin[1:], FOREVER)
    begin[np.append(operations.by_stream.first_of_key[1:], True)] = FOREVER
    return begin[: len(operations.rows)]


def last_before_waits(rows: Rows, until: Ints, waits: Rows) -> tuple[Ints, Ints]:
    """Pairs (row, wait) of operations with waits for everything in their process, by position.

    An operation is paired with the waits that begin from its own begin to `until`, as long as no earlier wait had come
    back that began after the operation's call had: what that one waited for is finished.
    """
    found_rows: list[Ints] = [np.empty(0, np.int64)]
    found_waits: list[Ints] = [np.empty(0, np.int64)]
    for process in np.unique(waits.process).tolist():
        mine = np.flatnonzero(waits.process == process)
        mine = mine[np.argsort(waits.begin[mine], kind="stable")]
        ours = np.flatnonzero(rows.process == process)
        first = np.searchsorted(waits.begin[mine], rows.begin[ours], "left")
        end = np.searchsorted(waits.begin[mine], until[ours], "left")
        settled = _settled_ns(waits.keep(mine))
        count = np.maximum(np.minimum(end, np.searchsorted(settled, rows.returned[ours], "left")) - first, 0)
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        found_rows.append(np.repeat(ours, count))
        found_waits.append(mine[np.repeat(first, count) + offset])
    return np.concatenate(found_rows), np.concatenate(found_waits)


def _settled_ns(waits: Rows) -> Ints:
    """For each wait, sorted by begin: what a call had submitted that had come back by then had finished when it began."""
    done = waits.keep(waits.done)
    done = done.keep(np.argsort(done.end, kind="stable"))
    latest = np.append(-1, np.maximum.accumulate(done.begin))
    return latest[np.searchsorted(done.end, waits.begin, "right")]
