# SPDX-License-Identifier: Apache-2.0
"""The report and the causal graph of stories of which the answer is known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import networkx as nx
import pytest
from tests.core.synthetic import BOOT_ID, PID, Story, served_requests

from fencepath._engine.graph import PROGRAM_ORDER
from fencepath.analysis import Analysis
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.records import Flags
from fencepath.report import SCHEMA, Report, json_schema

A, B = 7, 8


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return served_requests().analysis(tmp_path)


def test_json_has_the_promised_fields_and_reads_back(analysis: Analysis) -> None:
    report = analysis.report()
    data = msgspec.json.encode(report)
    assert msgspec.json.decode(data, type=Report) == report
    plain = msgspec.json.decode(data)
    assert plain["schema"] == SCHEMA == "fencepath.report/1"
    assert {"schema", "recording", "loss", "requests", "joins", "layers"} <= plain.keys()
    request = plain["requests"][0]
    assert {"id", "key", "trace_id", "start_ns", "end_ns", "state", "milestones", "path"} <= request.keys()
    assert request["milestones"]["first_token_ns"] == 6_500_000
    path = request["path"]
    assert {"target", "start_ns", "end_ns", "segments", "by_category_ns", "by_confidence_ns"} <= path.keys()
    assert {"unexplained_ns", "undecided_ns", "not_observed_ns", "lost_events", "violations"} <= path.keys()
    assert {
        "start_ns", "end_ns", "category", "phase", "work_of", "work_of_request", "ambiguous",
        "layer", "activity", "entities", "rule", "confidence", "error_ns",
    } <= path["segments"][0].keys()  # fmt: skip
    assert plain["joins"][0].keys() >= {"rule", "matched", "unmatched", "ambiguous"}


def test_there_is_a_json_schema() -> None:
    assert "RequestReport" in json_schema()["$defs"]


def test_requests_come_by_start_with_their_ids(analysis: Analysis) -> None:
    assert [(r.id, r.key, r.trace_id, r.state) for r in analysis.report().requests] == [
        ("chat-1@1000000", "chat-1", "ab" * 16, "complete"),
        ("chat-2@12000000", "chat-2", "", "complete"),
    ]


def test_segments_are_cut_where_phases_begin_and_end(analysis: Analysis) -> None:
    segments = analysis.report().requests[0].path.segments
    spans = {"queue": (1_000_500, 2_000_000), "prefill": (2_000_001, 6_000_000), "decode": (6_000_001, 10_900_000)}
    for phase, (begin, end) in spans.items():
        mine = [segment for segment in segments if segment.phase == phase]
        assert (mine[0].start_ns, mine[-1].end_ns) == (begin, end)
        assert sum(segment.duration_ns for segment in mine) == end - begin
    outside = sum(segment.duration_ns for segment in segments if segment.phase == "none")
    assert outside == 10_000_000 - sum(end - begin for begin, end in spans.values())


def test_sums_are_those_of_the_segments(analysis: Analysis) -> None:
    for request in analysis.report().requests:
        path = request.path
        for category in Category:
            spent = sum(segment.duration_ns for segment in path.segments if segment.category is category)
            assert path.by_category_ns.get(category, 0) == spent
        for confidence in Confidence:
            spent = sum(segment.duration_ns for segment in path.segments if segment.confidence is confidence)
            assert path.by_confidence_ns.get(confidence, 0) == spent
        assert path.unexplained_ns == path.by_category_ns.get(Category.UNEXPLAINED, 0)
        assert path.not_observed_ns == path.by_category_ns.get(Category.NOT_OBSERVED, 0)


def test_the_path_of_the_first_request_is_the_chain_that_made_it_slow(analysis: Analysis) -> None:
    spent = analysis.report().requests[0].path.by_category_ns
    assert spent[Category.DEVICE_EXECUTION] == 2 * 3_400_000
    # from the begin of the call that launched to the job
    assert spent[Category.LAUNCH_QUEUE] == 400_000 + 400_000
    # queued until the frontend woke the engine: the frontend's own time, of which nothing but the wake-up was seen
    assert Category.BLOCKED not in spent
    assert spent[Category.RUNQUEUE] == 50_000 + 2 * 20_000


def test_facts_of_the_recording(analysis: Analysis) -> None:
    facts = analysis.report().recording
    assert (facts["host"], facts["boot_id"], facts["cut"], facts["damage"]) == ("toyhost", BOOT_ID, False, [])
    assert facts["events"]["toy.job"] == 2
    thread = f"thread:process:{BOOT_ID}/{PID}@{PID}#0/201@201"
    assert facts["threads"][thread] == "engine"


def test_some_requests_only(analysis: Analysis) -> None:
    assert [r.key for r in analysis.report([analysis.request("chat-2")]).requests] == ["chat-2"]


def test_loss_is_listed_and_counted_where_it_overlaps(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 1000, 2000, A)
    story.loss("toy.call", 0, 900, 3)
    story.loss("toy.call", 1900, 2500, 5)
    story.loss("toy.job", 2100, 2500, 7)
    report = story.analysis(tmp_path).report()
    assert [(row.kind, row.count) for row in report.loss] == [("toy.call", 3), ("toy.call", 5), ("toy.job", 7)]
    assert report.requests[0].path.lost_events == 5


def test_open_calls_that_returned_later_are_there_once(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, A)
    still_open = Flags.TASK | Flags.OPEN
    story.call("hang", 100, 500, A, flags=still_open)
    story.call("hang", 100, 600, A, flags=still_open)
    story.call("hang", 100, 550, A)
    story.call("hang", 700, 800, A, flags=still_open)
    story.call("hang", 700, 900, A, flags=still_open)
    story.call("hang", 100, 500, B, flags=still_open)
    analysis = story.analysis(tmp_path)
    calls = analysis.view.batch("toy.call")
    rows = sorted(zip(calls["tid"].tolist(), calls["begin_ns"].tolist(), calls["time_ns"].tolist(), strict=True))
    assert rows == [(A, 100, 550), (A, 700, 900), (B, 100, 500)]


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    story = Story()
    story.add("process.fork", 100, 1, child_tid=50, clone_flags=0, pid=1)
    story.request("first", 200, 300, 50)
    story.add("process.fork", 400, 1, child_tid=50, clone_flags=0, pid=1)
    story.request("second", 500, 600, 50)
    for rows in story._rows["mark.point"], story._rows["mark.text"]:
        for row in rows:
            row["tgid"] = 50
    analysis = story.analysis(tmp_path)
    first, second = (analysis.entity_text(analysis.request(key).start_thread) for key in ("first", "second"))
    assert first == f"thread:process:{BOOT_ID}/50@~100#0/50@~100"
    assert second == f"thread:process:{BOOT_ID}/50@~400#0/50@~400"


def test_an_exec_makes_another_process_of_the_same_pid(tmp_path: Path) -> None:
    story = Story()
    story.process(PID)
    story.thread(PID)
    story.request("before", 100, 200, PID)
    story.add("process.exec", 300, PID, old_tid=PID)
    story.request("after", 400, 500, PID)
    analysis = story.analysis(tmp_path)
    before, after = (analysis.entity_text(analysis.request(key).start_thread) for key in ("before", "after"))
    assert (before, after) == (
        f"thread:process:{BOOT_ID}/{PID}@{PID}#0/{PID}@{PID}",
        f"thread:process:{BOOT_ID}/{PID}@{PID}#1/{PID}@{PID}",
    )


def test_the_graph_holds_the_path_the_edges_and_the_order_of_each_thread(analysis: Analysis) -> None:
    request = analysis.request("chat-1")
    graph = analysis.graph(request)
    assert isinstance(graph, nx.MultiDiGraph)
    on_path = {node for node, data in graph.nodes(data=True) if data["on_path"]}
    shown = {s.activity_id for s in analysis.report([request]).requests[0].path.segments if s.activity_id}
    assert on_path == shown
    rules = {rule for _, _, rule in graph.edges(keys=True)}
    assert rules == {"toy.launch", "toy.ring", "toy.done", PROGRAM_ORDER}
    cause, effect, data = next((c, e, d) for c, e, k, d in graph.edges(keys=True, data=True) if k == "toy.ring")
    assert (graph.nodes[cause]["end_ns"], graph.nodes[effect]["begin_ns"]) == (5_900_000, 7_000_000)
    assert data == {
        "confidence": "exact", "order": "finish_start", "source_ns": 5_900_000, "target_ns": 7_000_000,
        "gap": "dependency", "back_ns": 0,
    }  # fmt: skip


def test_program_order_goes_forward_in_time(analysis: Analysis) -> None:
    graph = analysis.graph(analysis.request("chat-1"))
    for cause, effect, rule, data in graph.edges(keys=True, data=True):
        if rule == PROGRAM_ORDER:
            assert graph.nodes[cause]["entities"][0] == graph.nodes[effect]["entities"][0]
            assert data["source_ns"] <= data["target_ns"]
            assert data["source_ns"] == graph.nodes[cause]["end_ns"]


def test_the_graph_holds_no_request_that_came_later(analysis: Analysis) -> None:
    graph = analysis.graph(analysis.request("chat-1"))
    assert all(data["begin_ns"] <= 11_000_000 for _, data in graph.nodes(data=True))
    assert "tokenize" not in {data["name"] for _, data in graph.nodes(data=True)}
