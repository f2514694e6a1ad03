# SPDX-License-Identifier: Apache-2.0
"""Everything as Parquet files in a folder, for data frames: a file a kind of event, and the paths.

Columns are those of the kind's event class, with its entities as text. ``requests.parquet`` and ``segments.parquet`` are the
report's. Events are all there, whichever requests are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fencepath.entities import NO_ENTITY, EntityIds
from fencepath.errors import UsageError
from fencepath.export._files import count, output_path

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.report import Report
    from fencepath.requests import Request

__all__ = ["events_table", "export", "requests_table", "segments_table"]


def export(
    analysis: Analysis, requests: Sequence[Request], *, endpoint: str | None = None, output: Path | None = None
) -> str:
    """Write a folder of Parquet files; see :class:`fencepath.export.Exporter`."""
    folder = output_path(analysis, output, endpoint, ".parquet")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already; name an empty folder by -o")
    folder.mkdir(exist_ok=True)
    report = analysis.report(requests)
    tables = {kind: events_table(analysis, kind) for kind in analysis.view.kinds}
    tables |= {"requests": requests_table(report), "segments": segments_table(report)}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    return f"{count(len(requests), 'request')}, {count(len(tables), 'file')}: {folder}"


def events_table(analysis: Analysis, kind: str) -> pa.Table:
    """Return the events of a kind, by ``time_ns``."""
    batch = analysis.view.batch(kind)
    entities = {"process", "thread", *(key.column for key in analysis.registry.kinds[kind].keys)}
    columns: dict[str, pa.Array] = {}
    for name, column in batch.columns.items():
        if name in entities:
            columns[name] = _texts(analysis, column)
        elif name == "label" and batch.labels:
            unknown = (column < 0) | (column >= len(batch.labels))
            codes = pa.array(column.astype(np.int32), mask=unknown)
            columns[name] = pa.DictionaryArray.from_arrays(codes, pa.array(batch.labels))
        elif column.ndim == 1:
            columns[name] = pa.array(column)
        else:
            columns[name] = pa.array(list(column))
    return pa.table(columns)


def _texts(analysis: Analysis, ids: EntityIds) -> pa.Array:
    unique, inverse = np.unique(ids[ids != NO_ENTITY], return_inverse=True)
    codes = np.zeros(len(ids), np.int32)
    codes[ids != NO_ENTITY] = inverse
    texts = pa.array([analysis.entity_text(int(number)) for number in unique], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=ids == NO_ENTITY), texts)


def requests_table(report: Report) -> pa.Table:
    """Return the requests, one a row."""
    rows = [
        {
            "id": request.id,
            "key": request.key,
            "trace_id": request.trace_id,
            "start_ns": request.start_ns,
            "end_ns": request.end_ns,
            "state": str(request.state),
            "first_token_ns": request.milestones.first_token_ns,
            "lost_events": request.path.lost_events,
            "violations": len(request.path.violations),
        }
        for request in report.requests
    ]
    return pa.Table.from_pylist(rows)


def segments_table(report: Report) -> pa.Table:
    """Return the segments of all paths, one a row, with the ids of their requests."""
    return pa.Table.from_pylist(list(_segment_rows(report)))


def _segment_rows(report: Report) -> Iterator[dict[str, Any]]:
    for request in report.requests:
        for segment in request.path.segments:
            row = msgspec.structs.asdict(segment)
            row |= {"category": str(segment.category), "confidence": str(segment.confidence)}
            yield {"request": request.id, **row, "entities": list(segment.entities)}
