# SPDX-License-Identifier: Apache-2.0
"""Graphs: capture, building by hand, instantiation and change."""

from __future__ import annotations

from fencepath.calls import Arg, Function, Out, Read
from fencepath_cuda.events import NodeKind
from fencepath_cuda.functions.base import array, driver, event, per_thread, stream

__all__ = ["GRAPHS"]


def _capture_update(name: str, count: int) -> Function:
    nodes, read = array("dependency", 1, count, 5)
    # CU_STREAM_SET_CAPTURE_DEPENDENCIES is bit 0 of the flags, which come last.
    args = (stream(0), Arg("dependencies", count), Arg("replaced", count + 1, "u32", 0, 1), *nodes)
    return Function(name, "cuda.graph.capture_update", args, (read,))


_CAPTURE = driver(
    "graph",
    "launch",
    *per_thread(
        "_ptsz",
        Function("cuStreamBeginCapture", "cuda.graph.capture_begin", (stream(0),)),
        Function("cuStreamBeginCapture_v2", "cuda.graph.capture_begin", (stream(0), Arg("mode", 1, "u32"))),
        Function(
            "cuStreamBeginCaptureToGraph",
            "cuda.graph.capture_begin",
            (stream(0), Arg("graph", 1), Arg("mode", 5, "u32")),
        ),
        Function(
            "cuStreamBeginRecaptureToGraph",
            "cuda.graph.capture_begin",
            (stream(0), Arg("mode", 1, "u32"), Arg("graph", 2)),
        ),
        Function("cuStreamEndCapture", "cuda.graph.capture_end", (stream(0),), out=(Out("graph", 1),)),
        _capture_update("cuStreamUpdateCaptureDependencies", 2),
        _capture_update("cuStreamUpdateCaptureDependencies_v2", 3),
    ),
)

_STATUS = (Out("status", 1, 0, 4),)

_CAPTURE_QUERIES = driver(
    "graph",
    "full",
    *per_thread(
        "_ptsz",
        Function("cuStreamIsCapturing", "cuda.graph.capture_query", (stream(0),), out=_STATUS),
        Function(
            "cuStreamGetCaptureInfo",
            "cuda.graph.capture_query",
            (stream(0),),
            out=_STATUS,
            aliases=("cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3"),
        ),
    ),
    Function(
        "cuThreadExchangeStreamCaptureMode", "cuda.graph.capture_mode", (Arg("mode", 1, "u32"),), (Read(0, 0, 1, 1),)
    ),
)

# Handles that a node depends on go to slots 6 to 9, what it is to do to 10 and above.


def _node(name: str, kind: NodeKind, *args: Arg, reads: tuple[Read, ...] = ()) -> Function:
    nodes, read = array("dependency", 2, 3, 6)
    return Function(
        name,
        "cuda.graph.node",
        (Arg("graph", 1), Arg("dependencies", 3), *nodes, *args),
        (read, *reads),
        out=(Out("node", 0),),
        constants={"node_kind": int(kind)},
    )


def _any_node(name: str, count: int, aliases: tuple[str, ...] = ()) -> Function:
    """Return a function that takes CUgraphNodeParams: the type, and at 16 what that type of node is to do.

    The first word of that is the function, the graph or the CUDA event; of a kernel the word at 56 is the CUkernel.
    """
    nodes, read = array("dependency", 2, count, 6)
    params = count + 1
    return Function(
        name,
        "cuda.graph.node",
        (
            Arg("graph", 1),
            Arg("dependencies", count),
            *nodes,
            Arg("node_kind", 10, "u32"),
            Arg("node_word", 11),
            Arg("library_kernel", 12),
        ),
        (read, Read(params, 0, 1, 10), Read(params, 16, 1, 11), Read(params, 72, 1, 12)),
        out=(Out("node", 0),),
        aliases=aliases,
    )


_NODES = driver(
    "graph",
    "launch",
    # CUDA_KERNEL_NODE_PARAMS: the function first; since the second version the CUkernel at 56.
    _node("cuGraphAddKernelNode", NodeKind.KERNEL, Arg("kernel", 10), reads=(Read(4, 0, 1, 10),)),
    _node(
        "cuGraphAddKernelNode_v2",
        NodeKind.KERNEL,
        Arg("kernel", 10),
        Arg("library_kernel", 11),
        reads=(Read(4, 0, 1, 10), Read(4, 56, 1, 11)),
    ),
    _node("cuGraphAddMemcpyNode", NodeKind.MEMCPY),
    _node("cuGraphAddMemsetNode", NodeKind.MEMSET),
    _node("cuGraphAddHostNode", NodeKind.HOST),
    _node("cuGraphAddChildGraphNode", NodeKind.CHILD_GRAPH, Arg("child_graph", 4)),
    _node("cuGraphAddEmptyNode", NodeKind.EMPTY),
    _node("cuGraphAddEventRecordNode", NodeKind.EVENT_RECORD, event(4)),
    _node("cuGraphAddEventWaitNode", NodeKind.EVENT_WAIT, event(4)),
    _node("cuGraphAddExternalSemaphoresSignalNode", NodeKind.SEMAPHORE_SIGNAL),
    _node("cuGraphAddExternalSemaphoresWaitNode", NodeKind.SEMAPHORE_WAIT),
    _node("cuGraphAddMemAllocNode", NodeKind.ALLOC),
    _node("cuGraphAddMemFreeNode", NodeKind.FREE),
    _node("cuGraphAddBatchMemOpNode", NodeKind.MEM_OP),
    _any_node("cuGraphAddNode", 3),
    _any_node("cuGraphAddNode_v2", 4, ("cuGraphAddNode_v3",)),
    Function("cuGraphDestroyNode", "cuda.graph.node.destroy", (Arg("node", 0),)),
)


def _dependencies(name: str, count: int, removed: int) -> Function:
    before, read_before = array("from", 1, count, 5)
    after, read_after = array("to", 2, count, 9)
    args = (Arg("graph", 0), Arg("dependencies", count), *before, *after)
    return Function(name, "cuda.graph.dependency", args, (read_before, read_after), constants={"removed": removed})


_DEPENDENCIES = driver(
    "graph",
    "launch",
    _dependencies("cuGraphAddDependencies", 3, 0),
    _dependencies("cuGraphAddDependencies_v2", 4, 0),
    _dependencies("cuGraphRemoveDependencies", 3, 1),
    _dependencies("cuGraphRemoveDependencies_v2", 4, 1),
)

_NEW_GRAPH = (Out("graph", 0),)

_LIVES = driver(
    "graph",
    "launch",
    Function("cuGraphCreate", "cuda.graph.create", out=_NEW_GRAPH),
    Function("cuGraphDestroy", "cuda.graph.destroy", (Arg("graph", 0),)),
    Function("cuGraphClone", "cuda.graph.clone", (Arg("graph", 1),), out=(Out("clone", 0),)),
    Function(
        "cuGraphInstantiateWithFlags",
        "cuda.graph.instantiate",
        (Arg("graph", 1),),
        out=(Out("graph_exec", 0),),
        aliases=(
            "cuGraphInstantiate",
            "cuGraphInstantiate_v2",
            "cuGraphInstantiateWithParams",
            "cuGraphInstantiateWithParams_ptsz",
        ),
    ),
    Function("cuGraphExecDestroy", "cuda.graph.exec.destroy", (Arg("graph_exec", 0),)),
    Function(
        "cuGraphExecUpdate_v2",
        "cuda.graph.update",
        (Arg("graph_exec", 0), Arg("graph", 1)),
        aliases=("cuGraphExecUpdate",),
    ),
    *per_thread("_ptsz", Function("cuGraphUpload", "cuda.graph.upload", (Arg("graph_exec", 0), stream(1)))),
)

_SETTERS = (
    "KernelNodeSetParams",
    "KernelNodeSetParams_v2",
    "MemcpyNodeSetParams",
    "MemsetNodeSetParams",
    "HostNodeSetParams",
    "ExternalSemaphoresSignalNodeSetParams",
    "ExternalSemaphoresWaitNodeSetParams",
    "BatchMemOpNodeSetParams",
    "NodeSetParams",
)
"""Those of a graph are ``cuGraph<name>``, those of an instantiated one ``cuGraphExec<name>``."""

_PARAMS = driver(
    "graph",
    "launch",
    *(Function(f"cuGraph{name}", "cuda.graph.params", (Arg("node", 0),)) for name in _SETTERS),
    Function("cuGraphNodeSetParams_v2", "cuda.graph.params", (Arg("node", 0),)),
    Function("cuGraphKernelNodeSetAttribute", "cuda.graph.params", (Arg("node", 0),)),
    Function("cuGraphKernelNodeCopyAttributes", "cuda.graph.params", (Arg("node", 0),)),
    *(
        Function(f"cuGraphExec{name}", "cuda.graph.params", (Arg("graph_exec", 0), Arg("node", 1)))
        for name in (*_SETTERS, "ChildGraphNodeSetParams")
    ),
    Function("cuGraphNodeSetEnabled", "cuda.graph.params", (Arg("graph_exec", 0), Arg("node", 1))),
    *(
        Function(f"cuGraph{name}", "cuda.graph.params", (Arg("node", 0), event(1)))
        for name in ("EventRecordNodeSetEvent", "EventWaitNodeSetEvent")
    ),
    *(
        Function(f"cuGraphExec{name}", "cuda.graph.params", (Arg("graph_exec", 0), Arg("node", 1), event(2)))
        for name in ("EventRecordNodeSetEvent", "EventWaitNodeSetEvent")
    ),
)

GRAPHS = (*_CAPTURE, *_CAPTURE_QUERIES, *_LIVES, *_NODES, *_DEPENDENCIES, *_PARAMS)
