# SPDX-License-Identifier: Apache-2.0
"""The layer's tables in the report: which libraries made the calls, and which kernels were launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fencepath.joins import View
from fencepath.modules import NO_MODULE
from fencepath.plugin import AttributeValue, TableRule
from fencepath.requests import Request
from fencepath_cuda.events import EVENTS
from fencepath_cuda.events.operation import OperationKind

__all__ = ["TABLES", "CallersTable", "KernelsTable"]

_RUNTIME = "cuda.runtime.call"
_NOT_KNOWN = "not known"


class CallersTable:
    """Calls of the driver by the library whose code made them."""

    name = "callers"
    title = "Who called the CUDA driver"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """Return a row a library: its driver calls, launches among them, and the time they took."""
        del requests
        calls, launches, times = Counter[str](), Counter[str](), Counter[str]()
        for kind in (kind for event in EVENTS if (kind := str(event.__struct_config__.tag)) != _RUNTIME):
            batch = view.batch(kind)
            if not len(batch):
                continue
            module = view.modules.locate(batch["tgid"], batch["begin_ns"], batch["caller_ip"]).module
            took = (batch["time_ns"] - batch["begin_ns"]).astype(np.float64)
            for index in np.unique(module).tolist():
                name = view.modules[index].name if index != NO_MODULE else _NOT_KNOWN
                mine = module == index
                calls[name] += int(np.count_nonzero(mine))
                times[name] += int(took[mine].sum())
                launches[name] += int(np.count_nonzero(mine)) if kind == "cuda.launch" else 0
        return [
            {"library": name, "calls": number, "launches": launches[name], "in_calls_ns": times[name]}
            for name, number in calls.most_common()
        ]


class KernelsTable:
    """Kernels by name, with how often they were put on a stream."""

    name = "kernels"
    title = "Kernels, most often launched first"

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        """Return a row a kernel; those launched as nodes of graphs count each time their graph was launched."""
        del requests
        batch = view.batch("cuda.operation")
        kernels = batch["operation"] == OperationKind.KERNEL
        label, in_graph = batch["label"][kernels], batch["node"][kernels] >= 0
        counts: list[tuple[str, int, int]] = []
        for index in np.unique(label).tolist():
            mine = label == index
            name = batch.labels[index] if index >= len(OperationKind) else _NOT_KNOWN
            counts.append((name, int(mine.sum()), int((mine & in_graph).sum())))
        return [
            {"kernel": name, "launches": launches, "of_which_in_graphs": in_graphs}
            for name, launches, in_graphs in sorted(counts, key=lambda row: (-row[1], row[0]))
        ]


TABLES: tuple[TableRule, ...] = (CallersTable(), KernelsTable())
