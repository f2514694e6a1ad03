# SPDX-License-Identifier: Apache-2.0
"""On a real GPU: a program in phases with known numbers, and a counter inside it that counts its requests.

FENCEPATH_REQUIRE_GPU=1 makes these tests fail instead of being skipped where there is no GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fencepath import Analysis, open_recording
from fencepath.events import Batch
from fencepath_nvidia.kinds import (
    ALLOC,
    CLOSE,
    IOCTL,
    MEMORY_ALLOC,
    MMAP,
    MUNMAP,
    POLL,
    RECORDED_CALLS,
    UVM_CALL,
    UVM_RANGE,
)
from fencepath_nvidia.rules import IRQ_NAME

pytestmark = [
    pytest.mark.bpf,
    pytest.mark.skipif(
        not Path("/dev/nvidiactl").exists() and os.environ.get("FENCEPATH_REQUIRE_GPU") != "1",
        reason="no NVIDIA GPU: /dev/nvidiactl does not exist; FENCEPATH_REQUIRE_GPU=1 runs it nevertheless",
    ),
]

HERE = Path(__file__).parent


class Phase(NamedTuple):
    """What the program says of a phase."""

    name: str
    pid: int
    begin_ns: int
    end_ns: int
    values: dict[str, int]


class Run(NamedTuple):
    """A recording of the program with what it and its counter say."""

    analysis: Analysis
    phases: list[Phase]
    counts: Counter[tuple[str, int, int]]

    def phase(self, name: str) -> Phase:
        """The only phase of a name."""
        (found,) = (phase for phase in self.phases if phase.name == name)
        return found

    def within(self, kind: str, phase: Phase) -> Batch:
        """Events of a kind that began in a phase, by its process if they are a process's."""
        batch = self.analysis.view.batch(kind)
        inside = (batch["begin_ns"] >= phase.begin_ns) & (batch["begin_ns"] <= phase.end_ns)
        return batch.take(inside & (batch["tgid"] == phase.pid))


def compiled(folder: Path, source: str, *options: str) -> Path:
    target = folder / source.replace(".c", ".so" if "-shared" in options else "")
    words = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", *options, "-o", str(target), str(HERE / source), "-ldl"]
    subprocess.run(words, check=True)
    return target


def recorded(folder: Path, *words: str) -> Run:
    program = compiled(folder, "nvidia_phases.c")
    counter = compiled(folder, "ioctl_counter.c", "-shared", "-fPIC")
    recording, counts = folder / "run.fencepath", folder / "counts.%p"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fencepath", "record", "--layers", "cuda,nvidia,host", "--detail", "full"),
            *("-o", str(recording), "--as-root", "--", "env", f"LD_PRELOAD={counter}", f"IOCTL_COUNTER_OUT={counts}"),
            *(str(program), *words),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Run(Analysis(open_recording(recording)), list(said(done.stdout)), counted(folder))


def said(output: str) -> Iterator[Phase]:
    for line in output.splitlines():
        if line.startswith("phase "):
            _, name, pid, begin, end, *values = line.split()
            pairs = (value.split("=") for value in values)
            yield Phase(name, int(pid), int(begin), int(end), {key: int(value) for key, value in pairs})


def counted(folder: Path) -> Counter[tuple[str, int, int]]:
    found: Counter[tuple[str, int, int]] = Counter()
    for path in folder.glob("counts.*"):
        for line in path.read_text().splitlines():
            device, type_, number, count = line.split()
            found[device, int(type_), int(number)] += int(count)
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("alone"))


def edges(run: Run, rule: str, phase: Phase) -> Any:
    """Confidence of the edges of a rule whose effect lies in a phase."""
    table, all_edges = run.analysis.table, run.analysis.edges
    if rule not in all_edges.rules:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(all_edges.rule == all_edges.rules.index(rule))
    begin = table.begin[all_edges.effect[rows]]
    return all_edges.confidence[rows[(begin >= phase.begin_ns) & (begin <= phase.end_ns)]]


def requests_of(run: Run) -> Counter[tuple[str, int, int]]:
    """What was recorded, in the counter's terms."""
    recording = run.analysis.recording
    found: Counter[tuple[str, int, int]] = Counter()
    for kind in set(RECORDED_CALLS).intersection(recording.kinds) - {MMAP, MUNMAP, CLOSE}:
        commands = recording.records(kind)["command"].tolist()
        if kind == POLL:
            found["poll", 0, 0] += len(commands)
        elif kind in (UVM_RANGE, UVM_CALL):
            found.update(("uvm", 0, command) for command in commands)
        else:
            found.update(("rm", command >> 8 & 0xFF, command & 0xFF) for command in commands)
    return +found


def test_requests_are_as_many_as_the_program_made(alone: Run) -> None:
    assert alone.counts
    assert not [row for row in alone.analysis.recording.loss if row.count]
    assert requests_of(alone) == alone.counts


def test_requests_and_classes_have_names_and_statuses(alone: Run) -> None:
    view = alone.analysis.view
    for kind in (ALLOC, MEMORY_ALLOC):
        batch = view.batch(kind)
        assert len(batch)
        assert (batch["rm_status"] >= 0).all()
    assert (view.batch(MEMORY_ALLOC)["size_bytes"] > 0).all()
    unnamed = [name for name in view.batch(IOCTL).labels if name.startswith("ioctl type")]
    used = {view.batch(IOCTL).labels[label] for label in view.batch(IOCTL)["label"].tolist()}
    assert not used & set(unnamed)


def test_allocations_of_the_api(alone: Run) -> None:
    phase = alone.phase("allocations")
    calls = alone.within("cuda.malloc", phase)
    assert (len(calls), int(calls["bytes"].sum())) == (phase.values["calls"], phase.values["bytes"])
    assert len(alone.within("cuda.free", phase)) == phase.values["calls"]


def test_every_blocking_wait_has_its_chain(alone: Run) -> None:
    phase = alone.phase("blocking")
    waits = phase.values["waits"]
    assert len(alone.within("cuda.event.synchronize", phase)) == waits
    irqs = alone.analysis.view.batch("host.irq")
    inside = (irqs["begin_ns"] >= phase.begin_ns) & (irqs["begin_ns"] <= phase.end_ns) & (irqs["name"] == IRQ_NAME)
    assert int(inside.sum()) == waits
    # the waiting thread polls, or a thread of CUDA's own that then wakes it
    own = int(np.count_nonzero(alone.within(POLL, phase)["tid"] == phase.pid))
    assert len(edges(alone, "nvidia.wait_call", phase)) == own
    helped = edges(alone, "nvidia.wait_helper", phase)
    assert len(edges(alone, "nvidia.wait_return", phase)) + len(helped) == waits
    wakes = edges(alone, "nvidia.wake", phase)
    assert set(wakes.tolist()) <= {0, 1}
    assert int(np.count_nonzero(wakes == 0)) == waits, "each interrupt woke whoever polled, for sure"


def test_waits_that_spin_make_no_poll_and_no_interrupt(alone: Run) -> None:
    phase = alone.phase("spinning")
    assert len(alone.within("cuda.event.synchronize", phase)) == phase.values["waits"]
    assert not np.count_nonzero(alone.within(POLL, phase)["tid"] == phase.pid)
    assert len(edges(alone, "nvidia.wait_helper", phase)) == 0


def test_managed_memory(alone: Run) -> None:
    phase = alone.phase("managed")
    calls = alone.within("cuda.malloc", phase)
    assert (len(calls), int(calls["bytes"].sum())) == (phase.values["calls"], phase.values["bytes"])


def test_two_processes_at_once_are_never_exact(tmp_path: Path) -> None:
    run = recorded(tmp_path, "pair")
    assert len({phase.pid for phase in run.phases}) == 2
    for phase in run.phases:
        assert len(run.within("cuda.event.synchronize", phase)) == phase.values["waits"]
        wakes = edges(run, "nvidia.wake", phase)
        assert len(wakes)
        assert 0 not in wakes.tolist()
