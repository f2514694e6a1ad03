# SPDX-License-Identifier: Apache-2.0
"""What a span of a CUDA call says: dotted lower-case names as OpenTelemetry's, plain values, nothing for zeros."""

from __future__ import annotations

from collections.abc import Mapping

from fencepath.plugin import AttributeValue
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.events import Direction, Place, StreamKind

__all__ = ["span_attributes"]

_NUMBERS = {
    "grid_x": "cuda.grid.x",
    "grid_y": "cuda.grid.y",
    "grid_z": "cuda.grid.z",
    "block_x": "cuda.block.x",
    "block_y": "cuda.block.y",
    "block_z": "cuda.block.z",
    "shared_bytes": "cuda.shared_memory.bytes",
    "bytes": "cuda.bytes",
}
_HANDLES = {
    "event_handle": "cuda.event",
    "kernel": "cuda.kernel.handle",
    "graph": "cuda.graph",
    "graph_exec": "cuda.graph.exec",
}
_DEFAULT_STREAMS = {int(StreamKind.LEGACY): "legacy", int(StreamKind.PER_THREAD): "per_thread"}
_NOT_READY = 600
"""CUDA_ERROR_NOT_READY: the answer of a query, not an error."""


def span_attributes(row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Return the attributes of one call; `row` has the columns of its kind."""
    found: dict[str, AttributeValue] = {}
    label = int(row.get("label", -1))
    if 0 <= label < len(LABELS):
        found["cuda.function"] = LABELS[label]
    stream_kind = int(row.get("stream_kind", StreamKind.NONE))
    if stream_kind != StreamKind.NONE:
        found["cuda.stream"] = _DEFAULT_STREAMS.get(stream_kind) or hex(int(row.get("stream_handle", 0)))
    found.update({name: row[column] for column, name in _NUMBERS.items() if row.get(column)})
    found.update({name: hex(int(row[column])) for column, name in _HANDLES.items() if row.get(column)})
    _add_name(found, "cuda.memcpy.kind", Direction, row.get("direction"), Direction.UNKNOWN)
    _add_name(found, "cuda.memory.place", Place, row.get("place"), Place.UNKNOWN)
    result = int(row.get("result", 0))
    if result not in (0, _NOT_READY):
        found["cuda.result"] = result
        found["error.type"] = str(result)
    return found


def _add_name(
    found: dict[str, AttributeValue],
    attribute: str,
    names: type[Direction | Place],
    value: AttributeValue | None,
    unknown: Direction | Place,
) -> None:
    if value is not None and int(value) != unknown and int(value) in set(names):
        found[attribute] = names(int(value)).name.lower()
