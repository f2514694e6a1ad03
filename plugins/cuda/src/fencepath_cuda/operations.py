# SPDX-License-Identifier: Apache-2.0
"""What was put on streams, in submission order: the ground that all rules of order stand on.

A call that names a stream, did not fail as far as is known and was not captured into a graph submits one *item*. An item
is one operation of the device, or, if it is the launch of a graph whose nodes are known, one operation a node. What the
device did with them is not observed; all that follows comes from the calls and CUDA's rules.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_cuda.captures import Captures
from fencepath_cuda.drafts import ADDED
from fencepath_cuda.events import NodeKind
from fencepath_cuda.graphs import Graphs
from fencepath_cuda.ordered import Ints, Ordered, most_so_far, ranges
from fencepath_cuda.rows import FOREVER, RECORD, SUBMITTING, SYNCHRONIZING, WAIT_EVENT, Mask, Rows

__all__ = ["MOST_NODES", "Operations", "Records"]

MOST_NODES = 2_000_000
"""Operations that launches of graphs become in all; launches beyond that stay one operation each."""
MOST_PAIRS = 4096
"""First times last nodes of a graph whose launches are expanded: as many edges lead from one launch to the next."""

INTERPROCESS = 4
"""CU_EVENT_INTERPROCESS of cuda.h."""

_LAUNCH = SUBMITTING.index("cuda.graph.launch")
_RECORD, _WAIT = SUBMITTING.index(RECORD), SUBMITTING.index(WAIT_EVENT)


class Records(msgspec.Struct, frozen=True):
    """Records of CUDA events, sorted by CUDA event and time.

    Attributes:
        operation: that makes the record.
        item: that it is of; of a node, the launch of its graph.
        alone: whether all records of the CUDA event that were begun before had come back when it began.
        as_of: their order.
        other: order of records that name no stream, such as those of a whole context.
        other_until: until when those and the ones before of the same CUDA event were still being made.
    """

    operation: Ints
    item: Ints
    alone: Mask
    as_of: Ordered
    other: Ordered
    other_until: Ints

    def before(self, event: Ints, time_ns: Ints, *, strictly: bool = False) -> Ints:
        """Return where each CUDA event's last record begun by a time is, -1 for none."""
        return self.as_of.last(event, time_ns, before=strictly)

    def elsewhere(self, event: Ints, begin: Ints, end: Ints) -> Mask:
        """Whether each CUDA event may have been recorded between two times without a stream."""
        if not len(self.other_until):
            return np.zeros(len(event), np.bool_)
        at = self.other.last(event, end, before=True)
        return np.asarray((at >= 0) & (self.other_until[at] > begin))


class Operations:
    """All operations of a run.

    A wait for a CUDA event of which no record is known puts nothing on its stream that could be followed, and with a CUDA
    event never recorded it puts nothing there at all; it is counted and left out.

    Attributes:
        items: the calls, sorted by stream and begin.
        by_stream: their order; position i is item i.
        records: of CUDA events.
        graph: which of ``graphs.known`` each item runs, 0 for what is one operation.
        first: first operation of each item.
        item: item of each operation.
        node: position of each operation in its graph, -1 if its item is one operation.
        shared: CUDA events that others record too: another process, or graphs in a way that is not followed.
        captured: how many calls went into graphs instead.
        unbound: how many waits for a CUDA event found no record of it.
        unexpanded: how many launches of known graphs stayed one operation.
    """

    def __init__(self, events: Events) -> None:
        # The waits are there for when their thread had come back from the call before.
        rows = Rows.read(events, *SUBMITTING, *SYNCHRONIZING)
        rows = rows.keep(rows.ok & (rows.code < len(SUBMITTING)))
        placeless = rows.keep((rows.stream == NO_ENTITY) & (rows.code == _RECORD) & (rows.event != NO_ENTITY))
        rows = rows.keep(rows.stream != NO_ENTITY)
        captures = Captures(events, rows)
        self.graphs = Graphs(events, rows, captures)
        run = captures.of_row < 0
        self.captured = int(np.count_nonzero(~run))
        rows = rows.keep(run) if self.captured else rows
        graph, cut = self._graphs_of(rows)
        empty = np.array([not len(known) for known in self.graphs.known])[graph]
        rows, graph = (rows.keep(~empty), graph[~empty]) if empty.any() else (rows, graph)
        unfollowed = [self._events_of(events, number, _RECORD) for number in cut]
        bound = self._bound(events, rows, graph)
        self.unbound = int(np.count_nonzero(~bound))
        rows, graph = (rows.keep(bound), graph[bound]) if self.unbound else (rows, graph)
        self.by_stream = Ordered(rows.stream, rows.begin)
        self.items, self.graph = rows.keep(self.by_stream.order), graph[self.by_stream.order]
        sizes = np.array([len(known) for known in self.graphs.known], np.int64)[self.graph]
        self.first = np.cumsum(sizes) - sizes
        self.item = np.repeat(np.arange(len(self.items)), sizes)
        self.node = np.where(self.graph[self.item] > 0, ranges(sizes), -1)
        self.records = self._records(events, placeless)
        self.shared = np.concatenate([_shared(events), *unfollowed])

    def __len__(self) -> int:
        return len(self.item)

    def _graphs_of(self, rows: Rows) -> tuple[Ints, list[int]]:
        """Which graph each call runs; the earliest launches are expanded, as far as there is room. And which were not."""
        graph = np.zeros(len(rows), np.int64)
        launches = np.flatnonzero(rows.code == _LAUNCH)
        launches = launches[np.argsort(rows.begin[launches], kind="stable")]
        of, _ = self.graphs.launched(rows.process[launches], rows.row[launches], rows.begin[launches])
        known = self.graphs.known
        sizes = np.array([len(graph) for graph in known], np.int64)[of] * (of > 0)
        pairs = np.array([len(graph.roots) * len(graph.leaves) for graph in known], np.int64)[of]
        cut = ((np.cumsum(sizes) > MOST_NODES) | (pairs > MOST_PAIRS)) & (of > 0)
        self.unexpanded = int(np.count_nonzero(cut))
        graph[launches] = np.where(cut, 0, of)
        return graph, np.unique(of[cut]).tolist()

    def _bound(self, events: Events, rows: Rows, graph: Ints) -> Mask:
        """Which calls put something on their stream that can be followed: all but waits without a record."""
        bound = np.ones(len(rows), np.bool_)
        waits = np.flatnonzero(rows.code == _WAIT)
        event, begin, _, _ = self._naming(events, rows, graph, NodeKind.EVENT_RECORD)
        bound[waits] = Ordered(event, begin).last(rows.event[waits], rows.begin[waits], before=True) >= 0
        return bound

    def _naming(self, events: Events, rows: Rows, graph: Ints, what: NodeKind) -> tuple[Ints, Ints, Ints, Ints]:
        """CUDA event, begin, row and node of all that records or waits for one, be it a call or a node of a graph."""
        code = _RECORD if what == NodeKind.EVENT_RECORD else _WAIT
        direct = np.flatnonzero((rows.code == code) & (rows.event != NO_ENTITY))
        found = [(rows.event[direct], rows.begin[direct], direct, np.zeros(len(direct), np.int64))]
        for number in np.unique(graph[graph > 0]).tolist():
            launches = np.flatnonzero(graph == number)
            every = np.ones(len(launches), np.int64)
            for node, event in self._nodes_naming(events, number, what, code):
                found.append((event * every, rows.begin[launches], launches, node * every))
        events_of, begins, rows_of, nodes = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return events_of, begins, rows_of, nodes

    def _nodes_naming(self, events: Events, number: int, what: NodeKind, code: int) -> list[tuple[int, int]]:
        """Nodes of a graph that record or wait for a CUDA event, with that."""
        known = self.graphs.known[number]
        added, captured = events.batch("cuda.graph.node"), events.batch(SUBMITTING[code])
        found: list[tuple[int, int]] = []
        for node in np.flatnonzero((known.code == ADDED) | (known.code == code)).tolist():
            row = int(known.row[node])
            if known.code[node] == code:
                found.append((node, int(captured["event"][row])))
            elif int(added["node_kind"][row]) == what:
                found.append((node, int(added["event"][row])))
        return [(node, event) for node, event in found if event != NO_ENTITY]

    def _events_of(self, events: Events, number: int, code: int) -> Ints:
        return np.array(
            [event for _, event in self._nodes_naming(events, number, NodeKind.EVENT_RECORD, code)], np.int64
        )

    def _records(self, events: Events, placeless: Rows) -> Records:
        event, begin, item, node = self._naming(events, self.items, self.graph, NodeKind.EVENT_RECORD)
        as_of = Ordered(event, begin)
        item, node = item[as_of.order], node[as_of.order]
        until = most_so_far(self.items.returned[item], as_of.first_of_key)
        alone = as_of.first_of_key | (np.append(0, until[:-1])[: len(item)] <= as_of.time)
        other = Ordered(placeless.event, placeless.begin)
        other_until = most_so_far(placeless.returned[other.order], other.first_of_key)
        return Records(self.first[item] + node, item, alone, as_of, other, other_until)

    def event_waits(self, events: Events) -> tuple[Ints, Ints, Ints]:
        """Return every operation that waits for a CUDA event: (CUDA event, item, operation)."""
        event, _, item, node = self._naming(events, self.items, self.graph, NodeKind.EVENT_WAIT)
        return event, item, self.first[item] + node

    def firsts(self, items: Ints) -> tuple[Ints, Ints]:
        """Return the operations with which each item begins, as pairs (place in `items`, operation)."""
        return self._ends(items, [known.roots for known in self.graphs.known])

    def lasts(self, items: Ints) -> tuple[Ints, Ints]:
        """Return the operations with which each item ends, likewise."""
        return self._ends(items, [known.leaves for known in self.graphs.known])

    def _ends(self, items: Ints, ends: list[Ints]) -> tuple[Ints, Ints]:
        sizes = np.array([len(nodes) for nodes in ends], np.int64)
        begin = np.cumsum(sizes) - sizes
        graph = self.graph[items]
        place = np.repeat(np.arange(len(items)), sizes[graph])
        node = np.concatenate(ends)[begin[graph[place]] + ranges(sizes[graph])]
        return place, self.first[items[place]] + node

    def between(self, cause: Ints, effect: Ints) -> tuple[Ints, Ints, Ints]:
        """Return what an order between items means for operations: pairs (place in `cause`, cause, effect)."""
        place, last = self.lasts(cause)
        again, first = self.firsts(effect[place])
        return place[again], last[again], first

    def inside(self) -> tuple[Ints, Ints]:
        """Return the order within graphs, as pairs of operations (cause, effect)."""
        causes, effects = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number in np.unique(self.graph[self.graph > 0]).tolist():
            known, first = self.graphs.known[number], self.first[self.graph == number]
            causes.append((first[:, None] + known.cause[None, :]).ravel())
            effects.append((first[:, None] + known.effect[None, :]).ravel())
        return np.concatenate(causes), np.concatenate(effects)

    def made_by(self) -> tuple[Ints, Ints]:
        """Code and row of the call that says what each operation is: its own, or the one that made the node."""
        code, row = self.items.code[self.item], self.items.row[self.item]
        for number in np.unique(self.graph[self.graph > 0]).tolist():
            known = self.graphs.known[number]
            mine = self.graph[self.item] == number
            code[mine], row[mine] = known.code[self.node[mine]], known.row[self.node[mine]]
        return code, row

    def next_begin(self) -> Ints:
        """When the next item of the same stream began; for ever where there is none."""
        begin = np.append(self.items.begin[1:], FOREVER)
        begin[np.append(self.by_stream.first_of_key[1:], True)] = FOREVER
        return begin[: len(self.items)]


def _shared(events: Events) -> Ints:
    """CUDA events that another process may record, or that nodes of graphs were changed to record, or not to record.

    One that was there before the recording is taken to be the process's own.
    """
    creates, params, nodes = (
        events.batch(kind) for kind in ("cuda.event.create", "cuda.graph.params", "cuda.graph.node")
    )
    params = params.take(params["event"] != NO_ENTITY)
    changed = set(zip(params["process"].tolist(), params["node"].tolist(), strict=True))
    of = zip(nodes["process"].tolist(), nodes["node"].tolist(), strict=True) if changed else ()
    rows = [row for row, node in enumerate(of) if node in changed]
    parts = (
        creates["event"][(creates["event_flags"] & INTERPROCESS) != 0],
        events.batch("cuda.event.export")["event"],
        params["event"],
        nodes["event"][np.array(rows, np.int64)],
    )
    return np.unique(np.concatenate(parts)).astype(np.int64)
