# SPDX-License-Identifier: Apache-2.0
"""The simulated CUDA library: what it promises to be, and that its truth is true."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from tests.simcuda.truths import check_truth, kernels, only, overlap

from fencepath import mark
from fencepath.errors import MachineError
from fencepath_cuda import simcuda
from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.truth import Truth, read_truth

HERE = Path(__file__).parent
Program = Callable[..., Truth]


class TestStreams:
    def test_in_order_and_exactly_as_long_as_asked(self, program: Program) -> None:
        truth = program("""
            start()
            streams = [stream(1) for _ in range(3)]
            for i in range(101):
                launch(f"k{i}", 1000 * (i * 37 % 101), streams[i % 3])
            call("cuCtxSynchronize")
        """)
        ops = kernels(truth)
        assert {name: op.end_ns - op.start_ns for name, op in ops.items()} == {
            f"k{i}": 1000 * (i * 37 % 101) for i in range(101)
        }
        assert Counter(op.stream for op in ops.values()) == {1: 34, 2: 34, 3: 33}
        assert set(only(truth.named("cuCtxSynchronize")).waited_for) == {99, 100, 101}

    def test_streams_run_at_the_same_time(self, program: Program) -> None:
        ops = kernels(
            program("""
            start()
            launch("a", 50_000_000, stream(1))
            launch("b", 50_000_000, stream(1))
            call("cuCtxSynchronize")
        """)
        )
        assert overlap(ops["a"], ops["b"])

    def test_an_event_orders_two_streams(self, program: Program) -> None:
        truth = program("""
            start()
            a, b, c = (stream(1) for _ in range(3))
            event = new("cuEventCreate", 0)
            call("cuStreamWaitEvent", b, event, 0)  # never recorded: binds nothing
            launch("a", 50_000_000, a)
            call("cuEventRecord", event, a)
            call("cuStreamWaitEvent", b, event, 0)
            launch("b", 1_000_000, b)
            launch("c", 1_000_000, c)
            call("cuStreamSynchronize", b)
            call("cuStreamSynchronize", c)
        """)
        ops = kernels(truth)
        assert ops["b"].start_ns == ops["a"].end_ns
        assert overlap(ops["c"], ops["a"])
        wait = only([call for call in truth.named("cuStreamWaitEvent") if call.op])
        assert wait.op is not None
        record = only(truth.named("cuEventRecord")).op
        assert [(edge.op, edge.why) for edge in truth.ops[wait.op].after] == [(record, "event")]

    def test_a_later_record_does_not_change_an_earlier_wait(self, program: Program) -> None:
        ops = kernels(
            program("""
            start()
            a, b = stream(1), stream(1)
            event = new("cuEventCreate", 0)
            launch("first", 1_000_000, a)
            call("cuEventRecord", event, a)
            call("cuStreamWaitEvent", b, event, 0)
            launch("second", 30_000_000, a)
            call("cuEventRecord", event, a)
            launch("b", 1_000_000, b)
            call("cuCtxSynchronize")
        """)
        )
        assert ops["first"].end_ns == ops["b"].start_ns < ops["second"].end_ns

    @pytest.mark.parametrize("default", ["None", "LEGACY"])
    def test_legacy_default_stream(self, program: Program, default: str) -> None:
        truth = program(f"""
            start()
            blocking, other, free = stream(0), stream(0), stream(1)
            launch("before", 10_000_000, blocking)
            launch("free", 90_000_000, free)
            launch("legacy", 5_000_000, {default})
            launch("after", 1_000_000, other)
            launch("thread", 1_000_000, PER_THREAD)
            call("cuCtxSynchronize")
        """)
        ops = kernels(truth)
        assert ops["legacy"].start_ns == ops["before"].end_ns
        assert ops["after"].start_ns == ops["thread"].start_ns == ops["legacy"].end_ns
        assert overlap(ops["free"], ops["legacy"])
        legacy = [(edge.op, edge.why) for edge in ops["after"].after]
        assert legacy == [(ops["legacy"].id, "legacy")]

    def test_per_thread_default_streams_differ(self, program: Program) -> None:
        truth = program("""
            import threading
            context = start()

            def work(i):
                call("cuCtxSetCurrent", context)
                launch(f"a{i}", 10_000_000, PER_THREAD)
                launch(f"b{i}", 1_000_000, PER_THREAD)
                call("cuStreamSynchronize", PER_THREAD)

            kernel("a0"), kernel("a1"), kernel("b0"), kernel("b1")
            threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        """)
        ops = kernels(truth)
        assert ops["a0"].stream == ops["b0"].stream != ops["a1"].stream == ops["b1"].stream
        assert ops["a0"].handle == ops["a1"].handle == 2

    def test_a_handle_is_used_again_and_a_destroyed_stream_still_finishes(self, program: Program) -> None:
        truth = program("""
            start()
            first = stream(1)
            launch("a", 20_000_000, first)
            call("cuStreamDestroy_v2", first)
            second = stream(1)
            assert second.value == first.value
            launch("b", 1_000_000, second)
            call("cuCtxSynchronize")
            assert result("cuStreamDestroy_v2", second) == 0
            assert result("cuStreamDestroy_v2", second) == 400
        """)
        ops = kernels(truth)
        assert ops["a"].handle == ops["b"].handle
        assert ops["a"].stream != ops["b"].stream
        assert ops["a"].id in only(truth.named("cuCtxSynchronize")).waited_for

    def test_host_functions_take_their_turn(self, program: Program) -> None:
        truth = program("""
            import time
            start()
            s, seen = stream(1), []
            function = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: (seen.append(data), time.sleep(0.005)))
            launch("before", 3_000_000, s)
            call("cuLaunchHostFunc", s, ctypes.cast(function, c_void_p), c_void_p(17))
            launch("after", 1_000_000, s)
            call("cuStreamSynchronize", s)
            assert seen == [17]
        """)
        ops = kernels(truth)
        host = next(op for op in truth.ops.values() if op.kind == "host_func")
        assert ops["before"].end_ns <= host.start_ns
        assert host.end_ns - host.start_ns >= 5_000_000
        assert ops["after"].start_ns == host.end_ns


class TestWaits:
    SPENT = """
        import time
        start({flags})
        s = stream(1)
        launch("a", 50_000_000, s)
        cpu = time.thread_time_ns()
        call("cuStreamSynchronize", s)
        cpu = time.thread_time_ns() - cpu
        assert ({test}), cpu
    """

    @pytest.mark.parametrize(
        ("wait", "flags", "mode"),
        [
            (None, 0, "spin"), (None, 1, "spin"), (None, 2, "yield"), (None, 4, "block"),
            ("block", 0, "block"), ("spin", 4, "spin"), ("yield", 4, "yield"),
        ],
    )  # fmt: skip
    def test_how_a_wait_is_spent(self, program: Program, wait: str | None, flags: int, mode: str) -> None:
        # A thread that spins may have to share its CPU, and one that yields gets what others leave: only that a blocked one
        # burns next to nothing can be relied on.
        test = "cpu < 3_000_000" if mode == "block" else "cpu > 0"
        truth = program(self.SPENT.format(flags=flags, test=test), wait=wait)
        synchronize = only(truth.named("cuStreamSynchronize"))
        assert synchronize.arguments["wait"] == mode
        assert synchronize.waited_for == (kernels(truth)["a"].id,)
        assert synchronize.end_ns - synchronize.begin_ns > 20_000_000

    @pytest.mark.parametrize(("flags", "mode"), [(0, "spin"), (1, "block")])
    def test_events(self, program: Program, flags: int, mode: str) -> None:
        truth = program(f"""
            start()
            s = stream(1)
            begin, end = new("cuEventCreate", 0), new("cuEventCreate", {flags})
            call("cuEventRecord", begin, s)
            launch("a", 20_000_000, s)
            call("cuEventRecord", end, s)
            assert result("cuEventQuery", end) == result("cuStreamQuery", s) == NOT_READY
            call("cuEventSynchronize", end)
            assert result("cuEventQuery", end) == result("cuStreamQuery", s) == 0
            ms = ctypes.c_float()
            call("cuEventElapsedTime", ctypes.byref(ms), begin, end)
            assert 20 <= ms.value < 200, ms
            call("cuEventDestroy_v2", end)
            assert result("cuEventQuery", end) == 400
        """)
        synchronize = only(truth.named("cuEventSynchronize"))
        assert synchronize.arguments["wait"] == mode
        records = truth.named("cuEventRecord")
        assert synchronize.waited_for == (records[1].op,)

    def test_copies_wait_as_cuda_documents(self, program: Program) -> None:
        truth = program("""
            start()
            device, size = c_uint64(), 1 << 20
            call("cuMemAlloc_v2", ctypes.byref(device), size)
            pinned, s = new("cuMemHostAlloc", size, 0), stream(1)
            pageable = ctypes.create_string_buffer(b"\\x2a" * size, size)
            launch("long", 30_000_000, s)
            call("cuMemcpyHtoDAsync_v2", device, pageable, 4096, s)    # staged
            call("cuMemcpyDtoHAsync_v2", pinned, device, 4096, s)      # asynchronous
            pageable[0] = b"\\0"                                       # after staging: not seen
            call("cuMemcpyDtoHAsync_v2", pageable, device, 4096, s)    # waits: pageable
            assert pageable[0] == b"\\x2a" and ctypes.string_at(pinned, 4096) == b"\\x2a" * 4096
            call("cuMemcpyHtoDAsync_v2", device, pageable, size, s)    # waits: too large to stage
            call("cuMemsetD8Async", device, 7, 101, s)
            call("cuStreamSynchronize", s)
            call("cuMemcpyDtoH_v2", pageable, device, 102)
            assert pageable[:102] == b"\\7" * 101 + b"\\x2a"
            assert result("cuMemcpyDtoH_v2", pageable, c_uint64(4096), 1) == 1
            call("cuMemFree_v2", device)
            assert result("cuMemFree_v2", device) == 1
        """)
        up, down = truth.named("cuMemcpyHtoDAsync_v2"), truth.named("cuMemcpyDtoHAsync_v2")
        assert [bool(call.waited_for) for call in up] == [False, True]
        assert [bool(call.waited_for) for call in down] == [False, True]
        ops = [op for op in truth.ops.values() if op.kind.startswith("memcpy")]
        assert [op.bytes for op in ops] == [4096, 4096, 4096, 1 << 20, 102]
        assert [op.end_ns - op.start_ns for op in ops] == [2000 + op.bytes // 16 for op in ops]  # 16 GB/s, 2 µs


class TestAbi:
    """The arguments arrive where a probe looks for them; ctypes is the other side of the ABI."""

    def test_eleven_arguments(self, program: Program) -> None:
        truth = program("""
            start()
            s = stream(1)
            p = params(23)
            call("cuLaunchKernel", kernel("k"), 2, 3, 5, 7, 11, 13, 17, s, p, None)
            assert result("cuLaunchKernel", kernel("k"), 0, 1, 1, 1, 1, 1, 0, s, p, None) == 1
            call("cuStreamSynchronize", s)
            print(s.value, ctypes.addressof(p))
        """)
        call = truth.named("cuLaunchKernel")[0]
        assert [call.arguments[name] for name in ("grid", "block", "shared_bytes")] == [[2, 3, 5], [7, 11, 13], 17]
        assert (call.arguments["kernel"], call.arguments["extra"]) == ("k", "0x0")
        assert kernels(truth)["k"].end_ns - kernels(truth)["k"].start_ns == 23

    def test_launch_config(self, program: Program) -> None:
        truth = program("""
            class Config(ctypes.Structure):
                _fields_ = [(f"n{i}", c_uint) for i in range(7)] + [
                    ("stream", c_void_p), ("attributes", c_void_p), ("attribute_count", c_uint)]

            assert [getattr(Config, name).offset for name, _ in Config._fields_[6:]] == [24, 32, 40, 48]
            start()
            s = stream(1)
            config = Config(2, 3, 5, 7, 11, 13, 17, s.value, None, 0)
            call("cuLaunchKernelEx", ctypes.byref(config), kernel("k"), params(29), None)
            data = c_uint64(31)  # the other way to pass parameters
            extra = (c_void_p * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(c_uint64(8)), 0)
            call("cuLaunchKernel", kernel("x"), 1, 1, 1, 1, 1, 1, 0, s, None, extra)
            call("cuStreamSynchronize", s)
        """)
        arguments = only(truth.named("cuLaunchKernelEx")).arguments
        assert [arguments[name] for name in ("grid", "block", "shared_bytes")] == [[2, 3, 5], [7, 11, 13], 17]
        ops = kernels(truth)
        assert [ops[name].end_ns - ops[name].start_ns for name in "kx"] == [29, 31]
        assert int(arguments["handle"], 16) == ops["k"].handle

    def test_runtime_takes_dim3_by_value_and_calls_the_driver(self, program: Program) -> None:
        truth = program("""
            class Dim3(ctypes.Structure):
                _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]

            runtime = ctypes.CDLL("libcudart.so.13")
            runtime.cudaLaunchKernel.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
            runtime.cudaMalloc.argtypes = [OUT, c_size_t]
            runtime.cudaMemcpyAsync.argtypes = [c_void_p, c_void_p, c_size_t, c_int, c_void_p]
            runtime.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
            runtime.__cudaRegisterFunction(None, c_void_p(0x1000), None, b"named", -1, None, None, None, None, None)
            s, memory, host = c_void_p(), c_void_p(), ctypes.create_string_buffer(b"abc", 4)
            assert runtime.cudaStreamCreate(ctypes.byref(s)) == 0
            assert runtime.cudaMalloc(ctypes.byref(memory), 4) == 0
            assert runtime.cudaMemcpyAsync(memory, host, 4, 1, s) == 0
            assert runtime.cudaLaunchKernel(0x1000, Dim3(2, 3, 5), Dim3(7, 11, 13), params(37), 17, s) == 0
            assert runtime.cudaLaunchKernel(0x2000, Dim3(1, 1, 1), Dim3(1, 1, 1), params(1), 0, s) == 98
            assert runtime.cudaGetLastError() == 98 and runtime.cudaGetLastError() == 0
            assert runtime.cudaStreamSynchronize(s) == 0
            back = ctypes.create_string_buffer(4)
            assert runtime.cudaMemcpy(back, memory, 4, 2) == 0 and back.value == b"abc"
            assert runtime.cudaDeviceSynchronize() == 0
            assert runtime.cudaFree(memory) == 0
        """)
        numbers = {call.number: call.name for call in truth.calls}
        made_for = Counter((numbers[call.outer], call.name) for call in truth.calls if call.outer)
        for runtime, driver in (
            ("cudaLaunchKernel", "cuLaunchKernel"),
            ("cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2"),
            ("cudaMemcpy", "cuMemcpyDtoH_v2"),
            ("cudaMalloc", "cuMemAlloc_v2"),
            ("cudaFree", "cuMemFree_v2"),
            ("cudaStreamCreate", "cuStreamCreate"),
            ("cudaStreamSynchronize", "cuStreamSynchronize"),
            ("cudaDeviceSynchronize", "cuCtxSynchronize"),
        ):
            assert made_for[runtime, driver] == 1, (runtime, driver)
        launch = only(truth.named("cuLaunchKernel")).arguments
        assert [launch[name] for name in ("grid", "block", "shared_bytes")] == [[2, 3, 5], [7, 11, 13], 17]
        assert kernels(truth)["named"].end_ns - kernels(truth)["named"].start_ns == 37

    def test_first_instructions(self, library: SimCuda) -> None:
        if os.uname().machine != "x86_64":
            pytest.skip("the two classes of first instruction exist on x86-64 only")
        first = entry_bytes(library.libcuda) | entry_bytes(library.libcudart)
        endbr64 = {name for name, code in first.items() if code.startswith(b"\xf3\x0f\x1e\xfa")}
        assert endbr64 == {name for name in first if name.startswith(("cuEvent", "cuStreamWaitEvent"))}
        assert len(endbr64) == 12
        emulated, stepped = (b"\x55", b"\x90"), b"\x48\x83\xec"  # push %rbp, nop; sub $N, %rsp
        assert {name for name in endbr64 if first[name][4:].startswith(stepped)} == {"cuEventQuery"}
        assert all(first[name][4:].startswith(emulated) for name in endbr64 - {"cuEventQuery"})
        rest = {name: code for name, code in first.items() if name not in endbr64}
        assert {name for name, code in rest.items() if code.startswith(stepped)} == {"cuStreamQuery"}
        assert {name for name, code in rest.items() if code.startswith(b"\x90")} == {"cuMemHostAlloc"}
        without = {name for name, code in rest.items() if not code.startswith((*emulated, stepped))}
        # They do next to nothing and need no frame.
        assert without <= {"cuGetErrorName", "cuGetErrorString", *(name for name in rest if name.startswith("__cuda"))}


def entry_bytes(library: Path) -> dict[str, bytes]:
    """Return the first bytes of each exported function."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        text: Any = elf.get_section_by_name(".text")
        symbols: Any = elf.get_section_by_name(".dynsym")
        code, base = text.data(), text["sh_addr"]
        return {
            symbol.name: code[symbol["st_value"] - base :][:8]
            for symbol in symbols.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        }


class TestFailures:
    BODY = """
        start()
        s = stream(1)
        print([result("cuLaunchKernel", kernel("k"), 1, 1, 1, 1, 1, 1, 0, s, params(1), None) for _ in range(5)])
        call("cuStreamSynchronize", s)
    """

    @pytest.mark.parametrize(
        ("fail", "results"),
        [
            ("cuLaunchKernel:719:3", [0, 0, 719, 0, 0]),
            ("cuLaunchKernel:719:3+", [0, 0, 719, 719, 719]),
            ("cuMemAlloc_v2:2:1,cuLaunchKernel:1:1,cuLaunchKernel:700:5", [1, 0, 0, 0, 700]),
        ],
    )
    def test_on_demand(self, program: Program, fail: str, results: list[int]) -> None:
        truth = program(self.BODY, fail=fail)
        launches = truth.named("cuLaunchKernel")
        assert [call.result for call in launches] == results
        assert [call.op is not None for call in launches] == [result == 0 for result in results]
        assert len(truth.ops) == results.count(0)

    def test_wrong_use(self, program: Program) -> None:
        program("""
            assert result("cuCtxCreate_v2", ctypes.byref(c_void_p()), 0, 0) == 3   # before cuInit
            call("cuInit", 0)
            assert result("cuStreamCreate", ctypes.byref(c_void_p()), 0) == 201    # no context
            start()
            assert result("cuStreamSynchronize", c_void_p(0x1234)) == 400
            assert result("cuEventRecord", c_void_p(0x1234), None) == 400
            some = new("cuModuleLoadData", b"a b:1000")
            assert result("cuModuleGetFunction", ctypes.byref(c_void_p()), some, b"c") == 500
            function = new("cuModuleGetFunction", some, b"b")
            assert result("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, params(61_000_000_000), None) == 1
            name = ctypes.create_string_buffer(64)
            call("cuDeviceGetName", name, 64, 0)
            assert b"simulated" in name.value
        """)


class TestTruth:
    def test_lists_are_whole(self, program: Program) -> None:
        truth = program("""
            start()
            for i in range(300):
                launch("k", 1000, stream(1))
            call("cuCtxSynchronize")
        """)
        assert set(only(truth.named("cuCtxSynchronize")).waited_for) == set(truth.ops)
        assert len(truth.ops) == 300

    def test_names_have_any_bytes(self, program: Program) -> None:
        truth = program("""
            start()
            module, function = new("cuModuleLoadData", b""), c_void_p()
            call("cuModuleGetFunction", ctypes.byref(function), module, bytes(range(1, 256)))
            call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, params(1), None)
            call("cuCtxSynchronize")
        """)
        assert truth.ops[1].name == bytes(range(1, 256)).decode("latin-1")

    def test_a_forked_child_has_no_device(self, program: Program) -> None:
        truth = program("""
            import os
            context = start()
            pid = os.fork()
            if pid == 0:
                answers = [result("cuCtxSynchronize"), result("cuInit", 0), result("cuCtxSetCurrent", context)]
                os._exit(answers != [3, 3, 3])
            assert os.waitpid(pid, 0)[1] == 0
            launch("k", 1000)
            call("cuCtxSynchronize")
        """)
        assert len(truth.named("cuCtxSynchronize")) == 1

    def test_a_child_that_was_forked_before_has_its_own(self, library: SimCuda, tmp_path: Path) -> None:
        code = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
from driver import *
pid = os.fork()
start()
launch("k", 1000)
call("cuCtxSynchronize")
if pid:
    os.waitpid(pid, 0)
"""
        environment = library.environment(truth=tmp_path / "t-%p")
        subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=True)
        truths = [read_truth(path) for path in tmp_path.iterdir()]
        assert len({truth.pid for truth in truths}) == 2
        for truth in truths:
            check_truth(truth)
            assert len(truth.ops) == 1


class TestWorkload:
    @pytest.mark.parametrize("api", ["driver", "runtime"])
    def test_four_threads(self, library: SimCuda, tmp_path: Path, api: str) -> None:
        truth_file = tmp_path / "truth.jsonl"
        arguments = ["--threads", "4", "--launches", "1009", "--sync-every", "97", "--kernel-ns", "700"]
        command: list[str | Path] = [library.workload, *arguments, *(["--runtime"] if api == "runtime" else [])]
        run = subprocess.run(
            command, env=library.environment(truth=truth_file), capture_output=True, timeout=60, check=True
        )
        said = json.loads(run.stdout)
        truth = read_truth(truth_file)
        check_truth(truth)
        assert said["simulated"] is True
        assert "simulated" in said["device"]
        assert [thread["launches"] for thread in said["threads"]] == [1009] * 4
        launches = truth.named("cuLaunchKernel")
        assert Counter(call.tid for call in launches) == {thread["tid"]: 1009 for thread in said["threads"]}
        assert len({call.op for call in launches}) == 4 * 1009
        assert sum(op.kind == "kernel" for op in truth.ops.values()) == 4 * 1009
        assert len(truth.named("cuStreamSynchronize")) == 4 * (1009 // 97 + 1)
        assert len(truth.named("cudaLaunchKernel")) == (4 * 1009 if api == "runtime" else 0)
        assert all(call.arguments["grid"] == [7, 5, 3] for call in launches)
        for thread in said["threads"]:
            own = [call for call in launches if call.tid == thread["tid"]]
            assert thread["begin_ns"] <= own[0].begin_ns <= own[-1].end_ns <= thread["end_ns"]

    def test_a_rate_is_kept(self, library: SimCuda) -> None:
        command: list[str | Path] = [library.workload, "--launches", "2003", "--rate", "20000", "--kernel-ns", "0"]
        run = subprocess.run(command, env=library.environment(), capture_output=True, timeout=60, check=True)
        thread = json.loads(run.stdout)["threads"][0]
        assert 0.09 < (thread["end_ns"] - thread["begin_ns"]) / 1e9 < 2

    def test_truth_of_a_killed_process_is_read(self, library: SimCuda, tmp_path: Path) -> None:
        truth_file = tmp_path / "truth.jsonl"
        command: list[str | Path] = [library.workload, "--launches", "1000003", "--rate", "10000"]
        process = subprocess.Popen(command, env=library.environment(truth=truth_file))
        deadline = time.monotonic() + 20
        while (not truth_file.exists() or truth_file.stat().st_size < 10_000) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        truth = read_truth(truth_file)
        assert truth.pid == process.pid
        assert len(truth.named("cuLaunchKernel")) > 10


class TestServer:
    @pytest.mark.parametrize("options", [[], ["--graph"], ["--wait", "spin"]], ids=lambda x: "".join(x) or "plain")
    def test_requests_tokens_and_calls(self, library: SimCuda, tmp_path: Path, options: list[str]) -> None:
        truth_file = tmp_path / "truth.jsonl"
        command = library.server_command("--requests", "3", "--tokens", "5", "--launches", "11", *options)
        run = subprocess.run(
            command, env=library.environment(truth=truth_file), capture_output=True, timeout=60, check=True
        )
        said, truth = json.loads(run.stdout), read_truth(truth_file)
        check_truth(truth)
        assert said["simulated"] is True
        # The program's own count of calls against the simulated device's.
        assert said["calls"] == dict(sorted(Counter(call.name for call in truth.calls).items()))
        notes = Counter(note.what for note in truth.notes)
        assert notes["mark.request_begin"] == notes["mark.request_end"] == notes["host.respond"] == 3
        assert notes["mark.token"] == notes["host.sample"] == 3 * 5
        assert notes["mark.send"] == notes["mark.receive"] == 9
        assert notes["mark.step_begin"] == notes["mark.step_end"] == said["steps"]
        tokens = [(note.request, note.values["arguments"][0]) for note in truth.notes if note.what == "mark.token"]
        assert sorted(tokens) == [(f"req-{i}", j) for i in (1, 2, 3) for j in (1, 2, 3, 4, 5)]
        assert all(note.values["cpu_ns"] >= 53_000 for note in truth.notes if note.what.startswith("host."))

    def test_its_marks_reach_the_kernel(self, library: SimCuda, tmp_path: Path) -> None:
        """Every mark it notes is a system call of the same thread: see mark_capture.py."""
        truth_file = tmp_path / "truth.jsonl"
        capture = HERE.parent / "core/mark_capture.py"
        command = [sys.executable, str(capture), *library.server_command("--requests", "2", "--tokens", "3")]
        run = subprocess.run(
            command, env=library.environment(truth=truth_file), capture_output=True, timeout=120, check=True
        )
        made = [json.loads(line) for line in run.stdout.splitlines()]
        steps_have_members = {"step_begin": ["step_begin", "step_members"]}
        notes = [note for note in read_truth(truth_file).notes if note.what.startswith("mark.")]
        noted = Counter(
            (note.tid, name) for note in notes for name in steps_have_members.get(note.what[5:], [note.what[5:]])
        )
        names = "request_begin request_end step_begin step_end step_members phase_begin phase_end token bind_thread"
        ops = dict(enumerate([*names.split(), "unbind_thread", "send", "receive", "attribute"], 1))
        assert Counter((line["tid"], ops[bytes.fromhex(line["mark"])[0]]) for line in made) == noted
        assert noted.total() > 40

    def test_runs_with_the_standard_library_alone(self, library: SimCuda, tmp_path: Path) -> None:
        copy = shutil.copy(mark.__file__, tmp_path / "vendored.py")
        command: list[str | Path] = [
            sys.executable,
            "-S",
            "-I",
            library.server,
            "--libcuda",
            library.libcuda,
            "--mark",
            copy,
        ]
        command += ["--requests", "1"]
        run = subprocess.run(command, env=library.environment(), capture_output=True, timeout=60, check=False)
        assert (run.returncode, run.stderr) == (0, b"")


class TestBuild:
    def test_no_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "no-such-compiler -O2")
        with pytest.raises(MachineError, match="needs a C compiler, and there is no no-such-compiler") as caught:
            simcuda.build(tmp_path)
        assert "apt-get install gcc" in caught.value.remedy

    def test_a_compiler_that_refuses(self, tmp_path: Path) -> None:
        with pytest.raises(MachineError, match="the compiler refused the simulated CUDA library"):
            simcuda.build(tmp_path, flags=["-no-such-flag"])

    def test_environment(self, library: SimCuda) -> None:
        base = {"LD_LIBRARY_PATH": "/opt/x", "SIMCUDA_WAIT": "spin", "HOME": "/h"}
        assert library.environment(base=base, fail="cuInit:3:1") == {
            "LD_LIBRARY_PATH": f"{library.folder}:/opt/x", "HOME": "/h", "SIMCUDA_FAIL": "cuInit:3:1",
        }  # fmt: skip
