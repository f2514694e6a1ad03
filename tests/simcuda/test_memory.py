# SPDX-License-Identifier: Apache-2.0
"""Pools, managed memory, values in memory, and what happens to what is freed."""

from __future__ import annotations

from collections.abc import Callable

from tests.simcuda.truths import Interpret, edges, only, results

from fencepath_cuda.simcuda.truth import Truth

START = "ctx_create c0 0 0\nstream_create s0 1 0\nstream_create s1 1 0\n"


def run_one(interpret: Interpret, steps: str) -> tuple[Truth, list[int]]:
    run = interpret([START + steps])[0]
    assert run.truth is not None
    return run.truth, results(run)[3:]


def test_pools_work_in_the_stream_s_order(interpret: Interpret) -> None:
    truth, found = run_one(
        interpret,
        """
        pool_create p0 1
        launch s0 2000000
        alloc_async b0 4096 s0
        alloc_from b1 512 p0 s1
        memset_async b0 1 4096 s0
        free_async b0 s0
        pool_destroy p0
        free_async b1 s1
        pool_create p0 0
        pool_trim p0 0
        pool_create p1 9
        ctx_sync
        """,
    )
    assert found == [0] * 10 + [1, 0]
    assert [op.kind for op in truth.ops.values()] == [
        "kernel", "mem_alloc", "mem_alloc", "memset", "mem_free", "mem_free",
    ]  # fmt: skip
    assert [op.bytes for op in truth.ops.values()] == [0, 4096, 512, 4096, 0, 0]
    assert truth.ops[4].start_ns >= truth.ops[1].end_ns
    assert [call.arguments["pool"] for call in truth.named("cuMemPoolCreate") if not call.result] == [1, 2]


def test_freeing_waits_and_freeing_asynchronously_does_not(interpret: Interpret) -> None:
    truth, _ = run_one(
        interpret,
        "alloc b0 64\nalloc_async b1 64 s0\nlaunch s0 20000000\nfree_async b1 s0\nlaunch s1 5000000\nfree b0\nctx_sync",
    )
    assert only(truth.named("cuMemFreeAsync")).end_ns < truth.ops[2].end_ns
    assert set(only(truth.named("cuMemFree_v2")).waited_for) == {3, 4}


def test_memory_in_use_is_freed_later(interpret: Interpret) -> None:
    """A wrong program does no harm: what an operation still touches stays."""
    truth, found = run_one(
        interpret,
        """
        alloc_async b0 65536 s0
        stream_sync s0
        launch s1 5000000
        memset_async b0 1 65536 s1
        free_async b0 s0
        stream_sync s0
        alloc_async b1 65536 s0
        ctx_sync
        """,
    )
    assert not any(found)
    assert [op.kind for op in truth.ops.values()][-1] == "mem_alloc"


def test_managed_memory(interpret: Interpret) -> None:
    truth, found = run_one(
        interpret,
        "alloc_managed b0 8192\nalloc b1 64\nprefetch b0 8192 s0\nprefetch b1 64 s0\nmemset_async b0 1 8192 s0\n"
        "copy b1 b0 64\nfree_async b0 s0\nfree b0\nctx_sync",
    )
    assert found == [0, 0, 0, 1, 0, 0, 801, -1, 0]
    prefetch = only([call for call in truth.named("cuMemPrefetchAsync_v2") if call.op])
    assert truth.ops[prefetch.op or 0].bytes == 8192


def test_values_order_streams(interpret: Interpret) -> None:
    truth, _ = run_one(
        interpret,
        """
        alloc b0 64
        memset_async b0 0 64 s0
        ctx_sync
        wait_value s0 b0 7
        launch s0 1000
        launch s1 3000000
        write_value s1 b0 7
        stream_sync s0
        wait_value s1 b0 6
        ctx_sync
        """,
    )
    waits = [op for op in truth.ops.values() if op.kind == "wait_value"]
    write = next(op for op in truth.ops.values() if op.kind == "write_value")
    assert waits[0].id < write.id  # the one dependency on what is submitted later
    assert (write.id, "value") in edges(waits[0])
    assert waits[0].end_ns == write.end_ns
    assert truth.ops[waits[0].id + 1].start_ns == write.end_ns
    assert (write.id, "value") in edges(waits[1])


def test_values_written_by_the_host(program: Callable[..., Truth]) -> None:
    truth = program("""
        import time
        start()
        s, host = stream(1), new("cuMemHostAlloc", 64, 0)
        value = ctypes.c_uint32.from_address(host.value)
        value.value = 0
        library.cuStreamWaitValue32_v2.argtypes = [HANDLE, c_uint64, c_uint, c_uint]
        call("cuStreamWaitValue32_v2", s, host.value, 3, 1)
        launch("after", 1000, s)
        time.sleep(0.01)
        assert result("cuStreamQuery", s) == NOT_READY
        value.value = 3
        call("cuStreamSynchronize", s)
    """)
    wait, after = truth.ops.values()
    assert wait.after == ()
    assert wait.end_ns - wait.start_ns > 9_000_000
    assert after.start_ns == wait.end_ns


def test_each_unit_that_is_set(program: Callable[..., Truth]) -> None:
    program("""
        start()
        memory = c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(memory), 64)
        library.cuMemsetD32Async.argtypes = [c_uint64, c_uint, c_size_t, HANDLE]
        call("cuMemsetD32Async", memory, 0x04030201, 3, None)
        back = ctypes.create_string_buffer(12)
        call("cuMemcpyDtoH_v2", back, memory, 12)
        assert back.raw == bytes([1, 2, 3, 4]) * 3
    """)
