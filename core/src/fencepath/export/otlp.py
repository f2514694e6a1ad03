# SPDX-License-Identifier: Apache-2.0
"""Requests and their paths as OpenTelemetry spans, over OTLP/HTTP or as OTLP JSON lines.

One span a request, one child a segment of its path; the durations of the children add up to the request's. Exporting the
same recording again gives the same ids, so a backend that knows them already does not count them twice.
"""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from fencepath.errors import MachineError, UsageError
from fencepath.export._extras import needs_extra
from fencepath.export._files import count, output_path

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from fencepath.analysis import Analysis
    from fencepath.requests import Request

__all__ = ["export", "to_json"]

BATCH = 512
"""Spans in one message."""
_TRACES = "/v1/traces"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_IDS = ("traceId", "spanId", "parentSpanId")


def export(
    analysis: Analysis, requests: Sequence[Request], *, endpoint: str | None = None, output: Path | None = None
) -> str:
    """Send the spans of some requests, or write them to a file; see :class:`fencepath.export.Exporter`."""
    if output is not None:
        path = output_path(analysis, output, endpoint, ".otlp.jsonl")
        written = 0
        with path.open("wb") as file:
            for batch in _batches(analysis, requests):
                file.write(to_json(batch))
                written += len(batch)
        return f"{count(len(requests), 'request')}, {count(written, 'span')}: {path}"
    url = _url(endpoint)
    sent = _send(url, _batches(analysis, requests))
    return (
        f"{count(len(requests), 'request')}, {count(sent, 'span')} sent to {url or 'the endpoint of the environment'}"
    )


def _batches(analysis: Analysis, requests: Sequence[Request]) -> Iterator[list[ReadableSpan]]:
    spans_of = _spans_of()
    batch: list[ReadableSpan] = []
    for request in requests:
        batch += spans_of(analysis, request)
        while len(batch) >= BATCH:
            yield batch[:BATCH]
            batch = batch[BATCH:]
    if batch:
        yield batch


def _spans_of() -> Any:
    with _otlp():
        from fencepath.export.spans import spans_of
    return spans_of


def _otlp() -> AbstractContextManager[None]:
    return needs_extra("otlp", ("opentelemetry", "google", "requests"))


def _url(endpoint: str | None) -> str | None:
    """Return the URL to post to; None leaves it to OpenTelemetry's environment variables.

    As with those, ``http://HOST:4318`` means its ``/v1/traces``.
    """
    if endpoint is None:
        if not any(os.environ.get(name) for name in _ENDPOINTS):
            raise UsageError("say where the spans shall go: --endpoint http://HOST:4318, or -o FILE")
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"{endpoint} is not an OTLP over HTTP endpoint; give one such as http://localhost:4318")
    return urlunsplit(parts._replace(path=_TRACES)) if parts.path in ("", "/") else endpoint


def _send(url: str | None, batches: Iterator[list[ReadableSpan]]) -> int:
    with _otlp():
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    exporter = OTLPSpanExporter(endpoint=url)
    sent = 0
    with _said_by_exporter() as messages:
        try:
            for batch in batches:
                if exporter.export(batch) is not SpanExportResult.SUCCESS:
                    where = url or "the endpoint of the environment"
                    why = f": {messages[0]}" if messages else ""
                    raise MachineError(
                        f"the spans were not taken by {where} ({sent} had been){why}",
                        "see that an OTLP over HTTP receiver listens there",
                    )
                sent += len(batch)
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK's signature lacks its return type
    return sent


@contextmanager
def _said_by_exporter() -> Generator[list[str]]:
    """Collect what the SDK would print: it logs why it failed, again at every try, and returns no reason."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, collector = logging.getLogger("opentelemetry.exporter"), Collector()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(collector)
    try:
        yield messages
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate


def to_json(spans: Sequence[ReadableSpan]) -> bytes:
    """Return spans as one line of OTLP JSON, an ExportTraceServiceRequest."""
    with _otlp():
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped, unused-ignore]  # stubs are apart
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    message = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                _ids_to_hex(span)
    return msgspec.json.encode(message) + b"\n"


def _ids_to_hex(span: dict[str, Any]) -> None:
    """OTLP's JSON writes ids as hex digits, where protobuf's writes bytes as base64."""
    for name in _IDS:
        if name in span:
            span[name] = base64.b64decode(span[name]).hex()
