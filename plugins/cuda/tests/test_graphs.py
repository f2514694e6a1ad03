# SPDX-License-Identifier: Apache-2.0
"""Graphs: what a launch runs, from captures and from nodes added one by one."""

from __future__ import annotations

from typing import Any

import pytest
from plugins.cuda.tests.story import Edge, Name, Run, Story

from fencepath_cuda import operations
from fencepath_cuda.events import NodeKind
from fencepath_cuda.events.operation import OperationKind

S1, S2, S3, E1, E2 = 0x5100, 0x5200, 0x5300, 0xE100, 0xE200
G1, G2, X1, X2 = 0x6100, 0x6200, 0xA100, 0xA200


class Building(Story):
    """A story whose calls follow one another."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1

    def then(self, kind: str, **columns: Any) -> int:
        """Tell the next call; it takes 5 ns."""
        self.now += 10
        return self.call(kind, self.now, self.now + 5, **columns)

    def node(self, graph: int, node: int, *before: int, kind: NodeKind = NodeKind.KERNEL, **columns: int) -> int:
        """Add a node; the handles of those before it are known up to the fourth."""
        handles = {f"dependency_{place}": handle for place, handle in enumerate(before[:4])}
        known = {"node_kind": int(kind), "dependencies": len(before), **handles, **columns}
        return self.then("cuda.graph.node", graph=graph, node=node, **known)

    def launch(self, graph: int, stream: int = S1, graph_exec: int = X1) -> int:
        """Instantiate a graph and launch it."""
        self.then("cuda.graph.instantiate", graph=graph, graph_exec=graph_exec)
        return self.then("cuda.graph.launch", graph_exec=graph_exec, stream=stream)


def nodes(run: Run, launch: int) -> list[int]:
    """The calls that made the nodes a launch ran; -1 for one operation of which no nodes are known."""
    return sorted(name[1] for name in run.names if len(name) == 2 and name[0] == launch)


def order(run: Run, launch: int) -> list[tuple[int, int]]:
    """Pairs of such calls, in the order of the nodes."""
    return [(edge.cause[1], edge.effect[1]) for edge in run.edges("cuda.graph_order") if edge.cause[0] == launch]


def start(cause: Name, effect: Name, confidence: str = "bounded") -> Edge:
    return Edge(cause, effect, "finish_start", confidence)


class TestCapture:
    def test_what_is_captured_runs_when_the_graph_is_launched(self) -> None:
        story = Building()
        ran = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_begin", stream=S1)
        first = story.then("cuda.launch", stream=S1)
        other = story.then("cuda.launch", stream=S2)
        second = story.then("cuda.memcpy.async", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        launch = story.launch(G1)
        again = story.then("cuda.graph.launch", graph_exec=X1, stream=S2)
        run = story.run()
        assert nodes(run, launch) == nodes(run, again) == [first, second]
        assert order(run, launch) == order(run, again) == [(first, second)]
        assert run.edges("cuda.stream_order") == [
            start((ran, -1), (launch, first)),
            start((other, -1), (again, first)),
        ]
        assert [run.operation(launch, maker).node for maker in (first, second)] == [0, 1]
        kinds = [run.operation(launch, maker).operation for maker in (first, second)]
        assert kinds == [OperationKind.KERNEL, OperationKind.COPY]

    def test_streams_that_fork_and_join_are_captured_with_it(self) -> None:
        story = Building()
        story.then("cuda.graph.capture_begin", stream=S1)
        first = story.then("cuda.launch", stream=S1)
        story.then("cuda.event.record", event=E1, stream=S1)
        story.then("cuda.stream.wait_event", event=E1, stream=S2)
        story.then("cuda.event.record", event=E2, stream=S2)
        story.then("cuda.stream.wait_event", event=E2, stream=S3)
        left, middle, right = (story.then("cuda.launch", stream=stream) for stream in (S1, S2, S3))
        story.then("cuda.event.record", event=E1, stream=S2)
        story.then("cuda.stream.wait_event", event=E1, stream=S1)
        story.then("cuda.event.record", event=E2, stream=S3)
        story.then("cuda.stream.wait_event", event=E2, stream=S1)
        joined = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        after = story.then("cuda.launch", stream=S2)
        launch = story.launch(G1)
        run = story.run()
        assert nodes(run, launch) == [first, left, middle, right, joined]
        branches = (left, middle, right)
        assert order(run, launch) == sorted([*((first, one) for one in branches), *((one, joined) for one in branches)])
        assert nodes(run, after) == [-1]
        assert run.edges("cuda.stream_wait_event") == []

    def test_leaves_of_one_launch_come_before_roots_of_the_next(self) -> None:
        story = Building()
        story.then("cuda.graph.capture_begin", stream=S1)
        story.then("cuda.event.record", event=E1, stream=S1)
        story.then("cuda.stream.wait_event", event=E1, stream=S2)
        one, other = (story.then("cuda.launch", stream=stream) for stream in (S1, S2))
        story.then("cuda.event.record", event=E1, stream=S2)
        story.then("cuda.stream.wait_event", event=E1, stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        first = story.launch(G1)
        second = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        wait = story.then("cuda.stream.synchronize", stream=S1)
        run = story.run()
        pairs = [(a, b) for a in (one, other) for b in (one, other)]
        assert run.edges("cuda.stream_order") == [start((first, a), (second, b)) for a, b in pairs]
        ended = [Edge((second, maker), (wait,), "finish_finish", "bounded") for maker in (one, other)]
        assert run.edges("cuda.stream_synchronize") == ended

    def test_a_captured_launch_of_a_graph_is_that_graph_as_a_child(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        inner = [story.node(G1, 0x91), story.node(G1, 0x92, 0x91)]
        story.then("cuda.graph.instantiate", graph=G1, graph_exec=X1)
        story.then("cuda.graph.capture_begin", stream=S1)
        before = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.launch", stream=S1, graph_exec=X1)
        after = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G2)
        launch = story.launch(G2, graph_exec=X2)
        run = story.run()
        assert order(run, launch) == sorted([(before, inner[0]), (inner[0], inner[1]), (inner[1], after)])

    def test_one_that_failed_to_end_made_no_graph(self) -> None:
        story = Building()
        story.then("cuda.graph.capture_begin", stream=S1)
        story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, result=901)
        ran = story.then("cuda.launch", stream=S1)
        run = story.run()
        assert [name for name in run.names if len(name) == 2] == [(ran, -1)]

    def test_one_that_adds_to_a_graph_leaves_in_it_what_was_there(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        there = story.node(G1, 0x91)
        story.then("cuda.graph.capture_begin", stream=S1, graph=G1)
        captured = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        launch = story.launch(G1)
        assert nodes(story.run(), launch) == [there, captured]

    @pytest.mark.parametrize("replaced", [False, True])
    def test_what_a_node_waits_for_can_be_replaced(self, replaced: bool) -> None:
        story = Building()
        story.then("cuda.graph.capture_begin", stream=S1)
        first = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_update", stream=S1, dependencies=1, dependency_0=0x99, replaced=replaced)
        second = story.then("cuda.launch", stream=S1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        launch = story.launch(G1)
        assert order(story.run(), launch) == ([] if replaced else [(first, second)])

    def test_an_external_record_is_a_node_and_joins_no_stream(self) -> None:
        story = Building()
        story.then("cuda.graph.capture_begin", stream=S1)
        kernel = story.then("cuda.launch", stream=S1)
        record = story.then("cuda.event.record", event=E1, stream=S1, event_flags=1)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        launch = story.launch(G1)
        wait = story.then("cuda.stream.wait_event", event=E1, stream=S2)
        query = story.then("cuda.event.query", event=E1)
        run = story.run()
        assert order(run, launch) == [(kernel, record)]
        assert run.edges("cuda.stream_wait_event") == [start((launch, record), (wait, -1))]
        assert run.edges("cuda.event_query") == [Edge((launch, record), (query,), "finish_finish", "bounded")]

    def test_a_wait_for_what_an_external_record_will_record_runs(self) -> None:
        story = Building()
        record = story.then("cuda.event.record", event=E1, stream=S3)
        story.then("cuda.graph.capture_begin", stream=S1)
        story.then("cuda.event.record", event=E1, stream=S1, event_flags=1)
        wait = story.then("cuda.stream.wait_event", event=E1, stream=S2)
        story.then("cuda.graph.capture_end", stream=S1, graph=G1)
        assert story.run().edges("cuda.stream_wait_event") == [start((record, -1), (wait, -1))]


class TestBuilding:
    def test_nodes_and_their_dependencies(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first, second = story.node(G1, 0x91), story.node(G1, 0x92)
        third = story.node(G1, 0x93, 0x91, 0x92, kind=NodeKind.MEMSET)
        fourth = story.node(G1, 0x94)
        story.then("cuda.graph.dependency", graph=G1, dependencies=1, from_0=0x93, to_0=0x94)
        launch = story.launch(G1)
        run = story.run()
        assert order(run, launch) == [(first, third), (second, third), (third, fourth)]
        assert run.label(launch, third) == "memory set"

    def test_a_dependency_on_a_node_added_later_turns_the_order(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first, second = story.node(G1, 0x91), story.node(G1, 0x92)
        story.then("cuda.graph.dependency", graph=G1, dependencies=1, from_0=0x92, to_0=0x91)
        launch = story.launch(G1)
        run = story.run()
        assert order(run, launch) == [(second, first)]
        assert [run.operation(launch, maker).node for maker in (second, first)] == [0, 1]

    @pytest.mark.parametrize("count", [1, 5])
    def test_dependencies_can_be_taken_away(self, count: int) -> None:
        """Of more than four it is not known which: none is claimed any more."""
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first, second, third = story.node(G1, 0x91), story.node(G1, 0x92, 0x91), story.node(G1, 0x93, 0x91)
        ends = {"from_0": 0x91, "to_0": 0x92}
        story.then("cuda.graph.dependency", graph=G1, dependencies=count, removed=1, **ends)
        launch = story.launch(G1)
        run = story.run()
        assert nodes(run, launch) == [first, second, third]
        assert order(run, launch) == ([(first, third)] if count == 1 else [])

    def test_a_node_can_be_taken_out(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first, _, third = story.node(G1, 0x91), story.node(G1, 0x92, 0x91), story.node(G1, 0x93, 0x92, 0x91)
        story.then("cuda.graph.node.destroy", node=0x92)
        launch = story.launch(G1)
        run = story.run()
        assert (nodes(run, launch), order(run, launch)) == ([first, third], [(first, third)])

    def test_a_child_is_copied_when_it_is_added(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G2)
        inner = [story.node(G2, 0x81), story.node(G2, 0x82, 0x81)]
        story.then("cuda.graph.create", graph=G1)
        before = story.node(G1, 0x91)
        story.node(G1, 0x92, 0x91, kind=NodeKind.CHILD_GRAPH, child_graph=G2)
        after = story.node(G1, 0x93, 0x92)
        story.node(G2, 0x83)
        launch = story.launch(G1)
        assert order(story.run(), launch) == sorted([(before, inner[0]), (inner[0], inner[1]), (inner[1], after)])

    def test_a_clone_goes_its_own_way(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first = story.node(G1, 0x91)
        story.then("cuda.graph.clone", graph=G1, clone=G2)
        second = story.node(G1, 0x92, 0x91)
        third = story.node(G2, 0x93)
        one, other = story.launch(G1), story.launch(G2, graph_exec=X2)
        run = story.run()
        assert (nodes(run, one), nodes(run, other)) == ([first, second], [first, third])

    def test_calls_that_failed_build_nothing(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first = story.node(G1, 0x91)
        story.then("cuda.graph.node", graph=G1, node_kind=0, result=1)
        launch = story.launch(G1)
        assert nodes(story.run(), launch) == [first]

    def test_an_empty_graph_is_no_operation_and_one_of_which_nothing_is_known_is_one(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        empty, unknown = story.launch(G1), story.launch(G2, graph_exec=X2)
        run = story.run()
        assert (nodes(run, empty), nodes(run, unknown)) == ([], [-1])
        assert run.operation(unknown).operation == OperationKind.GRAPH

    def test_a_graph_that_was_destroyed_is_not_the_next_one_with_its_handle(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        story.node(G1, 0x91)
        story.then("cuda.graph.destroy", graph=G1)
        launch = story.launch(G1)
        assert nodes(story.run(), launch) == [-1]


class TestExec:
    def test_it_runs_what_the_graph_was_when_it_was_made(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        first = story.node(G1, 0x91)
        launch = story.launch(G1)
        second = story.node(G1, 0x92)
        again = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        story.then("cuda.graph.update", graph_exec=X1, graph=G1, result=910)
        failed = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        story.then("cuda.graph.update", graph_exec=X1, graph=G1)
        updated = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        run = story.run()
        assert [nodes(run, one) for one in (launch, again, failed, updated)] == [*[[first]] * 3, [first, second]]

    def test_a_handle_handed_out_again_is_another(self) -> None:
        story = Building()
        for graph, node in ((G1, 0x91), (G2, 0x92)):
            story.then("cuda.graph.create", graph=graph)
            story.node(graph, node)
        first = story.launch(G1, S1)
        story.then("cuda.graph.exec.destroy", graph_exec=X1)
        between = story.then("cuda.graph.launch", graph_exec=X1, stream=S2)
        second = story.launch(G2, S2)
        run = story.run()
        assert nodes(run, first) != nodes(run, second)
        assert nodes(run, between) == [-1]
        assert run.edges("cuda.graph_exec") == []

    def test_launches_of_one_never_run_at_once(self) -> None:
        story = Building()
        first = story.launch(G1, S1)
        second = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        third = story.then("cuda.graph.launch", graph_exec=X1, stream=S2)
        story.launch(G1, S3, X2)
        run = story.run()
        assert run.edges("cuda.graph_exec") == [start((second, -1), (third, -1))]
        assert start((first, -1), (second, -1)) in run.edges("cuda.stream_order")

    def test_where_instantiations_were_lost_it_may_be_another(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        node = story.node(G1, 0x91)
        first = story.launch(G1)
        story.lose("cuda.graph.instantiate", story.now + 6, story.now + 7)
        second = story.then("cuda.graph.launch", graph_exec=X1, stream=S2)
        run = story.run()
        assert (nodes(run, first), nodes(run, second)) == ([node], [-1])
        assert run.edges("cuda.graph_exec") == []


class TestCudaEvents:
    def test_a_node_records_one_when_the_graph_is_launched(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        kernel = story.node(G1, 0x91)
        record = story.node(G1, 0x92, 0x91, kind=NodeKind.EVENT_RECORD, event=E1)
        launch = story.launch(G1)
        wait = story.then("cuda.event.synchronize", event=E1)
        run = story.run()
        assert order(run, launch) == [(kernel, record)]
        assert run.edges("cuda.event_synchronize") == [Edge((launch, record), (wait,), "finish_finish", "bounded")]
        assert run.label(launch, record) == "event record"

    def test_a_node_waits_for_a_record_made_before_the_launch_and_not_for_one_of_its_own(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        wait = story.node(G1, 0x91, kind=NodeKind.EVENT_WAIT, event=E1)
        record = story.node(G1, 0x92, 0x91, kind=NodeKind.EVENT_RECORD, event=E1)
        first = story.launch(G1, S1)
        second = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        run = story.run()
        # Of two records in one launch and before it, it is not sure which one is meant.
        assert run.edges("cuda.stream_wait_event") == [start((first, record), (second, wait), "inferred")]
        assert run.counts("cuda.stream_wait_event") == (1, 1)

    def test_one_that_a_node_was_changed_to_record_is_never_sure(self) -> None:
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        record = story.node(G1, 0x92, kind=NodeKind.EVENT_RECORD, event=E1)
        story.then("cuda.graph.params", node=0x92, event=E2)
        launch = story.launch(G1)
        wait = story.then("cuda.event.synchronize", event=E1)
        expected = [Edge((launch, record), (wait,), "finish_finish", "inferred")]
        assert story.run().edges("cuda.event_synchronize") == expected


class TestLimits:
    def test_beyond_so_many_nodes_a_launch_stays_one_operation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operations, "MOST_NODES", 3)
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        made = [story.node(G1, 0x91), story.node(G1, 0x92, kind=NodeKind.EVENT_RECORD, event=E1)]
        first = story.launch(G1)
        second = story.then("cuda.graph.launch", graph_exec=X1, stream=S1)
        wait = story.then("cuda.event.synchronize", event=E1)
        run = story.run()
        assert (nodes(run, first), nodes(run, second)) == (made, [-1])
        # The second launch recorded the CUDA event too, though it has no node that says so.
        assert run.edges("cuda.event_synchronize") == [Edge((first, made[1]), (wait,), "finish_finish", "inferred")]

    def test_one_with_many_first_and_last_nodes_does_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operations, "MOST_PAIRS", 3)
        story = Building()
        story.then("cuda.graph.create", graph=G1)
        for node in (0x91, 0x92):
            story.node(G1, node)
        launch = story.launch(G1)
        assert nodes(story.run(), launch) == [-1]
