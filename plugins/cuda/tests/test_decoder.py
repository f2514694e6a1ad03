# SPDX-License-Identifier: Apache-2.0
"""Records to columns: calls made up word by word, and any bytes at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepath.calls import Function
from fencepath.events import Batch, columns_of, kind_of
from fencepath.records import Flags, Records
from fencepath_cuda.decoder import LABELS, CudaDecoder
from fencepath_cuda.events import EVENTS, Direction, Place, StreamKind
from fencepath_cuda.functions import TABLE

LAYOUTS = {layout.kind: layout for layout in TABLE.layouts()}


def function(name: str) -> Function:
    return TABLE.functions[TABLE.index(name)]


def record(name: str, *args: int, out: tuple[int, ...] = (), result: int = 0, flags: int = int(Flags.TASK)) -> Records:
    """One record of a call whose captured words are `args`."""
    records = np.zeros(1, LAYOUTS[function(name).kind].dtype)
    records["function"] = TABLE.index(name)
    records["flags"], records["result"], records["caller_ip"] = flags, result, 0xCA11
    records["begin_ns"], records["time_ns"], records["tgid"], records["tid"] = 100, 250, 7, 8
    records["args"][0, : len(args)] = args
    if out:
        records["out"][0, : len(out)] = out
    return records


def decode(*records: Records) -> Batch:
    every = np.concatenate(records)
    kind = TABLE.functions[int(every["function"][0])].kind
    return CudaDecoder(TABLE.recorded).decode(kind, every)


def row(name: str, *args: int, **more: Any) -> dict[str, Any]:
    batch = decode(record(name, *args, **more))
    return {column: batch[column][0].item() for column in batch.columns}


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
