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

import networkx as nx
import pytest

from fencepath import Analysis, open_recording
from fencepath._loader import load_plugins
from fencepath.joins import EdgeBatch, GraphRule
from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.functions import TABLE, table_for
from fencepath_cuda.rules import RUNTIME_RULES, cuda_rules
from fencepath_cuda.simcuda import SimCuda, build
from fencepath_cuda.simcuda.truth import Call, Op, Truth, read_truth

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
            if not kind.startswith("cuda."):
                continue
            batch = self.analysis.view.batch(kind)
            plain = {name: column.tolist() for name, column in batch.columns.items()}
            plain["activity"] = self.analysis.view.activities(kind).tolist()
            for values in zip(*plain.values(), strict=True):
                row = dict(zip(plain, values, strict=True))
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

    def edges(self, *rules: str) -> list[tuple[EdgeBatch, int, int]]:
        """Edges of rules as (batch, cause, effect), by the numbers of truth's calls."""
        number = {activity: call for call, activity in self.activity_of.items()}
        found: list[tuple[EdgeBatch, int, int]] = []
        for rule in cuda_rules():
            if isinstance(rule, GraphRule) and rule.name in rules:
                for batch in rule.apply(self.analysis.view):
                    pairs = zip(batch.cause.tolist(), batch.effect.tolist(), strict=True)
                    found += [(batch, number[cause], number[effect]) for cause, effect in pairs]
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

    def run(command: Sequence[str | Path], *options: str, fail: str | None = None, tries: int = 1) -> Recorded:
        """With more tries, record again as long as the recording says that it lost something."""
        recorded = once(tmp_path / "0", command, options, fail)
        for number in range(1, tries):
            if recorded.lost:
                recorded = once(tmp_path / str(number), command, options, fail)
        return recorded

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
    recorded = record(command, "--detail", "full", "--exact", tries=3)
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
    wanted = {(call.outer, call.number) for call in inner if by_number[call.outer or 0].name in names_at("full")}
    assert found == wanted


def test_less_detail_records_less(record: Callable[..., Recorded], mix: Path) -> None:
    recorded = record([mix, "2", "101", "3"], "--detail", "sync")
    recorded.match(names_at("sync"))
    off = {join.rule: join.off for join in recorded.analysis.joins}
    assert off["cuda.stream_synchronize"] == "cuda.launch was not recorded"
    assert off["cuda.event_synchronize"] == ""


def test_handles_given_out_again_are_other_entities(record: Callable[..., Recorded], mix: Path) -> None:
    recorded = record([mix, "3", "211", "8", "serial"], "--detail", "launch", tries=3)
    entities: dict[tuple[str, int], set[str]] = defaultdict(set)
    for call, row in recorded.match(names_at("launch")):
        for number, column in (("stream", "stream"), ("event", "event")):
            known = call.arguments.get(number)
            if known is not None and row.get(column, -1) >= 0 and not call.result:
                entities[column, known].add(recorded.analysis.entity_text(row[column]))
    assert len(entities) > 20
    assert {key: len(texts) for key, texts in entities.items() if len(texts) != 1} == {}
    assert len({text for texts in entities.values() for text in texts}) == len(entities)


class Device:
    """Truth's operations by the calls that submitted them."""

    def __init__(self, truth: Truth) -> None:
        self.calls = {call.number: call for call in truth.calls}
        self.ops: dict[int, list[Op]] = defaultdict(list)
        for op in truth.ops.values():
            self.ops[op.call].append(op)
        self.all = truth.ops

    def waited_for(self, wait: Call) -> set[int]:
        return {self.all[op].call for op in wait.waited_for}

    def was_over(self, calls: set[int], time_ns: int) -> bool:
        """Whether all that some calls submitted had ended. The library forgets the work of destroyed streams, which had."""
        return all(op.end_ns <= time_ns for call in calls for op in self.ops[call])


SUBMISSIONS = ("cuda.stream_order", "cuda.stream_wait_event", "cuda.legacy_stream")
WAITS = ("cuda.stream_synchronize", "cuda.event_synchronize", "cuda.context_synchronize", "cuda.legacy_stream")


def test_what_had_to_wait_on_the_device_is_connected(record: Callable[..., Recorded], mix: Path) -> None:
    """Every dependency that the device had is a path of edges between the calls."""
    recorded = record([mix, "3", "307", "13", "serial"], "--detail", "launch", tries=3)
    recorded.match(names_at("launch"))
    device = Device(recorded.truth)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from((cause, effect) for _, cause, effect in recorded.edges(*SUBMISSIONS))
    dependencies = {
        (edge.why, device.all[edge.op].call, _first_bound(device, op))
        for op in device.all.values()
        for edge in op.after
        if edge.op in device.all
    }
    counts: dict[str, int] = defaultdict(int)
    for why, cause, effect in dependencies:
        if effect is not None and cause != effect:
            counts[why] += 1
            assert cause in graph, (why, device.calls[cause])
            assert nx.has_path(graph, cause, effect), (why, device.calls[cause], device.calls[effect])
    assert counts["stream"] > 500
    assert counts["event"] > 30
    assert counts["legacy"] > 10


def _first_bound(device: Device, op: Op) -> int | None:
    """The call an operation's dependency binds: its own, or, of a wait for a CUDA event, what follows on the stream."""
    while op.kind == "wait_event":
        following = [o for o in device.all.values() if any(e.op == op.id and e.why == "stream" for e in o.after)]
        if not following:
            return None
        op = following[0]
    return op.call


def test_waits_are_joined_to_what_they_waited_for(record: Callable[..., Recorded], mix: Path) -> None:
    """Every wait has the calls that the library says it waited for, but those already waited for in full."""
    recorded = record([mix, "3", "307", "17", "serial"], "--detail", "launch", "--exact", tries=3)
    recorded.match(names_at("launch"))
    device = Device(recorded.truth)
    found: dict[int, set[int]] = defaultdict(set)
    for batch, cause, effect in recorded.edges(*WAITS):
        if device.calls[effect].name.endswith("Synchronize"):
            assert batch.confidence == "bounded"
            found[effect].add(cause)
    waits = recorded.truth.named("cuStreamSynchronize", "cuEventSynchronize")
    assert len(waits) > 40
    for wait in waits:
        assert device.was_over(found[wait.number] - device.waited_for(wait), wait.begin_ns), wait
        if "handle" not in wait.arguments or int(wait.arguments["handle"], 16) > 1:
            assert found[wait.number] == device.waited_for(wait), wait
    everything: set[int] = set()
    for wait in recorded.truth.named("cuCtxSynchronize"):
        assert device.was_over(found[wait.number] - device.waited_for(wait), wait.begin_ns), wait
        assert device.waited_for(wait) <= everything | found[wait.number], wait
        everything |= device.waited_for(wait)
    assert len(everything) > 20


def test_no_edge_claims_what_the_device_did_not_do(record: Callable[..., Recorded], mix: Path) -> None:
    """From threads that overlap: what is said to come after did start, or the wait end, after the cause had finished."""
    recorded = record([mix, "4", "409", "19"], "--detail", "launch", "--exact", tries=3)
    recorded.match(names_at("launch"))
    device = Device(recorded.truth)
    checked: dict[str, int] = defaultdict(int)
    for batch, cause, effect in recorded.edges(*SUBMISSIONS, *WAITS):
        if batch.confidence == "inferred" or not device.ops[cause]:
            continue
        ended = max(op.end_ns for op in device.ops[cause])
        if device.ops[effect]:
            assert min(op.start_ns for op in device.ops[effect]) >= ended, (device.calls[cause], device.calls[effect])
        elif device.calls[effect].name.endswith("Synchronize"):
            assert device.calls[effect].end_ns >= ended, (device.calls[cause], device.calls[effect])
        checked[batch.order] += 1
    assert checked["start_start"] > 700
    assert checked["finish_finish"] > 100


def test_calls_that_fail_are_recorded_and_give_no_edges(record: Callable[..., Recorded], mix: Path) -> None:
    wish = "cuStreamSynchronize:719:2,cuLaunchKernel:719:3+"
    recorded = record([mix, "2", "101", "23", "serial"], "--detail", "launch", "--exact", fail=wish, tries=3)
    pairs = recorded.match(names_at("launch"))
    failed = {call.number for call, row in pairs if row["result"]}
    assert failed == {call.number for call, _ in pairs if call.result}
    assert {call.name for call, _ in pairs if call.number in failed} >= {"cuStreamSynchronize", "cuLaunchKernel"}
    joined = {number for _, *ends in recorded.edges(*SUBMISSIONS, *WAITS) for number in ends}
    assert len(joined) > 50
    assert not joined & failed
