# SPDX-License-Identifier: Apache-2.0
"""The layer's tables of the report: memory, errors, requests, interrupts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fencepath.joins import View
from fencepath.plugin import AttributeValue, TableRule
from fencepath.requests import Request
from fencepath_nvidia.kinds import ERROR, MMAP, MUNMAP, POLL, RECORDED_CALLS, VERSION
from fencepath_nvidia.memory import Account, Change, balances, changes
from fencepath_nvidia.rules import IRQ_NAME, in_interrupts, users, wake_ups
from fencepath_nvidia.xids import describe

__all__ = ["TABLES", "CallsTable", "ErrorsTable", "GrowthTable", "InterruptsTable", "MemoryTable"]

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
            took = batch["time_ns"].astype(np.int64) - batch["begin_ns"].astype(np.int64)
            failed = np.zeros(len(batch), np.bool_) if kind in (MMAP, MUNMAP) else batch["status"] < 0
            if kind not in (VERSION,) and "rm_status" in batch:
                failed = failed | (batch["rm_status"] > 0)
            for label in np.unique(batch["label"]).tolist():
                mine = batch["label"] == label
                rows.append(
                    {
                        "kind": kind,
                        "request": batch.labels[label] if 0 <= label < len(batch.labels) else "",
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
        if not len(irqs):
            return []
        mine = irqs.take(np.flatnonzero(irqs["name"] == IRQ_NAME))
        ended = wake_ups(polls, wakings)
        ended = ended[(ended >= 0) & (polls["status"] > 0)]
        handlers = in_interrupts(wakings.take(ended), mine) if len(ended) else np.empty(0, np.int64)
        polls_of = Counter(mine["irq"][handlers[handlers >= 0]].tolist())
        counts = Counter(mine["irq"].tolist())
        gpus = {vector: fact["bdf"] for fact in view.facts("nvidia.gpu") for vector in fact["vectors"]}
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


TABLES: Sequence[TableRule] = (MemoryTable(), GrowthTable(), ErrorsTable(), InterruptsTable(), CallsTable())
