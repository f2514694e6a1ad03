# SPDX-License-Identifier: Apache-2.0
"""Calls with the structs of NVIDIA's headers, recorded by this kernel: what a program passes is what the events say."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from plugins.cuda.tests.prototypes import HOW_TO_GET, found_headers, host_defines

from fencepath import Analysis
from fencepath._loader import load_plugins
from fencepath.testing.fixtures import live_recording_in
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.events import Direction, NodeKind, Place, ValueAction
from fencepath_cuda.functions import TABLE

pytestmark = pytest.mark.bpf

SOURCE = Path(__file__).with_name("headers.c")

SHAPE = {"grid_x": 7, "grid_y": 65535, "grid_z": 3, "block_x": 128, "block_y": 2, "block_z": 64}
ON_STREAM = {"stream_handle": 0xABC0}


def node(kind: NodeKind, handle: int, count: int, **more: int) -> dict[str, Any]:
    named = {"kernel": 0, "child_graph": 0, "event_handle": 0, **more}
    first = {f"dependency_{index}": index + 1 if index < count else 0 for index in range(4)}
    return {"graph": 0x6A, "node": handle, "node_kind": kind, "dependencies": count, **first, **named}


CALLS: dict[str, list[dict[str, Any]]] = {
    "cuLaunchKernelEx": [{**SHAPE, **ON_STREAM, "kernel": 0xF, "shared_bytes": 4096, "attributes": 5}],
    "cuLaunchCooperativeKernelMultiDevice": [{**SHAPE, **ON_STREAM, "kernel": 0xF, "shared_bytes": 4096, "devices": 2}],
    "cudaLaunchKernel": [{**SHAPE, **ON_STREAM, "host_function": 0xF00, "shared_bytes": 49152}],
    "cudaLaunchKernelExC": [{**SHAPE, **ON_STREAM, "host_function": 0xF00, "shared_bytes": 49152}],
    "cuMemcpy2D_v2": [{"bytes": 700, "direction": Direction.HOST_TO_DEVICE}],
    "cuMemcpy3D_v2": [{"bytes": 2100, "direction": Direction.DEVICE_TO_HOST}],
    "cudaMemcpy3D": [{"bytes": 2100, "direction": Direction.HOST_TO_DEVICE}],
    "cudaMemcpy3DPeerAsync": [{**ON_STREAM, "bytes": 1400, "direction": Direction.DEVICE_TO_DEVICE}],
    "cuMemPrefetchAsync_v2": [{**ON_STREAM, "address": 0xD000, "bytes": 512}],
    "cuGraphAddKernelNode": [node(NodeKind.KERNEL, 0x7001, 1, kernel=0xF)],
    "cuGraphAddKernelNode_v2": [node(NodeKind.KERNEL, 0x7002, 6, kernel=0xE)],
    "cuGraphAddEmptyNode": [node(NodeKind.EMPTY, 0x7004, 0)],
    "cuGraphAddNode_v2": [
        node(NodeKind.KERNEL, 0x7003, 2, kernel=0xE),
        node(NodeKind.CHILD_GRAPH, 0x7003, 3, child_graph=0x6B),
        node(NodeKind.EVENT_WAIT, 0x7003, 4, event_handle=0xE0),
    ],
    "cuGraphAddDependencies_v2": [
        {
            "dependencies": 5,
            "removed": False,
            **{f"from_{index}": index + 1 for index in range(4)},
            **{f"to_{index}": index + 2 for index in range(4)},
        }
    ],
    "cudaGraphAddKernelNode": [{**SHAPE, "host_function": 0xF00, "shared_bytes": 4096}],
    "cudaGraphExecKernelNodeSetParams": [{**SHAPE, "host_function": 0xF00, "shared_bytes": 4096}],
    "cuModuleGetFunction": [{"kernel": 0xF001, "module": 0x30, "name": "_Z4axpyPfS_f"}],
    "cuLibraryGetKernel": [{"kernel": 0xE001, "library": 0x40, "name": "caf\u00e9 \\xff", "result": 500}],
    "cuKernelGetFunction": [{"kernel": 0xF002, "of_kernel": 0xE001, "name": ""}],
    "cuGetProcAddress_v2": [
        {"name": "cuLaunchKernel", "cuda_version": 12040, "lookup_flags": 2, "address": 0xADD0, "status": 2}
    ],
    "__cudaRegisterFunction": [{"host_function": 0xF00, "kernel": 0, "name": "_Z4axpyPfS_f", "result": 0}],
    "cuIpcOpenMemHandle_v2": [{"address": 0xD000, "place": Place.IPC}],
    "cuCtxCreate_v4": [{"context_handle": 0xC000, "context_flags": 8, "device": 1}],
    "cuStreamWaitValue64_v2": [
        {**ON_STREAM, "address": 0xD000, "value": 1 << 40, "condition": 1, "action": ValueAction.WAIT}
    ],
    "cuWaitExternalSemaphoresAsync": [{**ON_STREAM, "semaphores": 2, "semaphore": 0x5E}],
    "cuThreadExchangeStreamCaptureMode": [{"mode": 2}],
    "cuEventElapsedTime_v2": [{"event_handle": 0xE1, "end_event_handle": 0xE2, "elapsed_ns": 1_500_000}],
    "cudaSetDevice": [{"device": 1}],
}
"""By function, the columns of each of its calls in headers.c, in order."""


def build(folder: Path, headers: Path) -> Path:
    """Compile the libraries and the program, which finds them beside itself."""
    host_defines(folder)
    common = ["gcc", "-w", "-O1", "-xc", str(SOURCE)]
    for name, more in (("libcuda.so.1", []), ("libcudart.so.13", ["-DRUNTIME"])):
        flags = ["-DLIBRARY", *more, "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        subprocess.run([*common, *flags, "-o", folder / name], check=True)
    libraries: list[str | Path] = ["-xnone", folder / "libcuda.so.1", folder / "libcudart.so.13", "-Wl,-rpath,$ORIGIN"]
    program = folder / "headers"
    flags = ["-DCUDA_ENABLE_DEPRECATED", f"-I{headers}", "-idirafter", str(folder)]
    subprocess.run([*common, *flags, *libraries, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Every recorded call by function, in order of begin."""
    if not found_headers():
        pytest.skip(HOW_TO_GET)
    folder = tmp_path_factory.mktemp("headers")
    program = build(folder, found_headers()[0])
    recorded = live_recording_in(folder)([str(program)], options=("--layers", "cuda", "--detail", "full"))
    assert recorded.code == 0, recorded.errors
    view = Analysis(recorded.recording, load_plugins()).view
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for kind in TABLE.kinds:
        batch = view.batch(kind)
        plain = {name: column.tolist() for name, column in batch.columns.items()}
        for values in zip(*plain.values(), strict=True):
            row = dict(zip(plain, values, strict=True))
            found[LABELS[row["label"]]].append(row)
    return {name: sorted(calls, key=lambda row: row["begin_ns"]) for name, calls in found.items()}


def test_all_calls_are_there_and_no_others(rows: dict[str, list[dict[str, Any]]]) -> None:
    assert {name: len(calls) for name, calls in rows.items()} == {name: len(calls) for name, calls in CALLS.items()}


@pytest.mark.parametrize("function", sorted(CALLS))
def test_a_call_is_recorded_as_it_was_made(rows: dict[str, list[dict[str, Any]]], function: str) -> None:
    for found, wanted in zip(rows[function], CALLS[function], strict=True):
        assert {name: found[name] for name in wanted} == wanted
        assert found["returned"]
