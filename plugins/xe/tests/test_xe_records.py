# SPDX-License-Identifier: Apache-2.0
"""Decoding, joins, tables and findings of the layer ``xe`` on records made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fencepath import Analysis
from fencepath.events import Batch
from fencepath.records import Flags, RecordLayout, Records
from fencepath.requests import Request
from fencepath.testing import RecordingFrom
from fencepath_xe.decoder import XeDecoder
from fencepath_xe.kinds import (
    BO_CREATE,
    BO_MOVE,
    FENCE_SIGNAL,
    JOB_ERROR,
    JOB_EXEC,
    JOB_RUN,
    LAYOUTS,
    QUEUE_ERROR,
    QUEUE_STATE,
    TLB_SEND,
    TLB_SIGNAL,
)
from fencepath_xe.memory import ErrorFinding, EvictionFinding, MemoryTable, MovesTable
from fencepath_xe.tracepoints import BOS, TLB

TASK = int(Flags.TASK)
TGID, OTHER = 100, 200
GENERATED = {record.kind: record.layout for record in (*BOS, *TLB)}


def layout_of(kind: str) -> RecordLayout:
    return {**LAYOUTS, **GENERATED}[kind]


def records(kind: str, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Records:
    made = np.zeros(len(rows), layout_of(kind).dtype)
    for record, row in zip(made, rows, strict=True):
        record["tgid"], record["tid"], record["flags"] = TGID, TGID + 1, TASK
        for name, value in row.items():
            record[name] = value
    return made


def batch(kind: str, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Batch:
    return XeDecoder().decode(kind, records(kind, *rows))


def test_names_and_actions_are_text() -> None:
    found = batch(QUEUE_STATE, {"action": 4, "device": b"0000:03:00.0"}, {"action": 13, "device": b"\xff"})
    assert found["action"].tolist() == ["scheduling_disable", "action 13"]
    assert found["device"].tolist() == ["0000:03:00.0", "\ufffd"]


def test_a_fence_of_which_the_address_comes_again_is_the_latest(recording_from: RecordingFrom) -> None:
    times = {JOB_EXEC: (100, 400), JOB_RUN: (200, 500), FENCE_SIGNAL: (300, 600)}
    made = {
        layout_of(kind): records(kind, *({"time_ns": time, "fence_address": 0xFE0} for time in found))
        for kind, found in times.items()
    }
    made[layout_of(TLB_SEND)] = records(TLB_SEND, {"time_ns": 10, "fence_address": 0xF1})
    made[layout_of(TLB_SIGNAL)] = records(
        TLB_SIGNAL, {"time_ns": 20, "fence_address": 0xF1}, {"time_ns": 30, "fence_address": 0xF2}
    )
    analysis = Analysis(recording_from(made))
    assert not [problem for problem in analysis.problems if "xe" in problem.split()]
    edges = analysis.edges

    def pairs(rule: str) -> list[tuple[int, int]]:
        rows = edges.rule == edges.rules.index(rule)
        found = zip(edges.cause[rows].tolist(), edges.effect[rows].tolist(), strict=True)
        return sorted((analysis.table.locate(cause)[1], analysis.table.locate(effect)[1]) for cause, effect in found)

    assert pairs("xe.queue") == pairs("xe.run") == [(0, 0), (1, 1)]
    assert pairs("xe.tlb") == [(0, 0)]


Row = Mapping[str, int | bytes | Sequence[int]]
MOVES: tuple[Row, ...] = (
    {"time_ns": 40, "size_bytes": 100, "source": b"VRAM0", "target": b"TT", "owner_tgid": TGID},
    {"time_ns": 41, "size_bytes": 11, "source": b"VRAM0", "target": b"System", "owner_tgid": OTHER},
    {"time_ns": 42, "size_bytes": 7, "source": b"TT", "target": b"VRAM0", "owner_tgid": TGID},
    # new: nothing is copied
    {"time_ns": 43, "size_bytes": 900, "source": b"VRAM0", "target": b"System", "lacks_source": 1, "owner_tgid": TGID},
    {"time_ns": 60, "size_bytes": 50, "source": b"VRAM1", "target": b"VRAM0", "owner_tgid": TGID},
)


def test_evictions_are_moves_out_of_the_gpus_memory() -> None:
    (finding,) = EvictionFinding().findings({BO_MOVE: batch(BO_MOVE, *MOVES)})
    assert finding.detail.startswith("2 buffers with 111 bytes")
    assert not list(EvictionFinding().findings({BO_MOVE: batch(BO_MOVE, *MOVES[2:])}))
    assert not list(EvictionFinding().findings({}))


def test_tables(recording_from: RecordingFrom) -> None:
    creates = ({"size_bytes": 4096}, {"size_bytes": 8192}, {"size_bytes": 65536, "tgid": OTHER})
    made = {layout_of(BO_MOVE): records(BO_MOVE, *MOVES), layout_of(BO_CREATE): records(BO_CREATE, *creates)}
    view = Analysis(recording_from(made)).view
    request = Request(key="r", number=1, start_ns=40, end_ns=50)
    assert [tuple(row.values()) for row in MovesTable().rows(view, [request])] == [
        ("r", TGID, "VRAM0", "TT", 1, 100, True),
        ("r", OTHER, "VRAM0", "System", 1, 11, True),
        ("r", TGID, "TT", "VRAM0", 1, 7, False),
    ]
    assert [tuple(row.values()) for row in MemoryTable().rows(view, [])] == [(OTHER, 1, 65536), (TGID, 2, 12288)]


def test_failures_are_said() -> None:
    jobs = batch(JOB_ERROR, {"action": 0}, {"action": 2}, {"action": 0})
    queues = batch(QUEUE_ERROR, {"action": 0})
    assert [finding.title for finding in ErrorFinding().findings({JOB_ERROR: jobs, QUEUE_ERROR: queues})] == [
        "jobs of the GPU failed: timedout, 2 times",
        "jobs of the GPU failed: ban, 1 times",
        "queues of the GPU failed: reset, 1 times",
    ]
