# SPDX-License-Identifier: Apache-2.0
"""The program of ``calls/``: it calls a library and says what it called, and a recording must say the same."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import NamedTuple, Self

from tests.faults.commandline import Done, ForkServer

from fencepath import Analysis
from fencepath.recording import Recording, open_recording

__all__ = ["THREADS", "Call", "Caller", "Calls", "Said", "Suite", "build_caller", "calls_of", "record_suite", "said_in"]

THREADS = 200
"""Of the program's mode suite, at once."""

_SOURCES = Path(__file__).parent / "calls"
# Every function begins with a push, as those of libcuda do, and every call is a call.
_FRAMES = ("-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fcf-protection=none")
_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", *_FRAMES)


class Caller(NamedTuple):
    """The compiled program and its library, ``libcuda.so.1``, alone in a folder of its own; and both in one file."""

    program: Path
    library: Path
    both: Path

    def command(self, truth: Path, *words: str, library: Path | None = None) -> list[str]:
        """Return the words that run it; the library is looked for by its name alone unless one is given."""
        return [str(self.program), str(truth), str(library or self.library.name), *words]


def build_caller(folder: Path) -> Caller:
    """Compile both."""
    (folder / "library").mkdir()
    made = Caller(folder / "program", folder / "library" / "libcuda.so.1", folder / "both")
    include = f"-I{resources.files('fencepath') / 'include'}"
    _compile(made.program, "program.c", include, "-pthread", "-ldl")
    _compile(made.library, "library.c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    _compile(made.both, "program.c", str(_SOURCES / "library.c"), include, "-pthread", "-ldl", "-rdynamic")
    return made


def _compile(target: Path, source: str, *flags: str) -> None:
    subprocess.run(["cc", *_FLAGS, str(_SOURCES / source), *flags, "-o", str(target)], check=True)


class Said(NamedTuple):
    """A line of the truth: some calls of one function by one thread. `end_ns` is 0 if it did not return."""

    label: str
    tgid: int
    tid: int
    function: str
    calls: int
    begin_ns: int
    end_ns: int

    @classmethod
    def parse(cls, line: str) -> Self:
        label, tgid, tid, function, count, begin_ns, end_ns = line.split()
        return cls(label, int(tgid), int(tid), function, int(count), int(begin_ns), int(end_ns))


def said_in(truth: Path) -> list[Said]:
    """Return what the program says it called."""
    return [Said.parse(line) for line in truth.read_text().splitlines()]


class Call(NamedTuple):
    """A call as recorded."""

    kind: str
    function: str
    tgid: int
    tid: int
    begin_ns: int
    time_ns: int
    flags: int


class Calls:
    """The calls of a recording."""

    def __init__(self, found: Iterable[Call]) -> None:
        self.all = sorted(found, key=lambda call: call.begin_ns)

    def of(self, said: Said) -> list[Call]:
        """Calls that the program may have meant by a line."""
        until_ns = said.end_ns or said.begin_ns + 1_000_000_000
        return [
            call
            for call in self.all
            if call.function == said.function
            and (call.tgid, call.tid) == (said.tgid, said.tid)
            and said.begin_ns <= call.begin_ns <= until_ns
        ]

    def counts(self, truth: Iterable[Said]) -> dict[tuple[str, str], tuple[int, int]]:
        """Return for each label and function how many calls were said, and how many recorded."""
        said: Counter[tuple[str, str]] = Counter()
        seen: Counter[tuple[str, str]] = Counter()
        for line in truth:
            said[line.label, line.function] += line.calls
            seen[line.label, line.function] += len(self.of(line))
        return {key: (count, seen[key]) for key, count in said.items()}


def calls_of(path: Path) -> tuple[Recording, Calls]:
    """Open a recording and read its calls."""
    recording = open_recording(path)
    names = [text.split()[0] for text in recording.manifest.functions["cuda"]]
    columns = ("function", "tgid", "tid", "begin_ns", "time_ns", "flags")
    found: list[Call] = []
    for kind in recording.kinds:
        if not kind.startswith("cuda."):
            continue
        records = recording.records(kind)
        for function, *rest in zip(*(records[name].tolist() for name in columns), strict=True):
            found.append(Call(kind, names[function], *rest))
    return recording, Calls(found)


class Suite:
    """The mode suite: faults of one program in one recording.

    Attributes:
        done: how the recording ended.
        alone: how the program ends without one.
        recording: what was recorded.
        calls: its calls.
        truth: what the program says.
    """

    def __init__(self, done: Done, alone: Done, path: Path, truth: Path) -> None:
        self.done = done
        self.alone = alone
        self.recording, self.calls = calls_of(path)
        self.truth = said_in(truth)

    @cached_property
    def analysis(self) -> Analysis:
        """All that can be said of the recording."""
        return Analysis(self.recording)

    def said(self, label: str, function: str = "cuMemAlloc_v2") -> list[Said]:
        """Lines of the truth."""
        found = [line for line in self.truth if (line.label, line.function) == (label, function)]
        assert found, f"{label} was not reached"
        return found

    def process_of(self, said: Said) -> str:
        """Return the identity of the process that made the calls of a line; all are of one."""
        batch = self.analysis.view.batch("cuda.malloc")
        begins = {call.begin_ns for call in self.calls.of(said)}
        rows = [row for row, begin_ns in enumerate(batch["begin_ns"].tolist()) if begin_ns in begins]
        assert len(rows) == said.calls
        names = {self.analysis.entity_text(int(batch["process"][row])) for row in rows}
        assert len(names) == 1, names
        return names.pop()


def record_suite(folder: Path, caller: Caller, knowing: ForkServer) -> Suite:
    """Run the suite without and with a recording."""
    environ = {**os.environ, "LD_LIBRARY_PATH": str(caller.library.parent)}
    words = caller.command(folder / "alone", "suite")
    alone = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=60)
    path, truth = folder / "suite.fencepath", folder / "truth"
    done = knowing.run("record", "-o", path, "--layers", "cuda", "--", *caller.command(truth, "suite"))
    return Suite(done, Done(alone.returncode, alone.stdout, alone.stderr), path, truth)
