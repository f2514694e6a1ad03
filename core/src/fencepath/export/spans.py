# SPDX-License-Identifier: Apache-2.0
"""A request and its path as OpenTelemetry SDK spans. Needs the extra ``otlp``.

| attribute | meaning |
| --- | --- |
| ``fencepath.category``, ``.phase``, ``.confidence`` | of a segment, as in the report |
| ``fencepath.layer``, ``.activity``, ``.activity_id``, ``.rule``, ``.entities`` | likewise; absent if there is none |
| ``fencepath.error_ns``, ``.ambiguous``, ``.work_of``, ``.work_of_request`` | likewise; absent if 0, false or self |
| ``fencepath.coalesced`` | how many segments a span stands for; absent if it is one |
| ``fencepath.time_ns.<category>`` | on a request: its sums; on a span for segments of several categories: their shares |
| ``fencepath.clock.error_ns`` | how far the span's wall-clock times may be off |
| ``thread.id``, ``thread.name`` | OpenTelemetry's conventions |
| ``gen_ai.*`` | what the program said, and what is known from marks |
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fencepath._coalesce import Run, coalesce, thread_number
from fencepath._version import __version__
from fencepath.analysis import Analysis
from fencepath.export.gen_ai import gen_ai_attributes, span_name
from fencepath.export.identity import span_id, trace_id
from fencepath.export.plugin_attributes import PluginAttributes
from fencepath.export.realtime import Shift, model_of, shift_of
from fencepath.report import PathReport, RequestReport, Segment
from fencepath.requests import Request, RequestState

__all__ = ["SPAN_LIMIT", "spans_of"]

SPAN_LIMIT = 1000
"""Children of a request at most; beyond it neighbours are shown as one, which says how many they are."""

Value: TypeAlias = str | bool | int | float | list[str]


def spans_of(analysis: Analysis, request: Request, target: str = "end", limit: int = SPAN_LIMIT) -> list[ReadableSpan]:
    """Return the span of a request, then those of its path.

    Args:
        analysis: of the recording.
        request: one of its requests.
        target: ``end``, ``first_token`` or ``token:N``: how far the path goes. The request's span has its full length.
        limit: how many children at most.

    Raises:
        RecordingDamagedError: the recording has no readings of the wall clock.
        UsageError: the target is not known of this request.
    """
    maker = _Maker(analysis, request, target)
    return [maker.request_span(), *maker.path_spans(limit)]


class _Maker:
    """Makes the spans of one request."""

    def __init__(self, analysis: Analysis, request: Request, target: str) -> None:
        (self._report,) = analysis.report([request], target).requests
        self._analysis = analysis
        self._request = request
        self._boot_id = analysis.recording.manifest.boot_id
        self._shift = shift_of(model_of(analysis.recording), request.start_ns, request.end_ns)
        self._plugin_attributes = PluginAttributes(analysis, analysis.path(request, target))
        self._resource = _resource(analysis)
        self._scope = InstrumentationScope("fencepath", __version__)
        self._name = span_name(request)
        self._context = self._context_of(span_id(self._boot_id, request, self._name, request.start_ns))

    def _context_of(self, number: int, *, remote: bool = False) -> SpanContext:
        sampled = self._request.trace_flags if self._request.trace_id else TraceFlags.SAMPLED
        return SpanContext(trace_id(self._boot_id, self._request), number, remote, TraceFlags(sampled))

    def request_span(self) -> ReadableSpan:
        request, parent = self._request, int(self._request.parent_span_id or "0", 16)
        failed = request.attributes.get("error.type")
        return ReadableSpan(
            name=self._name,
            context=self._context,
            parent=self._context_of(parent, remote=True) if parent else None,
            kind=SpanKind.SERVER if parent else SpanKind.INTERNAL,
            resource=self._resource,
            instrumentation_scope=self._scope,
            attributes=_request_attributes(request, self._report, self._shift),
            events=tuple(_events(request, self._shift)),
            status=Status(StatusCode.ERROR, failed) if failed else Status(),
            start_time=self._shift(request.start_ns),
            end_time=self._shift(request.end_ns),
        )

    def path_spans(self, limit: int) -> Iterator[ReadableSpan]:
        names = self._analysis.thread_names
        for run in coalesce(self._report.path.segments, limit, across=True):
            segment = run.longest
            name = segment.activity or str(segment.category)
            number = span_id(self._boot_id, self._request, name, run.start_ns, segment.activity_id)
            yield ReadableSpan(
                name=name,
                context=self._context_of(number),
                parent=self._context,
                resource=self._resource,
                instrumentation_scope=self._scope,
                attributes={
                    **self._plugin_attributes.of(segment),
                    **_run_attributes(run, segment, names),
                    "fencepath.clock.error_ns": self._shift.error_ns,
                },
                start_time=self._shift(run.start_ns),
                end_time=self._shift(run.end_ns),
            )


def _resource(analysis: Analysis) -> Resource:
    manifest = analysis.recording.manifest
    # the SDK would make up an instance id at every export
    attributes = {"host.name": manifest.host, "fencepath.recording.id": manifest.id, "service.instance.id": manifest.id}
    if not (os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        attributes["service.name"] = "fencepath"
    return Resource.create(attributes)


def _events(request: Request, shift: Shift) -> Iterator[Event]:
    if request.first_token_ns is not None:
        yield Event("first_token", timestamp=shift(request.first_token_ns))


def _request_attributes(request: Request, report: RequestReport, shift: Shift) -> dict[str, Value]:
    path = report.path
    attributes: dict[str, Value] = {
        **request.attributes,
        **gen_ai_attributes(request),
        "fencepath.request.key": request.key,
        "fencepath.request.id": request.id,
        "fencepath.state": str(request.state),
        "fencepath.target": path.target,
        "fencepath.path.duration_ns": path.end_ns - path.start_ns,
        "fencepath.lost_events": path.lost_events,
        "fencepath.violations": len(path.violations),
        "fencepath.clock.error_ns": shift.error_ns,
    }
    if request.state is not RequestState.COMPLETE:
        attributes["fencepath.incomplete"] = True
    return attributes | _sums(path)


def _sums(path: PathReport) -> dict[str, Value]:
    categories: dict[str, Value] = {f"fencepath.time_ns.{name}": ns for name, ns in path.by_category_ns.items()}
    return categories | {f"fencepath.confidence_ns.{name}": ns for name, ns in path.by_confidence_ns.items()}


def _run_attributes(run: Run, segment: Segment, names: Mapping[str, str]) -> dict[str, Value]:
    """What a run of segments is; `segment` is the longest of what it mostly is."""
    found: dict[str, Value | None] = {
        "fencepath.category": str(segment.category),
        "fencepath.phase": segment.phase,
        "fencepath.confidence": str(run.confidence),
        "fencepath.layer": segment.layer,
        "fencepath.activity": segment.activity,
        "fencepath.activity_id": segment.activity_id,
        "fencepath.caller": segment.caller,
        "fencepath.waited_for": segment.waited_for,
        "fencepath.rule": segment.rule,
        "fencepath.entities": list(segment.entities),
        "fencepath.error_ns": max(s.error_ns for s in run.segments),
        "fencepath.ambiguous": any(s.ambiguous for s in run.segments),
        "fencepath.work_of": segment.work_of if segment.work_of != "self" else "",
        "fencepath.work_of_request": segment.work_of_request,
        "thread.name": names.get(run.thread),
    }
    attributes = {name: value for name, value in found.items() if value}
    number = thread_number(run.thread)
    if number:
        attributes["thread.id"] = int(number)
    if len(run.segments) > 1:
        attributes["fencepath.coalesced"] = len(run.segments)
    if len(run.categories) > 1:
        attributes |= {f"fencepath.time_ns.{name}": ns for name, ns in run.categories.items()}
    return attributes
