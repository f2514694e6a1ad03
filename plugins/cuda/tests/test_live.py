# SPDX-License-Identifier: Apache-2.0
"""Recordings of programs on the simulated CUDA library, compared with what that library says it did."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fencepath import Analysis, open_recording
from fencepath._loader import load_plugins
from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.functions import TABLE, table_for
from fencepath_cuda.rules import RUNTIME_RULES
from fencepath_cuda.simcuda import SimCuda, build
from fencepath_cuda.simcuda.truth import Call, Truth, read_truth

pytestmark = pytest.mark.bpf

HERE = Path(__file__).parent

ARGUMENTS = {
    "handle": "stream_handle",
    "event_handle": "event_handle",
    "bytes": "bytes",
    "to": "destination",
    "from": "source",
    "device": "address",
    "host": "address",
    "host_function": "host_function",
    "graph_handle": "graph",
    "exec_handle": "graph_exec",
    "shared_bytes": "shared_bytes",
    "attributes": "attributes",
    "mode": "mode",
}
"""Arguments in the truth, and the columns that have them."""

DEFAULT_STREAMS = {0: 0x1}
"""The column names a default stream by its own handle."""


@pytest.fixture(scope="module")
def simcuda(tmp_path_factory: pytest.TempPathFactory) -> SimCuda:
    return build(tmp_path_factory.mktemp("simcuda"))


@pytest.fixture(scope="module")
def mix(simcuda: SimCuda) -> Path:
    program = simcuda.folder / "mix"
    include = Path(sys.modules["fencepath_cuda.simcuda"].__path__[0])
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{include}", "-Wl,-rpath,$ORIGIN"]
    command = ["cc", *flags, HERE / "mix.c", simcuda.libcuda, "-o", program]
    subprocess.run(list(map(str, command)), check=True)
    return program


NOT_TOLD = frozenset({"__cudaRegisterFunction"})
"""Functions of which the truth has no calls: the library only keeps what they are given, before it opens the truth."""


class Recorded:
    """A recording and the truth beside it, call by call."""

    def __init__(self, folder: Path) -> None:
        self.truth: Truth = read_truth(folder / "truth")
        self.analysis = Analysis(open_recording(folder / "run.fencepath"), load_plugins())
        self.rows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self.activity_of: dict[int, int] = {}
        self._read()

    def _read(self) -> None:
        for kind in self.analysis.view.kinds:
            if not kind.startswith("cuda.") or kind == "cuda.operation":
                continue
            batch = self.analysis.view.batch(kind)
            plain = {name: column.tolist() for name, column in batch.columns.items()}
            plain["activity"] = self.analysis.view.activities(kind).tolist()
            for values in zip(*plain.values(), strict=True):
                row = dict(zip(plain, values, strict=True))
                if LABELS[row["label"]] not in NOT_TOLD:
                    self.rows[LABELS[row["label"]], row["tid"]].append(row)
        for rows in self.rows.values():
            rows.sort(key=lambda row: row["begin_ns"])

    def covered(self, names: set[str]) -> dict[tuple[str, int], list[Call]]:
        """Truth's calls of these functions, by function and thread, in order."""
        found: dict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in self.truth.calls:
            if call.name in names:
                found[LABELS[TABLE.index(call.name)], call.tid].append(call)
        return found

    @property
    def lost(self) -> Counter[str]:
        """How many records of each kind the recording says it has lost."""
        lost: Counter[str] = Counter()
        for row in self.analysis.recording.loss:
            lost[row.kind] += row.count
        return +lost

    def match(self, names: set[str]) -> list[tuple[Call, dict[str, Any]]]:
        """Pair the calls of the truth with their rows: every row has its call, and what has no row is said to be lost."""
        pairs: list[tuple[Call, dict[str, Any]]] = []
        missing: Counter[str] = Counter()
        truth = self.covered(names)
        assert set(self.rows) <= set(truth)
        for key, calls in truth.items():
            begins, used = [row["begin_ns"] for row in self.rows[key]], -1
            for call in calls:
                at = bisect_right(begins, call.begin_ns) - 1
                if at > used:
                    pairs.append((call, self.rows[key][at]))
                    assert at == used + 1, "a row without a call"
                    used = at
                else:
                    missing[TABLE.functions[TABLE.index(call.name)].kind] += 1
            assert used == len(begins) - 1, "a row without a call"
        assert missing == self.lost
        self.activity_of = {call.number: row["activity"] for call, row in pairs}
        return pairs

    def operations(self) -> dict[int, set[int]]:
        """Activities of the operations that each call submitted, by the number of truth's call."""
        edges = self.analysis.edges
        number = {activity: call for call, activity in self.activity_of.items()}
        found: dict[int, set[int]] = defaultdict(set)
        for i in np.flatnonzero(edges.rule == edges.rules.index("cuda.submit")).tolist():
            found[number[int(edges.cause[i])]].add(int(edges.effect[i]))
        return found


@pytest.fixture
def record(simcuda: SimCuda, tmp_path: Path) -> Callable[..., Recorded]:
    """Return a function that records a command through the command line."""

    def once(folder: Path, command: Sequence[str | Path], options: Sequence[str], fail: str | None) -> Recorded:
        folder.mkdir()
        output = folder / "run.fencepath"
        recorder = [sys.executable, "-m", "fencepath", "record", "-o", str(output), "--layers", "cuda", "--as-root"]
        environment = simcuda.environment(truth=folder / "truth", fail=fail)
        done = subprocess.run(
            [*recorder, *options, "--", *map(str, command)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Recorded(folder)

    def run(command: Sequence[str | Path], *options: str, fail: str | None = None) -> Recorded:
        return once(tmp_path / "0", command, options, fail)

    return run


def names_at(detail: Any) -> set[str]:
    return {symbol for function in table_for(detail).functions for symbol in function.symbols}


def check_call(call: Call, row: dict[str, Any], *, exact: bool) -> None:
    """Times inside, result and arguments as they were."""
    assert row["begin_ns"] <= call.begin_ns, call
    assert row["flags"] & Flags.TASK
    if row["flags"] & Flags.ENTRY_ONLY:
        assert not exact
    else:
        assert call.end_ns <= row["time_ns"], call
        assert (row["returned"], row["result"]) == (True, call.result), call
    for argument, column in ARGUMENTS.items():
        if argument in call.arguments and column in row and not (call.result and argument == "handle"):
            said = call.arguments[argument]
            value = int(said, 16) if isinstance(said, str) else said
            value = DEFAULT_STREAMS.get(value, value) if column == "stream_handle" else value
            assert row[column] == value, (argument, call, row)
    for name in ("grid", "block"):
        if name in call.arguments:
            assert [row[f"{name}_{axis}"] for axis in "xyz"] == list(call.arguments[name]), call


@pytest.mark.parametrize("exact", [False, True])
def test_every_call_is_there_as_it_was(record: Callable[..., Recorded], mix: Path, exact: bool) -> None:
    recorded = record([mix, "3", "211", "5"], "--detail", "full", *(["--exact"] if exact else []))
    assert recorded.analysis.problems == ()
    pairs = recorded.match(names_at("full"))
    assert len(pairs) > 600
    assert len({call.tid for call, _ in pairs}) == 4
    for call, row in pairs:
        check_call(call, row, exact=exact)


def test_the_runtime_api_and_its_driver_calls(record: Callable[..., Recorded], simcuda: SimCuda) -> None:
    command = [simcuda.workload, "--runtime", "--threads", "2", "--launches", "307"]
    recorded = record(command, "--detail", "full", "--exact")
    pairs = recorded.match(names_at("full"))
    for call, row in pairs:
        check_call(call, row, exact=True)
    inner = [call for call, _ in pairs if call.outer is not None]
    assert len(inner) >= 2 * 307
    joins = {join.rule: join for join in recorded.analysis.joins}
    launches = joins["cuda.runtime.launch"]
    assert (launches.matched, launches.unmatched, launches.ambiguous) == (2 * 307, 0, 0)
    edges = recorded.analysis.edges
    runtime = [number for number, name in enumerate(edges.rules) if name in {rule.name for rule in RUNTIME_RULES}]
    rows = [i for i in range(len(edges)) if edges.rule[i] in runtime]
    number = {activity: call for call, activity in recorded.activity_of.items()}
    found = {(number[int(edges.cause[i])], number[int(edges.effect[i])]) for i in rows}
    by_number = {call.number: call for call in recorded.truth.calls}
    joined = {rule.effect.kind for rule in RUNTIME_RULES}
    wanted = {
        (call.outer, call.number)
        for call in inner
        if by_number[call.outer or 0].name in names_at("full")
        and TABLE.functions[TABLE.index(call.name)].kind in joined
        and TABLE.functions[TABLE.index(by_number[call.outer or 0].name)].kind == "cuda.runtime.call"
    }
    assert found == wanted


def test_less_detail_records_less(record: Callable[..., Recorded], mix: Path) -> None:
    recorded = record([mix, "2", "101", "3"], "--detail", "sync")
    recorded.match(names_at("sync"))
    off = {join.rule: join.off for join in recorded.analysis.joins}
    assert off["cuda.stream_synchronize"] == "cuda.launch was not recorded"
    assert off["cuda.submit"] == "cuda.launch was not recorded"
    assert off["cuda.event_synchronize"] == ""


def test_handles_given_out_again_are_other_entities(record: Callable[..., Recorded], mix: Path) -> None:
    recorded = record([mix, "3", "211", "8", "serial"], "--detail", "launch")
    entities: dict[tuple[str, int], set[str]] = defaultdict(set)
    for call, row in recorded.match(names_at("launch")):
        for number, column in (("stream", "stream"), ("event", "event")):
            known = call.arguments.get(number)
            if known is not None and row.get(column, -1) >= 0 and not call.result:
                entities[column, known].add(recorded.analysis.entity_text(row[column]))
    assert len(entities) > 20
    assert {key: len(texts) for key, texts in entities.items() if len(texts) != 1} == {}
    assert len({text for texts in entities.values() for text in texts}) == len(entities)


def test_calls_that_fail_are_recorded_and_submit_nothing(record: Callable[..., Recorded], mix: Path) -> None:
    wish = "cuStreamSynchronize:719:2,cuLaunchKernel:719:3+"
    recorded = record([mix, "2", "101", "23", "serial"], "--detail", "launch", "--exact", fail=wish)
    pairs = recorded.match(names_at("launch"))
    failed = {call.number for call, row in pairs if row["result"]}
    assert failed == {call.number for call, _ in pairs if call.result}
    assert {call.name for call, _ in pairs if call.number in failed} >= {"cuStreamSynchronize", "cuLaunchKernel"}
    submitted = recorded.operations()
    assert len(submitted) > 50
    assert not failed & set(submitted)
    joined = {int(effect) for effect in recorded.analysis.edges.effect}
    waits = {recorded.activity_of[call.number] for call, _ in pairs if call.number in failed}
    assert not joined & waits
