# SPDX-License-Identifier: Apache-2.0
"""The layer's tables of the report: memory, errors, requests, interrupts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.events import Batch
from fencepath.joins import View
from fencepath.plugin import AttributeValue, TableRule
from fencepath.requests import Request
from fencepath_nvidia.kinds import (
    DRIVER_FAULT,
    ERROR,
    ISR,
    ISR_THREAD,
    MMAP,
    MUNMAP,
    POLL,
    RECORDED_CALLS,
    UVM_MIGRATION,
    UVM_SERVICE,
    VERSION,
)
from fencepath_nvidia.memory import Account, Change, balances, changes
from fencepath_nvidia.rules import IRQ_NAME, first_halves, in_halves, in_interrupts, users, wake_ups
from fencepath_nvidia.xids import describe

__all__ = [
    "TABLES",
    "CallsTable",
    "ErrorsTable",
    "GrowthTable",
    "HalvesTable",
    "InterruptsTable",
    "MemoryTable",
    "PagesTable",
]

Rows = Sequence[Mapping[str, AttributeValue | None]]


class MemoryTable:
    """Balances by process, place and GPU; implements :class:`fencepath.plugin.TableRule`."""

    name = "memory"
    title = "memory by process, as the driver and as the CUDA API tell it: the same bytes twice, never to be added up"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row an account, the largest peak first."""
        del requests
        found = sorted(balances(changes(view)).items(), key=lambda item: (-item[1].peak_bytes, item[0]))
        return [{**_account(account), **msgspec.structs.asdict(balance)} for account, balance in found]


class GrowthTable:
    """What changed while a request ran; implements :class:`fencepath.plugin.TableRule`."""

    name = "growth"
    title = "memory that came or went while a request ran; other requests of the process may have caused it"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row a request and account in which something changed, by request."""
        series: dict[Account, list[Change]] = defaultdict(list)
        for change in changes(view):
            series[change.account].append(change)
        return [
            {"request": request.key, **_account(account), **growth}
            for request in requests
            for account, found in sorted(series.items())
            if (growth := _growth(found, request)) is not None
        ]


def _growth(found: Sequence[Change], request: Request) -> dict[str, int] | None:
    before = sum(change.bytes for change in found if change.time_ns < request.start_ns)
    live = peak = before
    inside = [change for change in found if request.start_ns <= change.time_ns <= request.end_ns]
    for change in inside:
        live += change.bytes
        peak = max(peak, live)
    if not inside:
        return None
    return {
        "growth_bytes": live - before,
        "peak_growth_bytes": peak - before,
        "start_bytes": before,
        "end_bytes": live,
    }


def _account(account: Account) -> dict[str, AttributeValue | None]:
    return {
        "pid": account.tgid,
        "source": account.source,
        "place": account.place,
        "device": account.device if account.device >= 0 else None,
    }


class ErrorsTable:
    """Errors with what they mean and whom they met; implements :class:`fencepath.plugin.TableRule`."""

    name = "errors"
    title = "Xid and SXid errors, each once, with the requests that were running"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row an error, by time."""
        batch = view.batch(ERROR)
        names = ("time_ns", "code", "of_switch", "gpu", "pid", "program", "message", "by_tracepoint", "by_log")
        rows: list[Mapping[str, AttributeValue | None]] = []
        for values in zip(*(batch[name].tolist() for name in names), strict=True):
            row: dict[str, AttributeValue | None] = dict(zip(names, values, strict=True))
            info = describe(0 if row["of_switch"] else int(row["code"] or 0))
            running = [each.key for each in requests if each.start_ns <= int(row["time_ns"] or 0) <= each.end_ns]
            rows.append({**row, "meaning": info.meaning or info.name, "requests": ", ".join(running)})
        return rows


class CallsTable:
    """How often requests to the driver were made and how long they took; implements :class:`fencepath.plugin.TableRule`."""

    name = "calls"
    title = "system calls on the driver's device files by request"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row a kind and request, the longest in sum first; polls, whose time is waiting, are left to the path."""
        del requests
        rows: list[dict[str, AttributeValue | None]] = []
        for kind in RECORDED_CALLS:
            batch = view.batch(kind)
            if kind == POLL or not len(batch):
                continue
            took = _lengths(batch)
            failed = np.zeros(len(batch), np.bool_) if kind in (MMAP, MUNMAP) else batch["status"] < 0
            if kind not in (VERSION,) and "rm_status" in batch:
                failed = failed | (batch["rm_status"] > 0)
            for label in np.unique(batch["label"]).tolist():
                mine = batch["label"] == label
                rows.append(
                    {
                        "kind": kind,
                        "request": _label(batch, label),
                        "calls": int(mine.sum()),
                        "total_ns": int(took[mine].sum()),
                        "longest_ns": int(took[mine].max()),
                        "failed": int(failed[mine].sum()),
                    }
                )
        return sorted(rows, key=lambda row: -int(row["total_ns"] or 0))


class InterruptsTable:
    """Interrupts of the driver and the waits that they ended; implements :class:`fencepath.plugin.TableRule`."""

    name = "interrupts"
    title = "interrupts of the driver that met recorded threads, and the polls of the driver's files that they ended"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row a vector, the most frequent first. A vector serves everybody who uses the GPU."""
        del requests
        irqs, wakings, polls = view.batch("host.irq"), view.batch("host.waking"), view.batch(POLL)
        halves = view.batch(ISR_THREAD)
        if not len(irqs):
            return []
        mine = irqs.take(np.flatnonzero(irqs["name"] == IRQ_NAME))
        ended = wake_ups(polls, wakings)
        ended = ended[(ended >= 0) & (polls["status"] > 0)]
        polls_of: Counter[int] = Counter()
        if len(ended):
            woken = wakings.take(ended)
            handlers, threads = in_interrupts(woken, mine), in_halves(woken, halves)
            polls_of.update(mine["irq"][handlers[handlers >= 0]].tolist())
            if len(halves):
                polls_of.update(halves["irq"][threads[threads >= 0]].tolist())
        counts = Counter(mine["irq"].tolist())
        gpus = _gpus(view)
        return [
            {
                "vector": vector,
                "gpu": gpus.get(vector, ""),
                "interrupts": count,
                "polls_ended": polls_of[vector],
                "processes": users(view),
            }
            for vector, count in counts.most_common()
        ]


class HalvesTable:
    """How long the driver's interrupts took; implements :class:`fencepath.plugin.TableRule`."""

    name = "interrupt_halves"
    title = (
        "interrupts of the driver, of anybody's work: time in the handler, until its thread began, and in the thread"
    )

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row a vector. Where a handler did it all there is no thread."""
        del requests
        isrs, halves = view.batch(ISR), view.batch(ISR_THREAD)
        if not len(isrs) and not len(halves):
            return []
        firsts = first_halves(halves, isrs)
        # an empty batch has no columns but those of every event
        vector_of = [batch["irq"] if len(batch) else np.empty(0, np.int64) for batch in (isrs, halves)]
        gpus = _gpus(view)
        rows: list[Mapping[str, AttributeValue | None]] = []
        for vector in np.unique(np.concatenate(vector_of)).tolist():
            handler, thread = (np.flatnonzero(of == vector) for of in vector_of)
            known = thread[firsts[thread] >= 0]
            gap = halves["begin_ns"][known].astype(np.int64) - isrs["time_ns"][firsts[known]].astype(np.int64)
            times = {"handler": _lengths(isrs)[handler], "until_thread": gap, "thread": _lengths(halves)[thread]}
            row: dict[str, AttributeValue | None] = {"vector": vector, "gpu": gpus.get(vector, "")}
            for name, found in times.items():
                row[f"{name}_count"] = len(found)
                row[f"{name}_median_ns"] = int(np.median(found)) if len(found) else None
                row[f"{name}_longest_ns"] = int(found.max()) if len(found) else None
            rows.append(row)
        return rows


class PagesTable:
    """Page faults and migrations; implements :class:`fencepath.plugin.TableRule`."""

    name = "pages"
    title = "page faults that the driver served and pages that it moved, by function and process"

    def rows(self, view: View, requests: Sequence[Request]) -> Rows:
        """One row a function, process and destination, the longest in sum first. Threads of the kernel work for anybody."""
        del requests
        rows: list[dict[str, AttributeValue | None]] = []
        for kind in (DRIVER_FAULT, UVM_SERVICE, UVM_MIGRATION):
            batch = view.batch(kind)
            if not len(batch):
                continue
            targets = batch["destination"] if kind == UVM_MIGRATION else np.full(len(batch), -1, np.int64)
            keys = np.stack([batch["label"].astype(np.int64), batch["tgid"].astype(np.int64), targets.astype(np.int64)])
            for label, tgid, target in np.unique(keys, axis=1).T.tolist():
                mine = batch.take(np.all(np.array([label, tgid, target]) == keys.T, axis=1))
                took = _lengths(mine)
                rows.append(
                    {
                        "function": _label(batch, label),
                        "pid": tgid,
                        "destination": target if target >= 0 else None,
                        "count": len(mine),
                        "pages": int(mine["pages"].sum()) if kind == UVM_MIGRATION else None,
                        "total_ns": int(took.sum()),
                        "longest_ns": int(took.max()),
                    }
                )
        return sorted(rows, key=lambda row: -int(row["total_ns"] or 0))


def _label(batch: Batch, label: int) -> str:
    return batch.labels[label] if 0 <= label < len(batch.labels) else ""


def _gpus(view: View) -> dict[int, str]:
    """PCI addresses by vector."""
    return {vector: fact["bdf"] for fact in view.facts("nvidia.gpu") for vector in fact["vectors"]}


def _lengths(batch: Batch) -> npt.NDArray[np.int64]:
    took: npt.NDArray[np.int64] = batch["time_ns"].astype(np.int64) - batch["begin_ns"].astype(np.int64)
    return took


TABLES: Sequence[TableRule] = (
    MemoryTable(),
    GrowthTable(),
    ErrorsTable(),
    InterruptsTable(),
    HalvesTable(),
    PagesTable(),
    CallsTable(),
)
