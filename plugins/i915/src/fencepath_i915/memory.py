# SPDX-License-Identifier: Apache-2.0
"""What became of memory: a live balance of objects by process, and pressure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fencepath.events import Batch
from fencepath.joins import View
from fencepath.plugin import AttributeValue
from fencepath.records import Flags
from fencepath.report import Finding
from fencepath.requests import Request
from fencepath_i915.kinds import EVICT, OBJECT_CREATE, OBJECT_DESTROY, SHRINK

__all__ = ["Balance", "MemoryTable", "PressureFinding", "balances"]


class Balance(msgspec.Struct):
    """Objects of one process that were made while it was recorded.

    Attributes:
        live_objects: at the end.
        live_bytes: likewise.
        peak_bytes: most at one time.
        created_bytes: of all that were made.
        destroyed_bytes: of those of them that ended.
    """

    live_objects: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    created_bytes: int = 0
    destroyed_bytes: int = 0

    def create(self, size_bytes: int) -> None:
        """Count an object that is made."""
        self.live_objects += 1
        self.live_bytes += size_bytes
        self.created_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def destroy(self, size_bytes: int) -> None:
        """Count an object that ends."""
        self.live_objects -= 1
        self.live_bytes -= size_bytes
        self.destroyed_bytes += size_bytes


def balances(creates: Batch, destroys: Batch) -> dict[int, Balance]:
    """Balance objects by tgid of who made them. Ends of objects whose creation was not seen are left out."""
    found: dict[int, Balance] = defaultdict(Balance)
    rows: list[tuple[int, int, int, int]] = []
    if len(creates):
        made = zip(*(creates[name].tolist() for name in ("time_ns", "tgid", "object", "size_bytes")), strict=True)
        rows += [(time_ns, tgid, object_, size) for time_ns, tgid, object_, size in made]
    if len(destroys):
        ended = zip(*(destroys[name].tolist() for name in ("time_ns", "owner_tgid", "object")), strict=True)
        rows += [(time_ns, tgid, object_, -1) for time_ns, tgid, object_ in ended]
    live: dict[int, int] = {}
    for _, tgid, object_, size in sorted(rows):
        if size >= 0:
            live[object_] = size
            found[tgid].create(size)
        elif object_ in live:
            found[tgid].destroy(live.pop(object_))
    return dict(found)


class MemoryTable:
    """Table of the balances; implements :class:`fencepath.plugin.TableRule`."""

    name = "memory"
    title = "memory objects by process, of those that were made while it was recorded"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """One row a process, the largest peak first."""
        del requests
        found = balances(view.batch(OBJECT_CREATE), view.batch(OBJECT_DESTROY))
        ordered = sorted(found.items(), key=lambda item: -item[1].peak_bytes)
        return [{"pid": tgid, **msgspec.structs.asdict(balance)} for tgid, balance in ordered]


class PressureFinding:
    """Says that memory was short; implements :class:`fencepath.plugin.FindingRule`."""

    name = "i915.pressure"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding for evictions and one for reclaim."""
        evictions = batches.get(EVICT)
        if evictions is not None and len(evictions):
            yield Finding(
                rule=self.name,
                title=f"objects were pushed out of the GPU's address space {len(evictions)} times",
                detail="more is used at once than it has room for; use less, or smaller buffers",
            )
        shrinks = batches.get(SHRINK)
        if shrinks is not None and len(shrinks):
            freed = [pages for pages in shrinks["freed_pages"].tolist() if pages >= 0]
            said = f"{sum(freed)} pages were given back" if freed else "the kernel does not say what was given back"
            own = int(((shrinks["flags"] & int(Flags.TASK)) != 0).sum())
            yield Finding(
                rule=self.name,
                title=f"the machine was short of memory: the driver was asked {len(shrinks)} times to give some back",
                detail=f"{int(shrinks['target_pages'].sum())} pages were wanted, {said}; {own} times by a recorded thread",
            )
