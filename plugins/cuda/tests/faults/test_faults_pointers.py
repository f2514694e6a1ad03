# SPDX-License-Identifier: Apache-2.0
"""Pointers that cannot be read: the call is recorded and flagged, and its program does not notice."""

from __future__ import annotations

from typing import Any

import pytest
from plugins.cuda.tests.faults.programs.pointers import FAILURES, KINDS, NAMES, REFUSED
from plugins.cuda.tests.faults.workbench import Bench, Recorded, Row
from tests.faults.commandline import Done

from fencepath.records import Flags
from fencepath_cuda.events import StreamKind
from fencepath_cuda.model import ORDERS
from fencepath_cuda.simcuda.truth import Truth

pytestmark = pytest.mark.bpf

INVALID_VALUE = 1


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Done:
    """The program without a recording."""
    return bench.alone(*bench.python("pointers", bench.library.libcuda), fail=FAILURES)


@pytest.fixture(scope="module")
def recorded(bench: Bench) -> Recorded:
    found = bench.record(*bench.python("pointers", bench.library.libcuda), fail=FAILURES)
    assert found.lost == 0
    return found


@pytest.fixture(scope="module")
def truth(recorded: Recorded) -> Truth:
    (found,) = recorded.truths.values()
    return found


@pytest.fixture(scope="module")
def refused(recorded: Recorded) -> list[tuple[dict[str, Any], Row]]:
    """What the program says of each call that was refused, and its row."""
    rows = {name: iter([row for row in recorded.rows(name=name) if row["result"]]) for name in REFUSED}
    pairs = [(line, next(rows[line["function"]])) for line in recorded.said if "function" in line]
    assert [row for left in rows.values() for row in left] == []
    assert len(pairs) == len(KINDS) * len(REFUSED) + len(NAMES)
    return pairs


def test_the_program_does_what_it_does_alone(alone: Done, recorded: Recorded) -> None:
    assert (alone.code, alone.errors) == (0, "")
    assert recorded.done.output == alone.output
    assert [line["result"] for line in recorded.said if "result" in line] == [INVALID_VALUE] * (
        len(KINDS) * len(REFUSED) + 3
    )
    assert [line["launched"] for line in recorded.said if "launched" in line] == [0, 0, 0]


def test_no_page_is_brought_in_for_it(recorded: Recorded) -> None:
    assert [line["untouched_is_resident"] for line in recorded.said if "untouched_is_resident" in line] == [False]


def test_every_call_is_recorded_once_with_its_result(recorded: Recorded, truth: Truth) -> None:
    """But for the operation of the launch whose stream could not be read, the device did what is known."""
    one = recorded.compared(truth.pid)
    _, second, *_ = truth.named("cuLaunchKernelEx")
    assert set(one.ops()) - set(one.operations.values()) == {(second.number, 0)}


def is_fault(said: dict[str, Any]) -> bool:
    """Whether there was something to read that could not be read."""
    return said["pointer"] != "null" and said["pointer"] not in NAMES


def test_what_could_not_be_read_is_flagged(refused: list[tuple[dict[str, Any], Row]]) -> None:
    """Where there is no pointer there is nothing to read, and no fault."""
    for said, row in refused:
        assert row["result"] == said["result"]
        assert bool(row["flags"] & Flags.READ_FAULT) == is_fault(said), said


def test_faults_can_be_counted(recorded: Recorded, refused: list[tuple[dict[str, Any], Row]]) -> None:
    """Besides the refused calls there is the launch whose structure only the driver brought in."""
    flagged = sum(bool(row["flags"] & Flags.READ_FAULT) for row in recorded.rows())
    assert flagged == sum(is_fault(said) for said, _ in refused) + 1


def test_what_could_not_be_read_is_not_taken_for_something(refused: list[tuple[dict[str, Any], Row]]) -> None:
    """A stream that is not known is not the default stream, and nothing was made."""
    for said, row in refused:
        if said["function"] == "cuLaunchKernelEx":
            assert (row["stream_kind"], row["stream"], row["grid_x"]) == (StreamKind.NONE, -1, 0)
        if said["function"] in ("cuStreamCreate", "cuEventCreate"):
            assert (row.get("stream", -1), row.get("event", -1)) == (-1, -1)
        assert not any(row.get(name, 0) for name in ("graph", "kernel", "address", "dependency_0"))
        assert row["symbol"] == "" or said["pointer"] in NAMES


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_end_where_the_memory_does_are_whole(refused: list[tuple[dict[str, Any], Row]], kind: str) -> None:
    (row,) = [row for said, row in refused if said["pointer"] == kind]
    assert row["symbol"] == NAMES[kind][:383].decode()
    assert not row["flags"] & Flags.READ_FAULT
    assert bool(row["flags"] & Flags.TRUNCATED) == (kind == "too long")


def test_all_that_is_said_of_the_launches_is_true(recorded: Recorded, truth: Truth) -> None:
    """One of three on a stream could not be read; the others are still in order, and waited for."""
    one = recorded.compared(truth.pid)
    ops = one.ops()
    for key in one.operations.values():
        earliest, latest = one.bounds[key]
        assert earliest <= ops[key].start_ns
        assert latest is None or ops[key].end_ns <= latest
    for edge in one.edges:
        if edge.sure and edge.rule in ORDERS and isinstance(edge.effect, tuple):
            assert ops[edge.cause].end_ns <= ops[edge.effect].start_ns
    (wait,) = truth.named("cuStreamSynchronize")
    assert any(edge.effect == wait.number for edge in one.edges)
