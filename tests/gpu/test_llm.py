# SPDX-License-Identifier: Apache-2.0
"""A small LLM on a real GPU: what is recorded equals what CUPTI reports, in number, name and order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.conftest import Recorded

from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.functions import table_for
from fencepath_cuda.names import KernelNames

LLM = Path(__file__).parents[1] / "golden" / "h200_llm.py"
CLOCK_NS = 20_000
"""How far apart CUPTI's idea of the device's clock and the host's clock may be."""


@pytest.fixture(scope="module", params=["launch", "full"])
def recorded(record: Callable[..., Recorded], gpu_python: str, request: pytest.FixtureRequest) -> Recorded:
    run = record([gpu_python, LLM], "--detail", request.param, "--layers", "cuda", activities=True)
    run.detail = request.param  # type: ignore[attr-defined]
    return run


def names_at(recorded: Recorded) -> dict[str, str]:
    """Every symbol that was probed, and the function it is in the recording."""
    detail: Any = recorded.detail  # type: ignore[attr-defined]
    return {symbol: function.name for function in table_for(detail).functions for symbol in function.symbols}


def rows(recorded: Recorded) -> Iterator[dict[str, Any]]:
    view = recorded.analysis.view
    for kind in view.kinds:
        if kind.startswith("cuda.") and kind != "cuda.operation":
            batch = view.batch(kind)
            plain = {name: column.tolist() for name, column in batch.columns.items()}
            for values in zip(*plain.values(), strict=True):
                yield {"kind": kind, **dict(zip(plain, values, strict=True))}


OUTSIDE = {"cuGetProcAddress_v2", "cuDevicePrimaryCtxRelease_v2", "cuLibraryUnload"}
"""What is called before CUPTI is there, and after it has gone."""


def sequences(recorded: Recorded, *, driver: bool) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Calls by thread in order of entry: those that CUPTI reports, and those recorded, of functions that it knows."""
    names = {symbol: name for symbol, name in names_at(recorded).items() if symbol.startswith("cuda") != driver}
    wanted = {
        tid: [names[call.function] for call in calls if names[call.function] not in OUTSIDE]
        for tid, calls in recorded.log.by_thread(names).items()
    }
    reported = {name for calls in wanted.values() for name in calls}
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for row in rows(recorded):
        if LABELS[row["label"]] in reported:
            found[row["tid"]].append((row["begin_ns"], LABELS[row["label"]]))
    return wanted, {tid: [name for _, name in sorted(calls)] for tid, calls in found.items()}


def test_every_call_of_the_driver_is_recorded_in_its_order(recorded: Recorded) -> None:
    wanted, found = sequences(recorded, driver=True)
    counts = Counter(name for calls in wanted.values() for name in calls)
    assert Counter(name for calls in found.values() for name in calls) == counts
    assert found == wanted
    assert counts["cuLaunchKernel"] + counts["cuLaunchKernelEx"] > 4000
    assert counts["cuMemcpyHtoDAsync_v2"] + counts["cuMemcpyDtoHAsync_v2"] + counts["cuMemcpyDtoDAsync_v2"] > 50
    assert counts["cuStreamSynchronize"] > 50
    assert not [row for row in recorded.analysis.recording.loss if row.count]


def test_calls_of_the_shared_runtime_are_recorded_in_their_order(recorded: Recorded) -> None:
    """CUPTI also reports those of the runtimes that libraries hold linked into them, which are seen as driver calls."""
    wanted, found = sequences(recorded, driver=False)
    if recorded.detail != "full":  # type: ignore[attr-defined]
        assert found == {}
        return
    for tid, calls in found.items():
        rest = iter(wanted[tid])
        assert all(name in rest for name in calls), "it is not in that order"
    missing = Counter(n for calls in wanted.values() for n in calls) - Counter(
        n for calls in found.values() for n in calls
    )
    assert missing["cudaLaunchKernel"] == missing["cudaMemcpyAsync"] == missing["cudaStreamSynchronize"] == 0


def test_kernels_have_their_names_in_order(recorded: Recorded) -> None:
    launches = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
    wanted = {tid: [call.kernel[:383] for call in calls] for tid, calls in recorded.log.by_thread(launches).items()}
    batch = recorded.analysis.view.batch("cuda.launch")
    names = KernelNames(recorded.analysis.view)
    label = names.of(batch["process"], batch["kernel"], batch["begin_ns"]).tolist()
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for tid, begin_ns, index in zip(batch["tid"].tolist(), batch["begin_ns"].tolist(), label, strict=True):
        found[tid].append((begin_ns, names.names[index] if index >= 0 else ""))
    assert {tid: [name for _, name in sorted(calls)] for tid, calls in found.items()} == wanted
    assert len(set(names.names)) > 30


def test_device_times_lie_within_the_bounds(recorded: Recorded) -> None:
    """Kernels of launches, in order, against the operations of the launches, in order."""
    order = {
        call.correlation: (call.tid, call.time_ns) for call in recorded.log.calls if "aunchKernel" in call.function
    }
    kernels: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    for activity in recorded.log.activities:
        if activity.kind == "kernel" and not activity.graph_node and activity.correlation in order:
            tid, at = order[activity.correlation]
            kernels[tid].append((at, activity))
    table, edges = recorded.analysis.table, recorded.analysis.edges
    operations: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for edge in (edges.rule == edges.rules.index("cuda.submit")).nonzero()[0].tolist():
        kind, row = table.locate(int(edges.cause[edge]))
        if kind == "cuda.launch":
            tid = int(recorded.analysis.view.batch(kind)["tid"][row])
            operations[tid].append((int(table.begin[edges.cause[edge]]), int(edges.effect[edge])))
    checked = 0
    flags = recorded.analysis.view.batch("cuda.operation")["flags"]
    for tid, ran in kernels.items():
        mine = sorted(operations[tid])
        assert len(mine) == len(ran)
        for (_, activity), (_, operation) in zip(sorted(ran, key=lambda pair: pair[0]), mine, strict=True):
            assert int(table.begin[operation]) - CLOCK_NS <= activity.start_ns, activity
            if not flags[table.locate(operation)[1]] & Flags.OPEN:
                assert activity.end_ns <= int(table.end[operation]) + CLOCK_NS, activity
            checked += 1
    assert checked > 1000


def test_the_segments_of_every_path_add_up(recorded: Recorded) -> None:
    report = recorded.analysis.report()
    assert len(report.requests) == 7
    for request in report.requests:
        assert sum(segment.duration_ns for segment in request.path.segments) == request.end_ns - request.start_ns
