# SPDX-License-Identifier: Apache-2.0
"""Contexts and devices: each has its own streams, and the truth says which a call worked on."""

from __future__ import annotations

from tests.simcuda.truths import Interpret, edges, only, results

from fencepath_cuda.simcuda.programs import Program
from fencepath_cuda.simcuda.truth import Truth


def run_one(interpret: Interpret, program: Program | str) -> tuple[Truth, list[int]]:
    run = interpret([program])[0]
    assert run.truth is not None
    return run.truth, results(run)


def test_each_has_its_own_default_streams(interpret: Interpret) -> None:
    truth, _ = run_one(
        interpret,
        """
        ctx_create c0 0 0
        stream_create s0 0 0
        ctx_create c1 1 0
        stream_create s1 0 0
        launch s1 20000000
        launch null 1000
        launch own 1000
        ctx_set c0
        launch null 1000
        launch own 1000
        ctx_sync
        ctx_set c1
        ctx_sync
        """,
    )
    ops = list(truth.ops.values())
    assert [op.context for op in ops] == [2, 2, 2, 1, 1]
    assert [op.handle for op in ops[1:]] == [1, 2, 1, 2]
    assert len({op.stream for op in ops}) == 5
    assert edges(ops[1]) == {(1, "legacy")}  # blocking streams of its own context
    assert ops[1].start_ns >= ops[0].end_ns
    assert {edge.op for op in ops[3:] for edge in op.after} <= {4}
    first, second = truth.named("cuCtxSynchronize")[:2]
    assert (first.context, set(first.waited_for)) == (1, {4, 5})  # waits for the current one only
    assert (second.context, set(second.waited_for)) == (2, {1, 2, 3})
    assert first.end_ns < ops[0].end_ns


def test_a_given_context_is_waited_for(interpret: Interpret) -> None:
    truth, _ = run_one(
        interpret,
        "ctx_create c0 0 0\nlaunch null 1000\nctx_create c1 0 0\nlaunch null 1000\nctx_sync_of c0\nctx_sync_of c1",
    )
    assert [(call.context, call.waited_for) for call in truth.named("cuCtxSynchronize_v2")] == [(1, (1,)), (2, (2,))]


def test_stack(interpret: Interpret) -> None:
    truth, _ = run_one(
        interpret,
        "ctx_create c0 0 0\nctx_create c1 0 0\nctx_create_v2 c2 1 4\nctx_pop\nctx_sync\nctx_push c0\nctx_sync\nctx_set c2\nctx_sync",
    )
    assert [call.context for call in truth.named("cuCtxSynchronize")[:3]] == [2, 1, 3]
    assert [call.context for call in truth.named("cuCtxCreate_v4", "cuCtxCreate_v2")] == [1, 2, 3]
    assert only(truth.named("cuCtxPopCurrent_v2")).context == 3


def test_a_handle_is_given_out_again_and_the_number_is_not(interpret: Interpret) -> None:
    truth, found = run_one(
        interpret,
        """
        ctx_create c0 0 0
        stream_create s0 1 0
        launch s0 3000000
        ctx_destroy c0
        ctx_create c1 0 0
        stream_sync s0
        stream_create s1 1 0
        launch s1 1000
        """,
    )
    assert found[5:] == [400, 0, 0]  # its streams are gone with it
    created = truth.named("cuCtxCreate_v4")
    assert created[0].context_handle == created[1].context_handle
    assert [call.context for call in created] == [1, 2]
    destroyed = only(truth.named("cuCtxDestroy_v2"))
    assert (destroyed.context, destroyed.waited_for) == (1, (1,))
    assert [(op.context, op.handle) for op in truth.ops.values()] == [
        (1, truth.ops[1].handle),
        (2, truth.ops[1].handle),
    ]


def test_a_primary_context_keeps_its_handle(interpret: Interpret) -> None:
    truth, found = run_one(
        interpret,
        """
        primary_release 1
        primary_retain c0 1
        primary_retain c1 1
        ctx_set c0
        launch null 1000
        primary_release 1
        launch null 1000
        primary_release 1
        launch null 1000
        primary_retain c0 1
        launch null 1000
        primary_reset 1
        launch null 1000
        """,
    )
    assert found == [201, 0, 0, 0, 0, 0, 0, 0, 709, 0, 0, 0, 709]
    retained = truth.named("cuDevicePrimaryCtxRetain")
    assert [call.context for call in retained] == [1, 1, 2]
    assert len({call.context_handle for call in retained}) == 1
    assert [op.context for op in truth.ops.values()] == [1, 1, 2]


def test_events_and_copies_cross_contexts(interpret: Interpret) -> None:
    truth, found = run_one(
        interpret,
        """
        ctx_create c0 0 0
        stream_create s0 1 0
        event_create e0 2
        alloc b0 4096
        launch s0 5000000
        record e0 s0
        ctx_create c1 1 0
        stream_create s1 1 0
        alloc b1 4096
        wait s1 e0 0
        launch s1 1000
        record e0 s1
        peer_async b1 c1 b0 c0 4096 s1
        stream_sync s1
        stream_sync s0
        """,
    )
    assert found[-4:] == [400, 0, 0, 0]  # an event is recorded in its own context
    wait = next(op for op in truth.ops.values() if op.kind == "wait_event")
    assert edges(wait) == {(2, "event")}
    assert truth.ops[wait.id + 1].start_ns == truth.ops[1].end_ns
    peer = next(op for op in truth.ops.values() if op.kind == "memcpy_peer")
    assert (peer.context, peer.bytes) == (2, 4096)
    # A call works on the stream's context, whichever is current.
    assert only([call for call in truth.named("cuStreamSynchronize") if call.context == 1]).waited_for == (2,)


def test_as_many_devices_as_asked_for(interpret: Interpret) -> None:
    program = "\n".join(f"ctx_create c{i} {i} 0" for i in range(4))
    for devices, expected in ((None, [0, 0, 101, 101]), ("3", [0, 0, 0, 101])):
        environment = {"SIMCUDA_DEVICES": devices} if devices else None
        assert results(interpret([program], environment=environment)[0]) == expected


def test_threads_have_contexts_of_their_own(interpret: Interpret) -> None:
    program = Program()
    program.add("ctx_create", "c0", 0, 0).add("ctx_create", "c1", 0, 0).add("barrier", 0)
    for thread in (0, 1, 2):
        steps = program.on(thread)
        if thread:
            steps.add("barrier", 0).add("ctx_set", f"c{thread - 1}")
        steps.add("barrier", 1).add("launch", "null", 1000).add("ptsz launch", "null", 1000).add("ctx_sync")
    truth, _ = run_one(interpret, program)
    launches = truth.named("cuLaunchKernel", "cuLaunchKernel_ptsz")
    assert sorted(call.context or 0 for call in launches) == [1, 1, 2, 2, 2, 2]
    own = {(op.context, op.stream) for op in truth.ops.values() if op.handle == 2}
    assert len(own) == 3
    assert len({(op.context, op.stream) for op in truth.ops.values() if op.handle == 1}) == 2
