# SPDX-License-Identifier: Apache-2.0
"""The call table against the driver's own list of symbols and the layer's kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepath.events import Event, columns_of, kind_of
from fencepath.plugin import Detail
from fencepath_cuda.events import EVENTS
from fencepath_cuda.functions import TABLE, table_for

DATA = Path(__file__).parent / "data"

EXPORTED = set((DATA / "libcuda-580.159.04.symbols").read_text(encoding="ascii").split())
"""Every function that libcuda of driver 580.159.04 (CUDA 13.0) exports."""

RUNTIME_EXPORTED = set((DATA / "libcudart-12.9.79-13.5.37.symbols").read_text(encoding="ascii").split())
"""Every function that libcudart of CUDA 12.9 or of 13.5 exports."""

NEWER = {
    "cuGraphAddNode_v3",
    "cuGraphNodeSetParams_v2",
    *(
        f"{name}{suffix}"
        for name in (
            "cuFabricCpyBatchAsync",
            "cuLaunchHostFunc_v2",
            "cuMemcpyWithAttributesAsync",
            "cuMemcpy3DWithAttributesAsync",
            "cuStreamBeginRecaptureToGraph",
        )
        for suffix in ("", "_ptsz")
    ),
}
"""In cuda.h of CUDA 13.5, not yet in that driver."""

DERIVED = {
    "width_bytes", "pitch_bytes", "count", "unit_bytes", "height", "depth", "source_type", "destination_type",
    "per_thread", "node_word", "library_kernel", "elapsed_float",
}  # fmt: skip
"""What the decoder makes other columns of."""

DRIVER = [function for function in TABLE.functions if function.api == "driver"]
RUNTIME = [function for function in TABLE.functions if function.api == "runtime"]


def test_every_driver_symbol_is_exported_by_a_real_driver() -> None:
    symbols = {symbol for function in DRIVER for symbol in function.symbols}
    assert symbols - EXPORTED == NEWER


def test_every_runtime_symbol_is_exported_by_a_real_runtime() -> None:
    assert {symbol for function in RUNTIME for symbol in function.symbols} <= RUNTIME_EXPORTED


def test_of_every_function_all_versions_are_there() -> None:
    """But for the first ones of functions that took 32-bit device pointers, all of which have a second one."""
    symbols = {symbol for function in DRIVER for symbol in function.symbols}
    others = {other for symbol in symbols for other in versions(symbol)} & EXPORTED - symbols
    assert all(re.fullmatch(r"cuMem(Alloc|AllocHost|AllocPitch|Free|cpy|set)\w*", other) for other in others), others
    assert {versions(other)[1] for other in others} <= symbols


def versions(symbol: str) -> list[str]:
    """Return a function's names with each version, none first."""
    match = re.fullmatch(r"(\w+?)(?:_v\d)?((?:_pt[sd][sz])?)", symbol)
    assert match is not None
    return [f"{match[1]}{version}{match[2]}" for version in ("", "_v2", "_v3", "_v4")]


def test_every_per_thread_version_that_is_exported_is_there() -> None:
    for functions, exported in ((DRIVER, EXPORTED), (RUNTIME, RUNTIME_EXPORTED)):
        symbols = {symbol for function in functions for symbol in function.symbols}
        assert {
            f"{symbol}{suffix}" for symbol in symbols for suffix in ("_ptsz", "_ptds")
        } & exported - symbols == set()


def test_per_thread_versions_say_so_and_no_others_do() -> None:
    for function in TABLE.functions:
        assert (function.constants.get("per_thread") == 1) == function.name.endswith(("_ptsz", "_ptds")), function.name


def test_kinds_are_the_event_classes() -> None:
    assert set(TABLE.kinds) == {kind_of(event) for event in EVENTS}


@pytest.mark.parametrize("event", EVENTS, ids=kind_of)
def test_table_and_event_class_have_the_same_columns(event: type[Event]) -> None:
    kind = kind_of(event)
    named = {name for function in TABLE.functions if function.kind == kind for name, _ in function.columns}
    made = {"stream_kind", "label", "returned", "caller_ip", "time_ns", "begin_ns", "tgid", "tid", "cpu", "flags"}
    columns = set(columns_of(event))
    assert named - DERIVED <= columns
    derived = {"bytes", "direction"} if "memcpy" in kind or "memset" in kind else set[str]()
    derived |= {"elapsed_ns"} if kind == "cuda.event.elapsed" else set()
    assert columns - named - made <= derived


def test_what_the_decoder_makes_columns_of_is_in_the_table() -> None:
    assert {name for function in TABLE.functions for name, _ in function.columns} >= DERIVED


def test_only_launches_of_kernels_are_recorded_at_entry() -> None:
    assert {function.kind for function in TABLE.functions if function.entry_only} == {"cuda.launch"}
    assert all(function.entry_only for function in TABLE.functions if function.kind == "cuda.launch")


def test_records_are_of_128_bytes_but_for_nodes_and_names() -> None:
    sizes = {layout.kind: layout.size_bytes for layout in TABLE.layouts()}
    assert {kind: size for kind, size in sizes.items() if size != 128} == {
        "cuda.graph.node": 200,
        "cuda.graph.dependency": 200,
        "cuda.module.kernel": 512,
        "cuda.proc_address": 512,
    }


def test_what_is_called_all_the_time_and_says_nothing_is_not_there() -> None:
    symbols = {symbol for function in TABLE.functions for symbol in function.symbols}
    hot = {
        "cuCtxGetCurrent", "cuCtxGetDevice", "cuDevicePrimaryCtxGetState", "cuKernelGetAttribute",
        "cudaGetDevice", "cudaGetLastError", "cudaPeekAtLastError",
    }  # fmt: skip
    assert hot <= EXPORTED | RUNTIME_EXPORTED
    assert not hot & symbols
    queries = {"cuStreamQuery", "cuEventQuery", "cuStreamIsCapturing", "cuStreamGetCaptureInfo"}
    assert not queries & {function.name for function in TABLE.selected("launch")}


@pytest.mark.parametrize(
    ("detail", "launches", "runtime"), [("sync", False, False), ("launch", True, False), ("full", True, True)]
)
def test_a_detail_probes_no_more_than_it_asks_for(detail: Detail, launches: bool, runtime: bool) -> None:
    table = table_for(detail)
    assert {function.name for function in table.functions} == {function.name for function in TABLE.selected(detail)}
    assert ("cuda.launch" in table.kinds) is launches
    assert ("cuda.runtime.call" in table.kinds) is runtime
    assert any("cudart" in library for library in table.libraries) is runtime
    assert {"cuda.stream.synchronize", "cuda.event.synchronize", "cuda.event.record"} <= set(table.kinds)
    assert {"cuda.context.create", "cuda.context.set", "cuda.module.load"} <= set(table.kinds)
