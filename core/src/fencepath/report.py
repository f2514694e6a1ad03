# SPDX-License-Identifier: Apache-2.0
"""The report, schema ``fencepath.report/1``: what ``fencepath report --json`` prints.

All times are integers, CLOCK_MONOTONIC in ns, ascending. Additions do not change the version.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.requests import RequestState

__all__ = [
    "SCHEMA",
    "Finding",
    "JoinCount",
    "LayerTable",
    "LossEntry",
    "Milestones",
    "PathReport",
    "Report",
    "RequestReport",
    "Segment",
    "Violation",
    "json_schema",
]

SCHEMA = "fencepath.report/1"

Phase = Literal["none", "queue", "prefill", "decode"]
WorkOf = Literal["self", "batch", "other", "none"]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a path. Segments follow one another without gap or overlap.

    Attributes:
        start_ns: begin.
        end_ns: end.
        category: what the time was spent on.
        phase: phase of the request, as marked.
        work_of: for whom the thread worked.
        work_of_request: id of that request, None unless `work_of` is ``other``.
        ambiguous: another choice was as good within the clock error.
        layer: layer of the activity, "" if there is none.
        activity: name of what ran or was waited for, such as ``cuStreamSynchronize``; "" if there is none.
        activity_id: 16 hex digits, the same in the causal graph and in spans; "" if there is none.
        entities: texts, thread first.
        caller: library or executable whose code made the call, such as ``libcublas.so.13``; "" if it is not known.
        waited_for: name of the work that a wait is known to have waited for, such as a kernel's; "" if it is not known.
        waited_for_id: its activity id.
        rule: rule of the edge the path came by, None if none.
        confidence: see :class:`fencepath.joins.Confidence`.
        error_ns: how far the boundaries may be off.
    """

    start_ns: int
    end_ns: int
    category: Category
    phase: Phase = "none"
    work_of: WorkOf = "self"
    work_of_request: str | None = None
    ambiguous: bool = False
    layer: str = ""
    activity: str = ""
    activity_id: str = ""
    entities: tuple[str, ...] = ()
    caller: str = ""
    waited_for: str = ""
    waited_for_id: str = ""
    rule: str | None = None
    confidence: Confidence = Confidence.EXACT
    error_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """Length."""
        return self.end_ns - self.start_ns


class Violation(msgspec.Struct, frozen=True):
    """An edge that goes back in time beyond the clock error."""

    rule: str
    size_ns: int


class PathReport(msgspec.Struct, frozen=True, kw_only=True):
    """The critical path of a request.

    Attributes:
        target: ``end``, ``first_token`` or ``token:N``.
        start_ns: begin of the request.
        end_ns: the target's time.
        segments: ascending; their lengths add up to ``end_ns - start_ns`` exactly.
        by_category_ns: sums.
        by_confidence_ns: sums.
        unexplained_ns: sum of that category.
        undecided_ns: likewise.
        not_observed_ns: likewise.
        lost_events: records known to be lost within the request.
        violations: edges that go back in time.
    """

    target: str
    start_ns: int
    end_ns: int
    segments: tuple[Segment, ...]
    by_category_ns: dict[Category, int]
    by_confidence_ns: dict[Confidence, int]
    unexplained_ns: int
    undecided_ns: int
    not_observed_ns: int
    lost_events: int
    violations: tuple[Violation, ...] = ()


class Milestones(msgspec.Struct, frozen=True, kw_only=True):
    """Times within a request; None if not known."""

    first_token_ns: int | None = None


class RequestReport(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    id: str
    key: str
    trace_id: str
    start_ns: int
    end_ns: int
    state: RequestState
    milestones: Milestones
    path: PathReport


class JoinCount(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found; `off` says why it did not run, "" if it did."""

    rule: str
    matched: int
    unmatched: int
    ambiguous: int
    off: str = ""


class LossEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Records lost in a window of time. `kind` is "" if it is not known."""

    stage: str
    kind: str
    cpu: int
    from_ns: int
    to_ns: int
    count: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a user should know, with what to do about it."""

    rule: str
    title: str
    detail: str = ""
    request: str = ""


class LayerTable(msgspec.Struct, frozen=True, kw_only=True):
    """A layer's own table.

    Attributes:
        title: what it shows.
        rows: one mapping from column to value a row, all with the same columns; times end in ``_ns``, sizes in ``_bytes``.
    """

    title: str
    rows: tuple[dict[str, str | int | float | bool | None], ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report.

    Attributes:
        schema: :data:`SCHEMA`.
        recording: host, kernel, layers, what was attached and what not, clock, calibration and damage.
        loss: everything known to be lost.
        requests: by start.
        joins: what each rule found.
        layers: the plugins' own tables, by layer and name.
        findings: what a user should know.
        problems: what went wrong while reading: isolated plugins, kinds without a plugin.
    """

    schema: Literal["fencepath.report/1"] = "fencepath.report/1"
    recording: dict[str, Any]
    loss: tuple[LossEntry, ...]
    requests: tuple[RequestReport, ...]
    joins: tuple[JoinCount, ...]
    layers: dict[str, dict[str, LayerTable]] = {}
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of :class:`Report`."""
    return msgspec.json.schema(Report)
