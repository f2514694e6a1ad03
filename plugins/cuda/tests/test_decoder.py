# SPDX-License-Identifier: Apache-2.0
"""Records to columns: calls made up word by word, and any bytes at all."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepath.calls import Function
from fencepath.events import Batch, columns_of, kind_of
from fencepath.records import Flags, Records
from fencepath_cuda.decoder import LABELS, CudaDecoder
from fencepath_cuda.events import (
    EVENTS,
    ContextChange,
    Direction,
    Mapping,
    Move,
    NodeKind,
    Place,
    PoolAction,
    StreamKind,
    ValueAction,
)
from fencepath_cuda.functions import TABLE

LAYOUTS = {layout.kind: layout for layout in TABLE.layouts()}


def function(name: str) -> Function:
    return TABLE.functions[TABLE.index(name)]


def record(
    name: str,
    *args: int,
    out: tuple[int, ...] = (),
    result: int = 0,
    flags: int = int(Flags.TASK),
    text: bytes = b"",
) -> Records:
    """One record of a call whose captured words are `args`."""
    records = np.zeros(1, LAYOUTS[function(name).kind].dtype)
    records["function"] = TABLE.index(name)
    records["flags"], records["result"], records["caller_ip"] = flags, result, 0xCA11
    records["begin_ns"], records["time_ns"], records["tgid"], records["tid"] = 100, 250, 7, 8
    records["args"][0, : len(args)] = args
    if out:
        records["out"][0, : len(out)] = out
    if text:
        records["text"] = text
    return records


def decode(*records: Records) -> Batch:
    every = np.concatenate(records)
    kind = TABLE.functions[int(every["function"][0])].kind
    return CudaDecoder(TABLE.recorded).decode(kind, every)


def row(name: str, *args: int, **more: Any) -> dict[str, Any]:
    batch = decode(record(name, *args, **more))
    return {column: values.tolist()[0] for column, values in batch.columns.items()}


def test_a_launch_has_its_shape_and_stream() -> None:
    found = row("cuLaunchKernel", 0xF, 7, 5, 3, 128, 2, 1, 4096, 0xABC0)
    assert LABELS[found["label"]] == "cuLaunchKernel"
    assert [found[f"grid_{axis}"] for axis in "xyz"] == [7, 5, 3]
    assert [found[f"block_{axis}"] for axis in "xyz"] == [128, 2, 1]
    assert (found["kernel"], found["shared_bytes"], found["stream_handle"]) == (0xF, 4096, 0xABC0)
    assert found["stream_kind"] == StreamKind.CREATED
    assert (found["begin_ns"], found["time_ns"], found["tgid"], found["tid"]) == (100, 250, 7, 8)
    assert (found["returned"], found["result"], found["caller_ip"]) == (True, 0, 0xCA11)
    assert found["cooperative"] is False
    assert row("cuLaunchCooperativeKernel", 0xF, 1, 1, 1, 1, 1, 1, 0, 0)["cooperative"] is True


def test_a_launch_by_configuration_has_the_same_columns() -> None:
    words = (0xC0FF, 0xF, 7 | 5 << 32, 3 | 128 << 32, 2 | 1 << 32, 4096 | 0xBAD << 32, 0xABC0, 2)
    found = row("cuLaunchKernelEx", *words)
    assert [found[f"grid_{axis}"] for axis in "xyz"] == [7, 5, 3]
    assert [found[f"block_{axis}"] for axis in "xyz"] == [128, 2, 1]
    assert (found["kernel"], found["shared_bytes"], found["stream_handle"]) == (0xF, 4096, 0xABC0)
    assert found["attributes"] == 2


def test_a_runtime_launch_has_dim3_by_value() -> None:
    """x and y share a word, z is alone in the next; what is above it there is not part of it."""
    words = (0xF00, 7 | 65535 << 32, 3 | 0xDEAD << 32, 128 | 2 << 32, 64 | 0xBEEF << 32, 0xA0, 49152, 0xABC0)
    for name, column in (
        ("cudaLaunchKernel", "host_function"),
        ("cudaLaunchCooperativeKernel", "host_function"),
        ("__cudaLaunchKernel", "kernel"),
    ):
        found = row(name, *words)
        assert [found[f"grid_{axis}"] for axis in "xyz"] == [7, 65535, 3]
        assert [found[f"block_{axis}"] for axis in "xyz"] == [128, 2, 64]
        assert (found[column], found["shared_bytes"], found["stream_handle"]) == (0xF00, 49152, 0xABC0)


def test_a_runtime_launch_by_configuration_has_the_same_columns() -> None:
    found = row("cudaLaunchKernelExC", 0xC0FF, 0xF00, 7 | 65535 << 32, 3 | 128 << 32, 2 | 64 << 32, 49152, 0xABC0)
    assert [found[f"grid_{axis}"] for axis in "xyz"] == [7, 65535, 3]
    assert [found[f"block_{axis}"] for axis in "xyz"] == [128, 2, 64]
    assert (found["host_function"], found["shared_bytes"], found["stream_handle"]) == (0xF00, 49152, 0xABC0)


def test_launches_of_all_ages() -> None:
    several = row("cuLaunchCooperativeKernelMultiDevice", 1, 4, 0, 0xF, 7 | 5 << 32, 3 | 128 << 32, 2 | 1 << 32, 9, 0xA)
    assert [several[name] for name in ("kernel", "grid_y", "block_x", "shared_bytes", "stream_handle", "devices")] == [
        0xF, 5, 128, 9, 0xA, 4,
    ]  # fmt: skip
    assert several["cooperative"]
    assert [row("cuLaunch", 0xF)[f"grid_{axis}"] for axis in "xyz"] == [1, 1, 1]
    flat = row("cuLaunchGridAsync", 0xF, 7, 5, 0xABC0)
    assert [flat[f"grid_{axis}"] for axis in "xyz"] == [7, 5, 1]
    assert (flat["block_x"], flat["stream_kind"], row("cuLaunchGrid", 0xF, 7, 5)["stream_kind"]) == (
        0,
        StreamKind.CREATED,
        StreamKind.LEGACY,
    )


def test_contexts() -> None:
    made = row("cuCtxCreate_v4", 0x10, 0x20, 8, 1, out=(0xC0,))
    assert [made[name] for name in ("context_handle", "device", "context_flags", "primary")] == [0xC0, 1, 8, False]
    retained = row("cuDevicePrimaryCtxRetain", 0x10, 0, out=(0xC1,))
    assert (retained["context_handle"], retained["device"], retained["primary"]) == (0xC1, 0, True)
    green = row("cuCtxFromGreenCtx", 0x10, 0x6E, out=(0xC2,))
    assert (green["context_handle"], green["device"], green["green_context"]) == (0xC2, -1, 0x6E)
    gone = row("cuCtxDestroy_v2", 0xC0)
    assert (gone["context_handle"], gone["device"], gone["primary"]) == (0xC0, -1, False)
    released = row("cuDevicePrimaryCtxRelease_v2", 3)
    assert (released["context_handle"], released["device"], released["primary"]) == (0, 3, True)
    for name, how in (("cuCtxSetCurrent", ContextChange.SET), ("cuCtxPushCurrent_v2", ContextChange.PUSH)):
        assert (row(name, 0xC0)["context_handle"], row(name, 0xC0)["how"]) == (0xC0, how)
    popped = row("cuCtxPopCurrent_v2", 0x10, out=(0xC0,))
    assert (popped["context_handle"], popped["how"]) == (0xC0, ContextChange.POP)
    assert row("cuCtxSynchronize_v2", 0xC0)["context_handle"] == 0xC0


@pytest.mark.parametrize(
    ("name", "args", "columns"),
    [
        ("cuGraphAddKernelNode", {4: 9, 10: 0xF}, {"node_kind": NodeKind.KERNEL, "kernel": 0xF}),
        ("cuGraphAddKernelNode_v2", {4: 9, 10: 0xF, 11: 0xE}, {"node_kind": NodeKind.KERNEL, "kernel": 0xF}),
        ("cuGraphAddKernelNode_v2", {4: 9, 10: 0, 11: 0xE}, {"node_kind": NodeKind.KERNEL, "kernel": 0xE}),
        ("cuGraphAddChildGraphNode", {4: 0xC}, {"node_kind": NodeKind.CHILD_GRAPH, "child_graph": 0xC}),
        ("cuGraphAddEventRecordNode", {4: 0xE}, {"node_kind": NodeKind.EVENT_RECORD, "event_handle": 0xE}),
        ("cuGraphAddEventWaitNode", {4: 0xE}, {"node_kind": NodeKind.EVENT_WAIT, "event_handle": 0xE}),
        ("cuGraphAddMemFreeNode", {4: 0xD}, {"node_kind": NodeKind.FREE}),
        ("cuGraphAddNode", {4: 9, 10: 0xAA << 32, 11: 0xF}, {"node_kind": NodeKind.KERNEL, "kernel": 0xF}),
        ("cuGraphAddNode", {4: 9, 10: 0, 11: 0, 12: 0xE}, {"node_kind": NodeKind.KERNEL, "kernel": 0xE}),
        ("cuGraphAddNode", {4: 9, 10: 4, 11: 0xC, 12: 1}, {"node_kind": NodeKind.CHILD_GRAPH, "child_graph": 0xC}),
        ("cuGraphAddNode", {4: 9, 10: 6, 11: 0xE}, {"node_kind": NodeKind.EVENT_WAIT, "event_handle": 0xE}),
        ("cuGraphAddNode", {4: 9, 10: 7, 11: 0xE}, {"node_kind": NodeKind.EVENT_RECORD, "event_handle": 0xE}),
        ("cuGraphAddNode", {4: 9, 10: 1, 11: 0xF, 12: 0xF}, {"node_kind": NodeKind.MEMCPY}),
        ("cuGraphAddNode", {4: 9, 10: 77, 11: 0xF}, {"node_kind": NodeKind.OTHER}),
        ("cuGraphAddNode", {4: 0, 10: 1}, {"node_kind": NodeKind.OTHER}),
    ],
)
def test_nodes_of_graphs(name: str, args: dict[int, int], columns: dict[str, int]) -> None:
    words = [args.get(slot, 0) for slot in range(14)]
    words[:4] = [0x10, 0x6A, 0x20, 2]
    words[6:10] = [0xD0, 0xD1, 0xBAD, 0xBAD]
    found = row(name, *words, out=(0x70DE,))
    assert (found["graph"], found["node"], found["dependencies"]) == (0x6A, 0x70DE, 2)
    assert [found[f"dependency_{index}"] for index in range(4)] == [0xD0, 0xD1, 0, 0]
    named = {name: found[name] for name in ("kernel", "child_graph", "event_handle") if found[name]}
    assert {**named, "node_kind": found["node_kind"]} == columns


def test_edges_of_graphs() -> None:
    words = (0x6A, 0x20, 0x30, 0, 3, 1, 2, 3, 0xBAD, 4, 5, 6, 0xBAD)
    found = row("cuGraphRemoveDependencies_v2", *words)
    assert (found["graph"], found["dependencies"], found["removed"]) == (0x6A, 3, True)
    assert [found[f"from_{index}"] for index in range(4)] == [1, 2, 3, 0]
    assert [found[f"to_{index}"] for index in range(4)] == [4, 5, 6, 0]


def test_captures_and_graphs() -> None:
    assert row("cuStreamBeginCaptureToGraph", 0xABC0, 0x6A, 0, 0, 0, 2)["graph"] == 0x6A
    assert row("cuStreamBeginCaptureToGraph_ptsz", 0, 0x6A, 0, 0, 0, 2)["mode"] == 2
    assert row("cuStreamBeginCapture_v2", 0xABC0, 1)["graph"] == 0
    updated = row("cuStreamUpdateCaptureDependencies_v2", 0xABC0, 0x20, 0, 2, 3, 7, 8, 9, 10)
    assert [updated[f"dependency_{index}"] for index in range(4)] == [7, 8, 0, 0]
    assert (updated["dependencies"], updated["replaced"]) == (2, True)
    assert row("cuStreamUpdateCaptureDependencies", 0xABC0, 0x20, 2, 2)["replaced"] is False
    assert row("cuStreamIsCapturing", 0xABC0, 0x10, out=(1 | 0xAA << 32,))["status"] == 1
    cloned = row("cuGraphClone", 0x10, 0x6A, out=(0x6B,))
    assert (cloned["graph"], cloned["clone"]) == (0x6A, 0x6B)
    changed = row("cuGraphExecEventWaitNodeSetEvent", 0xEC, 0x70DE, 0xE)
    assert [changed[name] for name in ("graph_exec", "node", "event_handle")] == [0xEC, 0x70DE, 0xE]
    assert row("cuGraphKernelNodeSetParams_v2", 0x70DE)["graph_exec"] == 0


@pytest.mark.parametrize(
    ("name", "args", "out", "columns"),
    [
        ("cuMemAddressReserve", (0x10, 512), (0xD0,), {"address": 0xD0, "bytes": 512, "action": Mapping.RESERVE}),
        ("cuMemMap", (0xD0, 512, 0, 0xAB), (), {"address": 0xD0, "handle": 0xAB, "action": Mapping.MAP}),
        ("cuMemImportFromShareableHandle", (0x10,), (0xAB,), {"address": 0, "handle": 0xAB, "action": Mapping.IMPORT}),
        ("cuMemPoolTrimTo", (0xB0, 512), (), {"pool": 0xB0, "bytes": 512, "action": PoolAction.TRIM}),
        ("cuMemPoolCreate", (0x10,), (0xB0,), {"pool": 0xB0, "action": PoolAction.CREATE}),
        ("cuMemPrefetchAsync_v2", (0xD0, 512, 1, 0, 2), (), {"bytes": 512, "stream_kind": StreamKind.PER_THREAD}),
        ("cuMemDiscardBatchAsync", (1, 2, 3, 0, 0xABC0), (), {"stream_handle": 0xABC0, "action": Move.DISCARD}),
        ("cuIpcOpenMemHandle_v2", (0x10,), (0xD0,), {"address": 0xD0, "bytes": 0, "place": Place.IPC}),
        ("cuIpcOpenEventHandle", (0x10,), (0xE0,), {"event_handle": 0xE0, "event_flags": 6}),
        ("cuStreamWaitValue32_v2", (0xA, 0xD0, 7 | 1 << 40, 1), (), {"value": 7, "condition": 1, "action": 0}),
        ("cuStreamWriteValue64_v2", (0xA, 0xD0, 1 << 40, 0), (), {"value": 1 << 40, "action": ValueAction.WRITE}),
        ("cuStreamBatchMemOp_v2", (0xA, 5, 0xD0, 0), (), {"operations": 5, "address": 0, "action": ValueAction.BATCH}),
        ("cuWaitExternalSemaphoresAsync", (1, 2, 3, 0xA, 0x5E), (), {"semaphores": 3, "semaphore": 0x5E}),
        ("cuEventRecordWithFlags", (0xE, 0xA, 1), (), {"event_flags": 1, "context_handle": 0}),
        ("cuCtxRecordEvent", (0xC0, 0xE), (), {"context_handle": 0xC0, "stream_kind": StreamKind.NONE}),
        ("cuStreamWaitEvent", (0xA, 0xE, 1), (), {"event_flags": 1, "event_handle": 0xE}),
        ("cuModuleLoadData", (0x10, 0x20), (0x30,), {"module": 0x30, "library": 0}),
        ("cudaMemcpy2DFromArrayAsync", (1, 2, 3, 4, 5, 100, 7, 2, 0xA), (), {"bytes": 700, "direction": 2}),
        ("cudaMemcpy3D", (1, 0, 100, 7, 3, 1), (), {"bytes": 2100, "direction": 1, "stream_kind": StreamKind.LEGACY}),
        ("cudaMallocPitch", (1, 2, 100, 7), (), {"bytes": 700, "device": -1}),
        ("cudaSetDevice", (0,), (), {"device": 0}),
    ],
)
def test_what_calls_say(name: str, args: tuple[int, ...], out: tuple[int, ...], columns: dict[str, int]) -> None:
    found = row(name, *args, out=out)
    assert {column: found[column] for column in columns} == columns


def test_names_are_text_of_any_bytes() -> None:
    found = row("cuModuleGetFunction", 0x10, 0x20, 0x30, out=(0xF,), text=b"_Z4axpyPf")
    assert (found["name"], found["kernel"], found["module"], found["library"]) == ("_Z4axpyPf", 0xF, 0x20, 0)
    assert row("cuLibraryGetKernel", 0x10, 0x20, 0x30, text=b"caf\xc3\xa9\xff\n")["name"] == "caf\u00e9\\xff\\n"
    other = row("cuKernelGetFunction", 0x10, 0xE, out=(0xF,))
    assert (other["name"], other["kernel"], other["of_kernel"]) == ("", 0xF, 0xE)
    registered = row("__cudaRegisterFunction", 0x10, 0xF00, 0x30, result=99, text=b"_Z4axpyPf")
    assert [registered[name] for name in ("name", "host_function", "kernel", "result")] == ["_Z4axpyPf", 0xF00, 0, 0]
    looked_up = row("cuGetProcAddress_v2", 1, 2, 12040, 2, 3, out=(0xADD, 0), text=b"cuLaunchKernel")
    assert [looked_up[name] for name in ("name", "cuda_version", "lookup_flags", "address")] == [
        "cuLaunchKernel",
        12040,
        2,
        0xADD,
    ]


@pytest.mark.parametrize(
    ("milliseconds", "result", "elapsed_ns"),
    [(1.5, 0, 1_500_000), (0.0, 0, 0), (-1.0, 0, 0), (float("nan"), 0, 0), (float("inf"), 0, 0), (1.5, 600, 0)],
)
def test_elapsed_time_is_in_nanoseconds(milliseconds: float, result: int, elapsed_ns: int) -> None:
    (bits,) = struct.unpack("<I", struct.pack("<f", milliseconds))
    found = row("cuEventElapsedTime_v2", 0x10, 0xE1, 0xE2, out=(bits,), result=result)
    assert [found[name] for name in ("event_handle", "end_event_handle", "elapsed_ns")] == [0xE1, 0xE2, elapsed_ns]


@pytest.mark.parametrize(
    ("name", "handle", "kind", "canonical"),
    [
        ("cuStreamSynchronize", 0, StreamKind.LEGACY, 1),
        ("cuStreamSynchronize", 1, StreamKind.LEGACY, 1),
        ("cuStreamSynchronize", 2, StreamKind.PER_THREAD, 2),
        ("cuStreamSynchronize_ptsz", 0, StreamKind.PER_THREAD, 2),
        ("cuStreamSynchronize_ptsz", 1, StreamKind.LEGACY, 1),
        ("cuStreamSynchronize", 0xABC0, StreamKind.CREATED, 0xABC0),
        ("cuStreamSynchronize_ptsz", 0xABC0, StreamKind.CREATED, 0xABC0),
    ],
)
def test_default_streams(name: str, handle: int, kind: StreamKind, canonical: int) -> None:
    found = row(name, handle)
    assert (found["stream_kind"], found["stream_handle"]) == (kind, canonical)


def test_a_stream_that_could_not_be_read_is_no_stream() -> None:
    found = row("cuLaunchKernel", 0xF, 7, flags=int(Flags.TASK | Flags.READ_FAULT))
    assert found["stream_kind"] == StreamKind.NONE
    assert found["grid_x"] == 7
    assert row("cuMemAlloc_v2", 0x10, 512, out=(0xD0,))["stream_kind"] == StreamKind.NONE
    assert row("cuMemAllocAsync", 0x10, 512, 0, out=(0xD0,))["stream_kind"] == StreamKind.LEGACY


def test_blocking_copies_are_on_a_default_stream() -> None:
    assert row("cuMemcpyHtoD_v2", 1, 2, 3)["stream_kind"] == StreamKind.LEGACY
    assert row("cuMemcpyHtoD_v2_ptds", 1, 2, 3)["stream_kind"] == StreamKind.PER_THREAD


@pytest.mark.parametrize(
    ("name", "args", "size", "direction"),
    [
        ("cuMemcpyHtoD_v2", (1, 2, 640), 640, Direction.HOST_TO_DEVICE),
        ("cuMemcpyDtoHAsync_v2", (1, 2, 641, 0), 641, Direction.DEVICE_TO_HOST),
        ("cuMemcpyPeer", (1, 2, 3, 4, 642), 642, Direction.DEVICE_TO_DEVICE),
        ("cuMemcpyAsync", (1, 2, 643, 0), 643, Direction.UNKNOWN),
        ("cuMemcpy2D_v2", (1, 0, 1, 2, 100, 7), 700, Direction.HOST_TO_DEVICE),
        ("cuMemcpy2DAsync_v2", (1, 0, 3, 1, 100, 7), 700, Direction.DEVICE_TO_HOST),
        ("cuMemcpy3D_v2", (1, 0, 2, 3, 100, 7, 3), 2100, Direction.DEVICE_TO_DEVICE),
        ("cuMemcpy3D_v2", (1, 0, 4, 2, 100, 7, 3), 2100, Direction.UNKNOWN),
        ("cuMemcpyBatchAsync_v2", (1, 2, 3, 4, 5, 6, 7, 8), 0, Direction.UNKNOWN),
        ("cuMemsetD32_v2", (1, 0, 50), 200, None),
        ("cuMemsetD2D16Async", (1, 512, 0, 50, 3, 0), 300, None),
        ("cudaMemcpyAsync", (1, 2, 644, 2, 0), 644, Direction.DEVICE_TO_HOST),
        ("cudaMemcpyAsync", (1, 2, 644, 99, 0), 644, Direction.UNKNOWN),
        ("cudaMalloc", (1, 645), 645, Direction.UNKNOWN),
    ],
)
def test_bytes_and_direction(name: str, args: tuple[int, ...], size: int, direction: Direction | None) -> None:
    found = row(name, *args)
    assert found["bytes"] == size
    assert found.get("direction") == direction


def test_allocations() -> None:
    found = row("cuMemAlloc_v2", 0x10, 512, out=(0xD000,))
    assert (found["bytes"], found["address"], found["place"]) == (512, 0xD000, Place.DEVICE)
    pitched = row("cuMemAllocPitch_v2", 0x10, 0x20, 100, 7, out=(0xD000, 512))
    assert (pitched["bytes"], pitched["address"]) == (3584, 0xD000)
    registered = row("cuMemHostRegister_v2", 0xD000, 512)
    assert (registered["bytes"], registered["address"], registered["place"]) == (512, 0xD000, Place.HOST)
    assert row("cuMemFreeAsync", 0xD000, 2)["stream_kind"] == StreamKind.PER_THREAD


@pytest.mark.parametrize("flag", [Flags.ENTRY_ONLY, Flags.OPEN])
def test_a_call_without_its_return_has_no_result(flag: Flags) -> None:
    found = row("cuStreamCreate", 0x10, 1, out=(0xABC0,), result=999, flags=int(Flags.TASK | flag))
    assert (found["returned"], found["result"], found["stream_kind"]) == (False, 0, StreamKind.NONE)
    assert found["stream_flags"] == 1


def test_functions_are_found_by_name() -> None:
    """A recording of another version, in which the functions had other numbers and one is not known any more."""
    records = np.concatenate([record("cuEventQuery", 0xE), record("cuEventQuery", 0xF)])
    records["function"] = [1, 0]
    batch = CudaDecoder(["cuEventAsk 1", "cuEventQuery 1"]).decode("cuda.event.query", records)
    assert batch["event_handle"].tolist() == [0xE]
    assert batch.labels[int(batch["label"][0])] == "cuEventQuery"


@settings(deadline=None)
@given(st.sampled_from([kind_of(event) for event in EVENTS]), st.data())
def test_any_bytes_are_decoded(kind: str, data: st.DataObject) -> None:
    dtype = LAYOUTS[kind].dtype
    count = data.draw(st.integers(0, 5))
    records = np.frombuffer(
        data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)), dtype
    )
    if count and data.draw(st.booleans()):
        records = records.copy()
        records["function"] %= len(TABLE)
    recorded = data.draw(st.one_of(st.just(TABLE.recorded), st.lists(st.text(max_size=12), max_size=4)))
    batch = CudaDecoder(recorded).decode(kind, records)
    assert len(batch) <= count
    event_type = next(event for event in EVENTS if kind_of(event) == kind)
    for name, expected in columns_of(event_type).items():
        assert len(batch[name]) == len(batch)
        if name not in ("cpu", "time_ns", "begin_ns", "tgid", "tid", "flags"):
            assert batch[name].dtype == expected, name
    for event in batch.events(event_type):
        assert 0 <= event.label < len(LABELS)
