# SPDX-License-Identifier: Apache-2.0
"""A recording of programs on the simulated CUDA library, and the truth of each of them beside it."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fencepath import Analysis, open_recording
from fencepath._loader import load_plugins
from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.functions import TABLE, table_for
from fencepath_cuda.model import SubmitRule
from fencepath_cuda.rows import SUBMITTING
from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.programs import Program, Run, as_text, read_runs
from fencepath_cuda.simcuda.truth import Call, Op

__all__ = ["RULE_OF", "Compared", "OpKey", "compare", "record_programs"]

RULE_OF = {
    "stream": "cuda.stream_order",
    "event": "cuda.stream_wait_event",
    "legacy": "cuda.legacy_stream",
    "graph": "cuda.graph_order",
    "exec": "cuda.graph_exec",
}
"""Why the simulated device made one operation wait for another, and the rule that has to know it."""

MAKERS = (*SUBMITTING, "cuda.graph.node")

OpKey = tuple[int, int]
"""An operation: number of the call that submitted it, and of the one that made the node (0 if it is no node)."""


class Edge(NamedTuple):
    """An edge between operations, or from an operation to a call (then `effect` is its number)."""

    rule: str
    cause: OpKey
    effect: OpKey | int
    sure: bool


class Compared:
    """One process: its truth, and what was recorded and worked out of it.

    Attributes:
        run: the program, with its truth.
        number_of: truth's number of each recorded call, by activity.
        operations: operation by activity.
        bounds: earliest start, latest end (None if not bounded) of each operation.
        edges: of the rules of order and of waits.
    """

    def __init__(self, analysis: Analysis, run: Run, rows: list[dict[str, Any]], operations: list[int]) -> None:
        assert run.truth is not None
        self.run = run
        self.truth = run.truth
        self.number_of = dict(_match(self.truth.calls, rows))
        table, edges = analysis.table, analysis.edges
        batch = analysis.view.batch("cuda.operation")
        makers = _makers(analysis, operations, self.number_of)
        self.operations = {activity: makers[activity] for activity in operations}
        assert len(set(self.operations.values())) == len(operations), "two operations are one"
        self.bounds: dict[OpKey, tuple[int, int | None]] = {}
        for activity, key in self.operations.items():
            open_end = batch["flags"][table.locate(activity)[1]] & Flags.OPEN
            self.bounds[key] = int(table.begin[activity]), None if open_end else int(table.end[activity])
        self.edges = [
            Edge(edges.rules[int(edges.rule[i])], self.operations[int(edges.cause[i])], self._end(int(edges.effect[i])),
                 int(edges.confidence[i]) == 1)
            for i in np.flatnonzero(np.isin(edges.cause, operations)).tolist()
        ]  # fmt: skip

    def _end(self, activity: int) -> OpKey | int:
        return self.operations[activity] if activity in self.operations else self.number_of[activity]

    def ops(self) -> dict[OpKey, Op]:
        """Truth's operations by their keys."""
        return {(op.call, op.made_by or 0): op for op in self.truth.ops.values()}

    def of_rule(self, *rules: str) -> set[tuple[OpKey, OpKey | int]]:
        """Edges of rules."""
        return {(edge.cause, edge.effect) for edge in self.edges if edge.rule in rules}


def _match(calls: Sequence[Call], rows: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Pair truth's calls with recorded ones by function, thread and order: none may be missing, none too many."""
    known = {
        symbol: LABELS[TABLE.index(symbol)] for function in table_for("full").functions for symbol in function.symbols
    }
    truth: dict[tuple[str, int], list[Call]] = defaultdict(list)
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        if call.name in known:
            truth[known[call.name], call.tid].append(call)
    for row in rows:
        found[LABELS[row["label"]], row["tid"]].append(row)
    assert Counter({key: len(each) for key, each in truth.items()}) == Counter(
        {key: len(each) for key, each in found.items()}
    )
    for key, mine in truth.items():
        begins = sorted(found[key], key=lambda row: row["begin_ns"])
        for call, row in zip(mine, begins, strict=True):
            assert bisect_right([row["begin_ns"]], call.begin_ns), "it was recorded too late"
            assert row["flags"] & Flags.ENTRY_ONLY or call.end_ns <= row["time_ns"], (call, row)
            assert not row["returned"] or row["result"] == call.result, (call, row)
            yield row["activity"], call.number


def _makers(analysis: Analysis, operations: list[int], number_of: dict[int, int]) -> dict[int, OpKey]:
    """The key of each operation, by its submitting call and the call that made the node."""
    (rule,) = (rule for _, rule in analysis._derived_rules if isinstance(rule, SubmitRule))
    table, edges = analysis.table, analysis.edges
    submit = np.flatnonzero(edges.rule == edges.rules.index("cuda.submit"))
    call = dict(zip(edges.effect[submit].tolist(), edges.cause[submit].tolist(), strict=True))
    code, row = rule.operations.made_by()
    place = {int(at): operation for operation, at in enumerate(rule.place)}
    found: dict[int, OpKey] = {}
    for activity in operations:
        operation = place[table.locate(activity)[1]]
        maker = 0
        if rule.operations.node[operation] >= 0:
            maker = number_of[int(analysis.view.activities(MAKERS[int(code[operation])])[int(row[operation])])]
        found[activity] = number_of[call[activity]], maker
    return found


def record_programs(
    library: SimCuda, programs: Sequence[Program], folder: Path, *options: str
) -> tuple[Analysis, list[Compared]]:
    """Record the interpreter running programs, a process each, and compare."""
    file, truth, recording = folder / "programs.txt", folder / "truth-%p", folder / "run.fencepath"
    file.write_text(as_text(programs))
    recorder = [sys.executable, "-m", "fencepath", "record", "-o", recording, "--layers", "cuda", "--as-root"]
    words = [*recorder, *(options or ("--detail", "full")), "--", library.program, "--timeout", "30", file]
    done = subprocess.run(
        list(map(str, words)),
        env=library.environment(truth=truth),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    runs = read_runs(done.stdout, truth)
    assert len(runs) == len(programs)
    analysis = Analysis(open_recording(recording), load_plugins())
    assert analysis.problems == ()
    assert not [row for row in analysis.recording.loss if row.count]
    return analysis, list(compare(analysis, runs))


def compare(analysis: Analysis, runs: Sequence[Run]) -> Iterator[Compared]:
    """Sort what was recorded by process."""
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for kind in analysis.view.kinds:
        if kind.startswith("cuda.") and kind != "cuda.operation":
            batch = analysis.view.batch(kind)
            names = ("label", "tid", "tgid", "begin_ns", "time_ns", "flags", "returned", "result")
            plain = {name: batch[name].tolist() for name in names}
            plain["activity"] = analysis.view.activities(kind).tolist()
            for values in zip(*plain.values(), strict=True):
                row = dict(zip(plain, values, strict=True))
                rows[row["tgid"]].append(row)
    operations: dict[int, list[int]] = defaultdict(list)
    tgids = analysis.view.batch("cuda.operation")["tgid"].tolist()
    for activity, tgid in zip(analysis.view.activities("cuda.operation").tolist(), tgids, strict=True):
        operations[tgid].append(activity)
    for run in runs:
        yield Compared(analysis, run, rows[run.pid], operations[run.pid])
