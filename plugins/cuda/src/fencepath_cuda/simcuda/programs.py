# SPDX-License-Identifier: Apache-2.0
"""Programs of CUDA calls, written in Python and run by ``program.c`` on the simulated CUDA library or a real GPU.

A program is a list of steps on each of several threads; handles are slots such as ``s0`` that any thread may use::

    program = Program()
    program.add("ctx_create", "c0", 0, 0)
    program.add("stream_create", "s0", 1, 0)
    program.add("launch", "s0", 20_000)
    program.on(1).add("ctx_set", "c0").add("ctx_sync")

``program.h`` says what the slots are, ``program_steps.c`` which steps there are.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.truth import Truth, read_truth

__all__ = ["Program", "Run", "Step", "Thread", "as_text", "read_runs", "run_programs", "step_names"]

PASSED_OVER = -1
"""Result of a step that named an empty slot."""


class Thread:
    """The steps of one thread, in the making."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def add(self, step: str, *arguments: str | int) -> Thread:
        """Add a step and return the thread."""
        self._lines.append(" ".join([step, *map(str, arguments)]))
        return self


class Program:
    """A program in the making; steps are added to thread 0 unless :meth:`on` says another."""

    def __init__(self) -> None:
        self._threads: defaultdict[int, list[str]] = defaultdict(list)

    def on(self, thread: int) -> Thread:
        """Return a thread, from 0, to add steps to."""
        return Thread(self._threads[thread])

    def add(self, step: str, *arguments: str | int) -> Thread:
        """Add a step to thread 0."""
        return self.on(0).add(step, *arguments)

    def __str__(self) -> str:
        """The program as text."""
        blocks = ("\n".join([f"thread {number}", *lines]) for number, lines in sorted(self._threads.items()))
        return "\n".join(blocks) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What a step returned.

    Attributes:
        thread: number in the program.
        line: number in the file, from 1.
        name: of the step.
        result: CUresult, or ``PASSED_OVER``.
    """

    thread: int
    line: int
    name: str
    result: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One program that ran.

    Attributes:
        program: place in the file, from 0.
        pid: its process.
        status: exit status, or less than 0 the signal that ended it; -14 (SIGALRM) if it took too long.
        steps: what each step returned, if that was asked for.
        truth: None if none was asked for or none is there.
    """

    program: int
    pid: int
    status: int
    steps: tuple[Step, ...] = ()
    truth: Truth | None = field(default=None, repr=False)


def as_text(programs: Sequence[Program | str]) -> str:
    """Return programs as the text of one file."""
    return "".join(f"program\n{program}\n" for program in programs)


def step_names() -> dict[str, str]:
    """Return every step and what it takes, from the interpreter's own table; see ``struct operation`` in program.h."""
    source = (resources.files("fencepath_cuda.simcuda") / "program_steps.c").read_text(encoding="utf-8")
    return dict(re.findall(r'^\tX\((\w+), "([^"]*)"', source, re.MULTILINE))


def read_runs(output: str, truth: Path | None = None) -> list[Run]:
    """Read what the interpreter printed, and the truth of each program.

    Args:
        output: its standard output.
        truth: the path that SIMCUDA_TRUTH was, with ``%p`` in it.

    Returns:
        The runs in the order of the programs.
    """
    runs: list[Run] = []
    steps: defaultdict[int, list[Step]] = defaultdict(list)
    for line in map(json.loads, output.splitlines()):
        if "step" in line:
            step = Step(thread=line["thread"], line=line["line"], name=line["step"], result=line["result"])
            steps[line["program"]].append(step)
            continue
        path = truth.with_name(truth.name.replace("%p", str(line["pid"]))) if truth else None
        found = read_truth(path) if path and path.exists() else None
        made = tuple(steps[line["program"]])
        runs.append(Run(program=line["program"], pid=line["pid"], status=line["status"], steps=made, truth=found))
    return sorted(runs, key=lambda run: run.program)


def run_programs(
    library: SimCuda,
    programs: Sequence[Program | str],
    folder: Path,
    *,
    results: bool = False,
    timeout_s: int = 30,
    fail: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Run]:
    """Run programs on the simulated library, a process each, one after the other.

    To record them, write :func:`as_text` to a file, record ``library.program`` with it in ``library.environment`` with a
    truth of ``folder / "truth-%p"``, and read what was printed with :func:`read_runs`.

    Args:
        library: the simulated library.
        programs: what to run.
        folder: where the programs and their truth are written to.
        results: whether the steps' results are wanted.
        timeout_s: how long one program may take, in seconds.
        fail: SIMCUDA_FAIL.
        environment: more of the environment.

    Returns:
        The runs in the order of the programs. A program that is killed for its time has what truth it wrote.

    Raises:
        ValueError: a program is not understood.
    """
    file, truth = folder / "programs.txt", folder / "truth-%p"
    file.write_text(as_text(programs), encoding="utf-8")
    command: list[str | Path] = [
        library.program,
        "--timeout",
        str(timeout_s),
        *(["--results"] if results else []),
        file,
    ]
    done = subprocess.run(
        command,
        env={**library.environment(truth=truth, fail=fail), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    runs = read_runs(done.stdout, truth)
    if any(run.status == _NOT_UNDERSTOOD for run in runs) or len(runs) != len(programs):
        raise ValueError(f"the interpreter did not take the programs: {done.stderr.strip()}")
    return runs


_NOT_UNDERSTOOD = 2
