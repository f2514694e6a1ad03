# SPDX-License-Identifier: Apache-2.0
"""What became of memory, as far as the driver says: what was made, and what was moved from where to where.

There is no balance: creation of a buffer carries no address, and its end no event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fencepath.events import Batch
from fencepath.joins import View
from fencepath.plugin import AttributeValue
from fencepath.report import Finding
from fencepath.requests import Request
from fencepath_xe.kinds import BO_CREATE, BO_MOVE, JOB_ERROR, QUEUE_ERROR

__all__ = ["ErrorFinding", "EvictionFinding", "MemoryTable", "MovesTable", "is_eviction"]


def is_eviction(source: str, target: str) -> bool:
    """Return whether a move is out of the GPU's own memory."""
    return source.upper().startswith("VRAM") and not target.upper().startswith("VRAM")


def _directions(moves: Batch) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Count and bytes of moves that copy something, by owner, source and target."""
    found: dict[tuple[int, str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    if len(moves):
        columns = ("owner_tgid", "source", "target", "size_bytes", "lacks_source")
        for owner, source, target, size, lacks in zip(*(moves[name].tolist() for name in columns), strict=True):
            if not lacks:
                count, total = found[owner, source, target]
                found[owner, source, target] = (count + 1, total + size)
    return dict(found)


class MemoryTable:
    """Table of buffers made, by process; implements :class:`fencepath.plugin.TableRule`."""

    name = "memory"
    title = "buffer objects made, by process; when they end is not known"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """One row a process, most bytes first."""
        del requests
        creates = view.batch(BO_CREATE)
        found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        if len(creates):
            for tgid, size in zip(creates["tgid"].tolist(), creates["size_bytes"].tolist(), strict=True):
                found[tgid] = (found[tgid][0] + 1, found[tgid][1] + size)
        largest = sorted(found.items(), key=lambda item: -item[1][1])
        return [{"pid": tgid, "created": count, "created_bytes": size} for tgid, (count, size) in largest]


class MovesTable:
    """Table of bytes moved within requests; implements :class:`fencepath.plugin.TableRule`."""

    name = "moves"
    title = "bytes of buffer objects copied while a request ran, by direction; other requests may have caused them"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """One row a request, owner and direction, most bytes first."""
        moves = view.batch(BO_MOVE)
        rows: list[dict[str, AttributeValue | None]] = []
        for request in requests if len(moves) else ():
            inside = (moves["time_ns"] >= request.start_ns) & (moves["time_ns"] <= request.end_ns)
            for (owner, source, target), (count, size) in _directions(moves.take(inside)).items():
                rows.append(
                    {
                        "request": request.key,
                        "pid": owner,
                        "source": source,
                        "target": target,
                        "moves": count,
                        "moved_bytes": size,
                        "evicted": is_eviction(source, target),
                    }
                )
        return sorted(rows, key=lambda row: -int(row["moved_bytes"] or 0))


class EvictionFinding:
    """Says that buffers were moved out of the GPU's memory; implements :class:`fencepath.plugin.FindingRule`."""

    name = "xe.eviction"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding if there were any."""
        moves = batches.get(BO_MOVE)
        away = [] if moves is None else [value for key, value in _directions(moves).items() if is_eviction(*key[1:])]
        if away:
            count, size = (sum(values) for values in zip(*away, strict=True))
            yield Finding(
                rule=self.name,
                title="the GPU's memory was too small: buffers were moved out of it",
                detail=f"{count} buffers with {size} bytes; use less of it, or find who else does",
            )


class ErrorFinding:
    """Says that jobs or queues failed; implements :class:`fencepath.plugin.FindingRule`."""

    name = "xe.error"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding a kind of failure."""
        for kind, what in ((JOB_ERROR, "jobs"), (QUEUE_ERROR, "queues")):
            batch = batches.get(kind)
            actions = [] if batch is None else batch["action"].tolist()
            for action in dict.fromkeys(actions):
                yield Finding(
                    rule=self.name,
                    title=f"{what} of the GPU failed: {action}, {actions.count(action)} times",
                    detail="the kernel's log says why; what waited for them was ended, not served",
                )
