# SPDX-License-Identifier: Apache-2.0
"""Uprobes by both methods, return probes, tracepoints, and what is said when one cannot be attached."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core.bpf_workbench import (
    Workbench,
    build_library,
    checksums,
    file_offset,
    load_library,
    open_files,
    release,
    start_producer,
)

from fencepath._bpf import attach
from fencepath._bpf.attach import (
    FORCE_VARIABLE,
    UprobeMethod,
    attach_tracepoint,
    attach_uprobe,
    attach_uprobe_multi,
    attach_uprobes,
    uprobe_attach_method,
)
from fencepath._bpf.losses import Stage
from fencepath._bpf.sys import ProgramType
from fencepath.errors import AttachError, MachineError, UsageError

pytestmark = pytest.mark.bpf


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("produce"))


@pytest.fixture(scope="module")
def offsets(library: Path) -> list[int]:
    return [file_offset(library, name) for name in ("first", "second")]


@pytest.fixture
def bench() -> Iterator[Workbench]:
    workbench = Workbench()
    yield workbench
    workbench.close()


@pytest.fixture(params=list(UprobeMethod), ids=lambda method: method.value)
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> UprobeMethod:
    """Each method, forced."""
    chosen: UprobeMethod = request.param
    monkeypatch.setenv(FORCE_VARIABLE, chosen.value)
    try:
        assert uprobe_attach_method() is chosen
    except MachineError as error:
        pytest.skip(f"this kernel does not attach so: {error}")
    return chosen


def test_two_uprobes_with_cookies(bench: Workbench, library: Path, offsets: list[int], method: UprobeMethod) -> None:
    loaded = load_library(library)
    cookies = [5 << 32 | 17, 6 << 32 | 19]
    program = bench.uprobe_program("on_entry", method.attach_type)
    with attach_uprobes(program, library, offsets, cookies, returning=False):
        for number in range(7):
            loaded.first(number)
        for number in range(5):
            loaded.second(number)
    loaded.first(99)
    records = bench.drain()
    assert list(records["argument"]) == [*range(7), *range(5)]
    assert list(records["cookie"]) == [cookies[0]] * 7 + [cookies[1]] * 5
    assert (records["checksum"] == checksums(records)).all()
    assert bench.count("test.middle", Stage.RECORDED) == 12


def test_return_probes_see_the_result(
    bench: Workbench, library: Path, offsets: list[int], method: UprobeMethod
) -> None:
    loaded = load_library(library)
    program = bench.uprobe_program("on_return", method.attach_type)
    with attach_uprobes(program, library, offsets, [1, 2], returning=True):
        assert [loaded.first(41), loaded.second(14)] == [42, 42]
        assert [loaded.first(2), loaded.second(3)] == [3, 9]
    records = bench.drain()
    assert list(records["argument"]) == [42, 42, 3, 9]
    assert list(records["cookie"]) == [1, 2, 1, 2]


def test_every_hit_of_many_processes_is_accounted_for(
    bench: Workbench, library: Path, offsets: list[int], method: UprobeMethod
) -> None:
    hits = 5003
    program = bench.uprobe_program("on_entry", method.attach_type)
    producers = [start_producer(library, "first", hits) for _ in range(4)]
    untraced = start_producer(library, "first", hits)
    with attach_uprobes(program, library, offsets, [3, 4], returning=False):
        for producer in producers:
            bench.target(producer.pid)
            release(producer)
        release(untraced)
        for producer in (*producers, untraced):
            producer.communicate()
    records = bench.drain()
    pids, counts = np.unique(records["tgid"], return_counts=True)
    misses = bench.object.recursion_misses()["on_entry"]
    assert set(pids) == {producer.pid for producer in producers}
    assert counts.sum() + misses == 4 * hits
    assert (records["checksum"] == checksums(records)).all()
    assert bench.count("test.middle", Stage.RECORDED) == len(records)
    assert bench.count("test.middle", Stage.RING_FULL) == 0


def test_a_link_is_closed_once(bench: Workbench, library: Path, offsets: list[int], method: UprobeMethod) -> None:
    before = open_files()
    program = bench.uprobe_program("on_entry", method.attach_type)
    link = attach_uprobes(program, library, offsets, [1, 2], returning=False)
    assert len(link.fds) == (1 if method is UprobeMethod.MULTI else 2)
    link.close()
    link.close()
    assert open_files() == before + 1
    load_library(library).first(1)
    assert len(bench.drain()) == 0


def test_a_uprobe_that_cannot_be(bench: Workbench, library: Path, offsets: list[int], method: UprobeMethod) -> None:
    program = bench.uprobe_program("on_entry", method.attach_type)
    before = open_files()
    with pytest.raises(AttachError, match="look it up again") as missing:
        attach_uprobes(program, library.with_name("missing.so"), offsets, [1, 2], returning=False)
    assert missing.value.errno == 2
    assert "missing.so" in missing.value.probe
    with pytest.raises(AttachError, match="begins an instruction"):
        attach_uprobes(program, library, [offsets[0], 1 << 40], [1, 2], returning=False)
    load_library(library).first(1)
    assert len(bench.drain()) == 0
    assert open_files() == before


def test_the_single_calls_work_alone(bench: Workbench, library: Path, offsets: list[int]) -> None:
    loaded = load_library(library)
    by_event = bench.uprobe_program("on_entry", UprobeMethod.PERF.attach_type)
    with attach_uprobe(by_event, library, offsets[0], 71, returning=False):
        loaded.first(1)
    if uprobe_attach_method() is UprobeMethod.MULTI:
        by_link = bench.uprobe_program("on_return", UprobeMethod.MULTI.attach_type)
        with attach_uprobe_multi(by_link, library, offsets[1:], [73], returning=True):
            loaded.second(1)
    else:
        by_event = bench.uprobe_program("on_return", None)
        with attach_uprobe(by_event, library, offsets[1], 73, returning=True):
            loaded.second(1)
    assert [tuple(row) for row in bench.drain()[["cookie", "argument"]]] == [(71, 1), (73, 3)]


def test_offsets_and_cookies_go_together(bench: Workbench, library: Path, offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="2 offsets need as many cookies"):
        attach_uprobes(1, library, offsets, [1], returning=False)
    with pytest.raises(ValueError, match="at least one"):
        attach_uprobes(1, library, [], [], returning=False)


def test_an_unknown_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "kprobe")
    with pytest.raises(UsageError, match="set it to multi or perf"):
        uprobe_attach_method()


def test_a_machine_that_takes_no_uprobes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORCE_VARIABLE, raising=False)
    monkeypatch.setattr(attach, "_refusal", lambda method: "operation not permitted")
    with pytest.raises(MachineError, match=r"multi: .*; perf: .*CAP_SYS_ADMIN"):
        uprobe_attach_method()


def test_a_tracepoint_hits_on_every_cpu(bench: Workbench, library: Path) -> None:
    loaded = load_library(library)
    cpus = os.sched_getaffinity(0)
    with bench.prctl("on_prctl"):
        try:
            for cpu in cpus:
                os.sched_setaffinity(0, [cpu])
                loaded.refused(cpu)
        finally:
            os.sched_setaffinity(0, cpus)
    records = bench.drain()
    assert list(records["cpu"]) == list(records["argument"]) == list(cpus)


def test_a_missing_tracepoint(bench: Workbench) -> None:
    program = bench.object.load("on_prctl", ProgramType.TRACEPOINT)
    with pytest.raises(AttachError, match=r"no such event.*load the kernel module") as raised:
        attach_tracepoint(program, "syscalls", "sys_enter_nothing")
    assert raised.value.probe == "syscalls:sys_enter_nothing"


def test_no_tracefs(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_TRACEFS", ("/nowhere/tracing",))
    with pytest.raises(MachineError, match="mount -t tracefs"):
        attach_tracepoint(0, "sched", "sched_switch")
