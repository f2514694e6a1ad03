# SPDX-License-Identifier: Apache-2.0
"""What became of memory: a balance by process and kind of memory, and what was pushed out of the GPU's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fencepath.events import Batch
from fencepath.joins import View
from fencepath.plugin import AttributeValue
from fencepath.report import Finding
from fencepath.requests import Request
from fencepath_amdgpu.kinds import BO_CREATE, BO_MOVE, INTERRUPT, KFD_EVICT

__all__ = ["Balance", "EvictionFinding", "FaultFinding", "MemoryTable", "MovesTable", "balances"]

_PLACES = ("vram", "gtt", "system")
_NOWHERE = "none"


class Balance(msgspec.Struct):
    """Memory of one process in one place, as far as it was seen.

    Attributes:
        live_bytes: at the end, of buffers that were made or came there meanwhile.
        peak_bytes: most of that at one time.
        in_bytes: allocated there or moved there.
        out_bytes: freed there or moved away, also of buffers that were there before.
    """

    live_bytes: int = 0
    peak_bytes: int = 0
    in_bytes: int = 0
    out_bytes: int = 0

    def arrive(self, size_bytes: int) -> None:
        """Count a buffer that is here now."""
        self.in_bytes += size_bytes
        self.live_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def leave(self, size_bytes: int) -> None:
        """Count a buffer that had arrived and is not here any more."""
        self.out_bytes += size_bytes
        self.live_bytes -= size_bytes


class _Change(msgspec.Struct, frozen=True):
    """A creation (source and target are where it is then) or a move."""

    bo: int
    size_bytes: int
    source: str
    target: str
    tgid: int
    creation: bool = False


class _Held(msgspec.Struct, frozen=True):
    """Where a buffer is; new if a move has just given it its first memory, so that its creation is still to be told."""

    place: str
    size_bytes: int
    tgid: int
    new: bool


def balances(creates: Batch, moves: Batch) -> dict[tuple[int, str], Balance]:
    """Balance memory by (tgid, placement).

    Where the kernel says by moves when a buffer first gets memory, that counts; else its creation does. A buffer that is
    made at an address ends the one before it: kernels before 6.9 do not say when a buffer ends.
    """
    found: dict[tuple[int, str], Balance] = defaultdict(Balance)
    held: dict[int, _Held] = {}
    for change in _changes(creates, moves):
        old = held.pop(change.bo, None)
        if old is not None and old.new and change.creation and old.place == change.target:
            held[change.bo] = msgspec.structs.replace(old, new=False)
            continue
        if old is not None:
            found[old.tgid, old.place].leave(old.size_bytes)
        elif not change.creation and change.source != _NOWHERE:
            found[change.tgid, change.source].out_bytes += change.size_bytes
        if change.target != _NOWHERE:
            found[change.tgid, change.target].arrive(change.size_bytes)
            new = change.source == _NOWHERE
            held[change.bo] = _Held(change.target, change.size_bytes, change.tgid, new)
    return dict(found)


def _changes(creates: Batch, moves: Batch) -> Iterator[_Change]:
    """All creations and moves, by time; a move goes before a creation of the same time, as it does in the driver."""
    rows: list[tuple[int, int, _Change]] = []
    if len(creates):
        columns = ("time_ns", "bo", "size_bytes", "placement", "tgid")
        for time_ns, bo, size, place, tgid in zip(*(creates[name].tolist() for name in columns), strict=True):
            rows.append((time_ns, 1, _Change(bo, size, place, place, tgid, creation=True)))
    if len(moves):
        moved = ("time_ns", "bo", "size_bytes", "source", "target", "owner_tgid", "tgid")
        for time_ns, bo, size, source, target, owner, tgid in zip(
            *(moves[name].tolist() for name in moved), strict=True
        ):
            rows.append((time_ns, 0, _Change(bo, size, source, target, owner or tgid)))
    return (change for _, _, change in sorted(rows, key=lambda row: row[:2]))


class MemoryTable:
    """Table of the balances; implements :class:`fencepath.plugin.TableRule`."""

    name = "memory"
    title = "memory of buffer objects by process and place, as far as their creation and moves were seen"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """One row a process and place, the largest peak first."""
        del requests
        found = balances(view.batch(BO_CREATE), view.batch(BO_MOVE))
        ordered = sorted(found.items(), key=lambda item: -item[1].peak_bytes)
        return [{"pid": tgid, "place": place, **msgspec.structs.asdict(balance)} for (tgid, place), balance in ordered]


class MovesTable:
    """Table of bytes moved within requests; implements :class:`fencepath.plugin.TableRule`."""

    name = "moves"
    title = "bytes of buffer objects moved while a request ran, by direction; other requests may have caused them"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """One row a request and direction, most bytes first."""
        moves = view.batch(BO_MOVE)
        rows: list[dict[str, AttributeValue | None]] = []
        for request in requests:
            inside = (moves["time_ns"] >= request.start_ns) & (moves["time_ns"] <= request.end_ns)
            for (source, target), (count, size) in _directions(moves.take(inside)).items():
                rows.append(
                    {
                        "request": request.key,
                        "source": source,
                        "target": target,
                        "moves": count,
                        "moved_bytes": size,
                        "evicted": _is_eviction(source, target),
                    }
                )
        return sorted(rows, key=lambda row: -int(row["moved_bytes"] or 0))


def _directions(moves: Batch) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and bytes of moves from one place to another; what allocates or frees is none."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    if not len(moves):
        return found
    for source, target, size in zip(
        *(moves[name].tolist() for name in ("source", "target", "size_bytes")), strict=True
    ):
        if _NOWHERE not in (source, target):
            count, total = found.get((source, target), (0, 0))
            found[source, target] = (count + 1, total + size)
    return found


def _is_eviction(source: str, target: str) -> bool:
    """Out of memory that is nearer to the GPU."""
    return source in _PLACES and target in _PLACES and _PLACES.index(target) > _PLACES.index(source)


class EvictionFinding:
    """Says that memory was pushed out of the GPU's own; implements :class:`fencepath.plugin.FindingRule`."""

    name = "amdgpu.eviction"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding for buffers and one for whole ROCm processes."""
        moves = batches.get(BO_MOVE)
        away = {} if moves is None else {key: value for key, value in _directions(moves).items() if _is_eviction(*key)}
        if away:
            detail = ", ".join(
                f"{count} buffers with {size} bytes from {source} to {target}"
                for (source, target), (count, size) in away.items()
            )
            yield Finding(
                rule=self.name,
                title="the GPU's memory was too small: buffers were moved out of it",
                detail=f"{detail}; use less of it, or find who else does",
            )
        evictions = batches.get(KFD_EVICT)
        if evictions is not None and len(evictions):
            yield Finding(
                rule=self.name,
                title=f"all queues of a ROCm process were taken off the GPU {len(evictions)} times to move its memory",
                detail="nothing of the process ran on the GPU meanwhile; look for who else allocates GPU memory",
            )


class FaultFinding:
    """Says that the GPU used an address that was not mapped; implements :class:`fencepath.plugin.FindingRule`."""

    name = "amdgpu.page_fault"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding if there were any."""
        interrupts = batches.get(INTERRUPT)
        faults = 0 if interrupts is None else int(interrupts["page_fault"].sum())
        if faults:
            yield Finding(
                rule=self.name,
                title=f"the GPU met {faults} page faults",
                detail="with retry faults (XNACK) pages are brought in, else the process is ended; see the kernel's log",
            )
