# SPDX-License-Identifier: Apache-2.0
"""Rings: what is produced is drained or counted as lost, whatever the position, and a busy record is waited for."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core.bpf_workbench import (
    LARGE,
    MIDDLE,
    SMALL,
    Workbench,
    build_library,
    checksums,
    decode,
    file_offset,
    load_library,
    release,
    start_producer,
)

from fencepath._bpf.attach import attach_uprobes, uprobe_attach_method
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings, ring_sizes
from fencepath.errors import UsageError
from fencepath.records import RING_CLASSES, Records

STRESS_RECORDS = int(os.environ.get("FENCEPATH_STRESS_RECORDS", "200000"))
PAGE = mmap.PAGESIZE
CAPACITY = (PAGE - 1) // (64 + 8)
"""Records of 64 bytes in a ring of one page: the kernel keeps a byte free."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("produce"))


@pytest.fixture
def bench() -> Iterator[Workbench]:
    workbench = Workbench()
    yield workbench
    workbench.close()


@pytest.fixture
def page_bench() -> Iterator[Workbench]:
    """One ring of one page, for records of 64 bytes."""
    workbench = Workbench(rings=Rings(PAGE, classes=(64,)))
    yield workbench
    workbench.close()


def test_sizes_are_powers_of_two_within_the_total() -> None:
    for total in (1 << 20, 3 << 20, 64 << 20, 100_000_007):
        sizes = ring_sizes(total)
        assert list(sizes) == list(RING_CLASSES)
        assert sum(sizes.values()) <= total
        assert all(size & (size - 1) == 0 for size in sizes.values())
        assert sum(sizes.values()) > total // 2
    assert sum(ring_sizes(68 << 20).values()) == 68 << 20


def test_too_small_a_total_is_refused() -> None:
    with pytest.raises(UsageError, match="too few"):
        ring_sizes(64 << 10)


@pytest.mark.bpf
def test_a_record_has_the_declared_layout(bench: Workbench, library: Path) -> None:
    before_ns = time.monotonic_ns()
    with bench.prctl("on_prctl"):
        load_library(library).refused(1009)
    after_ns = time.monotonic_ns()
    (record,) = bench.drain()
    assert before_ns <= record["time_ns"] <= after_ns
    assert (record["tgid"], record["argument"], record["flags"]) == (os.getpid(), 1009, 16)
    assert record["cpu"] < (os.cpu_count() or 1)
    assert record["checksum"] == checksums(np.array([record]))[0]


@pytest.mark.bpf
def test_records_survive_the_wrap_at_every_offset(page_bench: Workbench, library: Path) -> None:
    loaded = load_library(library)
    # 72 and 4096 share the factor 8: 512 records begin at each of the 512 offsets, the last one included.
    drained: list[int] = []
    with page_bench.prctl("on_prctl"):
        for batch in (1, 2, 7, CAPACITY):
            for start in range(0, 512, batch):
                for number in range(start, start + batch):
                    loaded.refused(number)
                records = page_bench.drain()
                assert list(records["argument"]) == list(range(start, start + batch))
                assert (records["checksum"] == checksums(records)).all()
                drained += list(records["argument"])
    assert page_bench.count("test.middle", Stage.RECORDED) == len(drained)
    assert page_bench.count("test.middle", Stage.RING_FULL) == 0


@pytest.mark.bpf
def test_an_overflow_is_counted_exactly(page_bench: Workbench, library: Path) -> None:
    produced = 1009
    with page_bench.prctl("on_prctl"):
        load_library(library).many_refused(produced)
    records = page_bench.drain()
    assert list(records["argument"]) == list(range(CAPACITY))
    assert page_bench.count("test.middle", Stage.RECORDED) == CAPACITY
    assert page_bench.count("test.middle", Stage.RING_FULL) == produced - CAPACITY


@pytest.mark.bpf
def test_discarded_records_are_skipped(page_bench: Workbench, library: Path) -> None:
    loaded = load_library(library)
    with page_bench.prctl("on_prctl_discard"):
        for start in (0, 41, 82, 123):
            for number in range(start, start + 41):
                loaded.refused(number)
            expected = [number for number in range(start, start + 41) if number % 3]
            assert list(page_bench.drain(SMALL)["argument"]) == expected
    assert page_bench.shared.rings.pending_bytes() == {64: 0}


@pytest.mark.bpf
def test_only_discarded_records_give_no_batch(page_bench: Workbench, library: Path) -> None:
    with page_bench.prctl("on_prctl_ones"):
        load_library(library).many_refused(7)
    assert page_bench.shared.rings.pending_bytes() == {64: 7 * 72}
    assert page_bench.shared.rings.drain() == []
    assert page_bench.shared.rings.pending_bytes() == {64: 0}


@pytest.mark.bpf
def test_the_unused_tail_of_a_slot_is_cleared(page_bench: Workbench, library: Path) -> None:
    loaded = load_library(library)
    with page_bench.prctl("on_prctl_ones"):
        for _ in range(3):
            loaded.many_refused(CAPACITY)
            page_bench.shared.rings.drain()
    with page_bench.prctl("on_prctl"):
        loaded.many_refused(CAPACITY)
    (batch,) = page_bench.shared.rings.drain()
    assert batch.rows.shape == (CAPACITY, 64)
    assert not batch.rows[:, MIDDLE.size_bytes :].any()


@pytest.mark.bpf
def test_large_records_are_cleared_too(bench: Workbench, library: Path) -> None:
    with bench.prctl("on_prctl_large"):
        load_library(library).many_refused(11)
    (batch,) = bench.shared.rings.drain()
    assert batch.rows.shape == (11, 8320)
    assert list(decode([batch], LARGE)["argument"]) == list(range(11))
    assert not batch.rows[:, SMALL.size_bytes :].any()


@pytest.fixture
def two_cpus() -> Iterator[tuple[int, int]]:
    """Two processors; this process runs on the first."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("a record can only be seen half written from another processor, and there is one")
    ours, theirs = sorted(allowed)[:2]
    os.sched_setaffinity(0, [ours])
    yield ours, theirs
    os.sched_setaffinity(0, allowed)


@pytest.mark.bpf
def test_a_busy_record_holds_back_those_behind_it_and_none_is_lost(
    bench: Workbench, library: Path, two_cpus: tuple[int, int]
) -> None:
    slow_calls, ours, held_back = 41, 0, 0
    parts: list[Records] = []
    loaded, rings = load_library(library), bench.shared.rings
    program = bench.uprobe_program("on_entry_slow", uprobe_attach_method().attach_type)
    producer = start_producer(library, "first", slow_calls)
    os.sched_setaffinity(producer.pid, [two_cpus[1]])
    bench.target(producer.pid)
    with attach_uprobes(program, library, [file_offset(library, "first")], [0], returning=False):
        with bench.prctl("on_prctl"):
            release(producer)
            while producer.poll() is None:
                if any(rings.pending_bytes().values()):
                    loaded.refused(ours)
                    ours += 1
                    begin = time.thread_time()
                    parts.append(bench.drain())
                    # Our record is complete; what is before it was not: neither came, and nobody waited for it.
                    held_back += len(parts[-1]) == 0 and time.thread_time() - begin < 0.001
        producer.communicate()
    records = np.concatenate([*parts, bench.drain()])
    theirs = records["tgid"] == producer.pid
    assert list(records["argument"][theirs]) == list(range(slow_calls))
    assert list(records["argument"][~theirs]) == list(range(ours))
    assert (records["checksum"] == checksums(records)).all()
    assert bench.count("test.middle", Stage.RECORDED) == len(records) == slow_calls + ours
    assert held_back > 0


@pytest.mark.bpf
def test_wait_ends_when_a_ring_fills_or_at_the_time_given(bench: Workbench, library: Path) -> None:
    rings = bench.shared.rings
    begin = time.monotonic()
    assert not rings.wait(0.05)
    assert 0.05 <= time.monotonic() - begin < 1
    with bench.prctl("on_prctl"):
        load_library(library).refused(0)
    assert rings.wait(5, fill=0)
    assert not rings.wait(0.01, fill=0.5)


@pytest.mark.bpf
@pytest.mark.parametrize("pages", [1, 4096])
def test_many_processes_and_a_reader_lose_nothing_unseen(library: Path, pages: int) -> None:
    bench = Workbench(rings=Rings(pages * PAGE, classes=(64,)))
    producers = [start_producer(library, "refused", STRESS_RECORDS // 4) for _ in range(4)]
    parts: list[Records] = []
    with bench.prctl("on_prctl"):
        for producer in producers:
            bench.target(producer.pid)
            release(producer)
        while any(producer.poll() is None for producer in producers):
            parts.append(bench.drain())
        parts.append(bench.drain())
    records = np.concatenate(parts)
    for producer in producers:
        producer.communicate()
        numbers = records["argument"][records["tgid"] == producer.pid].astype(np.int64)
        assert (np.diff(numbers) > 0).all()
    assert (records["checksum"] == checksums(records)).all()
    recorded, full = bench.count("test.middle", Stage.RECORDED), bench.count("test.middle", Stage.RING_FULL)
    misses = bench.object.recursion_misses()["on_prctl"]
    bench.close()
    assert recorded == len(records)
    assert recorded + full + misses == STRESS_RECORDS // 4 * 4
    assert full > 0 or pages > 1


@pytest.mark.bpf
def test_the_benchmark_agrees_with_its_own_count(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "rings.py"
    command = [sys.executable, str(script), "--stress", "40000", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert result["produced"] == 40000 == result["recorded"] + result["ring_full"] + result["skipped"]
    assert result["wrong_checksums"] == 0 == result["out_of_order"]
