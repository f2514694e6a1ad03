# SPDX-License-Identifier: Apache-2.0
"""Requests as they are found in marks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fencepath import Analysis
from fencepath._builtin.events import MARK_LAYOUTS
from fencepath._builtin.marks import Op
from fencepath._loader import load_plugins
from fencepath.records import Flags, Records
from fencepath.requests import Request, RequestState
from fencepath.testing import write_recording

POINT, TEXT, _ = MARK_LAYOUTS
ALICE, BOB = 11, 13


def row(
    records: Records,
    index: int,
    time_ns: int,
    tid: int,
    op: Op,
    request: int,
    value: int = 0,
    phase: int = 0,
    text: str = "",
) -> None:
    records["time_ns"][index] = time_ns
    records["tgid"][index], records["tid"][index] = 7, tid
    records["flags"][index] = int(Flags.TASK)
    records["op"][index], records["request"][index] = int(op), request
    records["value"][index], records["phase"][index] = value, phase
    if text:
        data = text.encode()
        records["len"][index] = len(data)
        records["text"][index, : len(data)] = np.frombuffer(data, np.uint8)


def requests_of(
    tmp_path: Path, begins: list[tuple[int, int, int, str]], points: list[tuple[int, int, Op, int, int, int]]
) -> dict[str, Request]:
    texts = np.zeros(len(begins), TEXT.dtype)
    for index, (time_ns, tid, request, name) in enumerate(begins):
        row(texts, index, time_ns, tid, Op.REQUEST_BEGIN, request, text=name)
    others = np.zeros(len(points), POINT.dtype)
    for index, (time_ns, tid, op, request, value, phase) in enumerate(points):
        row(others, index, time_ns, tid, op, request, value, phase)
    recording = write_recording(tmp_path / "marks.fencepath", {TEXT: texts, POINT: others})
    found = Analysis(recording, load_plugins(entry_points=False)).requests
    return {request.key: request for request in found}


def test_a_mark_without_a_request_belongs_to_the_one_its_thread_is_bound_to(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path,
        [(100, ALICE, 5, "a"), (110, BOB, 6, "b")],
        [
            (120, ALICE, Op.BIND, 5, 0, 0),
            (130, ALICE, Op.TOKEN, 0, 1, 0),
            (131, BOB, Op.TOKEN, 0, 1, 0),
            (140, ALICE, Op.UNBIND, 5, 0, 0),
            (150, ALICE, Op.TOKEN, 0, 2, 0),
            (160, ALICE, Op.STEP_BEGIN, 0, 0, 0),
            (190, ALICE, Op.REQUEST_END, 5, 0, 0),
            (200, BOB, Op.REQUEST_END, 6, 0, 0),
        ],
    )
    assert set(found) == {"a", "b"}
    assert found["a"].token_ns == {1: 130}
    assert found["b"].token_ns == {}


def test_phases_are_cut_where_the_next_begins(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path,
        [(100, ALICE, 5, "a")],
        [
            (110, ALICE, Op.PHASE_BEGIN, 5, 0, 2),
            (130, ALICE, Op.PHASE_BEGIN, 5, 0, 3),
            (170, ALICE, Op.REQUEST_END, 5, 0, 0),
        ],
    )
    assert [(span.begin_ns, span.end_ns, span.phase) for span in found["a"].phases] == [
        (110, 130, "prefill"),
        (130, 170, "decode"),
    ]


def test_a_request_without_an_end_is_open_and_one_without_a_begin_says_so(tmp_path: Path) -> None:
    found = requests_of(
        tmp_path, [(100, ALICE, 5, "a")], [(120, BOB, Op.TOKEN, 9, 3, 0), (150, BOB, Op.TOKEN, 9, 4, 0)]
    )
    assert found["a"].state is RequestState.OPEN
    assert found["a"].end_ns == 150
    assert found["0000000000000009"].state is RequestState.BEGIN_UNKNOWN
    assert found["0000000000000009"].token_ns == {3: 120, 4: 150}


@pytest.mark.parametrize("again", [1, 2])
def test_an_id_that_begins_again_is_another_request(tmp_path: Path, again: int) -> None:
    begins = [(100 * (i + 1), ALICE, 5, "a") for i in range(again + 1)]
    texts = np.zeros(len(begins), TEXT.dtype)
    for index, (time_ns, tid, request, name) in enumerate(begins):
        row(texts, index, time_ns, tid, Op.REQUEST_BEGIN, request, text=name)
    recording = write_recording(tmp_path / "marks.fencepath", {TEXT: texts})
    found = Analysis(recording, load_plugins(entry_points=False)).requests
    assert [request.id for request in found] == [f"a@{100 * (i + 1)}" for i in range(again + 1)]
