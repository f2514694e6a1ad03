# SPDX-License-Identifier: Apache-2.0
"""Graphs: captured and made, launched node by node with the dependencies that they have."""

from __future__ import annotations

import pytest
from tests.simcuda.truths import Interpret, by_call, edges, only, overlap, results

from fencepath_cuda.simcuda.truth import Op, Truth

START = """
ctx_create c0 0 0
stream_create s0 1 0
stream_create s1 1 0
stream_create s2 1 0
event_create e0 2
event_create e1 2
"""


def run_one(interpret: Interpret, steps: str) -> tuple[Truth, list[int]]:
    run = interpret([START + steps])[0]
    assert run.truth is not None
    return run.truth, results(run)[START.count("\n") - 1 :]


def launched(truth: Truth) -> list[list[Op]]:
    """Return the operations of each graph launch."""
    return [ops for ops in by_call(truth.ops.values()) if ops[0].launch]


FORK = """
begin s0 0
launch s0 1000000
record e0 s0
wait s1 e0 0
launch s1 3000000
launch s0 2000000
record e1 s1
wait s0 e1 0
launch s0 1000000
end s0 g0
instantiate x0 g0 0
"""


class TestCapture:
    def test_streams_fork_and_join(self, interpret: Interpret) -> None:
        truth, found = run_one(interpret, FORK + "graph_launch x0 s2\nlaunch s2 1000\nstream_sync s2")
        assert not any(found)
        (ops,) = launched(truth)
        root, left, right, joined = ops  # events make no nodes
        assert [op.node for op in ops] == [0, 1, 2, 3]
        assert [op.made_by for op in ops] == [call.number for call in truth.named("cuLaunchKernel")[:4]]
        assert edges(root) == set()
        assert edges(left) == edges(right) == {(root.id, "graph")}
        assert edges(joined) == {(left.id, "graph"), (right.id, "graph")}
        assert overlap(left, right)
        assert joined.start_ns == max(left.end_ns, right.end_ns)
        after = truth.ops[joined.id + 1]
        assert edges(after) == {(joined.id, "stream")}
        assert {op.stream for op in ops} == {after.stream}  # that of the launch, not those captured

    def test_what_was_captured_did_not_run(self, interpret: Interpret) -> None:
        truth, _ = run_one(interpret, FORK)
        assert truth.ops == {}
        captured = truth.named("cuLaunchKernel")
        assert [(call.op, call.arguments["graph"], call.arguments["node"]) for call in captured] == [
            (None, 1, 0), (None, 1, 1), (None, 1, 2), (None, 1, 3),
        ]  # fmt: skip
        end = only(truth.named("cuStreamEndCapture"))
        assert (end.arguments["graph"], end.arguments["nodes"]) == (1, 4)

    def test_leaves_are_what_a_stream_goes_on_after(self, interpret: Interpret) -> None:
        truth, _ = run_one(
            interpret,
            """
            launch s0 1000
            graph_create g0
            graph_kernel g0 n0 1000
            graph_kernel g0 n1 2000000
            graph_kernel g0 n2 1000 n0
            instantiate x0 g0 0
            graph_launch x0 s0
            launch s0 1000
            stream_sync s0
            graph_launch x0 s0
            stream_sync s0
            """,
        )
        before, zero, one, two, after = list(truth.ops.values())[:5]
        assert edges(zero) == edges(one) == {(before.id, "stream")}
        assert edges(after) == {(one.id, "stream"), (two.id, "stream")}
        assert set(truth.named("cuStreamSynchronize")[1].waited_for) == {7, 8}

    def test_kinds(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            """
            alloc b0 4096
            alloc_host h0 4096
            begin s0 0
            htod_async b0 h0 4096 s0
            memset_async b0 3 101 s0
            host s0 1000
            write_value s0 b0 5
            wait_value s0 b0 5
            alloc_async b1 512 s0
            free_async b1 s0
            record_flags e0 s0 1
            wait s0 e1 1
            dtoh_async h0 b0 17 s0
            end s0 g0
            instantiate x0 g0 0
            graph_launch x0 s0
            graph_launch x0 s0
            stream_sync s0
            """,
        )
        assert not any(found)
        first, second = launched(truth)
        kinds = [
            "memcpy_htod", "memset", "host_func", "write_value", "wait_value", "mem_alloc", "mem_free", "event_record",
            "wait_event", "memcpy_dtoh",
        ]  # fmt: skip
        assert [op.kind for op in first] == [op.kind for op in second] == kinds
        assert [op.bytes for op in first] == [4096, 101, 0, 0, 0, 512, 0, 0, 0, 17]
        assert edges(first[4]) == {(first[3].id, "graph"), (first[3].id, "value")}
        assert first[7].event == only(truth.named("cuEventRecordWithFlags")).arguments["event"]


class TestExplicit:
    NODES = """
    alloc b0 4096
    graph_create g0
    graph_kernel g0 n0 1000000
    graph_kernel g0 n1 2000000 n0
    graph_memset g0 n2 b0 3 64 n0
    graph_copy g0 n3 b0 pageable 256
    graph_host g0 n4 1000 n1 n2
    graph_empty g0 n5 n4
    graph_record g0 n6 e0 n5
    graph_wait g0 n7 e1 n5
    graph_depend g0 n3 n4
    """

    def test_nodes_and_dependencies(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            self.NODES + "instantiate_with x0 g0 0\nrecord e1 s1\ngraph_launch x0 s0\nevent_sync e0\nctx_sync",
        )
        assert not any(found)
        (ops,) = launched(truth)
        by_node = {op.node: op for op in ops}
        kinds = ["kernel", "kernel", "memset", "memcpy_htod", "host_func", "empty", "event_record", "wait_event"]
        assert [by_node[i].kind for i in range(8)] == kinds
        ids = {node: op.id for node, op in by_node.items()}
        inside = {node: {edge.op for edge in op.after if edge.why == "graph"} for node, op in by_node.items()}
        after = {0: (), 1: (0,), 2: (0,), 3: (), 4: (1, 2, 3), 5: (4,), 6: (5,), 7: (5,)}
        assert inside == {node: {ids[other] for other in others} for node, others in after.items()}
        made = [call for call in truth.calls if "node_handle" in call.arguments]
        assert [by_node[call.arguments["node"]].made_by for call in made] == [call.number for call in made]
        assert (ids[7] and truth.named("cuEventRecord")[0].op) in {
            edge.op for edge in by_node[7].after if edge.why == "event"
        }
        assert only(truth.named("cuEventSynchronize")).waited_for == (ids[6],)  # as the graph recorded it

    def test_child_graphs(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            """
            graph_create g0
            graph_kernel g0 n0 1000
            graph_kernel g0 n1 1000
            graph_create g1
            graph_kernel g1 n2 1000
            graph_child g1 n3 g0 n2
            graph_child g1 n4 g0 n3
            graph_create g3
            graph_child g3 n7 g1
            instantiate x0 g3 0
            graph_launch x0 s0
            ctx_sync
            """,
        )
        assert not any(found)
        (ops,) = launched(truth)
        places = {op.id: (op.path, op.node) for op in ops}
        assert sorted(places.values()) == [((0,), 0), ((0, 1), 0), ((0, 1), 1), ((0, 2), 0), ((0, 2), 1)]
        last = [op for op in ops if op.path == (0, 2)]
        assert all({places[edge.op] for edge in op.after} == {((0, 1), 0), ((0, 1), 1)} for op in last)
        made = truth.named("cuGraphAddKernelNode_v2")
        assert {op.made_by for op in last} == {made[0].number, made[1].number}

    def test_edges_that_go_back_and_cycles(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            """
            graph_create g0
            graph_kernel g0 n0 1000
            graph_kernel g0 n1 1000
            graph_depend g0 n1 n0
            instantiate x0 g0 0
            graph_launch x0 s0
            graph_depend g0 n0 n1
            instantiate x1 g0 0
            ctx_sync
            """,
        )
        assert found == [0, 0, 0, 0, 0, 0, 0, 1, 0]
        assert [op.node for op in truth.ops.values()] == [1, 0]

    def test_lanes_order_nothing_that_the_graph_does_not(self, interpret: Interpret) -> None:
        width, depth = 5, 3
        steps = ["graph_create g0"]
        for level in range(depth):
            for i in range(width):
                after = f"n{(level - 1) * width + i}" if level else ""
                steps.append(f"graph_kernel g0 n{level * width + i} {1000000 + 100000 * i} {after}")
        steps += ["instantiate x0 g0 0", "graph_launch x0 s0", "ctx_sync"]
        truth, _ = run_one(interpret, "\n".join(steps))
        rows = [
            [op for op in truth.ops.values() if op.node == i + level * width]
            for i in range(width)
            for level in range(depth)
        ]
        assert all(len(row) == 1 for row in rows)
        first = [op for op in truth.ops.values() if op.node is not None and op.node < width]
        assert all(overlap(a, b) for a in first for b in first)


class TestExecutable:
    def test_launches_of_one_do_not_overlap(self, interpret: Interpret) -> None:
        truth, _ = run_one(interpret, FORK + "graph_launch x0 s0\ngraph_launch x0 s1\ngraph_launch x0 s0\nctx_sync")
        first, second, third = launched(truth)
        assert edges(second[0]) == {(first[3].id, "exec")}
        # The third comes after the first on its stream, which says less.
        assert edges(third[0]) == {(first[3].id, "stream"), (second[3].id, "exec")}
        assert second[0].start_ns == first[3].end_ns
        assert third[0].start_ns == second[3].end_ns

    def test_update(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            """
            graph_create g0
            graph_kernel g0 n0 1000
            graph_kernel g0 n1 2000 n0
            instantiate x0 g0 0
            graph_create g1
            graph_kernel g1 n2 3000
            graph_kernel g1 n3 4000 n2
            update x0 g1
            graph_create g2
            graph_kernel g2 n4 1000
            graph_kernel g2 n5 1000
            update x0 g2
            graph_empty g2 n6 n5
            update x0 g2
            graph_launch x0 s0
            set_kernel x0 n1 5000
            set_kernel x0 n3 6000
            graph_launch x0 s0
            ctx_sync
            """,
        )
        assert [found[i] for i in (7, 11, 13, 15, 16)] == [0, 910, 910, 0, 1]
        first, second = launched(truth)
        assert [op.end_ns - op.start_ns for op in first] == [3000, 4000]
        assert [op.end_ns - op.start_ns for op in second] == [3000, 5000]
        made = truth.named("cuGraphAddKernelNode_v2")
        assert [op.made_by for op in first] == [made[2].number, made[3].number]  # as the update has it

    def test_destroyed_while_it_runs(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret, FORK + "graph_launch x0 s0\nexec_destroy x0\ngraph_destroy g0\nstream_destroy s0\nctx_sync"
        )
        assert not any(found)
        assert len(truth.ops) == 4
        assert only([call for call in truth.named("cuCtxSynchronize") if call.waited_for][:1]).waited_for == (4,)

    def test_an_empty_graph(self, interpret: Interpret) -> None:
        truth, found = run_one(
            interpret,
            "launch s0 1000\ngraph_create g0\ninstantiate x0 g0 0\ngraph_launch x0 s0\nlaunch s0 1000\nstream_sync s0",
        )
        assert not any(found)
        assert edges(truth.ops[2]) == {(1, "stream")}
        assert only(truth.named("cuGraphLaunch")).arguments["ops"] == 0

    def test_legacy_stream(self, interpret: Interpret) -> None:
        truth, _ = run_one(
            interpret, FORK + "stream_create s3 0 0\nlaunch s3 5000000\ngraph_launch x0 null\nlaunch s3 1000\nctx_sync"
        )
        before, *ops, after = truth.ops.values()
        assert edges(ops[0]) == {(before.id, "legacy")}
        assert edges(after) == {(before.id, "stream"), (ops[3].id, "legacy")}

    @pytest.mark.parametrize("suffix", ["", "_ptsz"])
    def test_per_thread(self, interpret: Interpret, suffix: str) -> None:
        prefix = "ptsz " if suffix else ""
        truth, found = run_one(
            interpret, f"{prefix}begin own 0\n{prefix}launch own 1000\n{prefix}end own g0\ninstantiate x0 g0 0\n"
            f"{prefix}graph_launch x0 own\n{prefix}stream_sync own"
        )  # fmt: skip
        assert not any(found)
        assert only(truth.named(f"cuGraphLaunch{suffix}")).arguments["stream"] == truth.ops[1].stream
        assert truth.ops[1].handle == 2
