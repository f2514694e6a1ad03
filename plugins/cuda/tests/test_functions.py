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

EXPORTED = set((Path(__file__).parent / "data" / "libcuda-580.159.04.symbols").read_text(encoding="ascii").split())
"""Every function that libcuda of driver 580.159.04 (CUDA 13.0) exports."""

NEWER = {
    f"{name}{suffix}"
    for name in ("cuLaunchHostFunc_v2", "cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync")
    for suffix in ("", "_ptsz")
}
"""In cuda.h of CUDA 13.5, not yet in that driver."""

FACTORS = {"width_bytes", "pitch_bytes", "count", "unit_bytes", "height", "depth", "source_type", "destination_type"}
"""What the decoder makes ``bytes`` and ``direction`` of; ``per_thread`` tells what stream handle 0 is."""

DRIVER = [function for function in TABLE.functions if function.api == "driver"]


def test_every_driver_symbol_is_exported_by_a_real_driver() -> None:
    symbols = {symbol for function in DRIVER for symbol in function.symbols}
    assert symbols - EXPORTED == NEWER


def test_no_symbol_is_an_old_version_with_other_arguments() -> None:
    same = {"cuStreamDestroy", "cuEventDestroy", "cuMemHostRegister", "cuGraphInstantiate"}
    apart = {"cuStreamBeginCapture", "cuStreamBeginCapture_ptsz", "cuCtxSynchronize"}
    batched = {f"{name}{suffix}" for name in ("cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync") for suffix in ("", "_ptsz")}
    for function in DRIVER:
        for symbol in function.symbols:
            newer = re.sub(r"((_pt[sd][sz])?)$", r"_v2\1", symbol, count=1)
            assert newer not in EXPORTED or symbol in same | apart | batched, symbol


def test_every_per_thread_version_that_is_exported_is_there() -> None:
    symbols = {symbol for function in DRIVER for symbol in function.symbols}
    versions = {f"{symbol}{suffix}" for symbol in symbols for suffix in ("_ptsz", "_ptds")}
    assert versions & EXPORTED - symbols == set()


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
    assert named - FACTORS - {"per_thread"} <= columns
    assert columns - named - made <= {"direction", "bytes"} | (
        {"stream_handle"} if kind in ("cuda.malloc", "cuda.free") else set()
    )


def test_only_launches_of_kernels_are_recorded_at_entry() -> None:
    assert {function.kind for function in TABLE.functions if function.entry_only} == {"cuda.launch"}
    assert all(function.entry_only for function in TABLE.functions if function.kind == "cuda.launch")


def test_every_record_fits_one_ring_class() -> None:
    assert {layout.size_bytes for layout in TABLE.layouts()} == {128}


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
