# SPDX-License-Identifier: Apache-2.0
"""A process that forks after it has started CUDA: what its children do is theirs, and fails as it does alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plugins.cuda.tests.faults.programs.forks import CHILDREN
from plugins.cuda.tests.faults.workbench import Bench, Recorded
from plugins.cuda.tests.test_programs import check_bounds, check_order, check_waits

pytestmark = pytest.mark.bpf

NOT_INITIALIZED = 3
USED = ["cuLaunchKernel", "cuEventRecord", "cuCtxSynchronize"]
"""Calls that a child makes of the functions that are recorded."""
STARTED = ("becomes", "uses and becomes", "spawned")
"""Children that start CUDA themselves, as another program."""


@pytest.fixture(scope="module")
def forked(bench: Bench) -> Recorded:
    found = bench.record(*bench.python("forks", bench.library.libcuda))
    assert found.lost == 0
    return found


@pytest.fixture(scope="module")
def children(forked: Recorded) -> dict[str, dict[str, Any]]:
    found = {line["child"]: line for line in forked.said if "child" in line}
    assert tuple(found) == CHILDREN
    assert {name: line["status"] for name, line in found.items()} == dict.fromkeys(CHILDREN, 0)
    return found


@pytest.fixture(scope="module")
def parent(forked: Recorded) -> int:
    return int(forked.said[0]["parent"])


def test_what_is_recorded_of_each_process_is_what_it_did(
    forked: Recorded, parent: int, children: dict[str, dict[str, Any]]
) -> None:
    assert set(forked.truths) == {parent, *(children[name]["pid"] for name in STARTED)}
    for pid in (parent, children["becomes"]["pid"], children["spawned"]["pid"]):
        one = forked.compared(pid)
        ops = one.ops()
        assert len(ops) == (6 if pid == parent else 2)
        assert set(one.operations.values()) == set(ops)
        check_order(one, ops, str(pid))
        check_waits(one, ops, str(pid))
        check_bounds(one, ops, str(pid))
    assert forked.rows(children["ends"]["pid"]) == []
    assert {row["tgid"] for row in forked.rows()} == {parent, *(line["pid"] for line in children.values())} - {
        children["ends"]["pid"]
    }


def test_calls_of_a_child_are_its_own_and_do_nothing(
    forked: Recorded, parent: int, children: dict[str, dict[str, Any]]
) -> None:
    child = children["uses"]
    assert child["results"] == [NOT_INITIALIZED] * 4
    rows = forked.rows(child["pid"])
    assert [(row["name"], row["result"]) for row in rows] == [(name, NOT_INITIALIZED) for name in USED]
    assert {row["tid"] for row in rows} == {child["pid"]}
    operations = forked.analysis.view.batch("cuda.operation")["tgid"].tolist()
    assert set(operations) == {parent, *(children[name]["pid"] for name in STARTED)}
    activities = [row["activity"] for row in rows]
    edges = forked.analysis.edges
    assert not np.isin(edges.cause, activities).any()
    assert not np.isin(edges.effect, activities).any()


def test_handles_of_a_child_are_not_those_of_its_parent(
    forked: Recorded, parent: int, children: dict[str, dict[str, Any]]
) -> None:
    """Though their values are the same."""
    child = children["uses"]
    mine, theirs = forked.rows(child["pid"], "cuEventRecord"), forked.rows(parent, "cuEventRecord")
    assert {row["stream_handle"] for row in mine} == {row["stream_handle"] for row in theirs}
    assert {row["event_handle"] for row in mine} == {row["event_handle"] for row in theirs}
    for column in ("process", "thread", "stream", "event"):
        own, other = ({forked.text(row[column]) for row in rows} for rows in (mine, theirs))
        assert len(own) == len(other) == 1
        assert not own & other, column
    (text,) = {forked.text(row["stream"]) for row in mine}
    assert f"/{child['pid']}@" in text
    assert text.endswith("#0"), "its process has made none"


def test_a_child_that_becomes_another_program_is_another_process(
    forked: Recorded, children: dict[str, dict[str, Any]]
) -> None:
    """With the same pid and start, and one more exec."""
    pid = children["uses and becomes"]["pid"]
    rows = forked.rows(pid)
    before, after = rows[: len(USED)], rows[len(USED) :]
    assert [(row["name"], row["result"]) for row in before] == [(name, NOT_INITIALIZED) for name in USED]
    assert len(after) == len(forked.rows(children["becomes"]["pid"]))
    assert not any(row["result"] for row in after)
    (first,), (second,) = ({forked.text(row["process"]) for row in part} for part in (before, after))
    assert first.rpartition("#")[0] == second.rpartition("#")[0]
    assert int(second.rpartition("#")[2]) == int(first.rpartition("#")[2]) + 1
