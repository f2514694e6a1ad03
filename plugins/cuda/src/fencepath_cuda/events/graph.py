# SPDX-License-Identifier: Apache-2.0
"""Graphs: captured or built node by node, instantiated, changed and launched."""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepath.events import U8, U32, U64, Category, KindInfo, Role
from fencepath_cuda.events.base import CONTEXT, EVENT, STREAM, CudaCall, OnStream

__all__ = [
    "GraphCaptureBegin",
    "GraphCaptureEnd",
    "GraphCaptureMode",
    "GraphCaptureQuery",
    "GraphCaptureUpdate",
    "GraphClone",
    "GraphCreate",
    "GraphDependency",
    "GraphDestroy",
    "GraphExecDestroy",
    "GraphInstantiate",
    "GraphLaunch",
    "GraphNode",
    "GraphNodeDestroy",
    "GraphParams",
    "GraphUpdate",
    "GraphUpload",
    "NodeKind",
]


class NodeKind(enum.IntEnum):
    """What a node does, numbered as CUgraphNodeType (cuda.h)."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    CHILD_GRAPH = 4
    EMPTY = 5
    EVENT_WAIT = 6
    EVENT_RECORD = 7
    SEMAPHORE_SIGNAL = 8
    SEMAPHORE_WAIT = 9
    ALLOC = 10
    FREE = 11
    MEM_OP = 12
    CONDITIONAL = 13
    OTHER = 255
    """A type of later versions, or it could not be read."""


class GraphCaptureBegin(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_begin"):
    """From now on what is put on the stream becomes nodes of a graph and does not run.

    Attributes:
        mode: CUstreamCaptureMode: 0 global, 1 thread local, 2 relaxed.
        graph: CUgraph that the nodes are added to; 0 for a new one.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    mode: U32
    graph: U64


class GraphCaptureEnd(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_end"):
    """The capture that began on the stream ended.

    Attributes:
        graph: CUgraph made of it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    graph: U64


class GraphCaptureQuery(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_query"):
    """Asked whether a stream is being captured.

    Attributes:
        status: CUstreamCaptureStatus: 0 no, 1 yes, 2 the capture has been made invalid.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    status: U32


class GraphCaptureUpdate(OnStream, frozen=True, kw_only=True, tag="cuda.graph.capture_update"):
    """The nodes that the stream's next captured node depends on were added to or replaced.

    Attributes:
        dependencies: how many nodes were given.
        dependency_0, dependency_1, dependency_2, dependency_3: CUgraphNode, the first of them; 0 beyond.
        replaced: whether they took the place of those before.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    dependencies: U32
    dependency_0: U64
    dependency_1: U64
    dependency_2: U64
    dependency_3: U64
    replaced: bool


class GraphCaptureMode(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.capture_mode"):
    """The thread changed what it may do while a capture runs.

    Attributes:
        mode: CUstreamCaptureMode asked for; the function hands back the one before.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    mode: U32


class GraphCreate(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.create"):
    """An empty graph was made.

    Attributes:
        graph: CUgraph.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    graph: U64


class GraphDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.destroy"):
    """A graph was destroyed, with its nodes; what was instantiated of it stays."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    graph: U64


class GraphClone(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.clone"):
    """A graph was copied. Its nodes have other handles.

    Attributes:
        graph: CUgraph, the original.
        clone: CUgraph, the copy.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    graph: U64
    clone: U64


class GraphNode(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.node"):
    """A node was added to a graph.

    Attributes:
        graph: CUgraph.
        node: CUgraphNode.
        node_kind: see :class:`NodeKind`.
        dependencies: how many nodes it depends on.
        dependency_0, dependency_1, dependency_2, dependency_3: CUgraphNode, the first of them; 0 beyond.
        kernel: of a kernel, CUfunction or CUkernel.
        child_graph: of a child graph, CUgraph that was copied into the node.
        event_handle: of an event's record or wait, CUevent.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT,), keep=True)

    graph: U64
    node: U64
    node_kind: U8
    dependencies: U32
    dependency_0: U64
    dependency_1: U64
    dependency_2: U64
    dependency_3: U64
    kernel: U64
    child_graph: U64
    event_handle: U64


class GraphNodeDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.node.destroy"):
    """A node was taken out of its graph.

    Attributes:
        node: CUgraphNode.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    node: U64


class GraphDependency(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.dependency"):
    """Edges between nodes were added or taken away.

    Attributes:
        graph: CUgraph.
        dependencies: how many edges.
        from_0, from_1, from_2, from_3: CUgraphNode that comes first, of the first edges; 0 beyond.
        to_0, to_1, to_2, to_3: CUgraphNode that depends on it, likewise.
        removed: taken away.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keep=True)

    graph: U64
    dependencies: U32
    from_0: U64
    from_1: U64
    from_2: U64
    from_3: U64
    to_0: U64
    to_1: U64
    to_2: U64
    to_3: U64
    removed: bool


class GraphInstantiate(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.instantiate"):
    """A graph was made ready to launch.

    Attributes:
        graph: CUgraph.
        graph_exec: CUgraphExec made of it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keep=True)

    graph: U64
    graph_exec: U64


class GraphExecDestroy(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.exec.destroy"):
    """What was instantiated of a graph was destroyed; a launch of it that runs goes on.

    Attributes:
        graph_exec: CUgraphExec.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.API_CALL, keep=True)

    graph_exec: U64


class GraphUpdate(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.update"):
    """What was instantiated took over the nodes' parameters of a graph of the same form; launches before are not touched.

    Attributes:
        graph_exec: CUgraphExec.
        graph: CUgraph.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keep=True)

    graph_exec: U64
    graph: U64


class GraphParams(CudaCall, frozen=True, kw_only=True, tag="cuda.graph.params"):
    """The parameters of one node were changed.

    Attributes:
        node: CUgraphNode of the graph.
        graph_exec: CUgraphExec in which they were changed; 0 if in the graph itself.
        event_handle: of an event's record or wait, the new CUevent.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(EVENT,))

    node: U64
    graph_exec: U64
    event_handle: U64


class GraphUpload(OnStream, frozen=True, kw_only=True, tag="cuda.graph.upload"):
    """What was instantiated was brought to the device, so that its first launch need not.

    Attributes:
        graph_exec: CUgraphExec.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    graph_exec: U64


class GraphLaunch(OnStream, frozen=True, kw_only=True, tag="cuda.graph.launch"):
    """A graph was put on a stream, as one piece of work.

    Attributes:
        graph_exec: CUgraphExec.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(STREAM, CONTEXT))

    graph_exec: U64
