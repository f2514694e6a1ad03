# SPDX-License-Identifier: Apache-2.0
"""What a CUDA graph consists of, and graphs that are being built."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import SUBMITTING

__all__ = ["ADDED", "SINGLE", "Draft", "Graph", "Place"]

ADDED = len(SUBMITTING)
"""Code of a node that was added by a call of its own, after those of the kinds that can be captured."""


_NOTHING, _FIRST = np.empty(0, np.int64), np.zeros(1, np.int64)


class Graph(msgspec.Struct, frozen=True):
    """What a graph does each time it is launched.

    Attributes:
        code: position in SUBMITTING of the kind of the call that made each node, or :data:`ADDED`.
        row: row of that call in its kind's batch.
        cause, effect: edges, by position of the node; a cause comes before its effect.
        roots: nodes that wait for no other.
        leaves: nodes that no other waits for.
    """

    code: Ints
    row: Ints
    cause: Ints
    effect: Ints
    roots: Ints
    leaves: Ints

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def one(cls, code: int, row: int) -> Graph:
        """Make a graph of one node."""
        return cls(np.array([code]), np.array([row]), _NOTHING, _NOTHING, _FIRST, _FIRST)

    @classmethod
    def of(cls, nodes: Iterable[tuple[int, int]], edges: Iterable[tuple[int, int]]) -> Graph:
        """Make a graph of (code, row) and of edges by position, in any order."""
        listed = list(nodes)
        place = _topological(len(listed), list(edges))
        order = sorted(range(len(listed)), key=lambda node: place[node])
        pairs = sorted({(place[cause], place[effect]) for cause, effect in edges})
        cause, effect = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
        every = np.arange(len(listed))
        return cls(
            code=np.array([listed[node][0] for node in order], np.int64),
            row=np.array([listed[node][1] for node in order], np.int64),
            cause=cause,
            effect=effect,
            roots=np.setdiff1d(every, effect),
            leaves=np.setdiff1d(every, cause),
        )


def _topological(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """The place of each node in an order in which causes come first; as given where that already holds."""
    if all(cause < effect for cause, effect in edges):
        return list(range(count))
    waiting = [0] * count
    after: dict[int, list[int]] = defaultdict(list)
    for cause, effect in edges:
        waiting[effect] += 1
        after[cause].append(effect)
    ready = [node for node in range(count) if not waiting[node]]
    place = [count] * count
    for number, node in enumerate(ready):
        place[node] = number
        for effect in after[node]:
            waiting[effect] -= 1
            if not waiting[effect]:
                ready.append(effect)
    return place


SINGLE = Graph.one(-1, -1)
"""Stands for an operation that is no graph, or a graph of which nothing is known."""


class Place(msgspec.Struct, frozen=True):
    """Where a graph is that was added to another: positions of its nodes, and of those it begins and ends with."""

    members: range
    roots: list[int]
    leaves: list[int]


class Draft:
    """A graph that is being built.

    Attributes:
        since: when handles began to matter for what it is, CLOCK_MONOTONIC in ns.
    """

    def __init__(self, since: int) -> None:
        self.since = since
        self._nodes: list[tuple[int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._gone: set[int] = set()
        self._by_handle: dict[int, Place] = {}
        self._frozen: Graph | None = None

    def add(self, graph: Graph, before: Iterable[int], handle: int = 0) -> Place:
        """Add a graph as one node that waits for others."""
        first = len(self._nodes)
        self._nodes += zip(graph.code.tolist(), graph.row.tolist(), strict=True)
        inner = zip(graph.cause.tolist(), graph.effect.tolist(), strict=True)
        self._edges += [(first + cause, first + effect) for cause, effect in inner]
        roots, leaves = ([first + node for node in ends.tolist()] for ends in (graph.roots, graph.leaves))
        self._edges += [(cause, root) for cause in before for root in roots]
        self._frozen = None
        place = Place(range(first, len(self._nodes)), roots, leaves)
        if handle:
            self._by_handle[handle] = place
        return place

    def connect(self, cause: int, effect: int) -> None:
        """Add a dependency between nodes, by handle, as far as both are known."""
        self._edges += self._between(cause, effect)
        self._frozen = None

    def disconnect(self, cause: int, effect: int) -> None:
        """Take a dependency away."""
        gone = set(self._between(cause, effect))
        self._edges = [edge for edge in self._edges if edge not in gone]
        self._frozen = None

    def disconnect_all(self) -> None:
        """Forget all dependencies: some were taken away, and it is not known which."""
        self._edges = []
        self._frozen = None

    def remove(self, handle: int) -> None:
        """Take a node out, with its dependencies."""
        self._gone |= {*self._by_handle.pop(handle).members}
        self._frozen = None

    def _between(self, cause: int, effect: int) -> list[tuple[int, int]]:
        if cause not in self._by_handle or effect not in self._by_handle:
            return []
        return [(c, e) for c in self._by_handle[cause].leaves for e in self._by_handle[effect].roots]

    def has(self, handle: int) -> bool:
        return handle in self._by_handle

    def last_of(self, handles: Iterable[int]) -> list[int]:
        return [node for handle in handles if handle in self._by_handle for node in self._by_handle[handle].leaves]

    def copy(self) -> Draft:
        """Return a clone, whose nodes have other handles."""
        other = Draft(self.since)
        other.add(self.freeze(), ())
        return other

    def freeze(self) -> Graph:
        if self._frozen is None:
            kept = [node for node in range(len(self._nodes)) if node not in self._gone]
            place = {node: number for number, node in enumerate(kept)}
            edges = [(place[c], place[e]) for c, e in self._edges if c in place and e in place]
            self._frozen = Graph.of([self._nodes[node] for node in kept], edges)
        return self._frozen
