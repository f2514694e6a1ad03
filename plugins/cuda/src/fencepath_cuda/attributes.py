# SPDX-License-Identifier: Apache-2.0
"""What a span of a CUDA call says: dotted lower-case names as OpenTelemetry's, plain values, nothing for zeros."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from fencepath.plugin import AttributeValue
from fencepath_cuda import events
from fencepath_cuda.errors import NOT_READY, Api, error_name
from fencepath_cuda.events import Direction, NodeKind, Place, StreamKind
from fencepath_cuda.functions import TABLE

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
    "devices": "cuda.devices",
    "dependencies": "cuda.graph.dependencies",
    "elapsed_ns": "cuda.event.elapsed_ns",
}
_HANDLES = {
    "context_handle": "cuda.context",
    "event_handle": "cuda.event",
    "end_event_handle": "cuda.event.end",
    "kernel": "cuda.kernel.handle",
    "module": "cuda.module",
    "library": "cuda.library",
    "graph": "cuda.graph",
    "graph_exec": "cuda.graph.exec",
    "node": "cuda.graph.node",
    "child_graph": "cuda.graph.child",
    "pool": "cuda.memory.pool",
    "semaphore": "cuda.semaphore",
}
_ACTIONS: Mapping[str, tuple[str, type[enum.IntEnum]]] = {
    "cuda.memory.map": ("cuda.memory.action", events.Mapping),
    "cuda.memory.pool": ("cuda.memory.action", events.PoolAction),
    "cuda.memory.peer": ("cuda.memory.action", events.PeerAccess),
    "cuda.memory.prefetch": ("cuda.memory.action", events.Move),
    "cuda.stream.value": ("cuda.stream.action", events.ValueAction),
    "cuda.stream.semaphore": ("cuda.stream.action", events.SemaphoreAction),
}
"""By kind: what the column ``action`` is called, and what its numbers are."""

_NAMES = {"cuda.module.kernel": "cuda.kernel.name", "cuda.proc_address": "cuda.symbol"}
"""By kind: what the column ``name`` is called."""

_DEFAULT_STREAMS = {int(StreamKind.LEGACY): "legacy", int(StreamKind.PER_THREAD): "per_thread"}


def span_attributes(row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Return the attributes of one call; `row` has the columns of its kind."""
    found: dict[str, AttributeValue] = {}
    label = int(row.get("label", -1))
    function = TABLE.functions[label] if 0 <= label < len(TABLE) else None
    if function is not None:
        found["cuda.function"] = function.name
    stream_kind = int(row.get("stream_kind", StreamKind.NONE))
    if stream_kind != StreamKind.NONE:
        found["cuda.stream"] = _DEFAULT_STREAMS.get(stream_kind) or hex(int(row.get("stream_handle", 0)))
    found.update({name: row[column] for column, name in _NUMBERS.items() if row.get(column)})
    found.update({name: hex(int(row[column])) for column, name in _HANDLES.items() if row.get(column)})
    if function is not None and row.get("name"):
        found[_NAMES[function.kind]] = row["name"]
    if int(row.get("device", -1)) >= 0:
        found["cuda.device"] = int(row["device"])
    _add_name(found, "cuda.memcpy.kind", Direction, row.get("direction"), Direction.UNKNOWN)
    _add_name(found, "cuda.memory.place", Place, row.get("place"), Place.UNKNOWN)
    _add_name(found, "cuda.graph.node.kind", NodeKind, row.get("node_kind"), NodeKind.OTHER)
    if function is not None and function.kind in _ACTIONS:
        attribute, names = _ACTIONS[function.kind]
        _add_name(found, attribute, names, row.get("action"))
    result = int(row.get("result", 0))
    if result not in (0, NOT_READY):
        api: Api = "runtime" if function is not None and function.api == "runtime" else "driver"
        found["cuda.result"] = result
        found["error.type"] = error_name(api, result)
    return found


def _add_name(
    found: dict[str, AttributeValue],
    attribute: str,
    names: type[enum.IntEnum],
    value: AttributeValue | None,
    unknown: int = -1,
) -> None:
    if value is not None and int(value) != unknown and int(value) in set(names):
        found[attribute] = names(int(value)).name.lower()
