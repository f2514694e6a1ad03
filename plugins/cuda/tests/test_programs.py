# SPDX-License-Identifier: Apache-2.0
"""Random programs on the simulated CUDA library, recorded by this kernel and compared with what its device says it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plugins.cuda.tests.generated import programs, racing_programs
from plugins.cuda.tests.truths import RULE_OF, Compared, OpKey, record_programs

from fencepath_cuda.model import ORDERS
from fencepath_cuda.simcuda import SimCuda, build
from fencepath_cuda.simcuda.programs import Program
from fencepath_cuda.simcuda.truth import Op

pytestmark = pytest.mark.bpf

TOGETHER = 40
"""Programs in one recording."""
SLOW_IS_FINE = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)
RECORDED = settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=SLOW_IS_FINE,
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture(scope="module")
def simcuda(tmp_path_factory: pytest.TempPathFactory) -> SimCuda:
    return build(tmp_path_factory.mktemp("simcuda"))


@RECORDED
@given(st.lists(programs(), min_size=TOGETHER, max_size=TOGETHER))
def test_everything_the_device_did_is_known(
    simcuda: SimCuda, tmp_path_factory: pytest.TempPathFactory, chosen: list[Program]
) -> None:
    _, compared = record_programs(simcuda, chosen, tmp_path_factory.mktemp("programs"))
    for one in compared:
        said = f"in this program:\n{chosen[one.run.program]}"
        ops = one.ops()
        assert set(one.operations.values()) == set(ops), said
        check_order(one, ops, said)
        check_waits(one, ops, said)
        check_bounds(one, ops, said)


@RECORDED
@given(st.lists(racing_programs(), min_size=TOGETHER // 2, max_size=TOGETHER // 2))
def test_nothing_is_said_to_be_sure_that_did_not_happen(
    simcuda: SimCuda, tmp_path_factory: pytest.TempPathFactory, chosen: list[Program]
) -> None:
    """Of threads that are in each other's way."""
    _, compared = record_programs(simcuda, chosen, tmp_path_factory.mktemp("racing"))
    for one in compared:
        said = f"in this program:\n{chosen[one.run.program]}"
        ops = one.ops()
        # whether a wait found a record can depend on which of two calls was the faster
        names = {call.number: call.name for call in one.truth.calls}
        for number, _ in set(one.operations.values()) ^ set(ops):
            assert names[number].startswith("cuStreamWaitEvent"), (number, said)
        check_bounds(one, {name: op for name, op in ops.items() if name in one.bounds}, said)
        for edge in one.edges:
            if edge.sure and edge.rule in ORDERS and edge.cause in ops and edge.effect in ops:
                assert isinstance(edge.effect, tuple)
                assert ops[edge.cause].end_ns <= ops[edge.effect].start_ns, (edge, said)


def check_order(one: Compared, ops: dict[OpKey, Op], said: str) -> None:
    """Each dependency of the device is an edge of its rule, and each edge a dependency, or what is left out is implied.

    The device leaves out what was over when the call came, and repeats what follows from the order of a stream.
    """
    key = {op.id: name for name, op in ops.items()}
    every = _ordered(one, ops)
    for why, rule in RULE_OF.items():
        wanted = {(key[e.op], name) for name, op in ops.items() for e in op.after if e.why == why and e.op in key}
        found = {(cause, effect) for cause, effect in one.of_rule(rule) if isinstance(effect, tuple)}
        if why in ("stream", "event", "graph"):
            assert found == wanted, (why, said)
            continue
        for cause, effect in wanted - found:
            assert nx.has_path(every, cause, effect), (why, cause, effect, said)
        for cause, effect in found - wanted:
            assert ops[cause].done_ns <= ops[effect].submit_ns or _in_truth(ops, key, cause, effect), (why, said)
    assert all(edge.sure for edge in one.edges if edge.rule in ORDERS), said
    assert nx.is_directed_acyclic_graph(every), said


def _ordered(one: Compared, ops: dict[OpKey, Op]) -> nx.DiGraph[OpKey]:
    """The order of operations that the model says."""
    every: nx.DiGraph[OpKey] = nx.DiGraph()
    every.add_nodes_from(ops)
    every.add_edges_from(
        (edge.cause, edge.effect) for edge in one.edges if edge.rule in ORDERS and isinstance(edge.effect, tuple)
    )
    return every


def _in_truth(ops: dict[OpKey, Op], key: dict[int, OpKey], cause: OpKey, effect: OpKey) -> bool:
    """Whether the device had made an operation wait for another, by whichever way."""
    seen, ahead = set[OpKey](), [effect]
    while ahead:
        name = ahead.pop()
        if name == cause:
            return True
        if name not in seen:
            seen.add(name)
            ahead += [key[edge.op] for edge in ops[name].after if edge.op in key]
    return False


WAITING = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH_v2")
"""Calls that always wait. Whether another copy does depends on what memory it is of, so nothing is said of them."""


def check_waits(one: Compared, ops: dict[OpKey, Op], said: str) -> None:
    """Each call that waited is joined to what it waited for.

    What is left out had been over before it began, or comes before something that is not left out.
    """
    key = {op.id: name for name, op in ops.items()}
    every = _ordered(one, ops)
    over: set[OpKey] = set()
    for call in one.truth.calls:
        if not call.waited_for or call.result or not call.name.startswith(WAITING):
            continue
        waited = {key[op] for op in call.waited_for if op in key}
        found = {edge.cause for edge in one.edges if edge.effect == call.number}
        for name in waited - found - over:
            is_implied = any(nx.has_path(every, name, cause) for cause in found)
            assert is_implied or ops[name].done_ns <= call.begin_ns, (name, call, said)
        for name in found - waited:
            assert ops[name].end_ns <= call.end_ns, (call, name, said)
        over |= found


def check_bounds(one: Compared, ops: dict[OpKey, Op], said: str) -> None:
    """Every stated bound contains what happened."""
    for name, op in ops.items():
        earliest, latest = one.bounds[name]
        assert earliest <= op.start_ns, (op, said)
        assert latest is None or op.end_ns <= latest, (op, said)


def test_programs_are_worth_it(simcuda: SimCuda, tmp_path: Path) -> None:
    """What generated programs hold, so that the tests above cannot become empty."""
    chosen: list[Program] = []

    @settings(
        max_examples=150,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=SLOW_IS_FINE,
    )
    @given(programs())
    def collect(program: Program) -> None:
        chosen.append(program)

    collect()
    _, compared = record_programs(simcuda, chosen, tmp_path)
    found = _contents(compared)
    assert {why for why in RULE_OF if found[why]} == set(RULE_OF)
    assert min(found[why] for why in ("stream", "event", "legacy", "graph")) > 10
    assert found["bounded"] > 300
    assert found["rules"] >= 10


def _contents(compared: Sequence[Compared]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in compared:
        found.update(edge.why for op in one.truth.ops.values() for edge in op.after)
        found["bounded"] += sum(latest is not None for _, latest in one.bounds.values())
    found["rules"] = len({edge.rule for one in compared for edge in one.edges})
    return found
