# SPDX-License-Identifier: Apache-2.0
"""The layer as core sees it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from fencepath._loader import load_plugins
from fencepath.events import Category, Role
from fencepath.plugin import CallProbe, Detail
from fencepath.system import System
from fencepath_cuda.attributes import span_attributes
from fencepath_cuda.events import Direction, Place, StreamKind
from fencepath_cuda.functions import TABLE


def test_it_is_installed_and_loads() -> None:
    registry = load_plugins()
    assert not [problem for problem in registry.problems if problem.plugin == "cuda"]
    assert set(registry.plugins["cuda"].kinds) == {*TABLE.kinds, "cuda.operation"}


@pytest.mark.parametrize(("detail", "kinds"), [("sync", 22), ("launch", 49), ("full", 54)])
def test_it_asks_for_its_functions_and_nothing_of_the_kernel(tmp_path: Path, detail: Detail, kinds: int) -> None:
    plugin = load_plugins().plugins["cuda"]
    system = System.from_formats(tmp_path, platform.machine(), detail)
    (probe_set,) = plugin.call("fencepath_probes", system=system)
    (alternative,) = probe_set.alternatives
    (probe,) = alternative.probes
    assert isinstance(probe, CallProbe)
    assert len(alternative.gives) == kinds
    assert {layout.kind for layout in probe.table.layouts()} == set(alternative.gives)
    assert alternative.bpf is not None
    assert '#include "fp_calls.h"' in alternative.bpf.path.read_text(encoding="ascii")


def test_time_goes_where_it_was_spent() -> None:
    kinds = load_plugins().kinds
    categories = {kind: kinds[kind].time_category for kind in TABLE.kinds}
    assert categories["cuda.launch"] is Category.API_CALL
    assert categories["cuda.memcpy"] is Category.TRANSFER
    assert categories["cuda.memcpy.async"] is Category.API_CALL
    assert categories["cuda.memset"] is Category.API_CALL
    assert categories["cuda.malloc"] is Category.MEMORY
    assert categories["cuda.stream.destroy"] is Category.API_CALL
    assert {kind for kind in TABLE.kinds if kinds[kind].role is Role.WAIT} == {
        kind for kind, category in categories.items() if category is Category.DEVICE_WAIT
    }
    assert None not in categories.values()
    kept = {kind for kind in TABLE.kinds if kinds[kind].keep}
    handles = ("context", "stream", "event", "semaphore", "graph")
    assert kept == {f"cuda.{what}.{verb}" for what in handles for verb in ("create", "destroy")} | {
        *(f"cuda.graph.{what}" for what in ("instantiate", "update", "clone", "exec.destroy", "dependency")),
        "cuda.graph.node",
        "cuda.graph.node.destroy",
        "cuda.module.kernel",
        "cuda.proc_address",
    }


def label(name: str) -> int:
    return TABLE.index(name)


@pytest.mark.parametrize(
    ("row", "attributes"),
    [
        (
            {
                "label": label("cuLaunchKernel"),
                "stream_kind": int(StreamKind.CREATED),
                "stream_handle": 0xABC0,
                "grid_x": 7,
                "grid_y": 1,
                "grid_z": 1,
                "block_x": 128,
                "block_y": 1,
                "block_z": 1,
                "shared_bytes": 0,
                "kernel": 0xF0,
            },
            {
                "cuda.function": "cuLaunchKernel",
                "cuda.stream": "0xabc0",
                "cuda.grid.x": 7,
                "cuda.grid.y": 1,
                "cuda.grid.z": 1,
                "cuda.block.x": 128,
                "cuda.block.y": 1,
                "cuda.block.z": 1,
                "cuda.kernel.handle": "0xf0",
            },
        ),
        (
            {
                "label": label("cuMemcpyDtoH_v2"),
                "stream_kind": int(StreamKind.LEGACY),
                "stream_handle": 1,
                "bytes": 640,
                "direction": int(Direction.DEVICE_TO_HOST),
                "result": 700,
            },
            {
                "cuda.function": "cuMemcpyDtoH_v2",
                "cuda.stream": "legacy",
                "cuda.bytes": 640,
                "cuda.memcpy.kind": "device_to_host",
                "cuda.result": 700,
                "error.type": "CUDA_ERROR_ILLEGAL_ADDRESS",
            },
        ),
        (
            {"label": label("cudaFree"), "stream_kind": 0, "result": 700, "device": -1},
            {"cuda.function": "cudaFree", "cuda.result": 700, "error.type": "cudaErrorIllegalAddress"},
        ),
        (
            {"label": label("cuMemPoolTrimTo"), "pool": 0xB0, "action": 2, "bytes": 512, "result": 1234},
            {
                "cuda.function": "cuMemPoolTrimTo",
                "cuda.memory.pool": "0xb0",
                "cuda.memory.action": "trim",
                "cuda.bytes": 512,
                "cuda.result": 1234,
                "error.type": "unknown (1234)",
            },
        ),
        (
            {"label": label("cuModuleGetFunction"), "kernel": 0xF, "module": 0x30, "name": "_Z4axpyPf"},
            {
                "cuda.function": "cuModuleGetFunction",
                "cuda.kernel.handle": "0xf",
                "cuda.module": "0x30",
                "cuda.kernel.name": "_Z4axpyPf",
            },
        ),
        (
            {"label": label("cuCtxCreate_v2"), "context_handle": 0xC0, "device": 0, "context_flags": 0},
            {"cuda.function": "cuCtxCreate_v2", "cuda.context": "0xc0", "cuda.device": 0},
        ),
        (
            {"label": label("cuGraphAddEmptyNode"), "graph": 0x6A, "node": 0x7, "node_kind": 5, "dependencies": 0},
            {
                "cuda.function": "cuGraphAddEmptyNode",
                "cuda.graph": "0x6a",
                "cuda.graph.node": "0x7",
                "cuda.graph.node.kind": "empty",
            },
        ),
        (
            {"label": label("cuMemAlloc_v2"), "stream_kind": 0, "bytes": 64, "place": int(Place.DEVICE)},
            {"cuda.function": "cuMemAlloc_v2", "cuda.bytes": 64, "cuda.memory.place": "device"},
        ),
        (
            {"label": label("cuEventQuery"), "event_handle": 0xE, "result": 600},
            {"cuda.function": "cuEventQuery", "cuda.event": "0xe"},
        ),
        ({"label": 99_999, "direction": 77}, {}),
        ({}, {}),
    ],
)
def test_span_attributes(row: dict[str, Any], attributes: dict[str, Any]) -> None:
    assert span_attributes(row) == attributes
