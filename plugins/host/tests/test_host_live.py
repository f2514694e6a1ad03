# SPDX-License-Identifier: Apache-2.0
"""The layer ``host`` on this kernel: a program says what its threads did, and the recording must say the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.core.live import LiveLayers, live_layers, until

from fencepath._engine.runstate import RunState, RunStates
from fencepath.events import Batch
from fencepath.records import Flags
from fencepath_host import plugin as host
from fencepath_host.events import IRQ, SWITCH, WAKING
from fencepath_host.preempt_count import preempt_count_defines

pytestmark = pytest.mark.bpf

Ints = npt.NDArray[np.int64]
MS = 1_000_000
ERROR = 0.01
"""What the program's own clock readings and a kernel thread that cuts in may be off, as a share."""
DEAD = 0x30
"""Bits of ``prev_state``: the thread has ended."""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("host") / "workload"
    source = Path(__file__).with_name("workload.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", program, source], check=True)
    return program


@pytest.fixture(scope="module")
def attached() -> Iterator[LiveLayers]:
    """One set of programs for all tests; each looks at its own threads."""
    with live_layers({"host": host}) as live:
        yield live


class Run:
    """A workload that has done its part and still lives.

    Attributes:
        said: values by name, in the order they were said.
    """

    def __init__(self, program: Path, live: LiveLayers, *words: str) -> None:
        self._process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said: list[tuple[str, int, int]] = []
        try:
            self._read("ready" if "before" in words else "main")
            live.targets.add(self._process.pid)
            self._go()
            self._read("done")
        except BaseException:
            self._process.kill()
            raise

    def _read(self, last: str) -> None:
        assert self._process.stdout is not None
        while not self.said or self.said[-1][0] != last:
            name, first, second = self._process.stdout.readline().split()
            self.said.append((name, int(first), int(second)))

    def _go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._go()
        self._process.communicate()
        assert self._process.returncode == 0

    def one(self, name: str) -> int:
        (value,) = (first for said, first, _ in self.said if said == name)
        return value

    def all(self, name: str) -> dict[int, int]:
        return {first: second for said, first, second in self.said if said == name}


def out_of(switches: Batch, tid: int) -> Counter[str]:
    """How often a thread left a CPU, blocked and not, and for good."""
    mine = switches["prev_state"][switches["prev_tid"] == tid]
    return Counter("dead" if state & DEAD else "blocked" if state else "runnable" for state in mine.tolist())


def wakers(wakings: Batch, tid: int) -> Counter[int]:
    """Who woke a thread how often; 0 is an interrupt."""
    mine = wakings.take(wakings["wakee_tid"] == tid)
    return Counter(np.where(mine["flags"] & int(Flags.TASK), mine["tid"], 0).tolist())


def states_of(live: LiveLayers, tid: int) -> tuple[Ints, Ints]:
    """States as the engine derives them, with tids in place of entities."""
    switches, wakings = live.batch(SWITCH), live.batch(WAKING)
    states = RunStates(observed=True)
    columns = {name: switches[name].astype(np.int64) for name in ("time_ns", "prev_tid", "next_tid")}
    states.add_switches(columns["time_ns"], columns["prev_tid"], switches["prev_state"] == 0, columns["next_tid"])
    wakee = wakings["wakee_tid"].astype(np.int64)
    states.add_wakes(wakings["time_ns"].astype(np.int64), wakee, np.arange(len(wakee)))
    return states.states(tid)


def intervals(states: tuple[Ints, Ints], state: RunState, begin: int, end: int) -> list[tuple[int, int]]:
    """Intervals of a state, clipped to a window."""
    times, values = states
    ends = np.append(times[1:], end)
    found = [
        (max(from_ns, begin), min(to_ns, end))
        for from_ns, to_ns, value in zip(times.tolist(), ends.tolist(), values.tolist(), strict=True)
        if value == state
    ]
    return [(from_ns, to_ns) for from_ns, to_ns in found if to_ns > from_ns]


def total(spans: list[tuple[int, int]]) -> int:
    return sum(to_ns - from_ns for from_ns, to_ns in spans)


@pytest.mark.parametrize("created", ["before", "after"])
def test_every_block_and_wake_up_of_two_threads(workload: Path, attached: LiveLayers, created: str) -> None:
    rounds = 997
    run = Run(workload, attached, "pingpong", created, str(rounds))
    ping, pong = run.one("ping"), run.one("pong")
    switches, wakings = attached.batch(SWITCH), attached.batch(WAKING)
    run.end()
    # before that they waited for one another to write to standard output, or to be moved to the CPU
    start_ns = run.all("starts")[ping]
    handing_over = switches.take(switches["time_ns"] > start_ns)
    wakings = wakings.take(wakings["time_ns"] > start_ns)
    assert wakers(wakings, pong) == {ping: rounds}
    assert wakers(wakings, ping) == {pong: rounds}
    assert out_of(handing_over, ping)["blocked"] == rounds
    # it waited for the first byte already
    assert out_of(handing_over, pong)["blocked"] == rounds - 1
    for tid in (ping, pong):
        into = int((switches["next_tid"] == tid).sum())
        # created before: the first thing seen is that it goes on
        assert 0 <= into - sum(out_of(switches, tid).values()) <= 1
    assert not [lost for lost in attached.lost() if lost[0].startswith("host.")]


def test_the_thread_that_a_timer_interrupts_is_no_waker(workload: Path, attached: LiveLayers) -> None:
    rounds = 31
    run = Run(workload, attached, "sleeper", str(rounds))
    sleeps, runs = run.one("sleeps"), run.one("runs")
    wakings = attached.batch(WAKING)
    run.end()
    mine = wakings.take((wakings["wakee_tid"] == sleeps) & (wakings["time_ns"] > run.all("rounds")[sleeps]))
    assert len(mine) == rounds
    # the busy thread was current, or the sleeping one itself where the timer came before it had left the CPU
    assert set(mine["tid"].tolist()) <= {runs, sleeps}
    assert int((mine["tid"] == runs).sum()) > rounds // 2
    assert not (mine["flags"] & int(Flags.TASK)).any()
    assert (mine["interrupt_cpu"] == mine["cpu"]).all()


def test_a_wake_up_by_a_soft_interrupt_has_no_waker(workload: Path, attached: LiveLayers) -> None:
    rounds = 13
    run = Run(workload, attached, "send", str(rounds))
    found = wakers(attached.batch(WAKING), run.one("receives"))
    run.end()
    assert found[run.one("sends")] == 0
    assert found[0] >= rounds


def test_a_busy_thread_is_running(workload: Path, attached: LiveLayers) -> None:
    run = Run(workload, attached, "busy", "211")
    tid = run.one("runs")
    begin, end, used = run.all("window")[tid], run.all("until")[tid], run.all("used")[tid]
    running = intervals(states_of(attached, tid), RunState.RUNNING, begin, end)
    run.end()
    assert total(running) == pytest.approx(used, rel=ERROR)
    assert total(running) == pytest.approx(end - begin, rel=ERROR)


def test_two_threads_on_one_cpu_are_preempted_in_turn(workload: Path, attached: LiveLayers) -> None:
    run = Run(workload, attached, "share", "650")
    one, two = run.all("runs")
    begin = max(run.all("window").values())
    end = min(run.all("until").values())
    states = {tid: states_of(attached, tid) for tid in (one, two)}
    run.end()
    running = {tid: intervals(states[tid], RunState.RUNNING, begin, end) for tid in states}
    preempted = {tid: intervals(states[tid], RunState.PREEMPTED, begin, end) for tid in states}
    assert total(running[one]) + total(running[two]) == pytest.approx(end - begin, rel=ERROR)
    for mine, other in ((one, two), (two, one)):
        assert total(running[mine]) + total(preempted[mine]) == end - begin
        assert total(running[mine]) == pytest.approx(total(preempted[other]), rel=ERROR)
        assert preempted[mine]
    # each went on when the other had its turn: the intervals come one after the other
    turns = sorted([(span, one) for span in _long(running[one])] + [(span, two) for span in _long(running[two])])
    assert len(turns) >= 3
    assert all(before[1] != after[1] for before, after in pairwise(turns))
    for tid in (one, two):
        window = intervals(states[tid], RunState.RUNNING, run.all("window")[tid], run.all("until")[tid])
        assert total(window) == pytest.approx(run.all("used")[tid], rel=ERROR)


def _long(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without what a kernel thread cut off: spans less than 1 ms apart are one."""
    joined: list[tuple[int, int]] = []
    for from_ns, to_ns in spans:
        if joined and from_ns - joined[-1][1] < MS:
            joined[-1] = (joined[-1][0], to_ns)
        else:
            joined.append((from_ns, to_ns))
    return [(from_ns, to_ns) for from_ns, to_ns in joined if to_ns - from_ns > MS]


def test_a_thread_of_nobody_is_not_recorded(workload: Path) -> None:
    with live_layers({"host": host}) as live:
        process = subprocess.run([workload, "tree"], input="\n\n", text=True, stdout=subprocess.PIPE, check=True)
        assert "thread" in process.stdout
        assert not len(live.records(SWITCH))
        assert not len(live.records(WAKING))


def test_interrupts_that_touch_a_target(tmp_path: Path) -> None:
    written = tmp_path / "blocks"
    with written.open("wb") as file:
        file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())

    def read_all() -> bool:
        """From the device below: one of the files lies on a disk, or is shared by a host."""
        for path in (written, Path(sys.executable).resolve()):
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(4096):
                    pass
        return bool(len(live.records(IRQ)))

    with live_layers({"host": host}) as live:
        live.targets.add(os.getpid())
        until(read_all)
        live.detach()
        irqs, wakings = live.batch(IRQ), live.batch(WAKING)
    listed = _listed_interrupts()
    for irq, name in set(zip(irqs["irq"].tolist(), irqs["name"].tolist(), strict=True)):
        assert name in listed[irq]
    assert not (irqs["flags"] & int(Flags.TASK)).any()
    assert (irqs["begin_ns"] < irqs["time_ns"]).all()
    # every one has a reason to be there: it interrupted this process, or a wake-up by an interrupt lies inside it
    columns = [irqs[name].tolist() for name in ("begin_ns", "time_ns", "cpu", "tgid")]
    for begin, end, cpu, tgid in zip(*columns, strict=True):
        inside = (wakings["time_ns"] >= begin) & (wakings["time_ns"] <= end) & (wakings["interrupt_cpu"] == cpu)
        assert tgid == os.getpid() or inside.any()


def _listed_interrupts() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in Path("/proc/interrupts").read_text().splitlines():
        number, _, rest = line.partition(":")
        if number.strip().isdigit():
            found[int(number)] = set(rest.replace(",", " ").split())
    return found


def test_this_kernel_says_where_the_preempt_count_is() -> None:
    """Without it every wake-up would be one of an interrupt, and the tests above could not tell."""
    assert len(preempt_count_defines()) == 4
