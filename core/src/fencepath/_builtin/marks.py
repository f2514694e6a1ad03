# SPDX-License-Identifier: Apache-2.0
"""Finds requests in marks."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from fencepath._builtin.events import MARK_POINT, MARK_TEXT
from fencepath.joins import View
from fencepath.mark import Op
from fencepath.requests import PhaseSpan, Request, RequestState

__all__ = ["MarkRequests", "Op"]


_NO_REQUEST = frozenset({Op.STEP_BEGIN, Op.STEP_END, Op.STEP_MEMBERS, Op.SEND, Op.RECEIVE, Op.BIND, Op.UNBIND})
PHASES = ("none", "queue", "prefill", "decode")


class _Mark(msgspec.Struct):
    time_ns: int
    thread: int
    op: int
    value: int
    phase: int
    text: str = ""
    trace_id: str = ""
    span_id: str = ""
    trace_flags: int = 0


class MarkRequests:
    """Pairs begin and end marks of each request id. An id that begins again while it is open begins a new request."""

    def requests(self, view: View) -> Iterable[Request]:
        """Return all requests; those without an end are open, those without a begin begin_unknown."""
        first_ns, last_ns = view.extent_ns
        for number, marks in _by_request(view).items():
            yield from _requests_of(number, marks, first_ns, last_ns)


def _by_request(view: View) -> dict[int, list[_Mark]]:
    marks: dict[int, list[_Mark]] = defaultdict(list)
    points = view.batch(MARK_POINT)
    if len(points):
        for time_ns, thread, op, value, request, phase in zip(
            *(points[name].tolist() for name in ("time_ns", "thread", "op", "value", "request", "phase")), strict=True
        ):
            marks[request].append(_Mark(time_ns, thread, op, value, phase))
    texts = view.batch(MARK_TEXT)
    if len(texts):
        names = ("time_ns", "thread", "op", "value", "request", "phase", "text", "trace_id", "span_id", "trace_flags")
        for time_ns, thread, op, value, request, phase, *rest in zip(
            *(texts[name].tolist() for name in names), strict=True
        ):
            marks[request].append(_Mark(time_ns, thread, op, value, phase, *rest))
    for rows in marks.values():
        rows.sort(key=lambda mark: mark.time_ns)
    _give_to_bound(marks)
    return marks


def _give_to_bound(marks: dict[int, list[_Mark]]) -> None:
    """Marks without a request belong to the one that their thread is bound to; the others (steps, hand-overs) to none."""
    nameless = marks.pop(0, [])
    if not nameless:
        return
    binds: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for request, rows in marks.items():
        for mark in rows:
            if mark.op in (Op.BIND, Op.UNBIND):
                binds[mark.thread].append((mark.time_ns, request if mark.op == Op.BIND else 0))
    for mark in nameless:
        if mark.op == Op.UNBIND:
            binds[mark.thread].append((mark.time_ns, 0))
    for changes in binds.values():
        changes.sort()
    for mark in nameless:
        bound = [request for time_ns, request in binds[mark.thread] if time_ns <= mark.time_ns][-1:]
        if bound and bound[0] and mark.op not in _NO_REQUEST:
            insort(marks[bound[0]], mark, key=lambda row: row.time_ns)


def _requests_of(number: int, marks: list[_Mark], first_ns: int, last_ns: int) -> Iterator[Request]:
    current: list[_Mark] = []
    for mark in marks:
        if mark.op == Op.REQUEST_BEGIN and current:
            yield _request(number, current, first_ns, mark.time_ns)
            current = []
        current.append(mark)
        if mark.op == Op.REQUEST_END:
            yield _request(number, current, first_ns, last_ns)
            current = []
    if any(mark.op in (Op.REQUEST_BEGIN, Op.TOKEN, Op.PHASE_BEGIN, Op.BIND) for mark in current):
        yield _request(number, current, first_ns, last_ns)


def _request(number: int, marks: list[_Mark], first_ns: int, last_ns: int) -> Request:
    begin = marks[0] if marks[0].op == Op.REQUEST_BEGIN else None
    end = marks[-1] if marks[-1].op == Op.REQUEST_END else None
    state = RequestState.COMPLETE if begin and end else RequestState.OPEN if begin else RequestState.BEGIN_UNKNOWN
    tokens = {mark.value: mark.time_ns for mark in marks if mark.op == Op.TOKEN}
    end_ns = end.time_ns if end else last_ns
    key = begin.text if begin and begin.text else f"{number:016x}"
    return Request(
        key=key,
        number=number,
        start_ns=begin.time_ns if begin else first_ns,
        end_ns=end_ns,
        state=state,
        start_thread=marks[0].thread,
        end_thread=marks[-1].thread,
        trace_id=begin.trace_id if begin else "",
        parent_span_id=begin.span_id if begin else "",
        trace_flags=begin.trace_flags if begin else 0,
        first_token_ns=tokens[min(tokens)] if tokens else None,
        token_ns=tokens,
        phases=tuple(_phases(marks, end_ns)),
        attributes=dict(mark.text.split("=", 1) for mark in marks if mark.op == Op.ATTRIBUTE and "=" in mark.text),
    )


def _phases(marks: list[_Mark], end_ns: int) -> Iterator[PhaseSpan]:
    """Phases as marked; a phase that begins while another is open ends that one."""
    open_phase: tuple[int, int] | None = None
    for mark in marks:
        if mark.op not in (Op.PHASE_BEGIN, Op.PHASE_END, Op.REQUEST_END):
            continue
        if open_phase is not None:
            yield PhaseSpan(open_phase[0], mark.time_ns, PHASES[open_phase[1]])
        known = 0 < mark.phase < len(PHASES)
        open_phase = (mark.time_ns, mark.phase) if mark.op == Op.PHASE_BEGIN and known else None
    if open_phase is not None:
        yield PhaseSpan(open_phase[0], end_ns, PHASES[open_phase[1]])
