# SPDX-License-Identifier: Apache-2.0
"""What each operation is: its kind, its name, the CUDA event it is for, and the thread that submitted it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.events import Batch, Column
from fencepath.joins import Events
from fencepath_cuda.drafts import ADDED
from fencepath_cuda.events import NodeKind
from fencepath_cuda.events.operation import OperationKind
from fencepath_cuda.names import KernelNames
from fencepath_cuda.operations import Operations
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import SUBMITTING

__all__ = ["Meaning", "describe"]

_KIND_OF = {
    "cuda.launch": OperationKind.KERNEL,
    "cuda.graph.launch": OperationKind.GRAPH,
    "cuda.host_func": OperationKind.HOST_FUNCTION,
    "cuda.memcpy": OperationKind.COPY,
    "cuda.memcpy.async": OperationKind.COPY,
    "cuda.memset": OperationKind.SET,
    "cuda.malloc": OperationKind.ALLOCATE,
    "cuda.free": OperationKind.FREE,
    "cuda.memory.prefetch": OperationKind.PREFETCH,
    "cuda.stream.value": OperationKind.VALUE,
    "cuda.stream.semaphore": OperationKind.OTHER,
    "cuda.event.record": OperationKind.RECORD,
    "cuda.stream.wait_event": OperationKind.WAIT,
}
_NODE_KIND_OF = {
    NodeKind.KERNEL: OperationKind.KERNEL,
    NodeKind.MEMCPY: OperationKind.COPY,
    NodeKind.MEMSET: OperationKind.SET,
    NodeKind.HOST: OperationKind.HOST_FUNCTION,
    NodeKind.CHILD_GRAPH: OperationKind.GRAPH,
    NodeKind.EVENT_WAIT: OperationKind.WAIT,
    NodeKind.EVENT_RECORD: OperationKind.RECORD,
    NodeKind.ALLOC: OperationKind.ALLOCATE,
    NodeKind.FREE: OperationKind.FREE,
    NodeKind.MEM_OP: OperationKind.VALUE,
}
_SAID = {
    OperationKind.KERNEL: "kernel",
    OperationKind.COPY: "copy",
    OperationKind.SET: "memory set",
    OperationKind.HOST_FUNCTION: "host function",
    OperationKind.ALLOCATE: "allocation",
    OperationKind.FREE: "free",
    OperationKind.PREFETCH: "prefetch",
    OperationKind.VALUE: "value in memory",
    OperationKind.RECORD: "event record",
    OperationKind.WAIT: "event wait",
    OperationKind.GRAPH: "graph",
    OperationKind.OTHER: "operation",
}


class Meaning(msgspec.Struct, frozen=True):
    """Columns of operations, shape (n,).

    Attributes:
        kind: see :class:`OperationKind`.
        label: index in `labels`.
        labels: names.
        event: entity of the CUDA event it records or waits for, NO_ENTITY for none.
        tgid, tid: of the call that submitted it.
    """

    kind: Column
    label: Column
    labels: Sequence[str]
    event: Ints
    tgid: Column
    tid: Column


def describe(events: Events, operations: Operations) -> Meaning:
    """Say what each operation is. That of a node is told by the call that was captured, or that added it."""
    code, row = operations.made_by()
    size = len(code)
    kind = np.full(size, int(OperationKind.OTHER), np.uint8)
    event = np.full(size, NO_ENTITY, np.int64)
    name = np.full(size, -1, np.int64)
    names = KernelNames(events)
    for number, source in enumerate((*SUBMITTING, "cuda.graph.node")):
        mine = np.flatnonzero(code == number)
        if not len(mine):
            continue
        batch, rows = events.batch(source), row[mine]
        kind[mine] = _node_kinds(batch, rows) if number == ADDED else int(_KIND_OF[source])
        if "event" in batch:
            event[mine] = batch["event"][rows]
        if "kernel" in batch:
            name[mine] = names.of(batch["process"][rows], batch["kernel"][rows], batch["begin_ns"][rows])
    named = (name >= 0) & (kind == OperationKind.KERNEL)
    label = np.where(named, name + len(_SAID), kind).astype(np.int32)
    tgid, tid = (_of_calls(events, operations, column)[operations.item] for column in ("tgid", "tid"))
    return Meaning(kind, label, (*_SAID.values(), *names.names), event, tgid, tid)


def _node_kinds(batch: Batch, rows: Ints) -> Column:
    table = np.full(256, int(OperationKind.OTHER), np.uint8)
    for node, operation in _NODE_KIND_OF.items():
        table[node] = operation
    return table[batch["node_kind"][rows]]


def _of_calls(events: Events, operations: Operations, column: str) -> Column:
    found = np.empty(len(operations.items), np.uint32)
    for number, kind in enumerate(SUBMITTING):
        mine = operations.items.code == number
        found[mine] = events.batch(kind)[column][operations.items.row[mine]]
    return found
