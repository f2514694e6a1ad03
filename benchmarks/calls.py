# SPDX-License-Identifier: Apache-2.0
"""What recording a call costs it, against an empty program of the same shape at the same address.

    python -m benchmarks.calls [--quick]

The programs are those of cuLaunchKernel, the hottest function: nine arguments, a record of 128 bytes. They run on small
functions in a file of our own, called in a loop of machine code by a process of its own; times are that thread's CPU
time less that of the loop without a probe. In each round every variant is attached to the same bytes in turn. Needs root.
"""

from __future__ import annotations

import contextlib
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.results import Row, row, run_as_script
from fencepath._bpf.attach import Link, attach_uprobes, uprobe_attach_method
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath._record.calibration import calibrate
from fencepath._record.probe_loops import BODIES, LoopCode, LoopProcess
from fencepath.calls import EntryState
from fencepath.records import Layouts
from fencepath_cuda.functions import TABLE

FUNCTION = "cuLaunchKernel"
CLASSES = ("emulated", "stepped")
SHAPES = ("entry", "entry and return")
EMPTY = "\nint empty_entry(struct pt_regs *ctx) { return 0; }\nint empty_exit(struct pt_regs *ctx) { return 0; }\n"
TURNS, CALLS = 5, {"emulated": 400, "stepped": 100}
ROUNDS, QUICK_ROUNDS = 15, 3
MOST_RATIO = 1.25


def measure(quick: bool) -> Iterator[Row]:
    """Yield rows."""
    costs: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with contextlib.ExitStack() as made:
        bench = Bench(made)
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            for shape in SHAPES:
                for which in ("empty", "recorded"):
                    for body, cost in bench.costs(shape, which).items():
                        costs[body, shape, which].append(cost)
        bench.check()
    for body in CLASSES:
        for shape in SHAPES:
            yield from rows_of(body, shape, costs[body, shape, "empty"], costs[body, shape, "recorded"])
    yield from calibrated(costs)


def rows_of(body: str, shape: str, empty: list[float], recorded: list[float]) -> Iterator[Row]:
    """Yield what an empty program and ours add, and their ratio round by round."""
    where = f"{shape}, {body} instruction"
    yield row(f"empty program: {where}", "ns/call", empty)
    yield row(f"recorded: {where}", "ns/call", recorded)
    ratios = [mine / other for mine, other in zip(recorded, empty, strict=True)]
    yield row(f"recorded against empty: {where}", "", ratios, at_most=MOST_RATIO)


def calibrated(costs: dict[tuple[str, str, str], list[float]]) -> Iterator[Row]:
    """Yield how far a recording's own calibration is from what was measured here, with empty programs for both."""
    found = calibrate()
    for body, estimated in (("emulated", found.emulated_entry), ("stepped", found.stepped_entry)):
        measured = sorted(costs[body, "entry", "empty"])[len(costs[body, "entry", "empty"]) // 2]
        yield row(
            f"calibration at the start of a recording against this: entry, {body} instruction", "",
            [estimated.min_ns / measured, estimated.median_ns / measured, estimated.max_ns / measured],
            note=f"{found.rounds} rounds in 0.1 s",
        )  # fmt: skip


class Bench:
    """Probed code, the process that runs it, and the programs."""

    def __init__(self, made: contextlib.ExitStack) -> None:
        layouts = {layout.kind: layout for layout in TABLE.layouts()}
        numbered = Layouts(layouts, {kind: number for number, kind in enumerate(layouts, 1)})
        index = TABLE.index(FUNCTION)
        kind = TABLE.functions[index].kind
        self._number = numbered.number(kind)
        self._cookie = TABLE.cookie(index, self._number)
        self._program = next(program for program in TABLE.programs("launch") if index in program.functions)
        self._code = made.enter_context(LoopCode({body: BODIES[body] for body in CLASSES}))
        self._bare = made.enter_context(LoopCode({body: BODIES[body] for body in CLASSES}))
        self._process = made.enter_context(LoopProcess(self._code))
        self._unprobed = made.enter_context(LoopProcess(self._bare))
        rings = Rings(total_bytes=16 << 20, classes=(128, 256, 512))
        numbers = {kind: numbered.number(kind) for kind in layouts}
        self._shared = made.enter_context(Shared(numbers, rings=rings, self_tgid=0))
        self._shared.tgids.update(struct.pack("<I", self._process.pid), bytes(4))
        entries = made.enter_context(EntryState(numbered))
        source = TABLE.bpf_header("launch") + EMPTY
        defines = {**self._shared.defines(), **entries.defines()}
        self._programs = made.enter_context(BpfObject(source, defines=defines))
        self._method = uprobe_attach_method()
        self._expected = 0

    def costs(self, shape: str, which: str) -> dict[str, float]:
        """Attach one variant to all functions, run them, detach, and return nanoseconds a call by class."""
        asked = [(body, CALLS[body]) for body in CLASSES]
        with contextlib.ExitStack() as attached:
            for name, returning in self._names(shape, which):
                attached.enter_context(self._link(name, returning=returning))
            probed = self._process.run(asked, TURNS, 1.0)
        bare = self._unprobed.run(asked, TURNS, 1.0)
        if which == "recorded":
            self._expected += (len(probed) + 1) * sum(calls for _, calls in asked)
        self._shared.rings.drain()
        return {body: (median(probed, i) - median(bare, i)) / calls for i, (body, calls) in enumerate(asked)}

    def _names(self, shape: str, which: str) -> Sequence[tuple[str, bool]]:
        program = self._program
        if shape == "entry":
            return [("empty_entry" if which == "empty" else program.once, False)]
        if which == "empty":
            return [("empty_exit", True), ("empty_entry", False)]
        return [(program.exit, True), (program.entry, False)]

    def _link(self, name: str, *, returning: bool) -> Link:
        fd = self._programs.load(name, ProgramType.UPROBE, self._method.attach_type)
        offsets = [self._code.sites[body].function for body in CLASSES]
        cookies = [self._cookie] * len(offsets)
        return attach_uprobes(fd, self._code.path, offsets, cookies, returning=returning, method=self._method)

    def check(self) -> None:
        """Every call must have been recorded.

        Raises:
            RuntimeError: not so.
        """
        counts = self._shared.losses.snapshot().sum(axis=0)[self._number]
        if int(counts[Stage.RECORDED]) != self._expected:
            raise RuntimeError(f"{int(counts[Stage.RECORDED])} of {self._expected} calls were recorded")


def median(rounds: list[list[int]], index: int) -> float:
    """Median over rounds of one loop's time."""
    values = sorted(taken[index] for taken in rounds)
    return float(values[len(values) // 2])


if __name__ == "__main__":
    run_as_script(measure, __doc__)
