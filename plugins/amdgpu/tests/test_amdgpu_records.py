# SPDX-License-Identifier: Apache-2.0
"""Decoding, joins, tables and findings of the layer ``amdgpu`` on records made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fencepath import Analysis
from fencepath._engine.activities import ActivityTable
from fencepath._engine.join import run_join
from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, KindInfo, Role
from fencepath.records import Flags, RecordLayout, Records
from fencepath.requests import Request
from fencepath.syscalls import syscall_layout
from fencepath.testing import RecordingFrom
from fencepath_amdgpu.clock import gpu_clock
from fencepath_amdgpu.decoder import AmdgpuDecoder
from fencepath_amdgpu.entities import Fences
from fencepath_amdgpu.events import Submission
from fencepath_amdgpu.kfd import KFD_ALLOC, KFD_EVENT, KFD_IOCTL, KFD_QUEUE_CREATE, KFD_WAIT, TABLE
from fencepath_amdgpu.kinds import BO_CREATE, BO_MOVE, CS, INTERRUPT, KFD_EVICT, LAYOUTS, PIPE_SYNC, RUN
from fencepath_amdgpu.memory import EvictionFinding, FaultFinding, MemoryTable, MovesTable, balances
from fencepath_amdgpu.rules import RULES

TASK = int(Flags.TASK)
NONE = 0xFFFFFFFF
SYSTEM, GTT, VRAM = 0, 1, 2
TGID, STRANGER = 100, 200


def records(kind: str, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Records:
    return filled(LAYOUTS[kind], *rows)


def filled(layout: RecordLayout, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Records:
    made = np.zeros(len(rows), layout.dtype)
    for record, row in zip(made, rows, strict=True):
        record["tgid"], record["tid"], record["flags"] = TGID, TGID + 1, TASK
        for name, value in row.items():
            record[name] = value
    return made


def batch(kind: str, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Batch:
    return AmdgpuDecoder({}).decode(kind, records(kind, *rows))


def test_placements_have_names() -> None:
    moves = batch(BO_MOVE, *({"source": code, "target": code} for code in (0, 1, 2, 7, 8, 9, NONE)))
    names = ["system", "gtt", "vram", "doorbell", "mmio_remap", "placement 9", "none"]
    assert moves["source"].tolist() == moves["target"].tolist() == names


@pytest.mark.parametrize(
    ("client", "source", "fault"), [(0x12, 0, True), (0x1B, 0, True), (0x1B, 1, False), (0x14, 0, False)]
)
def test_page_faults_are_told_from_other_interrupts(client: int, source: int, fault: bool) -> None:
    found = batch(INTERRUPT, {"client": client, "source": source, "data": [1, 2, 3, 4]})
    assert found["page_fault"].tolist() == [fault]
    assert [found[f"data{index}"].tolist() for index in range(4)] == [[1], [2], [3], [4]]


def test_a_name_that_is_no_text_is_shown_with_replacements() -> None:
    assert batch(CS, {"ring": b"gfx\xff"})["ring"].tolist() == ["gfx\ufffd"]


def test_a_submission_causes_the_run_of_its_fence(recording_from: RecordingFrom) -> None:
    made = {
        LAYOUTS[CS]: records(
            CS,
            {"time_ns": 100, "fence_context": 7, "fence_seqno": 1},
            {"time_ns": 150, "fence_context": 7, "fence_seqno": 2},
            {"time_ns": 160, "fence_context": 8, "fence_seqno": 1},
        ),
        LAYOUTS[RUN]: records(
            RUN,
            {"time_ns": 300, "fence_context": 7, "fence_seqno": 2, "flags": 0},
            {"time_ns": 200, "fence_context": 7, "fence_seqno": 1, "flags": 0},
            {"time_ns": 400, "fence_context": 9, "fence_seqno": 1, "flags": 0},
        ),
    }
    analysis = Analysis(recording_from(made))
    assert not [problem for problem in analysis.problems if "amdgpu" in problem]
    edges = analysis.edges
    rows = edges.rule == edges.rules.index("amdgpu.queue")
    pairs = [
        (analysis.table.locate(cause)[1], analysis.table.locate(effect)[1])
        for cause, effect in zip(edges.cause[rows].tolist(), edges.effect[rows].tolist(), strict=True)
    ]
    # batches are in the order of time
    assert sorted(pairs) == [(0, 0), (1, 1)]
    (count,) = (each for each in analysis.joins if each.rule == "amdgpu.queue")
    assert (count.matched, count.unmatched, count.ambiguous) == (2, 1, 0)


def named(found: Batch, entities: Entities) -> Batch:
    """What the engine does with a batch: processes are named, then fences."""
    process = entities.intern("process", (TGID,), "process:b00t/100@1#0".__str__)
    found.columns["process"] = np.where(found["flags"] & TASK, process, NO_ENTITY)
    Fences().update(found, entities)
    return found


def test_fences_are_the_entities_of_the_layer_drm() -> None:
    """That layer names them by context and number too, under the same type."""
    entities = Entities()
    jobs = named(batch(CS, {"fence_context": 7, "fence_seqno": 1}, {"fence_context": 0, "fence_seqno": 1}), entities)
    syncs = named(batch(PIPE_SYNC, {"fence_context": 7, "fence_seqno": 1, "dependency_context": 8}), entities)
    theirs = entities.intern("fence", (7, 1), "".__str__)
    assert jobs["fence"].tolist() == [theirs, NO_ENTITY]
    assert syncs["fence"].tolist() == [theirs]
    assert [entities.text(number) for number in (theirs, syncs["dependency"][0])] == [
        "fence:b00t/7/1",
        "fence:b00t/8/0",
    ]


def test_a_submission_is_followed_by_the_job_of_its_fence() -> None:
    entities = Entities()
    jobs = named(batch(CS, {"time_ns": 100, "fence_context": 7, "fence_seqno": 1}), entities)
    rows = (
        {"time_ns": 110, "fence_context": 7, "fence_seqno": 1},
        {"time_ns": 120, "fence_context": 7, "fence_seqno": 2},
    )
    queued = named(Batch("drm.job.queue", batch(CS, *rows).columns), entities)
    for each in (jobs, queued):
        each.columns["thread"] = np.full(len(each), NO_ENTITY)
    infos = {CS: Submission.info, "drm.job.queue": KindInfo(role=Role.QUEUE)}
    table = ActivityTable({CS: jobs, "drm.job.queue": queued}, infos, entities)
    (rule,) = (each for each in RULES if each.name == "amdgpu.job")
    (edges,) = run_join(rule, table, 0)
    assert [table.locate(at) for at in (*edges.cause.tolist(), *edges.effect.tolist())] == [
        (CS, 0),
        ("drm.job.queue", 0),
    ]
    assert edges.unmatched == 1


def creates_and_moves() -> tuple[Batch, Batch]:
    creates = batch(
        BO_CREATE,
        {"time_ns": 10, "bo": 1, "size_bytes": 100, "placement": VRAM},
        {"time_ns": 20, "bo": 2, "size_bytes": 30, "placement": GTT},
        {"time_ns": 30, "bo": 3, "size_bytes": 7, "placement": VRAM},
    )
    moves = batch(
        BO_MOVE,
        # where the kernel says it, the first memory comes before the creation is said
        {"time_ns": 9, "bo": 1, "size_bytes": 100, "source": NONE, "target": VRAM},
        {
            "time_ns": 40,
            "bo": 1,
            "size_bytes": 100,
            "source": VRAM,
            "target": GTT,
            "owner_tgid": TGID,
            "tgid": STRANGER,
        },
        {"time_ns": 50, "bo": 2, "size_bytes": 30, "source": GTT, "target": NONE, "owner_tgid": TGID},
        # was there before: nothing is known of what it leaves
        {"time_ns": 60, "bo": 4, "size_bytes": 1000, "source": VRAM, "target": NONE},
    )
    return creates, moves


def test_memory_balances() -> None:
    found = balances(*creates_and_moves())
    assert set(found) == {(TGID, "vram"), (TGID, "gtt")}
    vram, gtt = found[TGID, "vram"], found[TGID, "gtt"]
    assert (vram.live_bytes, vram.peak_bytes, vram.in_bytes, vram.out_bytes) == (7, 107, 107, 1100)
    assert (gtt.live_bytes, gtt.peak_bytes, gtt.in_bytes, gtt.out_bytes) == (100, 130, 130, 30)


def test_on_a_kernel_that_says_no_end_an_address_that_comes_again_is_one() -> None:
    creates = batch(
        BO_CREATE,
        {"time_ns": 10, "bo": 1, "size_bytes": 100, "placement": VRAM},
        {"time_ns": 20, "bo": 1, "size_bytes": 60, "placement": VRAM},
    )
    (vram,) = balances(creates, batch(BO_MOVE)).values()
    assert (vram.live_bytes, vram.peak_bytes, vram.in_bytes, vram.out_bytes) == (60, 100, 160, 100)


def test_findings() -> None:
    creates, moves = creates_and_moves()
    assert not list(EvictionFinding().findings({BO_CREATE: creates}))
    (finding,) = EvictionFinding().findings({BO_MOVE: moves})
    assert "1 buffers with 100 bytes from vram to gtt" in finding.detail
    evict = batch(KFD_EVICT, {"context": 3, "owner_tgid": TGID}, {"context": 3})
    _, processes = EvictionFinding().findings({BO_MOVE: moves, KFD_EVICT: evict})
    assert "2 times" in processes.title
    faults = batch(INTERRUPT, {"client": 0x1B}, {"client": 0x14, "source": 181})
    assert [found.title for found in FaultFinding().findings({INTERRUPT: faults})] == ["the GPU met 1 page faults"]
    assert not list(FaultFinding().findings({}))


def test_bytes_moved_within_requests(recording_from: RecordingFrom) -> None:
    rows = [
        {"time_ns": 40, "bo": 1, "size_bytes": 100, "source": VRAM, "target": GTT},
        {"time_ns": 45, "bo": 2, "size_bytes": 11, "source": VRAM, "target": GTT},
        {"time_ns": 46, "bo": 3, "size_bytes": 500, "source": SYSTEM, "target": VRAM},
        {"time_ns": 47, "bo": 4, "size_bytes": 77, "source": NONE, "target": VRAM},
        {"time_ns": 60, "bo": 1, "size_bytes": 100, "source": GTT, "target": VRAM},
    ]
    analysis = Analysis(recording_from({LAYOUTS[BO_MOVE]: records(BO_MOVE, *rows)}))
    request = Request(key="r", number=1, start_ns=40, end_ns=50)
    assert [tuple(row.values()) for row in MovesTable().rows(analysis.view, [request])] == [
        ("r", "system", "vram", 1, 500, False),
        ("r", "vram", "gtt", 2, 111, True),
    ]
    table = MemoryTable().rows(analysis.view, [])
    assert [(row["place"], row["peak_bytes"]) for row in table] == [("vram", 677), ("gtt", 111), ("system", 0)]


def system_calls(kind: str, *rows: Mapping[str, int | bytes | Sequence[int]]) -> Batch:
    recorded = {kind: TABLE.recorded(kind)}
    return AmdgpuDecoder(recorded).decode(kind, filled(syscall_layout(kind), *rows))


def function(kind: str, name: str) -> int:
    return next(row.function for row in TABLE.rows if row.kind == kind and row.name == name)


def test_a_queue_of_rocm_is_made() -> None:
    made: Mapping[str, int | Sequence[int]] = {
        "begin_ns": 1,
        "time_ns": 2,
        "fd": 3,
        "before": [65536, 0x51AB, 2, 7],
        "after": [9, 0, 0, 0],
        "status": 0,
    }
    found = system_calls(KFD_QUEUE_CREATE, made)
    names = ("ring_bytes", "gpu_id", "queue_type", "priority", "queue_id", "status")
    assert [found[name].tolist() for name in names] == [[65536], [0x51AB], [2], [7], [9], [0]]
    assert [found.labels[label] for label in found["label"]] == ["AMDKFD_IOC_CREATE_QUEUE"]


def test_memory_and_waits_of_rocm() -> None:
    alloc = system_calls(KFD_ALLOC, {"before": [0x7F00_0000_0000, 1 << 33, 5, 1], "after": [0xAB, 0, 0, 0]})
    names = ("address", "size_bytes", "gpu_id", "memory_flags", "handle")
    assert [alloc[name].tolist() for name in names] == [[0x7F00_0000_0000], [1 << 33], [5], [1], [0xAB]]
    wait = system_calls(KFD_WAIT, {"before": [2, 1, NONE, 0], "after": [1, 0, 0, 0], "status": -512})
    names = ("events", "wait_for_all", "timeout_ms", "outcome", "status")
    assert [wait[name].tolist() for name in names] == [[2], [1], [NONE], [1], [-512]]


def test_events_of_rocm_are_told_apart_by_their_label() -> None:
    make, end = (function(KFD_EVENT, f"AMDKFD_IOC_{verb}_EVENT") for verb in ("CREATE", "DESTROY"))
    found = system_calls(
        KFD_EVENT,
        {"function": make, "before": [8, 0, 0, 0], "after": [21, 0, 0, 0]},
        {"function": end, "before": [21, 0, 0, 0]},
        {"function": 99},
    )
    assert found["event_id"].tolist() == [21, 21, 0]
    assert found["event_type"].tolist() == [8, 0, 0]
    assert found["label"].tolist()[2] == -1


def test_an_ioctl_that_is_not_known_is_there() -> None:
    other = function(KFD_IOCTL, "ioctl of /dev/kfd")
    found = system_calls(KFD_IOCTL, {"function": other, "command": 0xC0104B7F})
    assert found["command"].tolist() == [0xC0104B7F]


def interrupts(hz: int, delays_ns: list[int], start_ticks: int = 1 << 40) -> Batch:
    """Interrupts 20 ms apart, raised by a clock of `hz` and recorded by so much later."""
    rows = [
        {"gpu_ticks": start_ticks + index * hz // 50, "time_ns": 5_000_000_000 + index * 20_000_000 + delay}
        for index, delay in enumerate(delays_ns)
    ]
    return batch(INTERRUPT, *rows)


def test_the_clock_of_the_gpu_follows_from_interrupts() -> None:
    random = np.random.default_rng(7)
    delays = [3000 + int(delay) for delay in random.exponential(20_000, 1009)]
    for at in range(0, 1009, 7):
        delays[at] = 3000
    clock = gpu_clock(interrupts(100_000_000, delays))
    assert clock is not None
    assert clock.ns_per_tick == pytest.approx(10, rel=1e-7)
    # all but the least delay of 3 us is known
    assert clock.monotonic_ns((1 << 40) + 100_000_000) == pytest.approx(6_000_003_000, abs=300)
    assert clock.delay_ns == pytest.approx([delay - 3000 for delay in delays], abs=300)


def test_no_clock_is_made_of_too_little_or_of_two_gpus() -> None:
    assert gpu_clock(interrupts(100_000_000, [3000] * 63)) is None
    assert gpu_clock(interrupts(100_000_000_000, [3000] * 20)) is None
    one, other = interrupts(100_000_000, [3000] * 500), interrupts(100_000_000, [3000] * 500, start_ticks=1 << 30)
    mixed = {name: np.concatenate([one[name], other[name]]) for name in one.columns}
    assert gpu_clock(Batch(INTERRUPT, mixed)) is None
