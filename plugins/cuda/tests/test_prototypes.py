# SPDX-License-Identifier: Apache-2.0
"""The call table against NVIDIA's headers: every argument of every function is where, what and as wide as they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from plugins.cuda.tests.prototypes import HOW_TO_GET, Headers, Parameter, found_headers, slots

from fencepath.calls import Arg, Function, Read
from fencepath_cuda.functions import TABLE

STREAM, EVENT, CONTEXT = {"CUstream", "cudaStream_t"}, {"CUevent", "cudaEvent_t"}, {"CUcontext"}
GRAPH, EXEC, NODE = {"CUgraph", "cudaGraph_t"}, {"CUgraphExec", "cudaGraphExec_t"}, {"CUgraphNode", "cudaGraphNode_t"}
DEVICE_POINTER, SIZE = {"CUdeviceptr", "void *"}, {"size_t"}
FLAGS, DEVICE = {"unsigned int"}, {"CUdevice", "int"}

TYPES: dict[str, set[str]] = {
    "address": DEVICE_POINTER,
    "advice": {"CUmem_advise"},
    "bytes": SIZE,
    "callback": {"CUhostFn", "CUstreamCallback"},
    "child_graph": GRAPH,
    "clone": GRAPH,
    "condition": FLAGS,
    "context_flags": FLAGS,
    "context_handle": CONTEXT,
    "count": SIZE,
    "cuda_version": {"int"},
    "dependencies": SIZE,
    "destination": DEVICE_POINTER,
    "device": DEVICE,
    "devices": FLAGS,
    "direction": {"cudaMemcpyKind"},
    "elapsed_float": {"float"},
    "end_event_handle": EVENT,
    "event_flags": FLAGS,
    "event_handle": EVENT,
    "graph": GRAPH,
    "graph_exec": EXEC,
    "green_context": {"CUgreenCtx"},
    "handle": {"CUmemGenericAllocationHandle", "CUexternalMemory"},
    "height": SIZE,
    "host_function": {"void *", "char *", "cudaHostFn_t", "cudaStreamCallback_t"},
    "kernel": {"CUfunction", "CUkernel", "cudaKernel_t", "cudaFunction_t"},
    "library": {"CUlibrary"},
    "lookup_flags": {"cuuint64_t"},
    "mode": {"CUstreamCaptureMode"},
    "module": {"CUmodule"},
    "name": {"char *"},
    "node": NODE,
    "of_kernel": {"CUkernel"},
    "operations": FLAGS,
    "pitch_bytes": SIZE,
    "pool": {"CUmemoryPool"},
    "priority": {"int"},
    "replaced": FLAGS,
    "semaphore": {"CUexternalSemaphore"},
    "semaphores": FLAGS,
    "shared_bytes": {"unsigned int", "size_t"},
    "source": DEVICE_POINTER,
    "status": {"CUstreamCaptureStatus", "CUdriverProcAddressQueryResult"},
    "stream_flags": FLAGS,
    "stream_handle": STREAM,
    "user_data": {"void *"},
    "value": {"cuuint32_t", "cuuint64_t"},
    "width_bytes": SIZE,
    **{f"{what}_{axis}": {"dim3", "unsigned int", "int"} for what in ("grid", "block") for axis in "xyz"},
}
"""What a column may be in C."""

NAMES: dict[str, set[str]] = {
    "bytes": {"ByteCount", "bytesize", "size", "count", "length", "minBytesToKeep", "bytes"},
    "width_bytes": {"width"},
    "height": {"Height", "height"},
    "count": {"N", "Width"},
    "pitch_bytes": {"pPitch"},
    "dependencies": {"numDependencies"},
    "destination": {"dstDevice", "dst", "dstHost"},
    "source": {"srcDevice", "src", "srcHost"},
    "event_flags": {"Flags", "flags"},
    "stream_flags": {"Flags", "flags"},
    "context_flags": {"flags"},
    "condition": {"flags"},
    "replaced": {"flags"},
    "operations": {"count"},
    "semaphores": {"numExtSems"},
    "devices": {"numDevices"},
    "priority": {"priority"},
    "cuda_version": {"cudaVersion"},
    "graph": {"hGraph", "phGraph", "originalGraph"},
    "clone": {"phGraphClone"},
    "child_graph": {"childGraph"},
    "event_handle": {"hEvent", "event", "phEvent", "hStart", "start"},
    "end_event_handle": {"hEnd"},
    "shared_bytes": {"sharedMemBytes", "sharedMem"},
    "grid_x": {"gridDimX", "gridDim", "grid_width"},
    "grid_y": {"gridDimY", "gridDim", "grid_height"},
    "grid_z": {"gridDimZ", "gridDim"},
    "block_x": {"blockDimX", "blockDim"},
    "block_y": {"blockDimY", "blockDim"},
    "block_z": {"blockDimZ", "blockDim"},
    "host_function": {"func", "fn", "callback", "hostFun", "entryFuncAddr", "symbolPtr"},
    "address": {"dptr", "devPtr", "ptr", "pdptr", "pp", "p", "addr", "ptr_out", "pfn"},
    "node": {"hNode", "phGraphNode", "dst"},
    "status": {"captureStatus", "captureStatus_out", "symbolStatus"},
    "name": {"name", "symbol", "deviceFun"},
}
"""What a parameter is called in the headers, where its type alone does not tell."""

COPY_2D = ("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2")
COPY_3D = ("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2")
COPY_PEER = ("cuMemcpy3DPeer", "cuMemcpy3DPeerAsync")
ANY_NODE = ("cuGraphAddNode", "cuGraphAddNode_v2")
SHAPE = {f"{what}_{axis}": f"{what}Dim{axis.upper()}" for what in ("grid", "block") for axis in "xyz"}
DIMS = {f"{what}_{axis}": f"{what}Dim.{axis}" for what in ("grid", "block") for axis in "xyz"}
BOX = {"width_bytes": "WidthInBytes", "height": "Height"}
EXTENT = {"width_bytes": "extent.width", "height": "extent.height", "depth": "extent.depth"}
TYPES_OF_MEMORY = {"source_type": "srcMemoryType", "destination_type": "dstMemoryType"}
LAUNCH = {**SHAPE, "shared_bytes": "sharedMemBytes", "stream_handle": "hStream"}
KERNEL_NODE = {"host_function": "func", **DIMS, "shared_bytes": "sharedMemBytes"}
NODE_PARAMS = {"node_kind": "type", "node_word": "kernel.func", "library_kernel": "kernel.kern"}

STRUCTS: dict[str, tuple[str, dict[str, str]]] = {
    "cuLaunchKernelEx": ("CUlaunchConfig", {**LAUNCH, "attributes": "numAttrs"}),
    "cuLaunchCooperativeKernelMultiDevice": ("CUDA_LAUNCH_PARAMS", {**LAUNCH, "kernel": "function"}),
    **dict.fromkeys(COPY_2D, ("CUDA_MEMCPY2D", {**TYPES_OF_MEMORY, **BOX, "width_bytes": "WidthInBytes"})),
    **dict.fromkeys(COPY_3D, ("CUDA_MEMCPY3D", {**TYPES_OF_MEMORY, **BOX, "depth": "Depth"})),
    **dict.fromkeys(COPY_PEER, ("CUDA_MEMCPY3D_PEER", {**TYPES_OF_MEMORY, **BOX, "depth": "Depth"})),
    "cuGraphAddKernelNode": ("CUDA_KERNEL_NODE_PARAMS_v1", {"kernel": "func"}),
    "cuGraphAddKernelNode_v2": ("CUDA_KERNEL_NODE_PARAMS", {"kernel": "func", "library_kernel": "kern"}),
    **dict.fromkeys(ANY_NODE, ("CUgraphNodeParams", NODE_PARAMS)),
    "cudaLaunchKernelExC": (
        "cudaLaunchConfig_t",
        {**DIMS, "shared_bytes": "dynamicSmemBytes", "stream_handle": "stream"},
    ),
    **dict.fromkeys(
        ("cudaMemcpy3D", "cudaMemcpy3DAsync"), ("struct cudaMemcpy3DParms", {**EXTENT, "direction": "kind"})
    ),
    **dict.fromkeys(("cudaMemcpy3DPeer", "cudaMemcpy3DPeerAsync"), ("struct cudaMemcpy3DPeerParms", EXTENT)),
    **dict.fromkeys(
        ("cudaGraphAddKernelNode", "cudaGraphKernelNodeSetParams", "cudaGraphExecKernelNodeSetParams"),
        ("struct cudaKernelNodeParams", KERNEL_NODE),
    ),
    **dict.fromkeys(
        ("cuWaitExternalSemaphoresAsync", "cuSignalExternalSemaphoresAsync"), ("CUexternalSemaphore", {"semaphore": ""})
    ),
    "cuThreadExchangeStreamCaptureMode": ("CUstreamCaptureMode", {"mode": ""}),
}
"""The struct behind a pointer, and which member each column is; a member "" is the whole of it."""

# Of these the first word of what a node is to do is taken, whichever type of node it is.
SAME_WORD = ("kernel.func", "graph.graph", "eventRecord.event", "eventWait.event")

WHOLE = {"CUexternalSemaphore": 8, "CUstreamCaptureMode": 4}
"""Bytes of what is no struct."""

PHYSICAL = {"cuMemCreate", "cuMemRelease"}
"""Physical memory has no address; its handle takes that place."""

# Put on a stream, or made of one, and not recorded.
LEFT_OUT = {
    "cuGraphicsMapResources": "OpenGL and others",
    "cuGraphicsUnmapResources": "OpenGL and others",
    "cuStreamBeginCaptureToCig": "graphics",
    "cuStreamEndCaptureToCig": "graphics",
    "cuStreamCopyAttributes": "queued nothing",
    "cuStreamSetAttribute": "queued nothing",
    **dict.fromkeys(
        (
            "cuStreamGetAttribute", "cuStreamGetCtx", "cuStreamGetCtx_v2", "cuStreamGetDevResource", "cuStreamGetDevice",
            "cuStreamGetFlags", "cuStreamGetGreenCtx", "cuStreamGetId", "cuStreamGetPriority",
        ),
        "questions",
    ),
    **dict.fromkeys(
        (
            "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpyHtoAAsync", "cuMemcpyAtoHAsync",
            "cuMemcpy2DAsync", "cuMemcpy3DAsync",
        ),
        "32-bit device pointers",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=found_headers() or [None], ids=lambda path: str(path) if path else "no headers")
def headers(request: pytest.FixtureRequest) -> Headers:
    """Each folder of headers on this machine."""
    folder: Path | None = request.param
    if folder is None:
        pytest.skip(HOW_TO_GET)
    return Headers(folder)


def variants(headers: Headers) -> Iterator[tuple[Function, str, tuple[Parameter, ...]]]:
    """Every symbol of the table that these headers have."""
    for function in TABLE.functions:
        for symbol in function.symbols:
            if symbol in headers.prototypes:
                yield function, symbol, headers.prototypes[symbol]


def base(symbol: str) -> str:
    return symbol.removesuffix("_ptsz").removesuffix("_ptds")


def read_of(function: Function, arg: Arg) -> Read | None:
    return next((read for read in function.reads if arg.slot in read.slots), None)


def check(column: str, parameter: Parameter, pointed: bool, where: str) -> None:
    column = "handle" if column == "address" and where in PHYSICAL else column
    allowed = {f"{type_} *" for type_ in TYPES[column]} if pointed else TYPES[column]
    assert parameter.type in allowed, f"{where}: {column} is {parameter.type} {parameter.name}"
    if column in NAMES:
        assert parameter.name in NAMES[column], f"{where}: {column} is called {parameter.name}"


def test_most_of_the_table_is_in_the_headers(headers: Headers) -> None:
    found = {symbol for _, symbol, _ in variants(headers)}
    every = {symbol for function in TABLE.functions for symbol in function.symbols}
    assert len(found) > 0.9 * len(every)


def test_every_symbol_is_in_some_headers_or_a_library() -> None:
    data = Path(__file__).parent / "data"
    exported = {symbol for path in data.glob("*.symbols") for symbol in path.read_text(encoding="ascii").split()}
    known = exported.union(*(Headers(folder).prototypes for folder in found_headers()))
    every = {symbol for function in TABLE.functions for symbol in function.symbols}
    newest = max((Headers(folder).version for folder in found_headers()), default=0)
    assert newest < 13050 or every <= known


def test_arguments_are_where_the_headers_say(headers: Headers) -> None:
    for function, symbol, parameters in variants(headers):
        words = slots(parameters)
        for arg in function.args:
            if read_of(function, arg) is not None:
                continue
            assert arg.slot in words, f"{symbol} has no word {arg.slot} for {arg.name}"
            parameter = words[arg.slot]
            check(arg.name, parameter, False, symbol)
            if parameter.type == "dim3":
                first = min(slot for slot, other in words.items() if other is parameter)
                at = 8 * (arg.slot - first) + arg.shift // 8
                assert (at, arg.width) == (4 * "xyz".index(arg.name[-1]), 32), symbol
            elif arg.name == "replaced":
                assert (arg.shift, arg.bits) == (0, 1)
            else:
                assert (arg.width, arg.shift) == (8 * parameter.bytes, 0), f"{symbol}: {arg.name}"


def test_values_handed_back_are_what_the_headers_say(headers: Headers) -> None:
    for function, symbol, parameters in variants(headers):
        words = slots(parameters)
        for out in function.out:
            parameter = words[out.slot]
            check(out.name, parameter, True, symbol)
            size = 4 if out.name in ("status", "elapsed_float") else 8
            assert (out.offset, out.bytes) == (0, size), f"{symbol}: {out.name}"
        if function.text:
            check(function.text.name, words[function.text.slot], False, symbol)


def test_what_is_read_through_pointers_is_what_the_headers_say(headers: Headers) -> None:
    members = {(struct, member) for struct, columns in STRUCTS.values() for member in columns.values() if member}
    members |= {("CUgraphNodeParams", member) for member in SAME_WORD}
    offsets = headers.offsets(sorted(members))
    assert len({offsets["CUgraphNodeParams", member] for member in SAME_WORD}) == 1
    for function, symbol, parameters in variants(headers):
        words = slots(parameters)
        for arg in function.args:
            read = read_of(function, arg)
            if read is None:
                continue
            pointer = words[read.slot]
            if read.count >= 0:
                assert pointer.type in {f"{type_} *" for type_ in NODE}, f"{symbol}: {arg.name} is {pointer}"
                assert (words[read.count].name, words[read.count].type) == ("numDependencies", "size_t"), symbol
                assert (arg.slot - read.into, read.offset, arg.width) == (int(arg.name[-1]), 0, 64), symbol
                continue
            struct, columns = STRUCTS[base(function.name)]
            assert pointer.type.removesuffix(" *") == struct.removeprefix("struct ") or "node" in symbol.lower(), symbol
            assert pointer.kind == "pointer", symbol
            offset, size = offsets[struct, columns[arg.name]] if columns[arg.name] else (0, WHOLE[struct])
            at = read.offset + 8 * (arg.slot - read.into) + arg.shift // 8
            assert at == offset, f"{symbol}: {arg.name} is at {offset}, not {at}"
            assert arg.width == 8 * size, f"{symbol}: {arg.name} has {size} bytes"


def test_lengths_of_arrays_are_of_the_array_before_them(headers: Headers) -> None:
    """``from`` and ``to`` in their order; of the two arrays of a node's dependencies the one of handles."""
    for function, symbol, parameters in variants(headers):
        words = slots(parameters)
        for read in function.reads:
            if read.count >= 0:
                (prefix,) = {arg.name[:-2] for arg in function.args if arg.slot in read.slots}
                names = {"from": {"from"}, "to": {"to"}, "dependency": {"dependencies", "pDependencies"}}[prefix]
                assert words[read.slot].name in names, symbol


def test_arm64_has_the_same_words(headers: Headers) -> None:
    """What is recorded lies in words of the same numbers by arm64's convention."""
    for function, symbol, parameters in variants(headers):
        here, there = slots(parameters), slots(parameters, registers=8, largest_by_value=16)
        pointers = {arg.slot for arg in function.args if read_of(function, arg) is None} | function.pointers
        for slot in pointers:
            assert here[slot] == there[slot], f"{symbol}: word {slot}"


def test_whatever_is_put_on_a_stream_is_in_the_table(headers: Headers) -> None:
    every = {symbol for function in TABLE.functions for symbol in function.symbols}
    missing = {
        symbol
        for symbol, parameters in headers.prototypes.items()
        if symbol.startswith("cu") and any(parameter.type == "CUstream" for parameter in parameters)
    } - every
    assert {base(symbol) for symbol in missing} <= set(LEFT_OUT)


def test_every_handle_that_is_made_or_destroyed_is_in_the_table(headers: Headers) -> None:
    every = {symbol for function in TABLE.functions for symbol in function.symbols}
    made = {
        "CUcontext *", "CUstream *", "CUevent *", "CUgraph *", "CUgraphExec *", "CUmodule *", "CUlibrary *", "CUfunction *",
        "CUkernel *", "CUexternalMemory *", "CUexternalSemaphore *", "CUmemoryPool *",
    }  # fmt: skip
    questions = ("Get", "Enumerate", "OutOf", "FindIn")
    missing = {
        symbol
        for symbol, parameters in headers.prototypes.items()
        if symbol.startswith("cu") and parameters and parameters[0].type in made and symbol not in every
    }
    assert {symbol for symbol in missing if not any(word in symbol for word in questions)} <= {"cuCtxAttach"}
    destroyed = {symbol for symbol in headers.prototypes if symbol.startswith("cu") and "Destroy" in symbol}
    elsewhere = ("Array", "Tex", "Surf", "Link", "cuda", "Coredump", "LogicalEndpoint")
    assert {symbol for symbol in destroyed - every if not any(word in symbol for word in elsewhere)} == set()
