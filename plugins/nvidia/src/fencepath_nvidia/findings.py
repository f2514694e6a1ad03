# SPDX-License-Identifier: Apache-2.0
"""What a user should know: errors of GPUs, and requests that the driver refused for lack of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fencepath.events import Batch
from fencepath.plugin import FindingRule
from fencepath.report import Finding
from fencepath_nvidia.kinds import ERROR, MEMORY_ALLOC, RECORDED_CALLS
from fencepath_nvidia.tables import status_names
from fencepath_nvidia.xids import describe

__all__ = ["FINDINGS", "ErrorFinding", "NoMemoryFinding", "RefusedFinding"]

_NO_MEMORY = (0x51, 0x1A)
"""NV_ERR_NO_MEMORY, NV_ERR_INSUFFICIENT_RESOURCES."""


class ErrorFinding:
    """One finding a code and GPU; implements :class:`fencepath.plugin.FindingRule`."""

    name = "nvidia.error"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield a finding for each code, GPU and process, the most frequent first."""
        batch = batches.get(ERROR)
        if batch is None:
            return
        names = ("of_switch", "code", "gpu", "pid", "program", "message")
        found: dict[tuple[bool, int, str, int, str], list[str]] = {}
        for *key, message in zip(*(batch[name].tolist() for name in names), strict=True):
            found.setdefault((key[0], key[1], key[2], key[3], key[4]), []).append(message)
        for (of_switch, code, gpu, pid, program), messages in sorted(found.items(), key=lambda item: -len(item[1])):
            yield _error(code, gpu, _who(pid, program), messages, of_switch=of_switch)


def _who(pid: int, program: str) -> str:
    if not pid:
        return ""
    return f", in a channel of process {pid} ({program})" if program else f", in a channel of process {pid}"


def _error(code: int, gpu: str, who: str, messages: Sequence[str], *, of_switch: bool) -> Finding:
    times = f" {len(messages)} times" if len(messages) > 1 else ""
    if of_switch:
        title = f"SXid {code} on NVSwitch {gpu}{times}"
        return Finding(
            rule="nvidia.error", title=title, detail=f"{messages[0]}; look it up in NVIDIA's Fabric Manager guide"
        )
    if not code:
        return Finding(rule="nvidia.error", title=f"the driver lost GPU {gpu}{times}", detail=messages[0].strip())
    info = describe(code)
    meaning = info.meaning or info.name
    title = f"Xid {code} on GPU {gpu}{times}{who}" + (f": {meaning}" if meaning else "")
    severity = f" ({info.severity})" if info.severity else ""
    return Finding(rule="nvidia.error", title=title, detail=f"{messages[0]}{severity}; {info.advice}")


class NoMemoryFinding:
    """Says that the driver had no memory; implements :class:`fencepath.plugin.FindingRule`."""

    name = "nvidia.no_memory"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield a finding a process."""
        batch = batches.get(MEMORY_ALLOC)
        if batch is None:
            return
        sizes: dict[int, list[int]] = {}
        columns = (batch[name].tolist() for name in ("tgid", "rm_status", "size_bytes"))
        for tgid, status, size in zip(*columns, strict=True):
            if status in _NO_MEMORY:
                sizes.setdefault(tgid, []).append(size)
        for tgid, refused in sizes.items():
            yield Finding(
                rule=self.name,
                title=f"the driver had no memory for process {tgid}, {len(refused)} times",
                detail=f"asked for up to {max(refused)} bytes; see the table nvidia memory for who holds how much",
            )


class RefusedFinding:
    """Says what else the driver refused; implements :class:`fencepath.plugin.FindingRule`."""

    name = "nvidia.refused"

    def findings(self, batches: Mapping[str, Batch]) -> Iterable[Finding]:
        """Yield one finding if there was anything. Libraries try requests to find out what a GPU can, so it may be harmless."""
        counts: Counter[tuple[str, int]] = Counter()
        for kind in RECORDED_CALLS:
            batch = batches.get(kind)
            if batch is None or "rm_status" not in batch:
                continue
            for label, status in zip(batch["label"].tolist(), batch["rm_status"].tolist(), strict=True):
                if status > 0 and not (kind == MEMORY_ALLOC and status in _NO_MEMORY):
                    counts[batch.labels[label], status] += 1
        if counts:
            names = status_names()
            said = [
                f"{request}: {names.get(status, f'status {status:#x}')} ({count})"
                for (request, status), count in counts.most_common(_MOST)
            ]
            rest = f" and {len(counts) - _MOST} more" if len(counts) > _MOST else ""
            yield Finding(
                rule=self.name,
                title=f"the driver refused {counts.total()} requests, which may be a library that tries what a GPU can",
                detail=", ".join(said) + rest,
            )


_MOST = 5

FINDINGS: Sequence[FindingRule] = (ErrorFinding(), NoMemoryFinding(), RefusedFinding())
