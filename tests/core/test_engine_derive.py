# SPDX-License-Identifier: Apache-2.0
"""Events that plugins derive from recorded ones, with bounds for times; and the plugins' own tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from rich.console import Console
from tests.core.synthetic import TOY, SchedPlugin, Story, ToyPlugin

from fencepath._loader import load_plugins
from fencepath._render.text import render_report
from fencepath.analysis import Analysis
from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import U32, Batch, Category, Event, KindInfo, Role
from fencepath.export._scene import scene_of
from fencepath.joins import Confidence, Derived, EdgeBatch, Events, GraphRule, Order, View
from fencepath.plugin import AttributeValue, TableRule, hookimpl
from fencepath.records import Flags
from fencepath.report import Report, Segment
from fencepath.requests import Request

THREAD = 7


class ToyWork(Event, frozen=True, kw_only=True, tag="toy.work"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, derived=True)
    label: U32


class ToyNever(Event, frozen=True, kw_only=True, tag="toy.never"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, derived=True)


WORK = "toy.work"
Change = Callable[[Batch], Any]


def work_of(events: Events) -> Batch:
    """One piece of work for each launch: not before the call began, and over when the recording ends."""
    calls = events.batch("toy.call")
    ends = [int(events.batch(kind)["time_ns"].max(initial=0)) for kind in ("toy.call", "toy.wait")]
    columns = {
        "begin_ns": calls["begin_ns"],
        "time_ns": np.full(len(calls), max(ends), np.uint64),
        **{name: calls[name] for name in ("tgid", "tid", "cpu", "process")},
        "flags": np.full(len(calls), int(Flags.BOUNDS), np.uint32),
        "thread": np.full(len(calls), NO_ENTITY, np.int64),
        "label": np.arange(len(calls)) % 2,
    }
    return Batch(WORK, columns, ("gemm", "softmax"))


class Rule:
    """A rule that ties some activities of one kind to some of another, by row."""

    def __init__(
        self,
        name: str,
        cause: str,
        effect: str,
        order: Order,
        rows: Sequence[tuple[int, int]] = ((0, 0),),
        confidence: Confidence = Confidence.BOUNDED,
        requires: tuple[str, ...] = (WORK,),
    ) -> None:
        self.name, self.requires = name, requires
        self._ends, self._rows, self._order, self._confidence = (cause, effect), rows, order, confidence

    def apply(self, view: View) -> list[EdgeBatch]:
        cause, effect = (
            view.activities(kind)[[pair[end] for pair in self._rows]] for end, kind in enumerate(self._ends)
        )
        return [
            EdgeBatch(
                cause=cause,
                effect=effect,
                order=self._order,
                confidence=self._confidence,
                gap=Category.DEVICE_EXECUTION,
            )
        ]


SUBMIT = Rule("toy.submit", "toy.call", WORK, Order.START_START)
DONE = Rule("toy.finish", WORK, "toy.wait", Order.FINISH_FINISH)


class Maker:
    """Derives the work; parts of it can be replaced by faulty ones."""

    kinds: tuple[str, ...] = (WORK,)

    def __init__(self, rules: Any = (SUBMIT, DONE), change: Change = lambda batch: [batch]) -> None:
        self._rules, self._change = rules, change

    def derive(self, events: Events, entities: Entities) -> Sequence[Batch]:
        found: Sequence[Batch] = self._change(work_of(events))
        return found

    def rules(self) -> Sequence[GraphRule]:
        if isinstance(self._rules, Exception):
            raise self._rules
        found: Sequence[GraphRule] = self._rules
        return found


class Deriving(ToyPlugin):
    """The layer ``toy`` with derived kinds, and tables."""

    def __init__(self, maker: Any, tables: Sequence[TableRule] = ()) -> None:
        super().__init__(rules=())
        self._maker, self._tables = maker, tables

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (*TOY, ToyWork, ToyNever)

    @hookimpl
    def fencepath_derived(self) -> Derived:
        made: Derived = self._maker
        return made

    @hookimpl
    def fencepath_tables(self) -> Sequence[TableRule]:
        return self._tables


def told() -> Story:
    """A request of 1000 ns in which a thread launches twice and waits."""
    story = Story(sched=False)
    story.request("r", 0, 1000, THREAD)
    story.call("launch", 100, 200, THREAD)
    story.call("launch", 210, 220, THREAD)
    story.wait(250, 650, THREAD)
    return story


@pytest.fixture
def analyse(tmp_path: Path) -> Callable[..., Analysis]:
    def make(maker: Any, *, tables: Sequence[TableRule] = (), without: Sequence[str] = ()) -> Analysis:
        extra = {"toy": Deriving(maker, tables), "sched": SchedPlugin()}
        return told().analysis(tmp_path, load_plugins(extra, entry_points=False), without=without)

    return make


def wait_of(analysis: Analysis) -> Segment:
    """The one segment of the wait."""
    (request,) = analysis.report().requests
    (found,) = [segment for segment in request.path.segments if segment.category is Category.DEVICE_WAIT]
    return found


class TestEvents:
    def test_they_are_activities_like_others(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker())
        assert analysis.problems == ()
        work = analysis.view.activities(WORK)
        assert len(analysis.view.batch(WORK)) == len(work) == analysis.table.counts()[WORK] == 2
        assert [analysis.table.name(activity) for activity in work] == ["gemm", "softmax"]
        assert (analysis.table.bounds[work].all(), analysis.table.bounds.sum()) == (True, 2)

    def test_they_are_not_counted_as_recorded(self, analyse: Callable[..., Analysis]) -> None:
        events = analyse(Maker()).report().recording["events"]
        assert (events["toy.call"], WORK in events) == (2, False)

    def test_a_layer_of_which_nothing_was_recorded_derives_nothing(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker(rules=ValueError("not asked"), change=_raise), without=("toy",))
        assert (analysis.problems, WORK in analysis.view.kinds) == ((), False)

    def test_a_kind_of_which_none_came_out_is_empty(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker(change=lambda batch: [batch.take(np.empty(0, np.int64))]))
        assert (WORK in analysis.view.kinds, len(analysis.view.batch(WORK))) == (False, 0)


class TestRules:
    def test_what_they_require_may_be_derived(self, analyse: Callable[..., Analysis]) -> None:
        of_none = Rule("toy.none", WORK, "toy.wait", Order.FINISH_FINISH, requires=("toy.never",))
        joins = {join.rule: join for join in analyse(Maker((DONE, of_none))).joins}
        assert (joins["toy.finish"].matched, joins["toy.finish"].off) == (1, "")
        assert (joins["toy.none"].matched, joins["toy.none"].off) == (0, "toy.never was not recorded")

    def test_no_path_leads_through_bounds(self, analyse: Callable[..., Analysis]) -> None:
        (request,) = analyse(Maker()).report().requests
        spent = [(segment.start_ns, segment.end_ns, segment.category) for segment in request.path.segments]
        assert [one for one in spent if one[2] is not Category.NOT_OBSERVED] == [
            (100, 200, Category.API_CALL),
            (210, 220, Category.API_CALL),
            (250, 650, Category.DEVICE_WAIT),
        ]
        assert request.path.violations == ()

    @pytest.mark.parametrize("confidence", [Confidence.BOUNDED, Confidence.INFERRED])
    def test_a_wait_says_by_which_rule_it_waited_and_for_what(
        self, analyse: Callable[..., Analysis], confidence: Confidence
    ) -> None:
        analysis = analyse(Maker((Rule("toy.finish", WORK, "toy.wait", Order.FINISH_FINISH, confidence=confidence),)))
        wait, work = wait_of(analysis), int(analysis.view.activities(WORK)[0])
        assert (wait.rule, wait.confidence) == ("toy.finish", confidence)
        assert (wait.waited_for, wait.waited_for_id) == ("gemm", analysis.table.id(work))

    def test_a_wait_of_which_nothing_is_known_says_nothing(self, analyse: Callable[..., Analysis]) -> None:
        wait = wait_of(analyse(Maker((SUBMIT,))))
        assert (wait.rule, wait.confidence, wait.waited_for) == (None, Confidence.EXACT, "")

    def test_of_several_it_names_the_one_that_can_have_begun_last(self, analyse: Callable[..., Analysis]) -> None:
        both = Rule("toy.finish", WORK, "toy.wait", Order.FINISH_FINISH, rows=((1, 0), (0, 0)))
        assert wait_of(analyse(Maker((both,)))).waited_for == "softmax"

    @pytest.mark.parametrize("first", [True, False])
    def test_of_equals_it_is_as_sure_as_the_least(self, analyse: Callable[..., Analysis], first: bool) -> None:
        guess = Rule("toy.guess", WORK, "toy.wait", Order.FINISH_FINISH, confidence=Confidence.INFERRED)
        wait = wait_of(analyse(Maker((guess, DONE) if first else (DONE, guess))))
        assert (wait.rule, wait.confidence) == ("toy.guess", Confidence.INFERRED)


def _raise(batch: Batch) -> Sequence[Batch]:
    raise RuntimeError("no work today")


def _without(name: str) -> Change:
    return lambda batch: [Batch(WORK, {**{n: c for n, c in batch.columns.items() if n != name}})]


def _of_kind(kind: str) -> Change:
    return lambda batch: [Batch(kind, batch.columns)]


class TestFaults:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (_raise, "RuntimeError: no work today"),
            (_of_kind("toy.job"), "ValueError: toy.job is no derived kind of the layer toy"),
            (_of_kind("toy.never"), "ValueError: toy.never is no derived kind of the layer toy"),
            (_without("thread"), "ValueError: derived events of toy.work lack the columns thread"),
            (
                lambda batch: [Batch(WORK, {**batch.columns, "label": np.zeros(1)})],
                "ValueError: the columns label do not have one row an event",
            ),
            (
                lambda batch: [Batch(WORK, {**batch.columns, "time_ns": np.array([9, 8], np.uint64)})],
                "ValueError: derived events of toy.work are not sorted by time_ns",
            ),
            (lambda batch: [7], "AttributeError: 'int' object has no attribute 'kind'"),
            (lambda batch: None, "TypeError: 'NoneType' object is not iterable"),
        ],
    )
    def test_one_that_derives_nonsense_is_left_out_and_named(
        self, analyse: Callable[..., Analysis], change: Change, message: str
    ) -> None:
        analysis = analyse(Maker(change=change))
        (problem,) = analysis.problems
        assert problem == f"plugin toy failed at derive: {message}"
        assert WORK not in analysis.view.kinds
        assert not [join for join in analysis.joins if join.rule in ("toy.submit", "toy.finish")]
        assert wait_of(analysis).rule is None

    @pytest.mark.parametrize("maker", [object(), 7])
    def test_something_that_derives_nothing_at_all(self, analyse: Callable[..., Analysis], maker: object) -> None:
        analysis = analyse(maker)
        assert [problem.split(": ")[0] for problem in analysis.problems] == ["plugin toy failed at derive"]
        assert wait_of(analysis).rule is None

    def test_rules_that_cannot_be_had_leave_the_events(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker(rules=KeyError("rules")))
        assert analysis.problems == ("plugin toy failed at derived rules: KeyError: 'rules'",)
        assert WORK in analysis.view.kinds

    @pytest.mark.parametrize(
        "bad",
        [
            Rule("toy.bad", WORK, "toy.wait", Order.FINISH_FINISH, rows=((5, 0),)),
            Rule("toy.bad", WORK, "toy.missing", Order.FINISH_FINISH),
        ],
    )
    def test_a_rule_that_fails_is_off_and_the_others_are_not(self, analyse: Callable[..., Analysis], bad: Rule) -> None:
        analysis = analyse(Maker((bad, DONE)))
        assert {join.rule: join.off for join in analysis.joins if join.rule.startswith("toy.")} == {
            "toy.bad": "the rule failed",
            "toy.finish": "",
        }
        assert wait_of(analysis).rule == "toy.finish"

    def test_something_that_is_no_rule(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker((7, DONE)))
        assert [join.off for join in analysis.joins if join.rule == "7"] == ["the rule failed"]
        assert wait_of(analysis).rule == "toy.finish"


def test_what_is_shown_leaves_them_out_and_lets_the_calls_stand_for_them(analyse: Callable[..., Analysis]) -> None:
    analysis = analyse(Maker())
    scene = scene_of(analysis, analysis.requests)
    assert not {"gemm", "softmax"} & {one.name for one in scene.slices}
    assert [(scene.slices[flow.cause].name, scene.slices[flow.effect].name, flow.rule) for flow in scene.flows] == [
        ("launch", "wait", "toy.finish")
    ]


class Table:
    """A table with as many rows as asked for."""

    name, title = "rings", "how busy each ring was"

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def rows(self, view: View, requests: Sequence[Request]) -> Sequence[Mapping[str, AttributeValue | None]]:
        if self._rows < 0:
            raise RuntimeError("no ring")
        busy_ns = int(view.batch("toy.wait")["time_ns"][0]) * 1000
        return [
            {"ring": f"r{n}", "busy_ns": busy_ns, "depth": None if n else 1_234, "requests": len(requests)}
            for n in range(self._rows)
        ]


def shown(report: Report) -> list[str]:
    file = io.StringIO()
    render_report(report, Console(file=file, width=100, highlight=False))
    return [line.rstrip() for line in file.getvalue().splitlines()]


class TestTables:
    def test_they_are_in_the_json_form(self, analyse: Callable[..., Analysis]) -> None:
        report = analyse(Maker(), tables=[Table(2)]).report()
        data = msgspec.json.encode(report)
        assert msgspec.json.decode(data, type=Report) == report
        assert msgspec.json.decode(data)["layers"] == {
            "toy": {
                "rings": {
                    "title": "how busy each ring was",
                    "rows": [
                        {"ring": "r0", "busy_ns": 650_000, "depth": 1234, "requests": 1},
                        {"ring": "r1", "busy_ns": 650_000, "depth": None, "requests": 1},
                    ],
                }
            }
        }

    def test_they_are_in_the_text(self, analyse: Callable[..., Analysis]) -> None:
        lines = shown(analyse(Maker(), tables=[Table(14)]).report())
        at = lines.index("how busy each ring was")
        assert [line.split() for line in lines[at + 1 : at + 4]] == [
            ["ring", "busy", "depth", "requests"],
            ["r0", "650.000", "µs", "1,234", "1"],
            ["r1", "650.000", "µs", "1"],
        ]
        assert lines[at + 14] == "and 2 more; --json has all"

    def test_one_without_rows_is_not_shown(self, analyse: Callable[..., Analysis]) -> None:
        report = analyse(Maker(), tables=[Table(0)]).report()
        assert report.layers["toy"]["rings"].rows == ()
        assert "how busy each ring was" not in shown(report)

    def test_one_that_fails_is_left_out_and_named(self, analyse: Callable[..., Analysis]) -> None:
        analysis = analyse(Maker(), tables=[Table(-1)])
        assert analysis.report().layers == {}
        assert analysis.problems == ("plugin toy failed at table rings: RuntimeError: no ring",)

    def test_none_of_a_layer_that_was_not_recorded(self, analyse: Callable[..., Analysis]) -> None:
        assert analyse(Maker(), tables=[Table(1)], without=("toy",)).report().layers == {}
