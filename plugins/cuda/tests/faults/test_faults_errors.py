# SPDX-License-Identifier: Apache-2.0
"""Calls that fail, of every group of functions, with the codes of the headers and one that they do not have."""

from __future__ import annotations

from collections import Counter

import pytest
from plugins.cuda.tests.faults.programs.errors import FAILURES, GROUPS
from plugins.cuda.tests.faults.workbench import Bench, Recorded, Row

from fencepath.export.spans import spans_of
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.errors import NOT_READY, Api, error_name
from fencepath_cuda.functions import TABLE

pytestmark = pytest.mark.bpf

CODES = {name: code for group in GROUPS.values() for name, code in group.items()}


@pytest.fixture(scope="module")
def failing(bench: Bench) -> Recorded:
    library = bench.library
    done = bench.record(*bench.python("errors", library.libcuda, library.libcudart), fail=FAILURES)
    assert done.lost == 0
    return done


def failed(recorded: Recorded) -> dict[str, Row]:
    rows = [row for row in recorded.rows() if row["returned"] and row["result"]]
    assert Counter(row["name"] for row in rows) == dict.fromkeys(CODES, 1)
    return {row["name"]: row for row in rows}


def test_every_group_of_the_table_has_failures() -> None:
    kinds = {TABLE.functions[LABELS.index(name)].kind for name in CODES}
    layers = {".".join(kind.split(".")[:2]) for kind in kinds}
    assert layers >= {"cuda.memcpy", "cuda.malloc", "cuda.free", "cuda.launch", "cuda.stream", "cuda.event"}
    assert layers >= {"cuda.context", "cuda.graph", "cuda.module", "cuda.runtime", "cuda.memory", "cuda.memset"}


@pytest.mark.parametrize("group", GROUPS)
def test_calls_are_recorded_with_what_they_returned(failing: Recorded, group: str) -> None:
    (truth,) = failing.truths.values()
    said = {call.name: call.result for call in truth.calls if call.result}
    assert said == CODES
    rows = failed(failing)
    assert {name: rows[name]["result"] for name in GROUPS[group]} == GROUPS[group]


def test_every_call_is_recorded_once(failing: Recorded) -> None:
    (truth,) = failing.truths.values()
    failing.compared(truth.pid)


def test_no_edge_leads_from_or_to_them(failing: Recorded) -> None:
    activities = {row["activity"] for row in failed(failing).values()}
    edges = failing.analysis.edges
    assert not activities & {*edges.cause.tolist(), *edges.effect.tolist()}
    assert {edges.rules[rule] for rule in edges.rule.tolist()} == {"cuda.submit", "cuda.stream_synchronize"}


def test_what_they_were_to_make_is_not_there(failing: Recorded) -> None:
    """A creation that failed names no stream and no CUDA event, whatever lies where its handle would be."""
    for name, row in failed(failing).items():
        if row["kind"].endswith(".create"):
            assert (row.get("stream", -1), row.get("event", -1)) == (-1, -1), name


def test_spans_name_the_error(failing: Recorded) -> None:
    """By the header's name of the code, of the API that the function is of; a query that answers "not yet" has none."""
    (request,) = failing.analysis.requests
    spans = [dict(span.attributes or {}) for span in spans_of(failing.analysis, request)]
    named = {span["cuda.function"]: span.get("error.type") for span in spans if span.get("cuda.function") in CODES}
    results = {span["cuda.function"]: span["cuda.result"] for span in spans if "cuda.result" in span}
    assert results == {name: code for name, code in CODES.items() if code != NOT_READY}
    assert set(named) == set(CODES)
    for name, code in CODES.items():
        api: Api = "runtime" if name.startswith("cuda") else "driver"
        assert code == NOT_READY or named[name] == error_name(api, code)
    assert named["cuLaunchKernelEx"] == "CUDA_ERROR_LAUNCH_FAILED"
    assert named["cudaStreamSynchronize"] == "cudaErrorLaunchFailure"
    assert named["cuStreamCreateWithPriority"] == "unknown (31337)"
    assert [named[name] for name, code in CODES.items() if code == NOT_READY] == [None] * 3
