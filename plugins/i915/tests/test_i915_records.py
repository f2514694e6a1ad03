# SPDX-License-Identifier: Apache-2.0
"""Decoding, joins, tables and findings of the layer ``i915`` on records made by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fencepath import Analysis
from fencepath.events import Batch
from fencepath.records import HEADER, Field, Flags, RecordLayout, Records
from fencepath.testing import RecordingFrom
from fencepath_i915.decoder import I915Decoder
from fencepath_i915.kinds import ADD, EVICT, LAYOUTS, OBJECT_CREATE, OBJECT_DESTROY, RUN, SHRINK, WAIT
from fencepath_i915.memory import MemoryTable, PressureFinding, balances

TASK = int(Flags.TASK)
TGID, OTHER = 100, 200


def records(kind: str, *rows: Mapping[str, int]) -> Records:
    made = np.zeros(len(rows), LAYOUTS[kind].dtype)
    for record, row in zip(made, rows, strict=True):
        record["tgid"], record["tid"], record["flags"] = TGID, TGID + 1, TASK
        for name, value in row.items():
            record[name] = value
    return made


def batch(kind: str, *rows: Mapping[str, int]) -> Batch:
    return I915Decoder().decode(kind, records(kind, *rows))


def test_an_action_that_is_not_known_is_shown_as_its_number() -> None:
    found = batch(EVICT, {"action": 0}, {"action": 2}, {"action": 3}, {"action": 0xFFFFFFFF})
    assert found["action"].tolist() == ["evict", "evict_vm", "action 3", "action 4294967295"]


def test_a_wait_ends_after_the_last_run_of_its_request(recording_from: RecordingFrom) -> None:
    made = {
        LAYOUTS[ADD]: records(
            ADD, {"time_ns": 100, "context": 7, "seqno": 1}, {"time_ns": 110, "context": 7, "seqno": 2}
        ),
        LAYOUTS[RUN]: records(
            RUN,
            # preempted, then done; another one
            {"begin_ns": 200, "time_ns": 220, "context": 7, "seqno": 1, "flags": 0},
            {"begin_ns": 250, "time_ns": 280, "context": 7, "seqno": 1, "completed": 1, "flags": 0},
            {"begin_ns": 221, "time_ns": 249, "context": 8, "seqno": 1, "completed": 1, "flags": 0},
        ),
        LAYOUTS[WAIT]: records(WAIT, {"begin_ns": 150, "time_ns": 290, "context": 7, "seqno": 1}),
    }
    analysis = Analysis(recording_from(made))
    assert not [problem for problem in analysis.problems if "i915" in problem]
    edges = analysis.edges

    def pairs(rule: str) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        rows = edges.rule == edges.rules.index(rule)
        found = zip(edges.cause[rows].tolist(), edges.effect[rows].tolist(), strict=True)
        return sorted((analysis.table.locate(cause), analysis.table.locate(effect)) for cause, effect in found)

    assert pairs("i915.queue") == [((ADD, 0), (RUN, 0)), ((ADD, 0), (RUN, 2))]
    # of the runs, in the order of their ends, the last of the request
    assert pairs("i915.done") == [((RUN, 2), (WAIT, 0))]


def test_a_signal_of_the_layer_drm_ends_the_wait_for_its_request(recording_from: RecordingFrom) -> None:
    """On a kernel without the low-level tracepoints this is the way from the waiter to the request."""
    signaled = RecordLayout("drm.fence.signaled", (*HEADER, Field("context", "u32"), Field("seqno", "u32")))
    signals = np.zeros(3, signaled.dtype)
    signals["time_ns"], signals["context"], signals["seqno"] = (180, 280, 285), (7, 7, 9), (2, 1, 1)
    made = {
        LAYOUTS[ADD]: records(ADD, {"time_ns": 100, "context": 7, "seqno": 1}),
        signaled: signals,
        LAYOUTS[WAIT]: records(WAIT, {"begin_ns": 150, "time_ns": 290, "context": 7, "seqno": 1}),
    }
    analysis = Analysis(recording_from(made))
    counts = {count.rule: count for count in analysis.joins}
    assert (counts["i915.wake"].off, counts["i915.wake"].matched, counts["i915.wake"].unmatched) == ("", 1, 0)
    assert (counts["i915.complete"].matched, counts["i915.complete"].unmatched) == (1, 2)
    assert "i915.request.run" in counts["i915.signal"].off
    edges = analysis.edges
    (cause,) = edges.cause[edges.rule == edges.rules.index("i915.wake")].tolist()
    assert analysis.table.locate(cause) == ("drm.fence.signaled", 1)


def creates_and_destroys() -> tuple[Batch, Batch]:
    creates = batch(
        OBJECT_CREATE,
        {"time_ns": 10, "object": 1, "size_bytes": 4096},
        {"time_ns": 20, "object": 2, "size_bytes": 8192},
        {"time_ns": 40, "object": 1, "size_bytes": 12288},
        {"time_ns": 45, "object": 3, "size_bytes": 1 << 20, "tgid": OTHER},
    )
    destroys = batch(
        OBJECT_DESTROY,
        {"time_ns": 30, "object": 1, "size_bytes": 4096, "owner_tgid": TGID},
        # was there before
        {"time_ns": 31, "object": 9},
    )
    return creates, destroys


def test_memory_balances() -> None:
    found = balances(*creates_and_destroys())
    mine, other = found[TGID], found[OTHER]
    assert (mine.live_objects, mine.live_bytes, mine.peak_bytes) == (2, 20480, 20480)
    assert (mine.created_bytes, mine.destroyed_bytes) == (24576, 4096)
    assert (other.live_objects, other.live_bytes) == (1, 1 << 20)


def test_the_table_has_the_largest_first(recording_from: RecordingFrom) -> None:
    rows = [
        {"time_ns": 10, "object": 1, "size_bytes": 4096},
        {"time_ns": 20, "object": 2, "size_bytes": 8192, "tgid": OTHER},
    ]
    analysis = Analysis(recording_from({LAYOUTS[OBJECT_CREATE]: records(OBJECT_CREATE, *rows)}))
    table = MemoryTable().rows(analysis.view, [])
    assert [(row["pid"], row["live_bytes"]) for row in table] == [(OTHER, 8192), (TGID, 4096)]


def test_pressure_is_said() -> None:
    assert not list(PressureFinding().findings({}))
    shrinks = batch(
        SHRINK,
        {"target_pages": 128, "freed_pages": 131, "calls": 1},
        {"target_pages": 64, "freed_pages": -1, "calls": 1, "flags": 0},
    )
    evictions, reclaim = PressureFinding().findings({SHRINK: shrinks, EVICT: batch(EVICT, {}, {}, {})})
    assert "3 times" in evictions.title
    assert "2 times" in reclaim.title
    assert reclaim.detail == "192 pages were wanted, 131 pages were given back; 1 times by a recorded thread"
    (unknown,) = PressureFinding().findings({SHRINK: batch(SHRINK, {"target_pages": 64, "freed_pages": -1})})
    assert "does not say what was given back" in unknown.detail
