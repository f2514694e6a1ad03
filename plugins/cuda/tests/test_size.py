# SPDX-License-Identifier: Apache-2.0
"""Many calls: the model's work grows as their number does."""

from __future__ import annotations

import time

import numpy as np
import pytest
from plugins.cuda.tests.story import LEGACY, Run, batch_of

from fencepath.entities import Entities
from fencepath.events import Batch
from fencepath.records import Flags
from fencepath_cuda.events import StreamKind
from fencepath_cuda.model import OPERATION, CudaModel

S1, E1 = 0x5100, 0xE100
SMALL, LARGE = 60_000, 240_000
SHARES = {
    "cuda.launch": 0.88,
    "cuda.memcpy.async": 0.03,
    "cuda.event.record": 0.03,
    "cuda.stream.wait_event": 0.01,
    "cuda.stream.synchronize": 0.01,
    "cuda.event.synchronize": 0.01,
    "cuda.context.synchronize": 0.01,
    "cuda.stream.query": 0.01,
    "cuda.event.query": 0.01,
}


def many(calls: int) -> Run:
    """Calls of 8 threads on 64 streams, one of them the legacy stream, with 100 CUDA events."""
    random = np.random.default_rng(20)
    kinds = random.choice(list(SHARES), calls, p=list(SHARES.values()))
    stream, begin = random.integers(0, 64, calls), np.arange(calls) * 1_000
    asked = np.isin(kinds, ("cuda.stream.query", "cuda.event.query"))
    columns = {
        "begin_ns": begin,
        "time_ns": begin + random.integers(1, 5_000, calls),
        "tgid": np.ones(calls),
        "tid": random.integers(1, 9, calls),
        "flags": np.full(calls, int(Flags.TASK)),
        "returned": np.ones(calls),
        "result": np.where(asked & (stream % 2 == 0), 600, 0),
        "stream_handle": np.where(stream == 0, LEGACY, S1 + stream),
        "stream_kind": np.where(stream == 0, StreamKind.LEGACY, StreamKind.CREATED),
        "event_handle": E1 + random.integers(0, 100, calls),
        "number": np.arange(calls),
    }
    batches: dict[str, Batch] = {}
    for kind in SHARES:
        mine = np.flatnonzero(kinds == kind)
        mine = mine[np.argsort(columns["time_ns"][mine])]
        batches[kind] = batch_of(kind, {name: column[mine] for name, column in columns.items()})
    created = {name: column[:64] for name, column in columns.items()} | {"stream_handle": S1 + np.arange(64)}
    batches["cuda.stream.create"] = batch_of("cuda.stream.create", created)
    return Run(batches)


@pytest.fixture(scope="module")
def large() -> Run:
    return many(LARGE)


def test_every_rule_finds_what_it_is_about(large: Run) -> None:
    about_others = {"cuda.graph_order", "cuda.graph_exec", "cuda.blocking_copy"}
    found = {rule: sum(len(batch.cause) for batch in large.batches_of(rule)) for rule in large.rules}
    assert {rule for rule, edges in found.items() if edges < 1_000} == about_others
    ends = [int(large.view.batch(OPERATION)[name].astype(np.int64).max()) for name in ("begin_ns", "time_ns")]
    assert ends[0] <= ends[1]


def test_four_times_the_calls_take_little_more_than_four_times_as_long(large: Run) -> None:
    """Processor time, the least of three. What grows with the square of the calls would take sixteen times as long."""
    least = [min(_thread_seconds(run) for _ in range(3)) for run in (many(SMALL), large)]
    assert least[1] < 10 * least[0]


def _thread_seconds(run: Run) -> float:
    before = time.thread_time()
    CudaModel().derive(run.events, Entities())
    return time.thread_time() - before
