# SPDX-License-Identifier: Apache-2.0
"""Decoding, streams and rules on records made by hand: no root, no kernel, no libacme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from fencepath import Analysis
from fencepath.joins import JoinRule
from fencepath.records import Flags, RecordLayout, Records
from fencepath.testing import RecordingFrom

from fencepath_acme.events import DOORBELL, DOORBELL_LAYOUT, STREAM_CREATE, SUBMIT, WAIT
from fencepath_acme.functions import TABLE

PROCESS, THREAD, DEVICE = 100, 101, 102
TASK = int(Flags.TASK)
LAYOUTS = {layout.kind: layout for layout in TABLE.layouts()}


def calls(function: str, *rows: Mapping[str, int | Sequence[int]]) -> dict[RecordLayout, Records]:
    """Calls of one function by one thread; `args` and `out` are lists of words."""
    index = TABLE.index(function)
    layout = LAYOUTS[TABLE.functions[index].kind]
    made = np.zeros(len(rows), layout.dtype)
    made["tgid"], made["tid"], made["flags"], made["function"] = PROCESS, THREAD, TASK, index
    for record, row in zip(made, rows, strict=True):
        for name, value in row.items():
            if isinstance(value, Sequence):
                record[name][: len(value)] = value
            else:
                record[name] = value
    return {layout: made}


def doorbells(*times_ns: int) -> dict[RecordLayout, Records]:
    made = np.zeros(len(times_ns), DOORBELL_LAYOUT.dtype)
    made["tgid"], made["tid"], made["flags"], made["device_tid"] = PROCESS, THREAD, TASK, DEVICE
    made["time_ns"] = times_ns
    return {DOORBELL_LAYOUT: made}


@pytest.fixture
def analysis(recording_from: RecordingFrom) -> Analysis:
    """Two streams in turn with one handle, a job on each, one doorbell outside of any call, a job that was refused."""
    handle, pointer = 0x7000, 0x1000
    records = {
        **calls(
            "acme_stream_create",
            {"begin_ns": 100, "time_ns": 110, "args": [pointer], "out": [handle]},
            {"begin_ns": 300, "time_ns": 310, "args": [pointer], "out": [handle]},
        ),
        **calls(
            "acme_submit",
            {"begin_ns": 120, "time_ns": 130, "args": [handle, 7, 4096]},
            {"begin_ns": 320, "time_ns": 330, "args": [handle, 8, 1 << 40]},
            {"begin_ns": 340, "time_ns": 350, "args": [handle, 0, 1], "result": -22 & 0xFFFFFFFF},
        ),
        **calls("acme_wait", {"begin_ns": 140, "time_ns": 200, "args": [handle]}),
        **doorbells(125, 250, 325),
    }
    return Analysis(recording_from(records, functions={"acme": TABLE.recorded}))


def test_nothing_went_wrong(analysis: Analysis) -> None:
    assert analysis.problems == ()


def test_arguments_and_results(analysis: Analysis) -> None:
    submits = analysis.view.batch(SUBMIT)
    assert submits["kernel"].tolist() == [7, 8, 0]
    assert submits["bytes"].tolist() == [4096, 1 << 40, 1]
    assert submits["result"].tolist() == [0, 0, -22]
    assert {submits.labels[label] for label in submits["label"]} == {"acme_submit"}


def test_a_handle_that_comes_back_is_another_stream(analysis: Analysis) -> None:
    def names(kind: str) -> list[str]:
        return [
            analysis.entity_text(stream).rpartition("/")[2] for stream in analysis.view.batch(kind)["stream"].tolist()
        ]

    assert names(STREAM_CREATE) == ["0x7000#1", "0x7000#2"]
    assert names(SUBMIT) == ["0x7000#1", "0x7000#2", "0x7000#2"]
    assert names(WAIT) == ["0x7000#1"]


def test_a_doorbell_belongs_to_the_call_around_it(analysis: Analysis) -> None:
    edges = analysis.edges
    rows = edges.rule == edges.rules.index("acme.ring")
    causes = [analysis.table.locate(cause) for cause in edges.cause[rows].tolist()]
    effects = [analysis.table.locate(effect) for effect in edges.effect[rows].tolist()]
    assert causes == [(SUBMIT, 0), (SUBMIT, 1)]
    assert effects == [(DOORBELL, 0), (DOORBELL, 2)]


def test_a_rule_to_a_layer_that_was_not_recorded_is_off(analysis: Analysis) -> None:
    counts = {count.rule: count for count in analysis.joins if count.rule.startswith("acme.")}
    assert (counts["acme.ring"].matched, counts["acme.ring"].unmatched) == (2, 1)
    assert "host.waking" in counts["acme.woken"].off


def test_a_span_says_what_the_call_was_about(analysis: Analysis) -> None:
    from fencepath_acme.plugin import fencepath_span_attributes

    submits = analysis.view.batch(SUBMIT)
    row = {name: column[:1].tolist()[0] for name, column in submits.columns.items()}
    assert fencepath_span_attributes(SUBMIT, row) == {
        "acme.function": "acme_submit",
        "acme.kernel": 7,
        "acme.bytes": 4096,
    }


def test_rules_are_data() -> None:
    from fencepath_acme.plugin import fencepath_rules

    assert all(isinstance(rule, JoinRule) for rule in fencepath_rules())
