# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated CUDA under the real command line, and the truth of each of their processes beside the recording."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from plugins.cuda.tests.truths import Compared, compare
from tests.faults.commandline import Done, ForkServer, Running

from fencepath import Analysis, open_recording
from fencepath.recording import Recording
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.programs import Run
from fencepath_cuda.simcuda.truth import Truth, read_truth

__all__ = ["Bench", "Recorded", "Row"]

_PROGRAMS = "plugins.cuda.tests.faults.programs"
_ROOT = Path(__file__).parents[4]
"""What the fork server's children run in."""

Row = dict[str, Any]
"""A recorded call: its columns, and besides them ``kind``, ``name`` (of its function) and ``activity``."""


class Recorded:
    """A recording that was made of a command.

    Attributes:
        folder: what its truth and the recording lie in.
        done: how ``fencepath record`` ended.
    """

    def __init__(self, folder: Path, done: Done) -> None:
        self.folder = folder
        self.done = done

    @property
    def path(self) -> Path:
        """The recording."""
        return self.folder / "run.fencepath"

    @cached_property
    def said(self) -> list[dict[str, Any]]:
        """What the command printed, a JSON object a line."""
        return [json.loads(line) for line in self.done.output.splitlines() if line.startswith("{")]

    @cached_property
    def recording(self) -> Recording:
        """The recording, opened."""
        return open_recording(self.path)

    @cached_property
    def analysis(self) -> Analysis:
        """All that can be said of it, without a problem."""
        analysis = Analysis(self.recording)
        assert analysis.problems == ()
        return analysis

    @cached_property
    def truths(self) -> dict[int, Truth]:
        """What the simulated device did in each process."""
        found = (read_truth(path) for path in self.folder.glob("truth-*"))
        return {truth.pid: truth for truth in found}

    @property
    def lost(self) -> int:
        """How many records it says it has lost."""
        return sum(row.count for row in self.recording.loss)

    def rows(self, pid: int | None = None, name: str = "") -> list[Row]:
        """Return the recorded calls of a process, by begin; of one function if one is named."""
        found = [row for row in self._rows if pid in (None, row["tgid"])]
        return [row for row in found if row["name"] == name] if name else found

    @cached_property
    def _rows(self) -> list[Row]:
        return sorted(_rows(self.analysis), key=lambda row: (row["begin_ns"], -row["time_ns"]))

    def compared(self, pid: int, truth: Truth | None = None) -> Compared:
        """Compare a process with its truth, or a part of it: no call may be missing, none too many."""
        (one,) = compare(self.analysis, [Run(program=0, pid=pid, status=0, truth=truth or self.truths[pid])])
        return one

    def row_of(self, one: Compared, number: int) -> Row:
        """Return what was recorded of a call by its number in the truth."""
        (activity,) = (activity for activity, call in one.number_of.items() if call == number)
        return next(row for row in self._rows if row["activity"] == activity)

    def text(self, entity: int) -> str:
        """Return an entity's name, "" of none."""
        return self.analysis.entity_text(entity) if entity >= 0 else ""


def _rows(analysis: Analysis) -> Iterator[Row]:
    for kind in analysis.view.kinds:
        if not kind.startswith("cuda.") or kind == "cuda.operation":
            continue
        plain = {name: column.tolist() for name, column in analysis.view.batch(kind).columns.items()}
        plain["symbol"] = plain.pop("name", [""] * len(plain["label"]))
        plain["name"] = [LABELS[label] for label in plain["label"]]
        plain["kind"] = [kind] * len(plain["label"])
        plain["activity"] = analysis.view.activities(kind).tolist()
        for values in zip(*plain.values(), strict=True):
            yield dict(zip(plain, values, strict=True))


class Bench:
    """Makes recordings of programs on the simulated library, each in a folder of its own."""

    def __init__(self, library: SimCuda, commands: ForkServer, folder: Path) -> None:
        self.library = library
        self.commands = commands
        self.root = _ROOT
        self._folder = folder
        self._count = 0

    def folder(self) -> Path:
        """Return a new folder."""
        self._count += 1
        made = self._folder / str(self._count)
        made.mkdir()
        return made

    def settings(self, folder: Path, fail: str = "", **more: str) -> list[str]:
        """Return the words that start a command with these variables in its environment, and write its truth to a folder."""
        return [
            "env",
            f"SIMCUDA_TRUTH={folder}/truth-%p",
            f"SIMCUDA_FAIL={fail}",
            *(f"{k}={v}" for k, v in more.items()),
        ]

    def start(self, folder: Path, *what: str | Path, layers: str = "cuda", detail: str = "full") -> Running:
        """Start to record: options, and a command after ``--``, or none with ``--pid``."""
        options = ["--layers", layers, "--detail", detail, "--as-root"]
        return self.commands.start("record", "-o", folder / "run.fencepath", *options, *what)

    def record(
        self,
        *command: str | Path,
        fail: str = "",
        layers: str = "cuda",
        detail: str = "full",
        code: int = 0,
        **more: str,
    ) -> Recorded:
        """Record a command to its end.

        Args:
            command: its words.
            fail: SIMCUDA_FAIL.
            layers: which to record.
            detail: which functions are on.
            code: what it has to end with.
            more: more of its environment.
        """
        folder = self.folder()
        words = [*self.settings(folder, fail, **more), *map(str, command)]
        done = self.start(folder, "--", *words, layers=layers, detail=detail).wait()
        assert done.code == code, done.errors
        return Recorded(folder, done)

    def alone(self, *command: str | Path, fail: str = "") -> Done:
        """Run a command without a recording."""
        environ = self.library.environment(fail=fail or None)
        done = subprocess.run(
            [*map(str, command)], env=environ, capture_output=True, text=True, check=False, timeout=60, cwd=_ROOT
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def python(self, program: str, *arguments: str | Path) -> Sequence[str]:
        """Return the words that run a program of ``programs/`` in the folder that imports begin at."""
        return [sys.executable, "-m", f"{_PROGRAMS}.{program}", *map(str, arguments)]
