# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs: what each executable graph consists of at each time, from captures and from nodes added one by one."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from fencepath.events import Batch
from fencepath.joins import Events
from fencepath_cuda.captures import Captures
from fencepath_cuda.drafts import ADDED, SINGLE, Draft, Graph, Place
from fencepath_cuda.lost import Lost
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import SUBMITTING, Rows

__all__ = ["Graphs"]

_LAUNCH = SUBMITTING.index("cuda.graph.launch")
_READ = 4
"""How many dependencies of a node are recorded by handle."""


class _Exec(msgspec.Struct, frozen=True):
    """What an executable graph is from some time on.

    Attributes:
        number: which of the known graphs, 0 if it is not known.
        instance: number of the instantiation, 0 if it is not known.
        since: see :class:`Draft`.
    """

    number: int
    instance: int
    since: int


_NONE = _Exec(0, 0, 0)

_Handle = tuple[int, int]
"""Process entity and handle."""


class Graphs:
    """All graphs of a run.

    Attributes:
        known: distinct graphs; the first is :data:`SINGLE`.
    """

    def __init__(self, events: Events, rows: Rows, captures: Captures) -> None:
        self.known: list[Graph] = [SINGLE]
        self._numbers: dict[int, int] = {}
        self._rows = rows
        self._captures = {capture: (nodes, edges) for capture, nodes, edges in captures.nodes()}
        self._drafts: dict[_Handle, Draft] = {}
        self._times: dict[_Handle, list[int]] = defaultdict(list)
        self._execs: dict[_Handle, list[_Exec]] = defaultdict(list)
        self._instances = 0
        self._launched = events.batch("cuda.graph.launch")["graph_exec"]
        self._lost = Lost(events, *_HANDLES)
        changes = self._changes()
        for time_ns, kind, row in sorted([*_calls(events, changes), *_captured(captures)]):
            if kind == "capture":
                self._take_capture(captures, row)
            else:
                changes[kind](events.batch(kind), row, time_ns)

    def _changes(self) -> Mapping[str, Callable[[Batch, int, int], None]]:
        """What each kind of call does to graphs."""
        return {
            "cuda.graph.create": self._create,
            "cuda.graph.destroy": self._destroy,
            "cuda.graph.clone": self._clone,
            "cuda.graph.node": self._add_node,
            "cuda.graph.node.destroy": self._remove_node,
            "cuda.graph.dependency": self._depend,
            "cuda.graph.instantiate": self._instantiate,
            "cuda.graph.update": self._update,
            "cuda.graph.exec.destroy": self._destroy_exec,
        }

    def launched(self, process: Ints, launch: Ints, begin: Ints) -> tuple[Ints, Ints]:
        """Return which of :attr:`known` each graph launch runs, and the number of the executable graph; 0: not known.

        Args:
            process: of each launch.
            launch: row of each in the batch of ``cuda.graph.launch``.
            begin: when each was called.
        """
        handles = self._launched[launch].tolist()
        calls = zip(process.tolist(), handles, begin.tolist(), strict=True)
        found = [self._as_of((owner, handle), at) for owner, handle, at in calls]
        number, instance, since = (
            np.array([getattr(one, name) for one in found], np.int64) for name in _Exec.__struct_fields__
        )
        kept = ~self._lost.between(since, begin)
        return number * kept, instance * kept

    def _as_of(self, key: _Handle, time_ns: int) -> _Exec:
        at = bisect_right(self._times.get(key, []), time_ns) - 1
        return self._execs[key][at] if at >= 0 else _NONE

    def _take_capture(self, captures: Captures, capture: int) -> None:
        nodes, edges = self._captures.get(capture, ([], []))
        key = int(captures.process[capture]), int(captures.graph[capture])
        draft = self._drafts.get(key) if captures.adds[capture] else None
        draft = draft or Draft(int(captures.begin[capture]))
        ends: list[Place] = []
        before: dict[int, list[int]] = defaultdict(list)
        for cause, effect in edges:
            before[effect].append(cause)
        for place, row in enumerate(nodes):
            causes = [node for cause in before[place] for node in ends[cause].leaves]
            ends.append(draft.add(self._captured_node(draft, row), causes))
        self._drafts[key] = draft

    def _captured_node(self, draft: Draft, row: int) -> Graph:
        """A captured call as a graph: a launch of a graph is that graph as a child."""
        code, place = int(self._rows.code[row]), int(self._rows.row[row])
        if code == _LAUNCH:
            known = self._as_of((int(self._rows.process[row]), int(self._launched[place])), int(self._rows.begin[row]))
            if known.number:
                draft.since = min(draft.since, known.since)
                return self.known[known.number]
        return Graph.one(code, place)

    def _draft(self, batch: Batch, row: int, column: str = "graph") -> Draft | None:
        return self._drafts.get(_handle(batch, row, column))

    def _create(self, batch: Batch, row: int, time_ns: int) -> None:
        self._drafts[_handle(batch, row, "graph")] = Draft(time_ns)

    def _destroy(self, batch: Batch, row: int, time_ns: int) -> None:
        del time_ns
        self._drafts.pop(_handle(batch, row, "graph"), None)

    def _clone(self, batch: Batch, row: int, time_ns: int) -> None:
        del time_ns
        original = self._draft(batch, row)
        if original is not None:
            self._drafts[_handle(batch, row, "clone")] = original.copy()

    def _add_node(self, batch: Batch, row: int, time_ns: int) -> None:
        del time_ns
        draft, child = self._draft(batch, row), self._draft(batch, row, "child_graph")
        if draft is None:
            return
        count = min(_READ, int(batch["dependencies"][row]))
        before = draft.last_of(int(batch[f"dependency_{place}"][row]) for place in range(count))
        if child is not None:
            draft.since = min(draft.since, child.since)
        node = child.freeze() if child is not None else Graph.one(ADDED, row)
        draft.add(node, before, int(batch["node"][row]))

    def _remove_node(self, batch: Batch, row: int, time_ns: int) -> None:
        del time_ns
        owner, node = _handle(batch, row, "node")
        for (process, _), draft in self._drafts.items():
            if process == owner and draft.has(node):
                draft.remove(node)

    def _depend(self, batch: Batch, row: int, time_ns: int) -> None:
        del time_ns
        draft, count, removed = self._draft(batch, row), int(batch["dependencies"][row]), bool(batch["removed"][row])
        if draft is None:
            return
        if removed and count > _READ:
            draft.disconnect_all()
            return
        change = draft.disconnect if removed else draft.connect
        for place in range(min(_READ, count)):
            change(int(batch[f"from_{place}"][row]), int(batch[f"to_{place}"][row]))

    def _instantiate(self, batch: Batch, row: int, time_ns: int) -> None:
        self._instances += 1
        self._set_exec(batch, row, time_ns, self._instances, time_ns)

    def _update(self, batch: Batch, row: int, time_ns: int) -> None:
        before = self._as_of(_handle(batch, row, "graph_exec"), time_ns)
        self._set_exec(batch, row, time_ns, before.instance, before.since if before.instance else time_ns)

    def _set_exec(self, batch: Batch, row: int, time_ns: int, instance: int, since: int) -> None:
        draft, key = self._draft(batch, row), _handle(batch, row, "graph_exec")
        self._times[key].append(time_ns)
        number = self._number(draft.freeze()) if draft else 0
        self._execs[key].append(_Exec(number, instance, min(since, draft.since) if draft else since))

    def _destroy_exec(self, batch: Batch, row: int, time_ns: int) -> None:
        key = _handle(batch, row, "graph_exec")
        self._times[key].append(time_ns)
        self._execs[key].append(_NONE)

    def _number(self, graph: Graph) -> int:
        number = self._numbers.get(id(graph))
        if number is None:
            number = self._numbers[id(graph)] = len(self.known)
            self.known.append(graph)
        return number


def _handle(batch: Batch, row: int, column: str) -> _Handle:
    return int(batch["process"][row]), int(batch[column][row])


_HANDLES = (
    "cuda.graph.create",
    "cuda.graph.destroy",
    "cuda.graph.clone",
    "cuda.graph.capture_end",
    "cuda.graph.instantiate",
    "cuda.graph.update",
)
"""Kinds without which a graph may be taken for another."""


def _calls(events: Events, kinds: Iterable[str]) -> Iterable[tuple[int, str, int]]:
    """Time, kind and row of every call that changed a graph and did not fail."""
    for kind in kinds:
        calls = Rows.read(events, kind)
        yield from ((int(calls.end[row]), kind, row) for row in np.flatnonzero(calls.done).tolist())


def _captured(captures: Captures) -> Iterable[tuple[int, str, int]]:
    made = np.flatnonzero(captures.graph != 0)
    yield from ((int(captures.end[capture]), "capture", capture) for capture in made.tolist())
