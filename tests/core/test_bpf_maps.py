# SPDX-License-Identifier: Apache-2.0
"""Maps and loss counters, as user space and BPF programs share them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core.bpf_workbench import KINDS, Workbench, build_library, load_library

from fencepath._bpf import sys as bpf
from fencepath._bpf.losses import LossCounters, Stage
from fencepath._bpf.maps import Map

pytestmark = pytest.mark.bpf


def _number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little")


@pytest.fixture
def numbers() -> Iterator[Map]:
    with Map.hash("numbers", 4, 12, 5000) as made:
        yield made


def test_values_are_put_read_and_taken_out(numbers: Map) -> None:
    assert numbers.lookup(_number(1)) is None
    numbers.update(_number(1), _number(7, 12))
    numbers.update(_number(1), _number(8, 12))
    assert numbers.lookup(_number(1)) == _number(8, 12)
    assert numbers.delete(_number(1))
    assert not numbers.delete(_number(1))
    assert list(numbers.items()) == []


@pytest.mark.parametrize("batches", [True, False])
def test_every_item_is_read_once(numbers: Map, batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not batches:
        refused = OSError(bpf.ENOTSUPP, "no batches")
        monkeypatch.setattr(bpf, "map_lookup_batch", lambda *arguments: (_ for _ in ()).throw(refused))
    expected = {_number(key): _number(key * 3, 12) for key in range(4999)}
    for key, value in expected.items():
        numbers.update(key, value)
    items = list(numbers.items())
    assert len(items) == len(expected)
    assert dict(items) == expected
    assert sorted(numbers.keys()) == sorted(expected)


def test_a_full_map_refuses_one_more() -> None:
    with Map.hash("full", 4, 4, 2) as full:
        full.update(_number(1), _number(1))
        full.update(_number(2), _number(2))
        with pytest.raises(OSError, match="Argument list too long"):
            full.update(_number(3), _number(3))
        assert len(list(full.items())) == 2


def test_lengths_are_checked(numbers: Map) -> None:
    with pytest.raises(ValueError, match="a key of map numbers has 4 bytes, not 8"):
        numbers.lookup(_number(1, 8))
    with pytest.raises(ValueError, match="a value of map numbers has 12 bytes, not 4"):
        numbers.update(_number(1), _number(1))


def test_an_array_is_the_same_by_memory_and_by_call() -> None:
    with Map.array("array", 12, 3, mmapable=True) as array:
        array.update(_number(2), bytes(range(12)))
        with array.mmap() as memory:
            assert memory[32:44] == bytes(range(12))
            memory[16:20] = b"word"
        assert array.lookup(_number(1)) == b"word" + bytes(8)
        assert [key for key, _ in array.items()] == [_number(index) for index in range(3)]


def test_close_twice(numbers: Map) -> None:
    numbers.close()
    numbers.close()
    assert numbers.fd == -1


def test_counters_are_read_where_programs_count(tmp_path: Path) -> None:
    bench = Workbench()
    loaded = load_library(build_library(tmp_path))
    with bench.prctl("on_prctl_lost"):
        for _ in range(13):
            loaded.refused(KINDS["test.large"])
    counts = bench.shared.losses.snapshot()
    assert counts.shape == (bpf.possible_cpus(), 5, len(Stage))
    expected = np.zeros((5, len(Stage)), np.uint64)
    expected[KINDS["test.middle"], [Stage.MAP_FULL, Stage.READ_FAULT]] = 13
    expected[KINDS["test.small"], Stage.NO_ENTRY] = 13
    expected[KINDS["test.large"], Stage.OTHER] = 13
    assert (counts.sum(axis=0) == expected).all()
    bench.close()
    assert (bench.shared.losses.snapshot() == counts).all()


def test_a_kind_out_of_range_stays_in_the_map(tmp_path: Path) -> None:
    bench = Workbench()
    loaded = load_library(build_library(tmp_path))
    with bench.prctl("on_prctl_lost"):
        loaded.refused((1 << 64) - 1)
    counts = bench.shared.losses.snapshot().sum(axis=0)
    bench.close()
    assert counts.sum() == 3


def test_a_snapshot_is_a_copy() -> None:
    losses = LossCounters(3)
    before = losses.snapshot()
    before += 1
    assert not losses.snapshot().any()
    losses.close()
    losses.close()


@pytest.mark.parametrize(
    ("all_processes", "self_is", "expected"),
    [(False, "nobody", [4 + 1, 4 + 2, 4, 4]), (True, "nobody", [7, 7, 7, 7]), (True, "us", [3, 3, 3, 2])],
)
def test_targets(tmp_path: Path, all_processes: bool, self_is: str, expected: list[int]) -> None:
    us = os.getpid()
    bench = Workbench(all_processes=all_processes, self_tgid=us if self_is == "us" else 0)
    bench.shared.tgids.update(_number(4_000_001), bytes(4))
    bench.shared.tids.update(_number(4_000_002), bytes(4))
    loaded = load_library(build_library(tmp_path))
    last = us if self_is == "us" else 4_000_004
    with bench.prctl("on_prctl_targets"):
        for number in (4_000_001, 4_000_002, 4_000_003, last):
            loaded.refused(number)
    assert list(bench.drain()["cookie"]) == expected
    bench.close()


def test_without_privileges_the_remedy_is_named() -> None:
    code = (
        "import os\nfrom fencepath._bpf.rings import Rings\n"
        "os.setgroups([])\nos.setuid(65534)\nRings(1 << 16, classes=(64,))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.run([sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True)
    assert child.returncode == 1
    assert "MachineError: this process may not create bpf maps; run as root, or with CAP_BPF" in child.stderr
