# SPDX-License-Identifier: Apache-2.0
"""What probes cost here, measured with the programs of a recording, and what follows for a recording."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fencepath._bpf.attach import FORCE_VARIABLE, UprobeMethod
from fencepath._bpf.relocate import relocate
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._libraries.instructions import InstructionClass
from fencepath._loader import load_plugins
from fencepath._record.calibration import Calibration, Cost, RecordPrograms, calibrate, programs_of
from fencepath._record.estimate import STATED_RECORD_NS, CallCount, CallTally, estimate
from fencepath._record.plan import make_plan
from fencepath._record.probe_loops import BODIES, LoopCode, LoopProcess
from fencepath._record.programs import LoadedSet, load_set
from fencepath.calls import Arg, CallTable, EntryState, Function
from fencepath.errors import MachineError
from fencepath.records import Flags, Records
from fencepath.system import System

EMULATED, STEPPED = InstructionClass.EMULATED, InstructionClass.STEPPED
COSTS = ("emulated_entry", "emulated_pair", "stepped_entry", "stepped_pair", "long_nop_entry")
TABLE = CallTable(
    "demo", ("libdemo.so",), [Function("one", "demo.one", (Arg("a", 0),)), Function("two", "demo.two", hot=True)]
)


class Loaded:
    """Compiled sets of a recording, none attached."""

    def __init__(self) -> None:
        plan = make_plan(load_plugins(), System.here("launch"), ["cuda", "mark"])
        self.layouts = plan.layouts
        self.shared = Shared({kind: self.layouts.number(kind) for kind in self.layouts}, rings=Rings(4 << 20))
        self.entries = EntryState(self.layouts)
        self.defines = {**self.shared.defines(), **self.entries.defines()}
        self.sets: list[LoadedSet] = [load_set(planned, self.defines, "launch") for planned in plan.sets]

    def close(self) -> None:
        for loaded in self.sets:
            loaded.close()
        self.entries.close()
        self.shared.close()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    made = Loaded()
    yield made
    made.close()


@pytest.fixture(scope="module")
def programs(loaded: Loaded) -> RecordPrograms:
    found = programs_of(loaded.sets, loaded.layouts, loaded.defines, "launch")
    assert found is not None
    return found


def detached() -> None:
    for thread in threading.enumerate():
        if thread.name == "fencepath-detach":
            thread.join()


@pytest.mark.bpf
class TestCalibrate:
    def test_costs_are_measured_with_the_programs_of_the_recording(
        self, loaded: Loaded, programs: RecordPrograms
    ) -> None:
        found = calibrate(programs=programs)
        assert (found.records, found.program) == (True, "cuLaunchKernel")
        assert found.rounds >= 3
        for name in COSTS:
            cost = getattr(found, name)
            assert 0 < cost.min_ns <= cost.median_ns <= cost.max_ns, name
        assert found.mark is not None
        assert found.long_nop in (EMULATED, STEPPED)

    def test_nothing_of_it_reaches_the_recording(self, loaded: Loaded, programs: RecordPrograms) -> None:
        calibrate(programs=programs)
        assert not loaded.shared.losses.snapshot().any()
        assert not any(loaded.shared.rings.pending_bytes().values())
        assert loaded.entries.open_calls(0) == {}

    def test_nothing_is_left_open_or_running(self, programs: RecordPrograms) -> None:
        calibrate(programs=programs)
        detached()
        before = open_files()
        calibrate(programs=programs)
        detached()
        assert open_files() == before
        assert children() == []

    def test_without_programs_empty_ones_are_run(self) -> None:
        found = calibrate()
        assert (found.records, found.program, found.mark) == (False, "", None)
        assert found.emulated_entry.min_ns > 0

    @pytest.mark.parametrize("method", list(UprobeMethod))
    def test_by_each_way_to_attach(self, method: UprobeMethod, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(FORCE_VARIABLE, method.value)
        assert calibrate().method == method.value

    def test_calls_that_were_not_recorded_are_an_error(self, programs: RecordPrograms) -> None:
        other = programs.layouts.number("mark.point")
        wrong = msgspec.structs.replace(programs, cookie=other << 32)
        with pytest.raises(MachineError, match=r"^0 of \d+ calls were recorded"):
            calibrate(programs=wrong)
        detached()

    def test_a_machine_without_what_it_takes_is_an_error_of_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nonexistent")
        with pytest.raises(MachineError, match="cannot be calibrated"):
            calibrate()

    def test_a_recording_can_keep_it(self) -> None:
        found = calibrate()
        kept = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(found)), type=Calibration)
        assert kept == found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


class TestLoops:
    def test_a_loop_calls_its_function_so_often(self) -> None:
        """Twice the calls take longer: no bound on how much, as the machine may be busy."""
        with LoopCode(BODIES, mark=True) as code, LoopProcess(code) as process:
            rounds = process.run([("mark", 100), ("emulated", 1)], 5, 1.0)
        assert len(rounds) == 5
        assert all(marks > one for marks, one in rounds)

    def test_at_least_three_rounds(self) -> None:
        with LoopCode(BODIES) as code, LoopProcess(code) as process:
            assert len(process.run([("emulated", 1)], 100, 0.0)) == 3

    def test_a_process_that_ended_is_an_error(self) -> None:
        with LoopCode(BODIES) as code, LoopProcess(code) as process:
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(MachineError, match="ended"):
                process.run([("emulated", 1)], 1, 0.0)


class TestRelocate:
    LOAD_MAP = bytes.fromhex("1811000007000000 0000000000000000")
    LOAD_CONSTANT = bytes.fromhex("1801000007000000 0700000000000000")
    MOVE = bytes.fromhex("b701000007000000")

    def test_only_maps_are_replaced(self) -> None:
        moved = relocate(self.MOVE + self.LOAD_MAP + self.LOAD_CONSTANT, {7: 9})
        assert moved == self.MOVE + self.LOAD_MAP.replace(b"\7", b"\x09") + self.LOAD_CONSTANT

    def test_a_map_that_is_not_of_the_recording_is_an_error(self) -> None:
        with pytest.raises(MachineError, match="a map that is not of the recording"):
            relocate(self.LOAD_MAP, {8: 9})


def cost(value: float) -> Cost:
    return Cost(value, value + 1, value + 2)


CALIBRATION = Calibration(
    method="multi", records=True, program="f", rounds=3, emulated_entry=cost(700), emulated_pair=cost(1200),
    stepped_entry=cost(9300), stepped_pair=cost(10000), long_nop_entry=cost(701), long_nop=EMULATED, mark=cost(300),
)  # fmt: skip


def calls(number: int, *, returning: bool = False, instruction: InstructionClass | None = EMULATED) -> CallCount:
    return CallCount(kind="demo.one", calls=number, returning=returning, instruction=instruction)


class TestEstimate:
    def test_it_is_by_class_and_return_probe(self) -> None:
        every = [
            calls(2),
            calls(3, returning=True),
            calls(5, instruction=STEPPED),
            calls(7, returning=True, instruction=STEPPED),
        ]
        found = estimate(CALIBRATION, every, wall_ns=10**6, marks=11)
        least = 2 * 700 + 3 * 1200 + 5 * 9300 + 7 * 10000 + 11 * 300
        assert (found.calls, found.marks) == (17, 11)
        assert found.added_ns == Cost(least, least + 28, least + 56)
        assert found.share == (least / 10**6, (least + 28) / 10**6, (least + 56) / 10**6)
        assert found.by_kind_ns == {"demo.one": least + 28 - 11 * 301}

    def test_of_an_unknown_class_it_is_between_both(self) -> None:
        found = estimate(CALIBRATION, [calls(13, instruction=None)], wall_ns=1)
        assert (found.added_ns.min_ns, found.added_ns.max_ns) == (13 * 700, 13 * 9302)

    def test_what_was_not_measured_is_stated(self) -> None:
        bare = msgspec.structs.replace(CALIBRATION, records=False, mark=None)
        found = estimate(bare, [calls(1), calls(1, returning=True)], wall_ns=1, marks=5)
        assert found.added_ns.min_ns == 700 + 1200 + 3 * STATED_RECORD_NS

    def test_of_nothing_it_is_nothing(self) -> None:
        found = estimate(CALIBRATION, [], wall_ns=0)
        assert sum(found.share) == 0.0
        assert sum(found.share) == 0.0
        assert "0 probed calls" in found.text()


def records(kind: str, functions: list[int], entry_only: list[bool]) -> Records:
    layouts = {layout.kind: layout for layout in TABLE.layouts()}
    made: Records = np.zeros(len(functions), layouts[kind].dtype)
    made["function"] = functions
    made["flags"] = np.where(np.array(entry_only, bool), int(Flags.TASK | Flags.ENTRY_ONLY), int(Flags.TASK))
    return made


class TestTally:
    def test_calls_are_counted_by_class_and_return_probe(self) -> None:
        tally = CallTally([TABLE])
        tally.add("demo.one", records("demo.one", [0] * 5, [False, True, False, False, True]))
        tally.add("demo.two", records("demo.two", [1] * 3, [True] * 3))
        tally.add("demo.two", records("demo.two", [1] * 4, [True] * 4))
        assert set(tally.counts({"demo": {"two"}})) == {
            CallCount(kind="demo.one", calls=3, returning=True, instruction=EMULATED),
            CallCount(kind="demo.one", calls=2, returning=False, instruction=EMULATED),
            CallCount(kind="demo.two", calls=7, returning=False, instruction=STEPPED),
        }
        assert {count.instruction for count in tally.counts({})} == {None}

    def test_records_of_other_kinds_are_passed_over(self) -> None:
        tally = CallTally([TABLE])
        tally.add("other.kind", records("demo.one", [0], [True]))
        tally.add("demo.one", records("demo.one", [], []))
        assert tally.counts({}) == ()
