# SPDX-License-Identifier: Apache-2.0
"""Which items a wait for a whole context, or for a default stream, finds unfinished at the latest."""

from __future__ import annotations

import numpy as np

from fencepath_cuda.ordered import Ints, ranges
from fencepath_cuda.places import Places
from fencepath_cuda.rows import Rows

__all__ = ["last_before_waits"]


def last_before_waits(places: Places, items: Rows, until: Ints, waits: Rows) -> tuple[Ints, Ints]:
    """Pairs (item, wait) of items with waits for everything in their context, by position.

    An item is paired with the waits that begin from its own begin to `until`, as long as no earlier wait had come back that
    began after the item's call had: what that one waited for is finished.
    """
    found_items: list[Ints] = [np.empty(0, np.int64)]
    found_waits: list[Ints] = [np.empty(0, np.int64)]
    of_item, of_wait = places.of(items), places.of(waits)
    for context in np.unique(of_wait).tolist():
        mine = np.flatnonzero(of_wait == context)
        mine = mine[np.argsort(waits.begin[mine], kind="stable")]
        ours = np.flatnonzero(of_item == context)
        first = np.searchsorted(waits.begin[mine], items.begin[ours], "left")
        end = np.searchsorted(waits.begin[mine], until[ours], "left")
        settled = _settled_ns(waits.keep(mine))
        count = np.maximum(np.minimum(end, np.searchsorted(settled, items.returned[ours], "left")) - first, 0)
        found_items.append(np.repeat(ours, count))
        found_waits.append(mine[np.repeat(first, count) + ranges(count)])
    return np.concatenate(found_items), np.concatenate(found_waits)


def _settled_ns(waits: Rows) -> Ints:
    """For each wait, sorted by begin: what a call had submitted that had come back by then had finished when it began."""
    done = waits.keep(waits.done)
    done = done.keep(np.argsort(done.end, kind="stable"))
    latest = np.append(-1, np.maximum.accumulate(done.begin))
    return latest[np.searchsorted(done.end, waits.begin, "right")]
