# SPDX-License-Identifier: Apache-2.0
"""One plugin's fault is that plugin's problem: named, and the rest goes on."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.core.synthetic import RULES, SchedPlugin, Story, ToyPlugin, plugins

from fencepath._loader import PluginProblem, Registry, load_plugins
from fencepath.analysis import Analysis
from fencepath.entities import Entities
from fencepath.events import Batch, Category, Event, KindInfo, Role
from fencepath.joins import Confidence, EdgeBatch, Order, View
from fencepath.plugin import API_VERSION, LayerInfo, hookimpl
from fencepath.records import INTERVAL, Layouts, RecordLayout, Records
from fencepath.report import Finding


def layer(name: str = "other", api: tuple[int, int] = API_VERSION) -> object:
    class Layer:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return LayerInfo(name=name, title="", version="1", api=api)

    return Layer()


def loaded(*others: object) -> tuple[Registry, list[PluginProblem]]:
    registry = plugins(*others)
    assert {"process", "mark", "toy", "sched"} <= set(registry.plugins), "the good ones are always there"
    return registry, registry.problems


def only_problem(*others: object) -> PluginProblem:
    _, problems = loaded(*others)
    (problem,) = problems
    return problem


def test_a_good_one() -> None:
    registry, problems = loaded(layer())
    assert problems == []
    assert registry.plugins["other"].info.title == ""


@pytest.mark.parametrize("api", [(API_VERSION[0] + 1, 0), (0, 9), (API_VERSION[0], API_VERSION[1] + 1)])
def test_another_major_or_a_newer_minor_is_refused(api: tuple[int, int]) -> None:
    problem = only_problem(layer(api=api))
    assert problem.stage == "register"
    assert problem.message.startswith(f"written for plugin API {api[0]}.{api[1]}, this fencepath has ")


def test_two_of_one_layer_name_are_both_refused() -> None:
    registry, problems = loaded(layer("same"), layer("same"))
    assert "same" not in registry.plugins
    assert [problem.plugin for problem in problems] == ["same", "same"]
    assert all("has the same layer name; uninstall one of them" in problem.message for problem in problems)


@pytest.mark.parametrize("name", ["mark", "process"])
def test_a_layer_that_takes_the_name_of_cores_own_is_refused_alone(name: str) -> None:
    registry, (problem,) = loaded(layer(name))
    assert problem.message == "the layer name is one of fencepath's own; choose another"
    assert registry.plugins[name].kinds


def test_the_same_object_twice_is_refused_once() -> None:
    one = layer()
    registry, (problem,) = loaded(one, one)
    assert "already registered" in problem.message
    assert registry.plugins["other"].call("fencepath_layer").name == "other"


def test_a_misspelt_hook_is_named() -> None:
    class Misspelt:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return LayerInfo(name="other", title="", version="1", api=API_VERSION)

        @hookimpl
        def fencepath_decode(self) -> None: ...

    problem = only_problem(Misspelt())
    assert problem.message == "no such hook: fencepath_decode; see the hook reference for their names"
    assert str(problem).count("failed at register") == 1


def test_a_hook_without_its_marker_is_named() -> None:
    class Unmarked:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return LayerInfo(name="other", title="", version="1", api=API_VERSION)

        def fencepath_rules(self) -> Sequence[object]:
            return ()

    assert only_problem(Unmarked()).message == "fencepath_rules would never be called; add @hookimpl"


def test_a_module_that_imports_its_own_package_has_no_misspelt_hook() -> None:
    module = types.ModuleType("plugin")
    module.__dict__["fencepath_layer"] = hookimpl(
        lambda: LayerInfo(name="other", title="", version="1", api=API_VERSION)
    )
    module.__dict__["fencepath_other"] = types.ModuleType("fencepath_other")
    _, problems = loaded(module)
    assert problems == []


def test_a_hook_with_unknown_arguments_is_refused() -> None:
    class Greedy:
        @hookimpl
        def fencepath_layer(self, everything: object) -> LayerInfo:
            return LayerInfo(name="other", title="", version="1", api=API_VERSION)

    assert "everything" in only_problem(Greedy()).message


@pytest.mark.parametrize("value", [None, "other", 7])
def test_a_layer_hook_that_returns_something_else(value: object) -> None:
    class Odd:
        @hookimpl
        def fencepath_layer(self) -> Any:
            return value

    assert "must return a LayerInfo" in only_problem(Odd()).message


def test_an_object_without_hooks() -> None:
    assert only_problem(object()).message == "fencepath_layer is not implemented"


def test_a_kind_of_another_layers_name_is_refused() -> None:
    class Foreign(Event, frozen=True, kw_only=True, tag="toy.foreign"):
        info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    class Layer:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return LayerInfo(name="other", title="", version="1", api=API_VERSION)

        @hookimpl
        def fencepath_event_kinds(self) -> Sequence[type[Event]]:
            return (Foreign,)

    assert (
        only_problem(Layer()).message == "kind toy.foreign does not begin with the layer's name; call it other.<noun>"
    )


@pytest.mark.parametrize("fault", ["raise RuntimeError('no')", "import no_such_module", "raise SystemExit(3)", "def ("])
def test_a_plugin_that_fails_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    (tmp_path / "broken_plugin.py").write_text(fault + "\n")
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fencepath.plugins]\nbroken = broken_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = load_plugins(extra={"toy": ToyPlugin()})
    (problem,) = [problem for problem in registry.problems if problem.plugin == "broken"]
    assert (problem.stage, problem.distribution) == ("import", "broken 1")
    assert {"mark", "process", "toy"} <= set(registry.plugins)
    sys.modules.pop("broken_plugin", None)


def story() -> Story:
    found = Story()
    found.request("r", 0, 1000, 7)
    found.call("launch", 100, 200, 7, fence=1)
    found.job(300, 600, fence=1)
    found.wait(250, 650, 7, fence=1)
    found.sleep(7, 700, 750, 760)
    return found


def faulty(**methods: Any) -> object:
    """The toy plugin with other methods."""
    return type("Faulty", (ToyPlugin,), {name: hookimpl(method) for name, method in methods.items()})()


def analyse(tmp_path: Path, toy: object, sched: object | None = None) -> Analysis:
    extra = {"toy": toy, "sched": sched or SchedPlugin()}
    return story().analysis(tmp_path, load_plugins(extra=extra, entry_points=False))


def problem_of(analysis: Analysis) -> str:
    report = analysis.report()
    assert len(report.requests) == 1, "there is a report all the same"
    assert sum(report.requests[0].path.by_category_ns.values()) == 1000
    (problem,) = report.problems
    return problem


class _Decoder:
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def decode(self, kind: str, records: Records) -> Batch:
        batch = Batch.from_records(kind, records)
        if kind == "toy.call":
            if self._fault == "raises":
                raise ZeroDivisionError("seven")
            if self._fault == "renames":
                batch.kind = "toy.other"
            if self._fault == "shortens":
                batch.columns["fence"] = batch.columns["fence"][:0]
        return batch


def test_the_hook_that_gives_the_decoder_raises(tmp_path: Path) -> None:
    def fencepath_decoder(self: object, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Any:
        raise RuntimeError("no decoder")

    analysis = analyse(tmp_path, faulty(fencepath_decoder=fencepath_decoder))
    assert problem_of(analysis) == "plugin toy failed at fencepath_decoder: RuntimeError: no decoder"
    assert {kind.split(".")[0] for kind in analysis.view.kinds} == {"mark", "sched"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "ZeroDivisionError: seven"),
        ("renames", "ValueError: the decoder returned a batch of toy.other"),
        ("shortens", "ValueError: the columns fence do not have one row an event"),
    ],
)
def test_a_decoder_that_fails_loses_that_kind_alone(tmp_path: Path, fault: str, message: str) -> None:
    def fencepath_decoder(self: object, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> _Decoder:
        return _Decoder(fault)

    analysis = analyse(tmp_path, faulty(fencepath_decoder=fencepath_decoder))
    assert problem_of(analysis) == f"plugin toy failed at decode toy.call: {message}"
    assert "toy.call" not in analysis.view.kinds
    assert "toy.job" in analysis.view.kinds


def test_a_scheduler_without_the_columns_of_its_role(tmp_path: Path) -> None:
    class Half(SchedPlugin):
        @hookimpl
        def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Any:
            class Decoder:
                def decode(self, kind: str, records: Records) -> Batch:
                    batch = Batch.from_records(kind, records)
                    batch.columns.pop("prev_state", None)
                    return batch

            return Decoder()

    problem = problem_of(analyse(tmp_path, ToyPlugin(), Half()))
    assert problem.endswith("ValueError: a kind with the role run_state needs the columns prev_state")


def test_a_tracker_that_fails_leaves_the_batch_as_it_was(tmp_path: Path) -> None:
    class Tracker:
        def update(self, batch: Batch, entities: Entities) -> None:
            batch.columns["fence_id"] = np.zeros(len(batch), np.int64)
            if batch.kind == "toy.job":
                raise KeyError("ring")

    analysis = analyse(tmp_path, faulty(fencepath_entities=lambda self: Tracker()))
    assert problem_of(analysis).startswith("plugin toy failed at entities toy.job: KeyError")
    assert "fence_id" not in analysis.view.batch("toy.job")
    assert "fence_id" in analysis.view.batch("toy.wait")


class _Rule:
    requires: tuple[str, ...] = ()

    def __init__(self, name: str, cause: Sequence[int], effect: Sequence[int]) -> None:
        self.name = name
        self._cause, self._effect = np.array(cause, np.int64), np.array(effect, np.int64)

    def apply(self, view: View) -> list[EdgeBatch]:
        return [
            EdgeBatch(
                cause=self._cause, effect=self._effect, order=Order.FINISH_START,
                confidence=Confidence.EXACT, gap=Category.DRIVER,
            )
        ]  # fmt: skip


class _Raising(_Rule):
    def apply(self, view: View) -> list[EdgeBatch]:
        raise LookupError("no stream")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (_Raising("toy.bad", [], []), "LookupError: no stream"),
        (_Rule("toy.bad", [0], [0, 1]), "ValueError: an edge batch has as many causes as effects"),
        (_Rule("toy.bad", [0], [99]), "ValueError: an edge names an activity that does not exist"),
        (_Rule("toy.bad", [-1], [0]), "ValueError: an edge names an activity that does not exist"),
        (object(), "AttributeError"),
    ],
)
def test_a_rule_that_fails_is_off_and_the_others_run(tmp_path: Path, rule: Any, message: str) -> None:
    analysis = analyse(tmp_path, ToyPlugin((*RULES, rule)))
    assert message in problem_of(analysis)
    off = {count.rule: count.off for count in analysis.joins}
    assert [reason for reason in off.values() if reason] == ["the rule failed"]
    assert off["toy.done"] == ""


def test_rules_that_are_made_one_by_one_and_fail_in_between(tmp_path: Path) -> None:
    def fencepath_rules(self: object) -> Any:
        yield RULES[0]
        raise RuntimeError("no more")

    assert "RuntimeError: no more" in problem_of(analyse(tmp_path, faulty(fencepath_rules=fencepath_rules)))


def test_a_rule_whose_kinds_were_not_recorded_is_off_and_says_so(tmp_path: Path) -> None:
    class Needy(_Rule):
        requires = ("nowhere.kind>=1", "toy.job>=2", "toy.job>=1")

    analysis = analyse(tmp_path, ToyPlugin((*RULES, Needy("toy.needy", [], []))))
    assert analysis.report().problems == ()
    (count,) = [count for count in analysis.joins if count.rule == "toy.needy"]
    assert count.off == "nowhere.kind>=1, toy.job>=2 was not recorded"


def test_a_request_source_that_fails_does_not_take_the_others_along(tmp_path: Path) -> None:
    class Source:
        def requests(self, view: View) -> Any:
            raise OSError("no requests")

    analysis = analyse(tmp_path, faulty(fencepath_requests=lambda self: (Source(),)))
    assert problem_of(analysis) == "plugin toy failed at requests: OSError: no requests"


def test_findings_of_plugins_are_in_the_report_and_one_that_fails_is_not(tmp_path: Path) -> None:
    class Good:
        name = "toy.good"

        def findings(self, batches: Mapping[str, Batch]) -> list[Finding]:
            assert {kind.split(".")[0] for kind in batches} == {"toy"}
            return [Finding(rule=self.name, title=f"{len(batches['toy.job'])} job")]

    class Bad(Good):
        name = "toy.bad"

        def findings(self, batches: Mapping[str, Batch]) -> list[Finding]:
            raise RuntimeError("cannot look")

    analysis = analyse(tmp_path, faulty(fencepath_findings=lambda self: (Bad(), Good())))
    assert problem_of(analysis) == "plugin toy failed at findings: RuntimeError: cannot look"
    assert [finding.title for finding in analysis.report().findings] == ["1 job"]


def test_kinds_without_a_plugin_are_left_out_and_named(tmp_path: Path) -> None:
    found = story()
    found.layouts["lone.call"] = RecordLayout("lone.call", INTERVAL)
    found.add("lone.call", 500, 7, begin_ns=400)
    analysis = found.analysis(tmp_path)
    assert (
        problem_of(analysis)
        == "kind lone.call belongs to layer lone, for which no plugin is installed; its events are left out"
    )


def test_a_problem_is_said_once_however_often_the_registry_is_used(tmp_path: Path) -> None:
    registry = load_plugins(extra={"toy": ToyPlugin((_Raising("toy.bad", [], []),))}, entry_points=False)
    recording = story().write(tmp_path / "r.fencepath")
    reports = [Analysis(recording, registry, without=["sched"]).report() for _ in range(2)]
    assert [len(report.problems) for report in reports] == [1, 1]
