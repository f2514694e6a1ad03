# SPDX-License-Identifier: Apache-2.0
"""Spans as a real receiver gets them over HTTP, and as OTLP JSON."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.core.synthetic import BOOT_ID, Story, ToyPlugin, served_requests

from fencepath._loader import load_plugins
from fencepath.analysis import Analysis
from fencepath.errors import MachineError, RecordingDamagedError, UsageError
from fencepath.export import EXPORTERS
from fencepath.export.identity import span_id, trace_id
from fencepath.export.spans import spans_of
from fencepath.plugin import hookimpl
from fencepath.requests import Request

EPOCH = 1_700_000_000_000_000_000
SHIFT = EPOCH + 15
"""Of ``chat-1``: the offset changes by 300 ns in 20 ms, and it begins after 1 ms."""


class Receiver:
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.paths.append(self.path)
                outer.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it that
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def messages(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    def spans(self) -> list[Span]:
        return [
            span
            for message in self.messages()
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver() -> Generator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return served_requests().analysis(tmp_path)


def send(analysis: Analysis, receiver: Receiver, key: str = "") -> list[Span]:
    before = len(receiver.spans())
    chosen = [request for request in analysis.requests if key in ("", request.key)]
    EXPORTERS["otlp"](analysis, chosen, endpoint=receiver.url)
    return receiver.spans()[before:]


def attributes(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in span.attributes:
        kind = item.value.WhichOneof("value") or ""
        value = getattr(item.value, kind)
        found[item.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return found


def test_a_request_is_the_parent_of_its_path_and_the_child_of_who_called(
    analysis: Analysis, receiver: Receiver
) -> None:
    root, *children = send(analysis, receiver, "chat-1")
    assert receiver.paths == ["/v1/traces"]
    assert root.trace_id.hex() == "ab" * 16
    assert root.parent_span_id.hex() == "cd" * 8
    assert root.kind == Span.SPAN_KIND_SERVER
    assert root.name == "chat toy-7b"
    assert {child.parent_span_id for child in children} == {root.span_id}
    assert {child.trace_id for child in children} == {root.trace_id}
    assert {child.kind for child in children} == {Span.SPAN_KIND_INTERNAL}


def test_a_request_without_a_trace_gets_its_own_and_is_a_root(analysis: Analysis, receiver: Receiver) -> None:
    root, *children = send(analysis, receiver, "chat-2")
    request = analysis.request("chat-2")
    assert root.parent_span_id == b""
    assert root.kind == Span.SPAN_KIND_INTERNAL
    assert root.name == "llm_request"
    assert root.trace_id == trace_id(BOOT_ID, request).to_bytes(16, "big")
    assert {child.trace_id for child in children} == {root.trace_id}


def test_ids_are_those_of_the_definition_and_stay_the_same(
    analysis: Analysis, tmp_path: Path, receiver: Receiver
) -> None:
    root, *children = first = send(analysis, receiver)
    again = send(served_requests().analysis(tmp_path, name="again"), receiver)
    assert [(s.trace_id, s.span_id, s.parent_span_id) for s in first] == [
        (s.trace_id, s.span_id, s.parent_span_id) for s in again
    ]
    assert len({span.span_id for span in first}) == len(first)
    text = "\0".join(("ab" * 16, BOOT_ID, "chat-1@1000000", "chat toy-7b", "1000000", ""))
    assert root.span_id == hashlib.blake2b(text.encode(), digest_size=8).digest()
    job = next(child for child in children if child.name == "gemm")
    activity = attributes(job)["fencepath.activity_id"]
    start = job.start_time_unix_nano - SHIFT
    text = "\0".join(("ab" * 16, BOOT_ID, "chat-1@1000000", "gemm", str(start), activity))
    assert job.span_id == hashlib.blake2b(text.encode(), digest_size=8).digest()


def test_an_id_is_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero:
        def __init__(self, data: bytes, digest_size: int) -> None:
            self._size = digest_size

        def digest(self) -> bytes:
            return bytes(self._size)

    monkeypatch.setattr("fencepath.export.identity.hashlib.blake2b", Zero)
    request = Request(key="r", number=1, start_ns=1, end_ns=2)
    assert trace_id(BOOT_ID, request) == 1
    assert span_id(BOOT_ID, request, "name", 1) == 1


def test_times_are_real_ones_with_their_error_and_children_fill_the_request(
    analysis: Analysis, receiver: Receiver
) -> None:
    root, *children = send(analysis, receiver, "chat-1")
    assert root.start_time_unix_nano == 1_000_000 + SHIFT
    assert root.end_time_unix_nano - root.start_time_unix_nano == 10_000_000
    assert children[0].start_time_unix_nano == root.start_time_unix_nano
    assert children[-1].end_time_unix_nano == root.end_time_unix_nano
    for left, right in pairwise(children):
        assert left.end_time_unix_nano == right.start_time_unix_nano
    assert sum(child.end_time_unix_nano - child.start_time_unix_nano for child in children) == 10_000_000
    (error,) = {attributes(span)["fencepath.clock.error_ns"] for span in (root, *children)}
    # the larger bracket, what the offset changed between the readings, and what it changed in the request
    assert error == 70 + 300 + 150


def test_a_wall_clock_that_was_set_back_does_not_turn_spans_around(tmp_path: Path, receiver: Receiver) -> None:
    story = Story()
    story.request("r", 1000, 9000, 7)
    story.call("call", 2000, 8000, 7)
    story.realtime(500, EPOCH)
    story.realtime(9500, EPOCH - 3_600_000_000_000)
    root, *children = send(story.analysis(tmp_path), receiver)
    assert all(child.end_time_unix_nano > child.start_time_unix_nano for child in children)
    assert root.end_time_unix_nano - root.start_time_unix_nano == 8000
    assert attributes(root)["fencepath.clock.error_ns"] > 3_600_000_000_000


def test_attributes_of_the_request(analysis: Analysis, receiver: Receiver) -> None:
    root, *_ = send(analysis, receiver, "chat-1")
    found = attributes(root)
    assert found["gen_ai.request.id"] == "chat-1"
    assert found["gen_ai.request.model"] == "toy-7b"
    assert found["gen_ai.usage.input_tokens"] == 17
    assert found["gen_ai.usage.output_tokens"] == 2
    assert found["gen_ai.latency.time_to_first_token"] == 0.0055
    assert found["gen_ai.latency.e2e"] == 0.01
    assert found["gen_ai.latency.time_in_queue"] == 0.0009995
    assert found["tenant"] == "seventh"
    assert found["fencepath.state"] == "complete"
    sums = {name: value for name, value in found.items() if name.startswith("fencepath.time_ns.")}
    assert sum(sums.values()) == 10_000_000
    assert sums["fencepath.time_ns.device_execution"] == 2 * 3_400_000
    (event,) = root.events
    assert (event.name, event.time_unix_nano) == ("first_token", 6_500_000 + SHIFT)


def test_attributes_of_a_segment(analysis: Analysis, receiver: Receiver) -> None:
    _, *children = send(analysis, receiver, "chat-1")
    found = attributes(next(child for child in children if child.name == "wait"))
    assert found["fencepath.category"] == "driver"
    assert found["fencepath.phase"] == "prefill"
    assert found["fencepath.confidence"] == "bounded"
    assert found["fencepath.rule"] == "toy.done"
    assert (found["thread.id"], found["thread.name"]) == (201, "engine")
    assert found["fencepath.entities"][1] == "toy.fence:1"
    assert found["toy.fence"] == 1
    assert "fencepath.coalesced" not in found


def test_the_resource_names_the_service_the_host_and_the_recording(analysis: Analysis, receiver: Receiver) -> None:
    send(analysis, receiver)
    resource = receiver.messages()[0].resource_spans[0].resource
    found = {item.key: item.value.string_value for item in resource.attributes}
    assert found["service.name"] == "fencepath"
    assert found["host.name"] == "toyhost"
    assert found["fencepath.recording.id"] == found["service.instance.id"] == analysis.recording.manifest.id


def test_the_service_name_of_the_environment_wins(
    analysis: Analysis, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "llm-server")
    send(analysis, receiver)
    resource = receiver.messages()[0].resource_spans[0].resource
    assert {item.key: item.value.string_value for item in resource.attributes}["service.name"] == "llm-server"


@pytest.mark.parametrize("limit", [1, 4])
def test_beyond_the_limit_spans_stand_for_several_segments_and_say_so(analysis: Analysis, limit: int) -> None:
    request = analysis.request("chat-1")
    segments = analysis.report([request]).requests[0].path.segments
    root, *children = spans_of(analysis, request, limit=limit)
    assert len(children) <= limit
    shown = [dict(child.attributes or {}) for child in children]
    assert sum(int(str(found.get("fencepath.coalesced", 1))) for found in shown) == len(segments)
    assert sum((child.end_time or 0) - (child.start_time or 0) for child in children) == 10_000_000
    sums = dict(root.attributes or {})
    for category in {segment.category for segment in segments}:
        name = f"fencepath.time_ns.{category}"
        by_child = sum(
            int(str(found.get(name, 0)))
            if any(key.startswith("fencepath.time_ns.") for key in found)
            else ((child.end_time or 0) - (child.start_time or 0)) * (found["fencepath.category"] == category)
            for child, found in zip(children, shown, strict=True)
        )
        assert by_child == sums[name]


def test_an_open_request_says_so(tmp_path: Path, receiver: Receiver) -> None:
    story = Story()
    story.realtime(0, EPOCH)
    story.request("hang", 100, None, 7)
    story.call("forever", 200, 5000, 7)
    root, *_ = send(story.analysis(tmp_path), receiver)
    assert attributes(root)["fencepath.state"] == "open"
    assert attributes(root)["fencepath.incomplete"] is True
    assert "gen_ai.latency.e2e" not in attributes(root)


def test_a_failed_request_has_the_status_of_one(tmp_path: Path, receiver: Receiver) -> None:
    story = Story()
    story.realtime(0, EPOCH)
    story.request("r", 100, 900, 7)
    story.attribute("r", "error.type=OutOfMemory", 800, 7)
    root, *_ = send(story.analysis(tmp_path), receiver)
    assert (root.status.code, root.status.message) == (Status.STATUS_CODE_ERROR, "OutOfMemory")


def test_many_spans_go_in_several_messages(tmp_path: Path, receiver: Receiver) -> None:
    story = Story()
    story.realtime(0, EPOCH)
    for number in range(300):
        story.request(f"r{number}", 1000 * number, 1000 * number + 900, 7)
        story.call("call", 1000 * number + 100, 1000 * number + 200, 7)
    spans = send(story.analysis(tmp_path), receiver)
    assert len(spans) == 300 * 4
    assert len(receiver.bodies) == 3


def test_a_plugin_whose_hook_raises_is_isolated_and_the_spans_go_out(tmp_path: Path, receiver: Receiver) -> None:
    class Faulty(ToyPlugin):
        @hookimpl
        def fencepath_span_attributes(self, kind: str, row: Any) -> Any:
            raise RuntimeError("no attributes today")

    registry = load_plugins(extra={"toy": Faulty()}, entry_points=False)
    analysis = served_requests().analysis(tmp_path, registry)
    assert len(send(analysis, receiver, "chat-1")) > 5
    assert any("no attributes today" in problem for problem in analysis.problems)


def test_json_is_otlp_json(analysis: Analysis, receiver: Receiver, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    said = EXPORTERS["otlp"](analysis, analysis.requests, output=path)
    (line,) = path.read_text().splitlines()
    message = json.loads(line)
    written = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    sent = send(analysis, receiver)
    assert said == f"2 requests, {len(sent)} spans: {path}"
    for one, other in zip(written, sent, strict=True):
        assert one["traceId"] == other.trace_id.hex()
        assert one["spanId"] == other.span_id.hex()
        assert one.get("parentSpanId", "") == other.parent_span_id.hex()
        assert one["startTimeUnixNano"] == str(other.start_time_unix_nano)
        assert one["kind"] == other.kind
        assert one["name"] == other.name


def test_a_receiver_that_refuses_is_said_with_what_to_do(analysis: Analysis, receiver: Receiver) -> None:
    receiver.status = 400
    with pytest.raises(
        MachineError, match=r"\(0 had been\): .*400.*; see that an OTLP over HTTP receiver listens there"
    ):
        send(analysis, receiver)


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://localhost:4317", "http://"])
def test_an_endpoint_that_is_none(analysis: Analysis, endpoint: str) -> None:
    with pytest.raises(UsageError, match="give one such as http://localhost:4318"):
        EXPORTERS["otlp"](analysis, analysis.requests, endpoint=endpoint)


def test_nowhere_to_go(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    with pytest.raises(UsageError, match="--endpoint http://HOST:4318, or -o FILE"):
        EXPORTERS["otlp"](analysis, analysis.requests)


def test_the_endpoint_of_the_environment(
    analysis: Analysis, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    EXPORTERS["otlp"](analysis, analysis.requests)
    assert receiver.paths == ["/v1/traces"]


def test_without_readings_of_the_wall_clock_there_are_no_real_times(tmp_path: Path, receiver: Receiver) -> None:
    story = Story()
    story.request("r", 100, 900, 7)
    with pytest.raises(RecordingDamagedError, match="no readings of the wall clock"):
        send(story.analysis(tmp_path), receiver)


def test_without_the_extra_the_line_that_installs_it_is_said(tmp_path: Path) -> None:
    served_requests().write(tmp_path / "r.fencepath")
    code = (
        "import sys\n"
        "for name in ('opentelemetry.sdk', 'opentelemetry.exporter'):\n"
        "    sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from fencepath import Analysis, open_recording\n"
        "from fencepath.export import EXPORTERS\n"
        f"analysis = Analysis(open_recording({str(tmp_path / 'r.fencepath')!r}))\n"
        "EXPORTERS['otlp'](analysis, analysis.requests, output=Path('x'))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "MachineError" in run.stderr
    assert "pip install 'fencepath[otlp]'" in run.stderr
