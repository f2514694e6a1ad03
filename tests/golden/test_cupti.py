# SPDX-License-Identifier: Apache-2.0
"""A recording of a real GPU beside what CUPTI saw of the same run: calls and kernels in number, name and order, device times."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fencepath import Analysis, open_recording
from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.functions import TABLE
from fencepath_cuda.names import KernelNames

DATA = Path(__file__).parent / "data"
OUTSIDE = {"cuGetProcAddress_v2", "cuDevicePrimaryCtxRelease_v2", "cuLibraryUnload"}
"""What is called before CUPTI is there, and after it has gone."""
CLOCK_NS = 20_000
"""How far apart CUPTI's idea of the device's clock and the host's clock may be."""


class Call(NamedTuple):
    """A call of the driver that CUPTI reported; times are CLOCK_MONOTONIC."""

    tid: int
    time_ns: int
    correlation: int
    function: str
    kernel: str


class Seen(NamedTuple):
    """Everything that CUPTI reported: calls, and (kind, correlation, start, end, graph node) of what the device did."""

    calls: list[Call]
    activities: list[tuple[str, int, int, int, int]]


@pytest.fixture(scope="module")
def seen() -> Seen:
    data: dict[str, Any] = json.loads(gzip.decompress((DATA / "h200-cupti.json.gz").read_bytes()))
    functions, kernels = data["functions"], data["kernels"]
    calls = [
        Call(tid, at, number, functions[name], kernels[kernel].strip("-"))
        for tid, at, number, name, kernel in data["calls"]
    ]
    return Seen(calls, [tuple(row) for row in data["activities"]])


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(open_recording(DATA / "h200-cupti.fencepath.zip"))


def recorded(analysis: Analysis) -> Iterator[tuple[int, int, str]]:
    """Thread, begin and function of each recorded call."""
    for kind in analysis.view.kinds:
        batch = analysis.view.batch(kind)
        if kind.startswith("cuda.") and "caller_ip" in batch:
            columns = (batch[name].tolist() for name in ("tid", "begin_ns", "label"))
            yield from ((tid, begin, LABELS[label]) for tid, begin, label in zip(*columns, strict=True))


def test_calls_are_those_of_cupti_in_number_and_order(analysis: Analysis, seen: Seen) -> None:
    name_of = {symbol: function.name for function in TABLE.selected("launch") for symbol in function.symbols}
    wanted: dict[int, list[str]] = defaultdict(list)
    for call in seen.calls:
        if call.function in name_of and name_of[call.function] not in OUTSIDE:
            wanted[call.tid].append(name_of[call.function])
    known = {name for names in wanted.values() for name in names}
    found: dict[int, list[str]] = defaultdict(list)
    for tid, _, name in sorted(row for row in recorded(analysis) if row[2] in known):
        found[tid].append(name)
    assert found == wanted
    counts = Counter(name for names in wanted.values() for name in names)
    assert (counts["cuLaunchKernel"], counts["cuLaunchKernelEx"], counts["cuStreamSynchronize"]) == (3174, 957, 106)
    assert not any(row.count for row in analysis.recording.loss)


def test_every_kernel_has_its_name(analysis: Analysis, seen: Seen) -> None:
    launches = ("cuLaunchKernel", "cuLaunchKernelEx")
    wanted = [
        call.kernel[:383] for call in sorted(seen.calls, key=lambda call: call.time_ns) if call.function in launches
    ]
    batch = analysis.view.batch("cuda.launch")
    order = np.argsort(batch["begin_ns"])
    names = KernelNames(analysis.view)
    labels = names.of(batch["process"], batch["kernel"], batch["begin_ns"])[order].tolist()
    assert [names.names[label] if label >= 0 else "" for label in labels] == wanted
    assert len(wanted) == 4131


def test_device_times_lie_within_the_bounds(analysis: Analysis, seen: Seen) -> None:
    """Kernels of launches by correlation, in the order of their calls, against the operations of launches."""
    kernels = {
        number: (start, end) for kind, number, start, end, node in seen.activities if kind == "kernel" and not node
    }
    # a kernel has the number of the outermost call: the runtime's, which comes just before the driver's
    ran = [kernels[number] for number in sorted(kernels)]
    table, edges = analysis.table, analysis.edges
    submit = np.flatnonzero(edges.rule == edges.rules.index("cuda.submit"))
    mine = sorted(
        (int(table.begin[edges.cause[i]]), int(edges.effect[i]))
        for i in submit.tolist()
        if table.locate(int(edges.cause[i]))[0] == "cuda.launch"
    )
    assert len(mine) == len(ran) == 4075
    flags = analysis.view.batch("cuda.operation")["flags"]
    bounded = 0
    for (start, end), (_, operation) in zip(ran, mine, strict=True):
        assert int(table.begin[operation]) <= start + CLOCK_NS
        if not flags[table.locate(operation)[1]] & Flags.OPEN:
            assert end <= int(table.end[operation]) + CLOCK_NS
            bounded += 1
    assert bounded > 4000


def test_the_nodes_of_launched_graphs_ran(analysis: Analysis, seen: Seen) -> None:
    """As many kernels as CUPTI saw in graphs, with the names they were captured under."""
    ran = sum(kind == "kernel" and node > 0 for kind, _, _, _, node in seen.activities)
    batch = analysis.view.batch("cuda.operation")
    assert int(np.count_nonzero((batch["operation"] == 0) & (batch["node"] >= 0))) == ran == 840
