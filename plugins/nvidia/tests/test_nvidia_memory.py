# SPDX-License-Identifier: Apache-2.0
"""Balances of memory: what counts, whose it is, and that nothing counts twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugins.nvidia.tests.story import MS, Story

from fencepath import Analysis
from fencepath.requests import Request
from fencepath_nvidia.findings import NoMemoryFinding, RefusedFinding
from fencepath_nvidia.kinds import MEMORY_ALLOC
from fencepath_nvidia.memory import Account, Balance, Change, Objects, balances, changes
from fencepath_nvidia.reports import CallsTable, GrowthTable, MemoryTable

MIB = 1 << 20
CLIENT, DEVICE, SECOND = 0xC1D00001, 0xDE01, 0xDE02


def of(analysis: Analysis) -> dict[tuple[int, str, str, int], tuple[int, int]]:
    """Live and peak bytes by account."""
    return {
        (account.tgid, account.source, account.place, account.device): (balance.live_bytes, balance.peak_bytes)
        for account, balance in balances(changes(analysis.view)).items()
    }


def two_gpus() -> Story:
    story = Story()
    story.client(1, CLIENT)
    story.device(2, CLIENT, DEVICE, 0)
    story.device(3, CLIENT, SECOND, 1)
    return story


def test_memory_by_gpu_and_place(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, 3 * MIB)
    story.memory(5, CLIENT, SECOND, 2, 5 * MIB)
    story.memory(6, CLIENT, DEVICE, 3, 7 * MIB, object_class=0x3E)
    story.memory(7, CLIENT, DEVICE, 4, 2 * MIB)
    story.free(8, CLIENT, 1)
    assert of(story.analysis(tmp_path)) == {
        (41, "driver", "gpu", 0): (2 * MIB, 5 * MIB),
        (41, "driver", "gpu", 1): (5 * MIB, 5 * MIB),
        (41, "driver", "system", 0): (7 * MIB, 7 * MIB),
    }


@pytest.mark.parametrize("freed", [DEVICE, CLIENT])
def test_giving_up_an_object_gives_up_what_lies_under_it(tmp_path: Path, freed: int) -> None:
    story = two_gpus()
    for handle in (1, 2, 3):
        story.memory(3 + handle, CLIENT, DEVICE, handle, handle * MIB)
    story.free(8, CLIENT, 2)
    story.free(9, CLIENT, freed)
    # what is gone can be given up again, and a handle be used again
    story.free(10, CLIENT, 1)
    assert of(story.analysis(tmp_path)) == {(41, "driver", "gpu", 0): (0, 6 * MIB)}


def test_memory_that_failed_or_of_which_it_is_not_known_does_not_count(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, MIB, rm_status=0x51)
    story.memory(5, CLIENT, DEVICE, 2, 4 * MIB, rm_status=0x1F)
    analysis = story.analysis(tmp_path)
    assert of(analysis) == {}
    batches = {MEMORY_ALLOC: analysis.view.batch(MEMORY_ALLOC)}
    (short,) = NoMemoryFinding().findings(batches)
    assert short.title == "the driver had no memory for process 41, 1 times"
    (refused,) = RefusedFinding().findings(batches)
    assert "NV01_MEMORY_LOCAL_USER: NV_ERR_INVALID_ARGUMENT (1)" in refused.detail


def test_memory_that_two_clients_share_counts_once_until_both_are_done(tmp_path: Path) -> None:
    story = two_gpus()
    other = 0xC1D00002
    story.client(3, other, tgid=77)
    story.memory(4, CLIENT, DEVICE, 1, 6 * MIB)
    story.dup(5, other, other, 9, (CLIENT, 1), tgid=77)
    story.free(6, CLIENT, 1)
    analysis = story.analysis(tmp_path)
    assert of(analysis) == {(41, "driver", "gpu", 0): (6 * MIB, 6 * MIB)}


def test_shared_memory_is_gone_when_the_last_has_given_it_up(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, 6 * MIB)
    story.dup(5, CLIENT, DEVICE, 9, (CLIENT, 1))
    story.dup(5.5, CLIENT, DEVICE, 10, (0xC1D0, 5))
    story.free(6, CLIENT, 1)
    story.free(7, CLIENT, 9)
    story.free(7, CLIENT, 10)
    assert of(story.analysis(tmp_path)) == {(41, "driver", "gpu", 0): (0, 6 * MIB)}


def test_a_process_that_ends_gives_up_everything(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, 6 * MIB)
    story.mmap(5, 0x7F0000000000, 32 * MIB)
    story.exit(6, 41, tid=42)
    story.memory(7, CLIENT, DEVICE, 2, MIB)
    story.exit(8, 41)
    assert of(story.analysis(tmp_path)) == {
        (41, "driver", "gpu", 0): (0, 7 * MIB),
        (41, "driver", "uvm", -1): (0, 32 * MIB),
    }


def test_mappings_of_memory_are_no_further_memory(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, 6 * MIB)
    story.mmap(5, 0x7F0000000000, 6 * MIB, uvm=False)
    story.mmap(6, 0x7F1000000000, 64 * MIB)
    story.mmap(7, -12, 64 * MIB)
    story.munmap(8, 0x7F0000000000, uvm=False)
    story.munmap(9, 0x7F1000000000)
    story.munmap(10, 0x7F1000000000)
    assert of(story.analysis(tmp_path)) == {
        (41, "driver", "gpu", 0): (6 * MIB, 6 * MIB),
        (41, "driver", "uvm", -1): (0, 64 * MIB),
    }


def test_the_api_is_an_account_of_its_own(tmp_path: Path) -> None:
    story = two_gpus()
    story.malloc(4, 6, 3 * MIB, 0x7F00)
    story.memory(5, CLIENT, DEVICE, 1, 4 * MIB)
    story.malloc(7, 8, MIB, 0x8F00, place=2)
    story.malloc(9, 10, 9 * MIB, 0x9F00, result=2)
    # another process's memory, and a place of a later version
    story.malloc(10, 11, 9 * MIB, 0xAF00, place=6)
    story.malloc(11, 12, 9 * MIB, 0xBF00, place=200)
    story.api_free(13, 0x7F00)
    story.api_free(14, 0x7F00)
    story.api_free(15, 0xFFFF)
    analysis = story.analysis(tmp_path)
    assert of(analysis) == {
        (41, "driver", "gpu", 0): (4 * MIB, 4 * MIB),
        (41, "cuda", "gpu", -1): (0, 3 * MIB),
        (41, "cuda", "pinned", -1): (MIB, MIB),
    }
    rows = MemoryTable().rows(analysis.view, [])
    assert [(row["source"], row["place"], row["device"], row["peak_bytes"]) for row in rows] == [
        ("driver", "gpu", 0, 4 * MIB),
        ("cuda", "gpu", None, 3 * MIB),
        ("cuda", "pinned", None, MIB),
    ]
    assert (rows[1]["allocated_bytes"], rows[1]["freed_bytes"], rows[1]["allocations"]) == (3 * MIB, 3 * MIB, 1)


def test_growth_and_peak_of_requests(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, 10 * MIB)
    story.memory(12, CLIENT, DEVICE, 2, 5 * MIB)
    story.memory(14, CLIENT, DEVICE, 3, 8 * MIB)
    story.free(16, CLIENT, 3)
    story.free(25, CLIENT, 1)
    requests = [
        Request(key=key, number=number, start_ns=start * MS, end_ns=end * MS)
        for number, (key, start, end) in enumerate([("a", 11, 20), ("b", 21, 30), ("c", 31, 40)])
    ]
    rows = GrowthTable().rows(story.analysis(tmp_path).view, requests)
    columns = ("request", "growth_bytes", "peak_growth_bytes", "start_bytes", "end_bytes")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("a", 5 * MIB, 13 * MIB, 10 * MIB, 15 * MIB),
        ("b", -10 * MIB, 0, 15 * MIB, 5 * MIB),
    ]


def test_calls_by_request(tmp_path: Path) -> None:
    story = two_gpus()
    story.memory(4, CLIENT, DEVICE, 1, MIB, rm_status=0x51)
    story.memory(5, CLIENT, DEVICE, 2, MIB)
    story.poll(41, 6, 9)
    rows = {str(row["request"]): row for row in CallsTable().rows(story.analysis(tmp_path).view, [])}
    assert "poll" not in rows
    memory = rows["NV01_MEMORY_LOCAL_USER"]
    assert (memory["kind"], memory["calls"], memory["total_ns"], memory["failed"]) == (MEMORY_ALLOC, 2, 200, 1)
    assert rows["NV01_DEVICE_0"]["calls"] == 2


STEPS = st.lists(st.tuples(st.sampled_from("adfc"), st.integers(1, 6), st.integers(1, 6)), max_size=40)


@given(STEPS)
def test_no_account_is_ever_below_zero(steps: list[tuple[str, int, int]]) -> None:
    """Whatever the order: allocations under one another, shares, frees, handles used twice."""
    objects = Objects()
    for time_ns, (step, handle, other) in enumerate(steps):
        if step == "a":
            objects.set_memory(time_ns, objects.add(time_ns, 5, 1, other, handle), 5, "gpu", 1 << handle)
        elif step == "d":
            objects.share(objects.add(time_ns, 5, 1, 1, handle), (1, other))
        else:
            objects.free(time_ns, (1, handle if step == "f" else 1))
    objects.end(len(steps), 5)
    live = np.cumsum([0] + [change.bytes for change in objects.changes])
    assert (live >= 0).all()
    assert live[-1] == 0


def test_balance_adds_up() -> None:
    account = Account(5, "driver", "gpu", 0)
    found = balances([Change(at, account, size) for at, size in enumerate((5, 7, -5, 3))])
    assert found == {account: Balance(live_bytes=10, peak_bytes=12, allocated_bytes=15, freed_bytes=5, allocations=3)}
