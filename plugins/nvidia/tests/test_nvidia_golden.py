# SPDX-License-Identifier: Apache-2.0
"""A recording of ``gpu/nvidia_phases.c`` on an H200 (driver 580.159.04), with what the program and a counter inside it said.

Made by ``gpu/test_nvidia_gpu.py``; ``tests/golden/pack.py`` took the machine's names out.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fencepath import Analysis, open_recording
from fencepath_nvidia.kinds import CLOSE, MMAP, MUNMAP, POLL, RECORDED_CALLS, UVM_CALL, UVM_RANGE
from fencepath_nvidia.rules import IRQ_NAME

DATA = Path(__file__).parent / "data"
BLOCKING, WAITS = (149_355_105_841, 149_411_208_460), 53
SPINNING, SPINS = (149_412_067_038, 149_440_084_812), 29
EXACT, BOUNDED = 0, 1


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(open_recording(DATA / "h200-phases.fencepath.zip"))


def within(analysis: Analysis, kind: str, phase: tuple[int, int]) -> int:
    begin = analysis.view.batch(kind)["begin_ns"]
    return int(np.count_nonzero((begin >= phase[0]) & (begin <= phase[1])))


def edges(analysis: Analysis, rule: str, phase: tuple[int, int]) -> Counter[int]:
    """How many edges of a rule end in a phase, by confidence."""
    rows = np.flatnonzero(analysis.edges.rule == analysis.edges.rules.index(rule))
    begin = analysis.table.begin[analysis.edges.effect[rows]]
    return Counter(analysis.edges.confidence[rows[(begin >= phase[0]) & (begin <= phase[1])]].tolist())


def test_every_blocking_wait_has_its_chain_from_the_interrupt(analysis: Analysis) -> None:
    """Interrupt, wake-up, poll of CUDA's helper thread, and the wait that it ends."""
    irqs = analysis.view.batch("host.irq")
    at = irqs["begin_ns"]
    assert int(np.count_nonzero((at >= BLOCKING[0]) & (at <= BLOCKING[1]) & (irqs["name"] == IRQ_NAME))) == WAITS
    assert within(analysis, "cuda.event.synchronize", BLOCKING) == WAITS
    assert edges(analysis, "nvidia.wake", BLOCKING)[EXACT] == WAITS
    assert edges(analysis, "nvidia.wait_helper", BLOCKING) == {BOUNDED: WAITS}


def test_the_report_says_what_the_layer_never_sees(analysis: Analysis) -> None:
    """Layers without events have nothing to say."""
    layers = analysis.report().recording["layers"]
    assert any("launches" in limit for limit in layers["nvidia"]["limits"])
    assert [name for name in layers if layers[name]["limits"]] == ["nvidia"]
    without = Analysis(analysis.recording, without=["nvidia"]).report().recording["layers"]
    assert [name for name in without if without[name]["limits"]] == []


def test_a_wait_that_spins_has_none(analysis: Analysis) -> None:
    assert within(analysis, "cuda.event.synchronize", SPINNING) == SPINS
    assert not edges(analysis, "nvidia.wait_helper", SPINNING)
    polls = analysis.view.batch(POLL)
    inside = (polls["begin_ns"] >= SPINNING[0]) & (polls["begin_ns"] <= SPINNING[1])
    assert not np.count_nonzero(inside & (polls["tid"] == polls["tgid"]))


def test_requests_are_those_that_a_counter_in_the_program_saw(analysis: Analysis) -> None:
    said: Counter[tuple[str, int, int]] = Counter()
    for line in (DATA / "h200-phases.counts").read_text().splitlines():
        device, type_, number, count = line.split()
        said[device, int(type_), int(number)] += int(count)
    recorded: Counter[tuple[str, int, int]] = Counter()
    for kind in set(RECORDED_CALLS).intersection(analysis.recording.kinds) - {MMAP, MUNMAP, CLOSE}:
        commands = analysis.recording.records(kind)["command"].tolist()
        if kind == POLL:
            recorded["poll", 0, 0] += len(commands)
        elif kind in (UVM_RANGE, UVM_CALL):
            recorded.update(("uvm", 0, command) for command in commands)
        else:
            recorded.update(("rm", command >> 8 & 0xFF, command & 0xFF) for command in commands)
    assert +recorded == said
    assert sum(said.values()) > 800
