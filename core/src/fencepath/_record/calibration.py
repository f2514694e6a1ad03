# SPDX-License-Identifier: Apache-2.0
"""Measures, on this machine and now, what a probe costs: by the instruction under it, with and without a return probe.

The programs are those of the recording itself, loaded a second time with small maps of their own, so that reserving and
submitting a record is counted and nothing of it reaches the recording. They run in loops of machine code in a process
of their own (:mod:`fencepath._record.probe_loops`); loops without probes are measured in the same rounds and taken off.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import struct
import threading
from collections.abc import Mapping, Sequence

import msgspec

from fencepath._bpf import sys as bpf
from fencepath._bpf.attach import Link, attach_tracepoint, attach_uprobes, uprobe_attach_method
from fencepath._bpf.losses import Stage
from fencepath._bpf.relocate import relocate
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._libraries.instructions import InstructionClass
from fencepath._record.probe_loops import BODIES, LoopCode, LoopProcess
from fencepath._record.programs import LoadedSet
from fencepath.calls import CallTable, EntryState, Program
from fencepath.errors import AttachError, FencepathError, MachineError
from fencepath.plugin import Detail
from fencepath.records import Layouts

__all__ = ["Calibration", "Cost", "RecordPrograms", "calibrate", "programs_of"]

CLOCK = "CLOCK_THREAD_CPUTIME_ID"
_RING_BYTES = 17 << 20
_OPEN_CALLS = 64
_ROUNDS = 20
_EMULATED_CALLS, _STEPPED_CALLS = 400, 100
_EMPTY = bytes.fromhex("b7000000000000009500000000000000")
_MARK_PROGRAM = ("sys_enter_prctl", "mark.point")


class Cost(msgspec.Struct, frozen=True):
    """What one call costs more than it would without a probe, over all rounds.

    Attributes:
        min_ns: least, in ns of CPU time.
        median_ns: median.
        max_ns: most.
    """

    min_ns: float
    median_ns: float
    max_ns: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What probes cost here. Times are CPU time of the calling thread, system included.

    Attributes:
        clock: which clock was read, around a loop.
        method: how uprobes are attached: ``multi`` or ``perf``.
        records: whether the costs hold writing the record; else an empty program was run.
        program: the function of a call table whose programs were run, "" if empty ones were.
        rounds: how many rounds there were.
        emulated_entry: a call of which the entry is probed, on an instruction that the kernel emulates.
        emulated_pair: likewise, of which the return is probed too.
        stepped_entry: as `emulated_entry`, on an instruction that the kernel single-steps.
        stepped_pair: as `emulated_pair`, likewise.
        long_nop_entry: as `emulated_entry`, on a nop of four bytes.
        long_nop: which of the two classes that is like: what this kernel does with such nops.
        mark: a mark: a system call with a tracepoint and its record, less the same system call with no tracepoint; None
            if it was not measured. It is more than a tracepoint outside system calls costs.
    """

    clock: str = CLOCK
    method: str
    records: bool
    program: str
    rounds: int
    emulated_entry: Cost
    emulated_pair: Cost
    stepped_entry: Cost
    stepped_pair: Cost
    long_nop_entry: Cost
    long_nop: InstructionClass
    mark: Cost | None = None

    def cost(self, instruction: InstructionClass, *, returning: bool) -> Cost:
        """Return the cost of a call by the class of the probed instruction and whether its return is probed."""
        if instruction is InstructionClass.EMULATED:
            return self.emulated_pair if returning else self.emulated_entry
        return self.stepped_pair if returning else self.stepped_entry


class RecordPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled programs of a recording, as instructions, with what it takes to run them with other maps.

    Attributes:
        name: function of the call table.
        once: writes the record at entry.
        entry: keeps the entry.
        exit: writes the record at return.
        cookie: of the function's probes.
        kind: of its records.
        mark: the program on ``sys_enter_prctl``, b"" if there is none.
        numbers: kind numbers.
        layouts: of all kinds.
        descriptors: file descriptors that the instructions hold, by macro.
    """

    name: str
    once: bytes
    entry: bytes
    exit: bytes
    cookie: int
    kind: str
    mark: bytes
    layouts: Layouts
    descriptors: Mapping[str, int]


def programs_of(
    loaded: Sequence[LoadedSet], layouts: Layouts, defines: Mapping[str, str | int], detail: Detail
) -> RecordPrograms | None:
    """Return the programs to calibrate with: those of a hot function, else of any; None if no call table is recorded.

    Args:
        loaded: compiled sets.
        layouts: of the recording.
        defines: macros with which the sets were compiled.
        detail: of the recording.
    """
    for mine in loaded:
        for table in mine.planned.tables:
            chosen = _choose(table, detail)
            if chosen is None:
                continue
            program, index = chosen
            kind = table.functions[index].kind
            return RecordPrograms(
                name=table.functions[index].name,
                once=_instructions(mine, program.once),
                entry=_instructions(mine, program.entry),
                exit=_instructions(mine, program.exit),
                cookie=table.cookie(index, layouts.number(kind)),
                kind=kind,
                mark=_mark_program(loaded),
                layouts=layouts,
                descriptors={name: int(fd) for name, fd in defines.items() if name.endswith("_FD")},
            )
    return None


def _choose(table: CallTable, detail: Detail) -> tuple[Program, int] | None:
    every = [(program, index) for program in table.programs(detail) for index in program.functions]
    hot = [choice for choice in every if table.functions[choice[1]].hot]
    return next(iter(hot or every), None)


def _mark_program(loaded: Sequence[LoadedSet]) -> bytes:
    event, kind = _MARK_PROGRAM
    for mine in loaded:
        if any(layout.kind == kind for layout in mine.planned.layouts):
            for program in mine.planned.programs:
                if program.resolved.format.event == event and program.program:
                    return _instructions(mine, program.program)
    return b""


def _instructions(loaded: LoadedSet, name: str) -> bytes:
    return loaded.bpf.instructions(name)


def calibrate(budget_s: float = 0.3, programs: RecordPrograms | None = None) -> Calibration:
    """Measure what probes cost. Nothing is left attached, and nobody else runs the probed code.

    Args:
        budget_s: about how long it may take, in seconds; a third of it is for measuring.
        programs: what to run; None for empty programs.

    Raises:
        MachineError: something that it takes is missing, or the probes were not hit.
    """
    try:
        with contextlib.ExitStack() as made:
            return _Run(programs, made).measure(budget_s / 3)
    except (OSError, FencepathError) as error:
        if isinstance(error, MachineError):
            raise
        raise MachineError(f"probes cannot be calibrated: {error}") from error


class _Run:
    """One calibration: maps, programs, probed code and the process that runs it."""

    def __init__(self, programs: RecordPrograms | None, made: contextlib.ExitStack) -> None:
        self._programs = programs
        self._made = made
        self._method = uprobe_attach_method()
        probed = {name: BODIES[body] for name, body, _ in _SITES}
        self._code = made.enter_context(LoopCode({**BODIES, **probed}, mark=True))
        self._process = made.enter_context(LoopProcess(self._code))
        self._shared: Shared | None = None
        if programs is not None:
            self._make_maps(programs)

    def _make_maps(self, programs: RecordPrograms) -> None:
        layouts = programs.layouts
        numbers = {kind: layouts.number(kind) for kind in layouts}
        shared = self._made.enter_context(Shared(numbers, rings=Rings(_RING_BYTES), self_tgid=0))
        entries = self._made.enter_context(EntryState(layouts, max_entries=_OPEN_CALLS))
        macros = {**shared.defines(), **entries.defines()}
        self._moved = {fd: int(macros[name]) for name, fd in programs.descriptors.items() if name in macros}
        shared.tgids.update(struct.pack("<I", self._process.pid), bytes(4))
        self._shared = shared

    def measure(self, budget_s: float) -> Calibration:
        links: list[Link] = []
        try:
            bare = self._marks(budget_s / 8)
            self._attach(links)
            loops = [(name, calls) for name, _, calls in _SITES]
            bases = [(body, calls) for _, body, calls in _SITES]
            rounds = self._process.run([*loops, *bases], _ROUNDS, budget_s)
            self._check_records(len(rounds) + 1)
            mark = self._mark_cost(bare, links, budget_s / 8)
        finally:
            _close_aside(links)
        return self._result(rounds, mark)

    def _attach(self, links: list[Link]) -> None:
        programs = self._programs
        entry, exit_, once = (programs.entry, programs.exit, programs.once) if programs else (_EMPTY, _EMPTY, _EMPTY)
        pairs = [name for name, _, _ in _SITES if name.endswith("_pair")]
        single = [name for name, _, _ in _SITES if name not in pairs]
        links.append(self._link(exit_, pairs, returning=True))
        links.append(self._link(entry, pairs, returning=False))
        links.append(self._link(once, single, returning=False))

    def _link(self, instructions: bytes, sites: Sequence[str], *, returning: bool) -> Link:
        fd = self._load(bpf.ProgramType.UPROBE, instructions, self._method.attach_type)
        offsets = [self._code.sites[name].function for name in sites]
        cookie = self._programs.cookie if self._programs else 0
        path = self._code.path
        return attach_uprobes(fd, path, offsets, [cookie] * len(offsets), returning=returning, method=self._method)

    def _load(self, kind: bpf.ProgramType, instructions: bytes, attach_type: int | None) -> int:
        code = relocate(instructions, self._moved) if self._programs else instructions
        fd = bpf.prog_load(kind, "fp_calibrate", code, attach_type=attach_type)
        self._made.callback(os.close, fd)
        return fd

    def _marks(self, budget_s: float) -> list[float]:
        if not self._programs or not self._programs.mark:
            return []
        return [
            round_ns[0] / _STEPPED_CALLS
            for round_ns in self._process.run([("mark", _STEPPED_CALLS)], _ROUNDS, budget_s)
        ]

    def _mark_cost(self, bare: list[float], links: list[Link], budget_s: float) -> Cost | None:
        """Marks with the tracepoint, less those before it was there: any tracepoint slows all system calls down."""
        if not bare:
            return None
        assert self._programs is not None
        fd = self._load(bpf.ProgramType.TRACEPOINT, self._programs.mark, None)
        try:
            links.append(attach_tracepoint(fd, "syscalls", "sys_enter_prctl"))
        except AttachError:
            return None
        return _cost([probed - statistics.median(bare) for probed in self._marks(budget_s)])

    def _check_records(self, rounds: int) -> None:
        if self._shared is None:
            return
        assert self._programs is not None
        number = self._programs.layouts.number(self._programs.kind)
        counts = self._shared.losses.snapshot().sum(axis=0)[number]
        recorded, expected = int(counts[Stage.RECORDED]), rounds * sum(calls for _, _, calls in _SITES)
        if recorded != expected:
            raise MachineError(f"{recorded} of {expected} calls were recorded while probes were calibrated")

    def _result(self, rounds: list[list[int]], mark: Cost | None) -> Calibration:
        count = len(_SITES)
        costs = {
            name: _cost([(taken[i] - taken[count + i]) / calls for taken in rounds])
            for i, (name, _, calls) in enumerate(_SITES)
        }
        return Calibration(
            method=self._method.value,
            records=self._programs is not None,
            program=self._programs.name if self._programs else "",
            rounds=len(rounds),
            emulated_entry=costs["emulated_entry"],
            emulated_pair=costs["emulated_pair"],
            stepped_entry=costs["stepped_entry"],
            stepped_pair=costs["stepped_pair"],
            long_nop_entry=costs["long_nop_entry"],
            long_nop=_nearest(costs["long_nop_entry"], costs["emulated_entry"], costs["stepped_entry"]),
            mark=mark,
        )


_SITES = (
    ("emulated_entry", "emulated", _EMULATED_CALLS),
    ("emulated_pair", "emulated", _EMULATED_CALLS),
    ("stepped_entry", "stepped", _STEPPED_CALLS),
    ("stepped_pair", "stepped", _STEPPED_CALLS),
    ("long_nop_entry", "long_nop", _STEPPED_CALLS),
)
"""Probed functions, as the costs of :class:`Calibration` are called, with the unprobed one like it and calls a round."""


def _cost(values: Sequence[float]) -> Cost:
    return Cost(round(min(values), 1), round(statistics.median(values), 1), round(max(values), 1))


def _nearest(cost: Cost, emulated: Cost, stepped: Cost) -> InstructionClass:
    """The class whose cost is nearest as a ratio; where the two cost the same it does not matter."""
    middle = math.sqrt(max(emulated.min_ns, 1.0) * max(stepped.min_ns, 1.0))
    return InstructionClass.EMULATED if cost.min_ns < middle else InstructionClass.STEPPED


def _close_aside(links: Sequence[Link]) -> None:
    """Detach in another thread: each takes the kernel some 40 ms, in which nothing is slowed down."""

    def close() -> None:
        for link in links:
            link.close()

    threading.Thread(target=close, name="fencepath-detach").start()
