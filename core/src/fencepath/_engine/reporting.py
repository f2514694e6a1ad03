# SPDX-License-Identifier: Apache-2.0
"""From paths in columns to the report's structs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fencepath._engine.activities import CATEGORIES, CONFIDENCES
from fencepath.entities import NO_ENTITY
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.modules import NO_MODULE
from fencepath.records import Flags
from fencepath.report import (
    LossEntry,
    Milestones,
    PathReport,
    Report,
    RequestReport,
    Segment,
    Violation,
)
from fencepath.requests import Request

if TYPE_CHECKING:
    from fencepath.analysis import Analysis, Path

__all__ = ["build_report", "segments_of"]


def build_report(analysis: Analysis, requests: Sequence[Request], target: str) -> Report:
    """Return the report of the given requests."""
    reports = tuple(_request_report(analysis, request, target) for request in requests)
    return Report(
        recording={**_recording_facts(analysis), "threads": _thread_names(analysis, reports)},
        loss=tuple(
            LossEntry(
                stage=row.stage, kind=row.kind, cpu=row.cpu, from_ns=row.from_ns, to_ns=row.to_ns, count=row.count
            )
            for row in analysis.recording.loss
        ),
        requests=reports,
        joins=analysis.joins,
        layers=analysis.tables(requests),
        findings=analysis.findings,
        problems=analysis.problems,
    )


def _recording_facts(analysis: Analysis) -> dict[str, Any]:
    manifest = analysis.recording.manifest
    return {
        "id": manifest.id,
        "host": manifest.host,
        "kernel": manifest.kernel,
        "boot_id": manifest.boot_id,
        "tool": manifest.tool,
        "detail": manifest.detail,
        "targets": list(manifest.targets),
        "layers": {
            name: {
                "version": layer.version,
                "missing": [{"probe": m.probe, "why": m.why} for m in layer.missing],
                "limits": _limits(analysis, name),
            }
            for name, layer in manifest.layers.items()
            if name not in analysis.without
        },
        "events": {kind: n for kind, n in sorted(analysis.table.counts().items()) if kind in manifest.kinds},
        "read_faults": dict(_read_faults(analysis)),
        "calibration": manifest.calibration,
        "cut": analysis.recording.cut,
        "damage": [str(damage) for damage in analysis.recording.damage],
    }


def _limits(analysis: Analysis, layer: str) -> list[str]:
    """What a layer of which there are events never sees."""
    plugin = analysis.registry.plugins.get(layer)
    seen = any(count and kind.partition(".")[0] == layer for kind, count in analysis.table.counts().items())
    return list(plugin.info.limits) if plugin is not None and seen else []


def _read_faults(analysis: Analysis) -> Iterator[tuple[str, int]]:
    """How many records of each kind lack something that could not be read from the traced program's memory."""
    for kind in analysis.view.kinds:
        faults = (analysis.view.batch(kind)["flags"] & int(Flags.READ_FAULT)) != 0
        if faults.any():
            yield kind, int(np.count_nonzero(faults))


def _thread_names(analysis: Analysis, reports: Sequence[RequestReport]) -> dict[str, str]:
    """Names of the threads on the paths, as far as they are known."""
    texts = {text for report in reports for segment in report.path.segments for text in segment.entities[:1]}
    return {text: name for text, name in analysis.thread_names.items() if text in texts}


def _request_report(analysis: Analysis, request: Request, target: str) -> RequestReport:
    return RequestReport(
        id=request.id,
        key=request.key,
        trace_id=request.trace_id,
        start_ns=request.start_ns,
        end_ns=request.end_ns,
        state=request.state,
        milestones=Milestones(first_token_ns=request.first_token_ns),
        path=_path_report(analysis, analysis.path(request, target)),
    )


def _path_report(analysis: Analysis, path: Path) -> PathReport:
    segments = tuple(segments_of(analysis, path))
    by_category: dict[Category, int] = defaultdict(int)
    by_confidence: dict[Confidence, int] = defaultdict(int)
    for segment in segments:
        by_category[segment.category] += segment.duration_ns
        by_confidence[segment.confidence] += segment.duration_ns
    start_ns, end_ns = path.request.start_ns, path.end_ns
    return PathReport(
        target=path.target,
        start_ns=start_ns,
        end_ns=end_ns,
        segments=segments,
        by_category_ns=dict(by_category),
        by_confidence_ns=dict(by_confidence),
        unexplained_ns=by_category.get(Category.UNEXPLAINED, 0),
        undecided_ns=by_category.get(Category.UNDECIDED, 0),
        not_observed_ns=by_category.get(Category.NOT_OBSERVED, 0),
        lost_events=sum(row.count for row in analysis.recording.loss if row.from_ns < end_ns and row.to_ns > start_ns),
        violations=tuple(_violations(analysis, path)),
    )


def _violations(analysis: Analysis, path: Path) -> Iterator[Violation]:
    """Edges within the request that go back in time beyond the clock error."""
    edges, table = analysis.edges, analysis.table
    within = (
        (edges.back > 0)
        & (table.end[edges.effect] >= path.request.start_ns)
        & (table.begin[edges.effect] <= path.end_ns)
    )
    for edge in np.flatnonzero(within).tolist():
        yield Violation(edges.rules[int(edges.rule[edge])], int(edges.back[edge]))


def segments_of(analysis: Analysis, path: Path) -> Iterator[Segment]:
    """Yield a path's segments, cut where a phase of the request begins or ends."""
    names: dict[int, _Names] = {}
    rules = analysis.walker.rules
    for begin, end, category, activity, thread, confidence, rule, error, ambiguous in zip(
        *(column.tolist() for column in path.columns), strict=True
    ):
        if activity not in names:
            names[activity] = _names(analysis, activity)
        named = names[activity]
        owner = (analysis.entity_text(thread),) if thread != NO_ENTITY else ()
        for from_ns, to_ns, phase in _phases(path.request, begin, end):
            yield Segment(
                start_ns=from_ns,
                end_ns=to_ns,
                category=CATEGORIES[category],
                phase=phase,  # type: ignore[arg-type]  # a marked phase is one of the literals
                ambiguous=bool(ambiguous),
                layer=named.layer,
                activity=named.activity,
                activity_id=named.id,
                entities=tuple(dict.fromkeys((*owner, *named.entities))),
                caller=named.caller,
                waited_for=named.waited_for,
                waited_for_id=named.waited_for_id,
                rule=rules[rule] if rule >= 0 else None,
                confidence=Confidence(CONFIDENCES[confidence]),
                error_ns=error,
            )


class _Names(NamedTuple):
    """How an activity is called, and what it waited for."""

    layer: str = ""
    activity: str = ""
    id: str = ""
    entities: tuple[str, ...] = ()
    caller: str = ""
    waited_for: str = ""
    waited_for_id: str = ""


def _names(analysis: Analysis, activity: int) -> _Names:
    if activity < 0:
        return _Names()
    table, cause = analysis.table, analysis.walker.waited_for(activity)
    layer = table.locate(activity)[0].split(".")[0]
    named = (table.name(cause), table.id(cause)) if cause >= 0 else ("", "")
    caller = _caller(analysis, activity)
    return _Names(layer, table.name(activity), table.id(activity), table.entities(activity), caller, *named)


def _caller(analysis: Analysis, activity: int) -> str:
    kind, row = analysis.table.locate(activity)
    batch = analysis.view.batch(kind)
    if "caller_ip" not in batch:
        return ""
    one = slice(row, row + 1)
    located = analysis.modules.locate(batch["tgid"][one], batch["begin_ns"][one], batch["caller_ip"][one])
    module = int(located.module[0])
    return analysis.modules[module].name if module != NO_MODULE else ""


def _phases(request: Request, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Cut one segment at the borders of the request's phases."""
    at = begin
    for span in request.phases:
        low, high = max(span.begin_ns, at), min(span.end_ns, end)
        if low < high:
            if at < low:
                yield at, low, "none"
            yield low, high, span.phase
            at = high
    if at < end:
        yield at, end, "none"
