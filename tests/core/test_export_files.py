# SPDX-License-Identifier: Apache-2.0
"""Files for trace viewers, graph libraries and data frames, read back by what reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from tests.core.synthetic import PID, Story, served_requests

from fencepath.analysis import Analysis
from fencepath.errors import UsageError
from fencepath.export import EXPORTERS
from fencepath.export._scene import Slice, lanes

protos: Any = perfetto_trace_pb2


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return served_requests().analysis(tmp_path)


def perfetto(analysis: Analysis, path: Path) -> list[Any]:
    EXPORTERS["perfetto"](analysis, analysis.requests, output=path)
    trace = protos.Trace.FromString(path.read_bytes())
    return list(trace.packet)


class Track:
    """A track as a viewer rebuilds it from begins and ends."""

    def __init__(self) -> None:
        self.slices: list[tuple[int, int, str]] = []
        self.instants: list[tuple[int, str]] = []
        self.flows: dict[tuple[str, int], list[int]] = {}
        self.ended: dict[tuple[str, int], list[int]] = {}
        self._open: list[tuple[int, str]] = []

    def take(self, packet: Any) -> None:
        event = packet.track_event
        if event.type == protos.TrackEvent.TYPE_SLICE_END:
            begin, name = self._open.pop()
            self.slices.append((begin, packet.timestamp, name))
            return
        if event.type == protos.TrackEvent.TYPE_INSTANT:
            self.instants.append((packet.timestamp, event.name))
        else:
            self._open.append((packet.timestamp, event.name))
        self.flows[event.name, packet.timestamp] = list(event.flow_ids)
        self.ended[event.name, packet.timestamp] = list(event.terminating_flow_ids)

    def add(self, lane: Track) -> None:
        assert not lane._open
        self.slices += lane.slices
        self.instants += lane.instants
        self.flows |= lane.flows
        self.ended |= lane.ended


def tracks(packets: list[Any]) -> dict[str, Track]:
    """Tracks by title; events are taken in the order of their times, as trace processor does."""
    titles = {
        p.track_descriptor.uuid: p.track_descriptor.thread.thread_name or p.track_descriptor.name
        for p in packets
        if p.HasField("track_descriptor") and not p.track_descriptor.HasField("process")
    }
    lanes_of: dict[int, Track] = defaultdict(Track)
    for packet in sorted((p for p in packets if p.HasField("track_event")), key=lambda p: int(p.timestamp)):
        lanes_of[packet.track_event.track_uuid].take(packet)
    found: dict[str, Track] = defaultdict(Track)
    for uuid, lane in lanes_of.items():
        found[titles[uuid]].add(lane)
    return found


def test_perfetto_has_threads_rings_and_paths(analysis: Analysis, tmp_path: Path) -> None:
    packets = perfetto(analysis, tmp_path / "r.pftrace")
    found = tracks(packets)
    assert set(found) == {"engine", "frontend", "toy.ring:1", "critical path of chat-1", "critical path of chat-2"}
    assert (2_500_000, 5_900_000, "gemm") in found["toy.ring:1"].slices
    assert (2_100_000, 2_120_000, "launch") in found["engine"].slices
    path = analysis.report().requests[0].path.segments
    assert found["critical path of chat-1"].slices == [(s.start_ns, s.end_ns, str(s.category)) for s in path]
    threads = [p.track_descriptor for p in packets if p.track_descriptor.HasField("thread")]
    assert {(t.thread.pid, t.thread.tid, t.thread.thread_name) for t in threads} == {
        (PID, 201, "engine"),
        (PID, 202, "frontend"),
    }
    (process,) = [p.track_descriptor for p in packets if p.track_descriptor.HasField("process")]
    assert process.process.pid == PID
    assert {t.parent_uuid for t in threads} == {process.uuid}


def test_perfetto_arrows_are_the_edges(analysis: Analysis, tmp_path: Path) -> None:
    found = tracks(perfetto(analysis, tmp_path / "r.pftrace"))
    launched = found["engine"].flows["launch", 2_100_000]
    assert len(launched) == 1
    assert launched[0] in found["toy.ring:1"].ended["gemm", 2_500_000]
    done = set(found["toy.ring:1"].flows["gemm", 2_500_000])
    assert done & set(found["engine"].ended["wait", 2_130_000])
    out = [flow for track in found.values() for flows in track.flows.values() for flow in flows]
    into = [flow for track in found.values() for flows in track.ended.values() for flow in flows]
    assert sorted(out) == sorted(into)
    assert len(set(out)) == len(out) == len(analysis.edges)


def test_perfetto_times_are_monotonic_with_snapshots_of_the_wall_clock(analysis: Analysis, tmp_path: Path) -> None:
    packets = perfetto(analysis, tmp_path / "r.pftrace")
    (defaults,) = [p.trace_packet_defaults for p in packets if p.HasField("trace_packet_defaults")]
    assert defaults.timestamp_clock_id == protos.BUILTIN_CLOCK_MONOTONIC
    assert packets[0].sequence_flags == protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    snapshots = [p.clock_snapshot for p in packets if p.HasField("clock_snapshot")]
    assert {s.primary_trace_clock for s in snapshots} == {protos.BUILTIN_CLOCK_MONOTONIC}
    assert [{c.clock_id: c.timestamp for c in s.clocks} for s in snapshots] == [
        {protos.BUILTIN_CLOCK_MONOTONIC: 0, protos.BUILTIN_CLOCK_REALTIME: 1_700_000_000_000_000_000},
        {protos.BUILTIN_CLOCK_MONOTONIC: 20_000_000, protos.BUILTIN_CLOCK_REALTIME: 1_700_000_000_020_000_300},
    ]


def test_perfetto_details_say_kind_id_and_confidence(analysis: Analysis, tmp_path: Path) -> None:
    packets = perfetto(analysis, tmp_path / "r.pftrace")
    (driver, *_) = [p.track_event for p in packets if p.track_event.name == "driver"]
    details = {a.name: a.string_value for a in driver.debug_annotations}
    assert (details["confidence"], details["rule"], details["activity"]) == ("bounded", "toy.done", "wait")


def test_perfetto_is_the_same_every_time(analysis: Analysis, tmp_path: Path) -> None:
    perfetto(analysis, tmp_path / "a.pftrace")
    perfetto(served_requests().analysis(tmp_path, name="again"), tmp_path / "b.pftrace")
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()


def test_activities_that_cross_each_other_get_lanes_of_their_own(tmp_path: Path) -> None:
    story = Story()
    story.request("r", 0, 1000, 7)
    for begin in (100, 150, 200):
        story.job(begin, begin + 100, fence=begin, ring=1, name=f"job{begin}")
    found = tracks(perfetto(story.analysis(tmp_path), tmp_path / "r.pftrace"))
    assert sorted(found["toy.ring:1"].slices) == [(100, 200, "job100"), (150, 250, "job150"), (200, 300, "job200")]


intervals = st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 10))


@settings(max_examples=200, deadline=None)
@given(st.lists(intervals, max_size=15))
def test_lanes_hold_every_slice_once_and_nest(rows: list[tuple[str, int, int]]) -> None:
    slices = [Slice(track, begin, begin + length, "", "", {}) for track, begin, length in rows]
    seen: list[int] = []
    for track, _, members in lanes(slices):
        seen += members
        for place, first in enumerate(members):
            for second in members[place + 1 :]:
                outer, inner = slices[first], slices[second]
                assert outer.track == inner.track == track
                assert inner.begin_ns >= outer.end_ns or inner.end_ns <= outer.end_ns
    assert sorted(seen) == list(range(len(slices)))


def test_chrome_says_the_same_in_microseconds(analysis: Analysis, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    EXPORTERS["chrome"](analysis, analysis.requests, output=path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[PID, 201] == "engine"
    (first, _) = [e for e in events if e["ph"] == "X" and e["name"] == "gemm"]
    assert (first["ts"], first["dur"]) == (2500, 3400)
    assert names[first["pid"], first["tid"]] == "toy.ring:1"
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == len(analysis.edges)
    places = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] in "Xi"}
    assert {(e["pid"], e["tid"], e["ts"]) for e in (*starts.values(), *ends.values())} <= places
    path_ns = [e for e in events if e["ph"] == "X" and names[e["pid"], e["tid"]] == "critical path of chat-1"]
    assert round(sum(e["dur"] for e in path_ns) * 1000) == 10_000_000


def test_chrome_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    late = 400 * 86_400 * 1_000_000_000
    story = Story()
    story.request("r", late + 1, late + 1003, 7)
    EXPORTERS["chrome"](analysis := story.analysis(tmp_path), analysis.requests, output=tmp_path / "r.json")
    assert f'"ts":{late // 1000}.001' in (tmp_path / "r.json").read_text()


def test_graphml_is_read_back(analysis: Analysis, tmp_path: Path) -> None:
    path = tmp_path / "r.graphml"
    EXPORTERS["graphml"](analysis, analysis.requests, output=path)
    graph = nx.read_graphml(path, force_multigraph=True)
    wanted = analysis.graph(analysis.request("chat-1"))
    assert set(wanted.nodes) <= set(graph.nodes)
    (job, wait) = next((c, e) for c, e, rule in wanted.edges(keys=True) if rule == "toy.done")
    assert graph.nodes[job]["name"] == "gemm"
    assert graph.nodes[job]["on_path"] == "chat-1@1000000"
    assert graph.edges[job, wait, "toy.done"]["order"] == "finish_finish"
    assert graph.edges[job, wait, "toy.done"]["source_ns"] == graph.nodes[job]["end_ns"] == 5_900_000


def test_node_link_json_is_read_back(analysis: Analysis, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    EXPORTERS["graphml"](analysis, analysis.requests, output=path)
    graph = nx.node_link_graph(json.loads(path.read_text()), edges="edges")
    assert graph.is_multigraph()
    assert graph.is_directed()
    assert set(analysis.graph(analysis.request("chat-1")).nodes) <= set(graph.nodes)


def test_parquet_holds_events_requests_and_paths(analysis: Analysis, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    EXPORTERS["parquet"](analysis, analysis.requests, output=folder)
    assert {path.stem for path in folder.iterdir()} == {*analysis.view.kinds, "requests", "segments"}
    jobs = pl.read_parquet(folder / "toy.job.parquet")
    assert jobs.select("begin_ns", "time_ns", "fence_id", "label").rows() == [
        (2_500_000, 5_900_000, "toy.fence:1", "gemm"),
        (7_000_000, 10_400_000, "toy.fence:2", "gemm"),
    ]
    assert jobs["thread"].null_count() == 2
    segments = pl.read_parquet(folder / "segments.parquet")
    spent = segments.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns")).group_by("request").agg(
        pl.col("ns").sum()
    )  # fmt: skip
    assert dict(spent.rows()) == {"chat-1@1000000": 10_000_000, "chat-2@12000000": 1_000_000}
    assert pl.read_parquet(folder / "requests.parquet")["key"].to_list() == ["chat-1", "chat-2"]
    with pytest.raises(UsageError, match="is there already"):
        EXPORTERS["parquet"](analysis, analysis.requests, output=folder)


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("perfetto", "r.pftrace"),
        ("chrome", "r.chrome.json"),
        ("graphml", "r.graphml"),
        ("parquet", "r.parquet"),
    ],
)
def test_without_a_name_the_file_is_named_after_the_recording(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, name: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    said = EXPORTERS[to](analysis, analysis.requests)
    assert [path.name for path in here.iterdir()] == [name]
    assert said.startswith("2 requests, ")
    assert name in said


@pytest.mark.parametrize("to", ["perfetto", "chrome", "graphml", "parquet"])
def test_what_makes_no_sense_is_said(analysis: Analysis, tmp_path: Path, to: str) -> None:
    with pytest.raises(UsageError, match="--endpoint is for --to otlp"):
        EXPORTERS[to](analysis, analysis.requests, endpoint="http://localhost:4318")
    with pytest.raises(UsageError, match="is not a folder"):
        EXPORTERS[to](analysis, analysis.requests, output=tmp_path / "missing" / "file")


def test_one_request_alone(analysis: Analysis, tmp_path: Path) -> None:
    EXPORTERS["chrome"](analysis, [analysis.request("chat-2")], output=tmp_path / "r.json")
    names = {event["name"] for event in json.loads((tmp_path / "r.json").read_text())["traceEvents"]}
    assert "tokenize" in names
    assert "gemm" not in names


def test_without_the_extra_the_line_that_installs_it_is_said(tmp_path: Path) -> None:
    served_requests().write(tmp_path / "r.fencepath")
    code = (
        "import sys\n"
        "sys.modules['perfetto'] = None\n"
        "from fencepath import Analysis, open_recording\n"
        "from fencepath.export import EXPORTERS\n"
        f"analysis = Analysis(open_recording({str(tmp_path / 'r.fencepath')!r}))\n"
        "EXPORTERS['perfetto'](analysis, analysis.requests)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "MachineError" in run.stderr
    assert "pip install 'fencepath[perfetto]'" in run.stderr


def test_importing_the_exporters_loads_nothing_heavy() -> None:
    code = (
        "import sys, fencepath.export\n"
        "print([name for name in ('opentelemetry', 'perfetto', 'networkx', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
