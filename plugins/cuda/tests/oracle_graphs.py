# SPDX-License-Identifier: Apache-2.0
"""What graphs consist of, told with nothing but loops over captures and calls that build graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from plugins.cuda.tests.oracle_names import NEVER, SUBMITTING, Handle, Names, last
from plugins.cuda.tests.story import Call

RECORD, WAIT_EVENT = "cuda.event.record", "cuda.stream.wait_event"
BUILDING = (
    "cuda.graph.create",
    "cuda.graph.destroy",
    "cuda.graph.clone",
    "cuda.graph.node",
    "cuda.graph.node.destroy",
    "cuda.graph.dependency",
    "cuda.graph.instantiate",
    "cuda.graph.update",
    "cuda.graph.exec.destroy",
    "cuda.graph.capture_end",
)
GRAPH_HANDLES = (
    "cuda.graph.create",
    "cuda.graph.destroy",
    "cuda.graph.clone",
    "cuda.graph.capture_end",
    "cuda.graph.instantiate",
    "cuda.graph.update",
)


class Node:
    """One node; equal to itself only. `handle` is 0 where it is not known."""

    def __init__(self, maker: Call, handle: int = 0) -> None:
        self.maker, self.handle = maker, handle


class Graph:
    """Nodes, and pairs of them of which the second waits for the first."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.nodes: list[Node] = []
        self.edges: set[tuple[Node, Node]] = set()
        self.children: dict[int, tuple[list[Node], list[Node], list[Node]]] = {}
        """By handle of a node what it stands for, one node or all of a child graph: all, the first and the last of them."""

    def first(self, among: Iterable[Node]) -> list[Node]:
        mine = list(among)
        return [node for node in mine if not any(e is node and c in mine for c, e in self.edges)]

    def last(self, among: Iterable[Node]) -> list[Node]:
        mine = list(among)
        return [node for node in mine if not any(c is node and e in mine for c, e in self.edges)]

    def name(self, handle: int, added: list[Node]) -> None:
        self.children[handle] = added, self.first(added), self.last(added)

    def first_of(self, handle: int) -> list[Node]:
        return self.children[handle][1] if handle in self.children else []

    def last_of(self, handle: int) -> list[Node]:
        return self.children[handle][2] if handle in self.children else []

    def insert(self, other: Graph) -> list[Node]:
        """Add a copy of another graph."""
        copies = {node: Node(node.maker) for node in other.nodes}
        self.nodes += copies.values()
        self.edges |= {(copies[cause], copies[effect]) for cause, effect in other.edges}
        self.since = min(self.since, other.since)
        return [*copies.values()]

    def connect(self, causes: Iterable[Node], effects: Iterable[Node]) -> None:
        effects = list(effects)
        self.edges |= {(cause, effect) for cause in causes for effect in effects}

    def copy(self) -> Graph:
        other = Graph(self.since)
        other.insert(self)
        return other

    def without(self, gone: Iterable[Node]) -> None:
        lost = set(gone)
        self.nodes = [node for node in self.nodes if node not in lost]
        self.edges = {(cause, effect) for cause, effect in self.edges if not {cause, effect} & lost}


class Exec:
    """What an executable graph runs: None if it is not known; `instance` is 0 if that is not known."""

    def __init__(self, graph: Graph | None, instance: int, since: int) -> None:
        self.graph, self.instance, self.since = graph, instance, since


class Capture:
    """One capture: where and when it began, and how it ended."""

    def __init__(self, begin: Call, end: Call | None) -> None:
        self.begin, self.end = begin, end
        self.until = end.end if end else NEVER


ENDED, ILLEGAL_STATE = (901, 904, 908), 401
"""Results of cuStreamEndCapture: the capture ended without a graph; there was none."""


def _ends(end: Call) -> bool:
    return end.done or (end.returned and end.result in ENDED)


class Captures:
    """Which calls were captured."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.all = [self._capture(call) for call in names.of("cuda.graph.capture_begin") if call.ok and call.stream]
        self._windows = [(names.stream(one.begin), one.begin.begin, one) for one in self.all]
        for unbegun in list(self._unbegun()):
            self._windows.append((names.stream(unbegun.begin), unbegun.begin.begin, unbegun))
        while joins := list(self._joins()):
            self._windows += joins

    def _capture(self, begin: Call) -> Capture:
        ends = self._names.of("cuda.graph.capture_end")
        mine = (end for end in ends if self._names.stream(end) == self._names.stream(begin) and end.begin > begin.begin)
        return Capture(begin, next(mine, None))

    def _unbegun(self) -> Iterator[Capture]:
        """Captures that were ended and not begun: begun when their streams were last known to be in none."""
        ends = [end for end in self._names.of("cuda.graph.capture_end") if end.stream]
        waits = [wait for wait in self._names.of("cuda.stream.synchronize") if wait.stream and wait.done]
        for end in ends:
            if not _ends(end):
                continue
            stream = self._names.stream(end)
            apart = [each for each in ends if _ends(each) or (each.returned and each.result == ILLEGAL_STATE)] + waits
            before = [each.end for each in apart if self._names.stream(each) == stream and each.end <= end.begin]
            since = max(before, default=0)
            begun = [one.begin.begin for one in self.all if self._names.stream(one.begin) == stream]
            if not any(since <= begin <= end.begin for begin in begun):
                yield Capture(msgspec.structs.replace(end, begin=since), self._first_end(stream, since))

    def _first_end(self, stream: Handle | None, since: int) -> Call | None:
        ends = [end for end in self._names.of("cuda.graph.capture_end") if self._names.stream(end) == stream]
        return min((end for end in ends if end.begin > since), key=lambda end: end.begin, default=None)

    def of(self, call: Call) -> Capture | None:
        """The capture that a call on a stream falls in."""
        stream = self._names.stream(call)
        mine = [window for window in self._windows if window[0] == stream and window[1] <= call.begin]
        found = max(mine, key=lambda window: window[1], default=None)
        return found[2] if found and found[2].until >= call.begin else None

    def _joins(self) -> Iterator[tuple[Handle | None, int, Capture]]:
        """Streams that were told to wait for a CUDA event that was recorded in a capture are captured from then on."""
        for wait in self._names.of(WAIT_EVENT):
            if not wait.ok or not wait.stream or _external(wait) or self.of(wait):
                continue
            record = self._record_before(wait)
            capture = self.of(record) if record else None
            if capture and capture.until >= wait.begin:
                yield self._names.stream(wait), wait.begin, capture

    def _record_before(self, wait: Call) -> Call | None:
        event = self._names.event(wait)
        records = (each for each in self._names.of(RECORD) if each.ok and each.stream and not _external(each))
        return last(each for each in records if event and self._names.event(each) == event and each.begin <= wait.begin)

    def steps(self, capture: Capture) -> list[Call]:
        kinds = (*SUBMITTING, "cuda.graph.capture_update")
        return [call for call in self._names.of(*kinds) if call.ok and call.stream and self.of(call) is capture]


class Graphs:
    """What every launch of a graph ran."""

    def __init__(self, names: Names, captures: Captures) -> None:
        self._names = names
        self._captures = captures
        self._drafts: dict[Handle, Graph] = {}
        self._execs: dict[Handle, list[tuple[int, Exec]]] = {}
        self._instances = 0
        for call in names.done(*BUILDING):
            getattr(self, call.kind.removeprefix("cuda.graph.").replace(".", "_"))(call)

    def launched(self, launch: Call) -> Exec:
        """What a launch runs."""
        found = self._as_of(launch, launch.begin)
        unknown = self._names.lost(found.since, launch.begin, *GRAPH_HANDLES)
        return Exec(None, 0, 0) if unknown else found

    def _as_of(self, call: Call, time: int) -> Exec:
        history = self._execs.get((call.pid, call.get("graph_exec")), [])
        return last(one for at, one in history if at <= time) or Exec(None, 0, 0)

    def capture_end(self, call: Call) -> None:
        for capture in self._captures.all:
            if capture.end is call:
                self._capture(capture, call)

    def _capture(self, capture: Capture, end: Call) -> None:
        key = end.pid, end.get("graph")
        into = self._drafts.get(key) if capture.begin.get("graph") else None
        graph = into or Graph(capture.begin.begin)
        before: dict[Handle | None, set[Node]] = {}
        carried: dict[Handle | None, set[Node]] = {}
        for call in self._captures.steps(capture):
            stream, event = self._names.stream(call), self._names.event(call)
            if call.kind == "cuda.graph.capture_update":
                before[stream] = set() if call.get("replaced") else before.get(stream, set())
            elif call.kind == RECORD and not _external(call):
                carried[event] = set(before.get(stream, ()))
            elif call.kind == WAIT_EVENT and not _external(call):
                before[stream] = before.get(stream, set()) | carried.get(event, set())
            else:
                added = self._captured(graph, call)
                graph.connect(before.get(stream, ()), graph.first(added))
                before[stream] = set(graph.last(added))
        self._drafts[key] = graph

    def _captured(self, graph: Graph, call: Call) -> list[Node]:
        child = self._as_of(call, call.begin) if call.kind == "cuda.graph.launch" else Exec(None, 0, 0)
        if child.graph and child.graph.nodes:
            graph.since = min(graph.since, child.since)
            return graph.insert(child.graph)
        node = Node(call)
        graph.nodes.append(node)
        return [node]

    def create(self, call: Call) -> None:
        self._drafts[call.pid, call.get("graph")] = Graph(call.end)

    def destroy(self, call: Call) -> None:
        self._drafts.pop((call.pid, call.get("graph")), None)

    def clone(self, call: Call) -> None:
        original = self._drafts.get((call.pid, call.get("graph")))
        if original:
            self._drafts[call.pid, call.get("clone")] = original.copy()

    def node(self, call: Call) -> None:
        graph = self._drafts.get((call.pid, call.get("graph")))
        child = self._drafts.get((call.pid, call.get("child_graph")))
        if graph is None:
            return
        before: list[Node] = []
        for place in range(min(4, call.get("dependencies"))):
            before += graph.last_of(call.get(f"dependency_{place}"))
        added = graph.insert(child) if child else [Node(call)]
        graph.nodes += [] if child else added
        graph.name(call.get("node"), added)
        graph.connect(before, graph.first_of(call.get("node")))

    def node_destroy(self, call: Call) -> None:
        for key, graph in self._drafts.items():
            if key[0] == call.pid:
                graph.without(graph.children.pop(call.get("node"), ([], [], []))[0])

    def dependency(self, call: Call) -> None:
        graph, count = self._drafts.get((call.pid, call.get("graph"))), call.get("dependencies")
        if graph is None:
            return
        if call.get("removed") and count > 4:
            graph.edges = set()
            return
        for place in range(min(4, count)):
            before, after = call.get(f"from_{place}"), call.get(f"to_{place}")
            pairs = {(c, e) for c in graph.last_of(before) for e in graph.first_of(after)}
            graph.edges = graph.edges - pairs if call.get("removed") else graph.edges | pairs

    def instantiate(self, call: Call) -> None:
        self._instances += 1
        self._set(call, self._instances, call.end)

    def update(self, call: Call) -> None:
        before = self._as_of(call, call.end)
        self._set(call, before.instance, before.since if before.instance else call.end)

    def _set(self, call: Call, instance: int, since: int) -> None:
        draft = self._drafts.get((call.pid, call.get("graph")))
        copy = draft.copy() if draft else None
        one = Exec(copy, instance, min(since, copy.since) if copy else since)
        self._execs.setdefault((call.pid, call.get("graph_exec")), []).append((call.end, one))

    def exec_destroy(self, call: Call) -> None:
        self._execs.setdefault((call.pid, call.get("graph_exec")), []).append((call.end, Exec(None, 0, 0)))


def _external(call: Call) -> bool:
    return bool(call.get("event_flags") & 1)
