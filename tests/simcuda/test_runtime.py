# SPDX-License-Identifier: Apache-2.0
"""The simulated libcudart: what it makes of its calls."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simcuda.truths import check_truth, kernels, only

from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.truth import Truth, read_truth

START = """
            from ctypes import byref, POINTER, Structure
            import atexit

            class Dim3(Structure):
                _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]

            class Kernel(Structure):
                _fields_ = [("func", c_void_p), ("grid", Dim3), ("block", Dim3), ("shared", c_uint), ("params", c_void_p),
                            ("extra", c_void_p)]

            runtime = ctypes.CDLL("libcudart.so.13")
            one = Dim3(1, 1, 1)
            runtime.__cudaRegisterFunction(None, c_void_p(0x1000), None, b"named", -1, None, None, None, None, None)

            def ok(name, *arguments):
                assert getattr(runtime, name)(*arguments) == 0, name

            def made(name, *arguments):
                handle = c_void_p()
                ok(name, byref(handle), *arguments)
                return handle

            def go(name, stream, ns):
                function = getattr(runtime, name)
                function.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
                assert function(0x1000, one, one, params(ns), 0, stream) == 0
"""


def pairs(truth: Truth) -> Counter[tuple[str, str]]:
    """Count the driver calls of each runtime call."""
    names = {call.number: call.name for call in truth.calls}
    return Counter((names[call.outer], call.name) for call in truth.calls if call.outer)


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_streams_events_and_pools(program: Callable[..., Truth], suffix: str) -> None:
    truth = program(
        START
        + f"""
            s, e = made("cudaStreamCreateWithFlags", 1), made("cudaEventCreateWithFlags", 0)
            memory = made("cudaMallocAsync{suffix}", c_size_t(4096), s)
            go("cudaLaunchKernel{suffix}", s, 1000)
            ok("cudaEventRecord{suffix}", e, s)
            ok("cudaStreamWaitEvent{suffix}", None, e, 0)
            ok("cudaMemsetAsync{suffix}", memory, 1, c_size_t(64), s)
            ok("cudaFreeAsync{suffix}", memory, s)
            ok("cudaStreamSynchronize{suffix}", s)
            ok("cudaEventQuery", e)
            ok("cudaStreamQuery{suffix}", s)
            ok("cudaDeviceSynchronize")
        """
    )
    found = pairs(truth)
    for runtime, driver in (
        ("cudaMallocAsync", "cuMemAllocAsync"), ("cudaLaunchKernel", "cuLaunchKernel"), ("cudaEventRecord", "cuEventRecord"),
        ("cudaStreamWaitEvent", "cuStreamWaitEvent"), ("cudaMemsetAsync", "cuMemsetD8Async"),
        ("cudaFreeAsync", "cuMemFreeAsync"), ("cudaStreamSynchronize", "cuStreamSynchronize"),
        ("cudaStreamQuery", "cuStreamQuery"),
    ):  # fmt: skip
        assert found[runtime + suffix, driver + suffix] == 1, (runtime, found)
    wait = next(op for op in truth.ops.values() if op.kind == "wait_event")
    assert wait.handle == (2 if suffix else 1)


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_graphs(program: Callable[..., Truth], suffix: str) -> None:
    truth = program(
        START
        + f"""
            s = made("cudaStreamCreateWithFlags", 1)
            ok("cudaStreamBeginCapture{suffix}", s, 0)
            go("cudaLaunchKernel{suffix}", s, 1000)
            ok("cudaStreamEndCapture{suffix}", s, byref(graph := c_void_p()))
            exec = made("cudaGraphInstantiate", graph, ctypes.c_ulonglong(0))
            ok("cudaGraphUpload{suffix}", exec, s)
            ok("cudaGraphLaunch{suffix}", exec, s)
            own = made("cudaGraphCreate", 0)
            duration = params(2000)
            kernel = Kernel(0x1000, one, one, 0, ctypes.addressof(duration), None)
            node = made("cudaGraphAddKernelNode", own, None, c_size_t(0), byref(kernel))
            ok("cudaGraphAddEmptyNode", byref(c_void_p()), own, byref(node), c_size_t(1))
            info = (c_uint64 * 4)()
            assert runtime.cudaGraphExecUpdate(exec, own, info) == 910
            second = made("cudaGraphInstantiateWithFlags", own, ctypes.c_ulonglong(0))
            longer = params(3000)
            kernel.params = ctypes.addressof(longer)
            ok("cudaGraphExecKernelNodeSetParams", second, node, byref(kernel))
            ok("cudaGraphLaunch{suffix}", second, None)
            ok("cudaDeviceSynchronize")
            ok("cudaGraphExecDestroy", exec)
            ok("cudaGraphDestroy", graph)
        """
    )
    assert [op.kind for op in truth.ops.values()] == ["kernel", "kernel", "empty"]
    assert [op.end_ns - op.start_ns for op in truth.ops.values()] == [1000, 3000, 0]
    assert truth.ops[2].handle == (2 if suffix else 1)
    found = pairs(truth)
    assert found[f"cudaGraphLaunch{suffix}", f"cuGraphLaunch{suffix}"] == 2
    assert found[f"cudaStreamBeginCapture{suffix}", f"cuStreamBeginCapture_v2{suffix}"] == 1
    assert found["cudaGraphAddKernelNode", "cuGraphAddKernelNode_v2"] == 1
    made = {op.made_by for op in truth.ops.values()}
    assert made == {call.number for call in truth.calls if "node_handle" in call.arguments}


def test_devices(program: Callable[..., Truth]) -> None:
    truth = program(
        START
        + """
            ok("cudaGetDeviceCount", byref(count := ctypes.c_int()))
            assert count.value == 2
            first = made("cudaMalloc", c_size_t(64))
            go("cudaLaunchKernel", None, 1000)
            ok("cudaSetDevice", 1)
            ok("cudaGetDevice", byref(count))
            assert count.value == 1
            second = made("cudaMalloc", c_size_t(64))
            go("cudaLaunchKernel", None, 1000)
            ok("cudaMemcpyPeer", second, 1, first, 0, c_size_t(64))
            assert runtime.cudaSetDevice(2) == 101 and runtime.cudaGetLastError() == 101
            ok("cudaDeviceSynchronize")
            ok("cudaDeviceReset")
            go("cudaLaunchKernel", None, 1000)
            ok("cudaDeviceSynchronize")
        """
    )
    assert [(op.kind, op.context) for op in truth.ops.values()] == [
        ("kernel", 1), ("kernel", 2), ("memcpy_peer", 2), ("kernel", 3),
    ]  # fmt: skip


def test_cooperative_and_extended_launches(program: Callable[..., Truth]) -> None:
    truth = program(
        START
        + """
            class Config(Structure):
                _fields_ = [("grid", Dim3), ("block", Dim3), ("shared", c_size_t), ("stream", c_void_p),
                            ("attributes", c_void_p), ("count", c_uint)]

            runtime.__cudaRegisterFunction(None, c_void_p(0x2000), None, b"other", -1, None, None, None, None, None)
            go("cudaLaunchCooperativeKernel", None, 1000)
            config = Config(Dim3(2, 3, 5), Dim3(7, 11, 13), 17, None, None, 0)
            runtime.cudaLaunchKernelExC.argtypes = [c_void_p, c_void_p, c_void_p]
            ok("cudaLaunchKernelExC", byref(config), 0x2000, params(2000))
            ok("cudaDeviceSynchronize")
        """
    )
    assert set(kernels(truth)) == {"named", "other"}
    arguments = only(truth.named("cuLaunchKernelEx")).arguments
    assert [arguments[name] for name in ("grid", "block", "shared_bytes")] == [[2, 3, 5], [7, 11, 13], 17]
    assert len(truth.named("cuLaunchCooperativeKernel")) == 1


class TestBatchingServer:
    def test_what_it_says_is_what_the_device_did(self, library: SimCuda, tmp_path: Path) -> None:
        truth_file = tmp_path / "truth"
        command: list[str | Path] = [library.batching_server, "--requests", "5", "--batch", "3", "--tokens", "4"]
        done = subprocess.run(
            command, env=library.environment(truth=truth_file), capture_output=True, timeout=60, check=True
        )
        said, truth = json.loads(done.stdout), read_truth(truth_file)
        check_truth(truth)
        assert "simulated" in said["device"]
        assert [request["tokens"] for request in said["requests"]] == [4] * 5
        for request in said["requests"]:
            assert request["begin_ns"] < request["first_token_ns"] < request["end_ns"]
        launches = [call for call in truth.named("cuLaunchKernel") if call.op]
        assert len(launches) == said["kernel_launches"] == 5 * 4
        assert len(truth.named("cuGraphLaunch")) == said["graph_launches"]
        assert said["steps"] >= said["graph_launches"] >= 5
        assert len(truth.named("cuEventSynchronize")) == said["steps"]
        # In decoding, two kernels of a layer run side by side; all from one thread, which is not the one that started.
        graphs = [op for op in truth.ops.values() if op.launch]
        assert len(graphs) == 3 * 4 * said["graph_launches"]
        assert len({call.tid for call in launches}) == 1
        assert {call.tid for call in launches} != {call.tid for call in truth.named("cuInit")}

    def test_marks(self, library: SimCuda) -> None:
        capture = Path(__file__).parent.parent / "core/mark_capture.py"
        command = ["python3", str(capture), str(library.batching_server), "--requests", "3", "--tokens", "3"]
        done = subprocess.run(command, env=library.environment(), capture_output=True, timeout=120, check=True)
        marks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"')]
        marks = [mark for mark in marks if "mark" in mark]
        counts = Counter(bytes.fromhex(mark["mark"])[0] for mark in marks)
        begin, end, step, step_end, members, phase, phase_end, token = (counts[op] for op in range(1, 9))
        assert begin == end == 3
        assert step == step_end == members
        assert phase == phase_end == 3 * 3
        assert token == 3 * 3
        assert counts[11] == counts[12]  # every hand-over is taken
