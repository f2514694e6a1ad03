# SPDX-License-Identifier: Apache-2.0
"""CUDA's rules of order again, told operation by operation with nothing but loops, to compare the vectorised model with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plugins.cuda.tests.oracle_graphs import RECORD, WAIT_EVENT, Captures, Graphs, Node
from plugins.cuda.tests.oracle_names import HANDLES, NEVER, SUBMITTING, Handle, Names, last
from plugins.cuda.tests.story import LEGACY, Call, Edge, Loss, Name, Span

from fencepath_cuda.events import Direction, NodeKind

BOUNDED, INFERRED = "bounded", "inferred"
INTERPROCESS = 4


class Op:
    """One operation: what an item does, or one node of a graph."""

    def __init__(self, item: Item, node: Node | None) -> None:
        self.item, self.node = item, node
        self.maker = node.maker if node else item.call
        self.name: Name = item.call.number, node.maker.number if node else -1

    @property
    def is_kernel(self) -> bool:
        return self.maker.kind == "cuda.launch"

    def names_event(self, kind: str, node_kind: NodeKind) -> bool:
        """Whether it records, or waits for, a CUDA event."""
        added = self.maker.kind == "cuda.graph.node" and self.maker.get("node_kind") == node_kind
        return self.maker.kind == kind or added


class Item:
    """What one call put on a stream."""

    def __init__(self, call: Call, names: Names, graphs: Graphs) -> None:
        self.call, self.stream, self.place = call, names.stream(call), names.place(call)
        launched = graphs.launched(call) if call.kind == "cuda.graph.launch" else None
        self.graph = launched.graph if launched and launched.graph else None
        self.instance = launched.instance if launched else 0
        self.ops = [Op(self, node) for node in self.graph.nodes] if self.graph else [Op(self, None)]

    @property
    def firsts(self) -> list[Op]:
        first = self.graph.first(self.graph.nodes) if self.graph else [None]
        return [op for op in self.ops if op.node in first]

    @property
    def lasts(self) -> list[Op]:
        final = self.graph.last(self.graph.nodes) if self.graph else [None]
        return [op for op in self.ops if op.node in final]

    @property
    def inner(self) -> list[tuple[Op, Op]]:
        edges = self.graph.edges if self.graph else set[tuple[Node, Node]]()
        return [(cause, effect) for cause in self.ops for effect in self.ops if (cause.node, effect.node) in edges]


class Link:
    """A call that found an operation finished; `whole` if with it all of its item."""

    def __init__(self, op: Op, call: Call, sure: bool, whole: bool) -> None:
        self.op, self.call, self.sure, self.whole = op, call, sure, whole


class Oracle:
    """Edges of each rule, and bounds, over the calls of a story."""

    def __init__(self, calls: Sequence[Call], losses: Sequence[Loss] = ()) -> None:
        self.names = names = Names(calls, losses)
        captures = Captures(names)
        graphs = Graphs(names, captures)
        submitted = [call for call in names.of(*SUBMITTING) if call.ok and call.stream and not captures.of(call)]
        self.items = [item for item in (Item(call, names, graphs) for call in submitted) if item.ops]
        unbound = [
            item for item in self.items if item.call.kind == WAIT_EVENT and not self._record(item.call, strict=True)
        ]
        self.items = [item for item in self.items if item not in unbound]
        self.unmatched = dict.fromkeys(("cuda.stream_wait_event", *_WAITS), 0)
        self.unmatched["cuda.stream_wait_event"] = len(unbound)
        self.pairs: list[tuple[Item, Item]] = []
        """Items of different streams of which the first is surely over before the second starts."""
        self._order = {rule: sorted(getattr(self, name)()) for rule, name in _ORDERS.items()}
        self._links = {rule: list(getattr(self, name)()) for rule, name in _WAITS.items()}

    def of(self, rule: str) -> list[Edge]:
        """The edges of a rule, sorted."""
        if rule == "cuda.submit":
            names = [op.name for item in self.items for op in item.ops]
            return sorted(Edge((name[0],), name, "start_start", BOUNDED) for name in names)
        if rule in self._order:
            return self._order[rule]
        links = ((link, BOUNDED if link.sure else INFERRED) for link in self._links[rule])
        return sorted(Edge(link.op.name, (link.call.number,), "finish_finish", sure) for link, sure in links)

    def counts(self, rule: str) -> tuple[int, int]:
        """(unmatched, ambiguous) of a rule."""
        return self.unmatched.get(rule, 0), sum(edge.confidence == INFERRED for edge in self.of(rule))

    # order

    def _in_order(self, cause: Item, effect: Item, known: bool = True) -> Iterator[Edge]:
        sure = known and self.names.is_sure(cause.call, effect.call)
        sure = sure and not self.names.lost(cause.call.begin, effect.call.begin, *HANDLES)
        if sure and cause.stream != effect.stream:
            self.pairs.append((cause, effect))
        for before in cause.lasts:
            for after in effect.firsts:
                yield _start(before, after, sure)

    def stream_order(self) -> Iterator[Edge]:
        for effect in self.items:
            cause = last(item for item in self._on(effect.stream) if item.call.begin < effect.call.begin)
            if cause:
                kernels = cause.call.kind == effect.call.kind == "cuda.launch"
                yield from self._in_order(cause, effect, not (kernels and effect.call.get("attributes")))

    def exec_order(self) -> Iterator[Edge]:
        for effect in self.items:
            same = [item for item in self.items if item.instance and item.instance == effect.instance]
            cause = last(item for item in same if item.call.begin < effect.call.begin)
            if cause and cause.stream != effect.stream:
                yield from self._in_order(cause, effect)

    def graph_order(self) -> Iterator[Edge]:
        for item in self.items:
            for cause, effect in item.inner:
                kernels = cause.is_kernel and effect.is_kernel
                yield _start(cause, effect, not (kernels and effect.maker.get("attributes")))

    def event_order(self) -> Iterator[Edge]:
        for item in self.items:
            for op in item.ops:
                if not op.names_event(WAIT_EVENT, NodeKind.EVENT_WAIT) or not self.names.event(op.maker):
                    continue
                record = self._record(item.call, self.names.event(op.maker), strict=True)
                if not record:
                    self.unmatched["cuda.stream_wait_event"] += 1
                    continue
                sure = self._is_sure_record(record, op.maker, item.call, self.names.returned(item.call))
                if sure and not op.node and not record.node and record.item.stream != item.stream:
                    self.pairs.append((record.item, item))
                yield _start(record, op, sure)

    def legacy_order(self) -> Iterator[Edge]:
        for item in self.items:
            if item.call.stream == LEGACY or self.names.is_blocking(item.call) is False:
                continue
            legacy = [each for each in self.items if each.call.stream == LEGACY and self._same_context(each, item)]
            mine, at = self._on(item.stream), item.call.begin
            later = next((each for each in legacy if each.call.begin > at), None)
            if later and not any(at < each.call.begin <= later.call.begin for each in mine):
                yield from self._in_order(item, later, self._knows_blocking(item, later))
            earlier = last(each for each in legacy if each.call.begin < at)
            if earlier and not any(earlier.call.begin <= each.call.begin < at for each in mine):
                yield from self._in_order(earlier, item, self._knows_blocking(item, earlier))

    def _knows_blocking(self, item: Item, legacy: Item) -> bool:
        knows = self.names.knows_context(item.call) and self.names.knows_context(legacy.call)
        return knows and bool(self.names.is_blocking(item.call))

    def _on(self, stream: Handle | None) -> list[Item]:
        return [item for item in self.items if item.stream == stream]

    def _same_context(self, one: Item, other: Item) -> bool:
        return one.place == other.place

    # CUDA events

    def _records(self, event: Handle | None) -> list[Op]:
        ops = (op for item in self.items for op in item.ops if op.names_event(RECORD, NodeKind.EVENT_RECORD))
        return [op for op in ops if event and self.names.event(op.maker) == event]

    def _record(self, call: Call, event: Handle | None = None, *, strict: bool = False) -> Op | None:
        event, by = event or self.names.event(call), call.begin - strict
        return last(op for op in self._records(event) if op.item.call.begin <= by)

    def _is_sure_record(self, record: Op, naming: Call, call: Call, end: int, event: Handle | None = None) -> bool:
        """Whether a record is surely the last one of its CUDA event, as a call that ended at some time saw it."""
        event, made = event or self.names.event(naming), record.item.call
        others = [op.item.call for op in self._records(event) if op is not record]
        others += [
            each for each in self.names.of(RECORD) if each.ok and not each.stream and self.names.event(each) == event
        ]
        rivals = [each for each in others if each.begin < end and self.names.returned(each) > made.begin]
        lost = self.names.lost(made.begin, end, *HANDLES, RECORD, "cuda.graph.launch")
        shared = event in self._shared() or self.names.may_be_shared(event, made)
        return self.names.is_sure(made, call) and not rivals and not lost and not shared

    def _shared(self) -> set[Handle | None]:
        """CUDA events that others record too."""
        names = self.names
        created = [
            call for call in names.of("cuda.event.create") if call.done and call.get("event_flags") & INTERPROCESS
        ]
        params = [call for call in names.of("cuda.graph.params") if call.event]
        changed = {(call.pid, call.get("node")) for call in params}
        nodes = [call for call in names.of("cuda.graph.node") if (call.pid, call.get("node")) in changed]
        return {names.event(call) for call in (*created, *names.of("cuda.event.export"), *params, *nodes)} - {None}

    # waits

    def _ok(self, *kinds: str) -> list[Call]:
        return [call for call in self.names.of(*kinds) if call.ok]

    def _of_item(self, item: Item, call: Call, sure: bool = True) -> Iterator[Link]:
        sure = sure and self.names.is_sure(item.call, call)
        sure = sure and not self.names.lost(item.call.begin, call.begin, *HANDLES)
        yield from (Link(op, call, sure, whole=True) for op in item.lasts)

    def stream_waits(self) -> Iterator[Link]:
        for wait in self._ok("cuda.stream.synchronize"):
            mine = self._on(self.names.stream(wait)) if wait.stream else []
            before = last(item for item in mine if item.call.begin <= wait.begin)
            during = last(item for item in mine if wait.begin < item.call.begin < wait.end)
            self.unmatched["cuda.stream_synchronize"] += bool(wait.stream) and not before and not during
            yield from self._of_item(before, wait) if before else ()
            yield from self._of_item(during, wait, sure=False) if during else ()

    def stream_queries(self) -> Iterator[Link]:
        for query in self._ok("cuda.stream.query"):
            mine = self._on(self.names.stream(query)) if query.stream and query.done else []
            before = last(item for item in mine if item.call.begin <= query.begin)
            yield from self._of_item(before, query) if before else ()

    def context_waits(self) -> Iterator[Link]:
        waits = self._ok("cuda.context.synchronize")
        for wait in waits:
            found = list(self._pending(self.items, wait, waits))
            self.unmatched["cuda.context_synchronize"] += not found
            for item in found:
                known = self.names.knows_context(item.call) and self.names.knows_context(wait)
                yield from self._of_item(item, wait, known)

    def _pending(self, items: list[Item], wait: Call, waits: list[Call]) -> Iterator[Item]:
        """The last item on every stream of a wait's context that no wait before has seen finished."""
        for item in items:
            if item.place != self.names.place(wait) or item.call.begin > wait.begin:
                continue
            following = (each for each in self._on(item.stream) if item.call.begin < each.call.begin <= wait.begin)
            earlier = (
                each
                for each in waits
                if each.done and self.names.place(each) == self.names.place(wait)
                if each.end <= wait.begin and each.begin >= self.names.returned(item.call)
            )
            if not any(following) and not any(earlier):
                yield item

    def legacy_waits(self) -> Iterator[Link]:
        waits = [wait for wait in self._ok("cuda.stream.synchronize") if wait.stream == LEGACY]
        blocking = [item for item in self.items if item.call.stream != LEGACY and self.names.is_blocking(item.call)]
        for wait in waits:
            for item in self._pending(blocking, wait, waits):
                between = (
                    each
                    for each in self.items
                    if each.call.stream == LEGACY and self._same_context(each, item)
                    if item.call.begin < each.call.begin <= wait.begin
                )
                known = self.names.knows_context(item.call) and self.names.knows_context(wait)
                yield from self._of_item(item, wait, known) if not any(between) else ()

    def event_waits(self) -> Iterator[Link]:
        for wait in self._ok("cuda.event.synchronize"):
            record = self._record(wait)
            self.unmatched["cuda.event_synchronize"] += bool(wait.event) and not record
            if record:
                end = self.names.returned(wait, ("cuda.event.synchronize",))
                yield Link(record, wait, self._is_sure_record(record, wait, wait, end), whole=False)

    def event_queries(self) -> Iterator[Link]:
        for query in self.names.of("cuda.event.query", "cuda.event.elapsed"):
            events = [self.names.event(query)] if query.done else []
            events += [self.names.end_event(query)] if query.done and query.kind == "cuda.event.elapsed" else []
            for event in events:
                record = self._record(query, event) if event else None
                if record:
                    yield Link(record, query, self._is_sure_record(record, query, query, query.end, event), whole=False)

    def blocking_copies(self) -> Iterator[Link]:
        for item in self.items:
            to_host = item.call.get("direction") == Direction.DEVICE_TO_HOST
            if item.call.kind == "cuda.memcpy" and item.call.done and to_host:
                yield Link(item.ops[0], item.call, sure=True, whole=True)

    # bounds

    def spans(self) -> list[Span]:
        """Bounds of every operation, sorted."""
        latest = self._latest()
        ops = ((op, item) for item in self.items for op in item.ops)
        return sorted(Span(op.name, item.call.begin, latest[item] if latest[item] < NEVER else -1) for op, item in ops)

    def _latest(self) -> dict[Item, int]:
        latest = dict.fromkeys(self.items, NEVER)
        for link in (link for links in self._links.values() for link in links):
            if link.sure and link.call.done and (link.whole or not link.op.node):
                latest[link.op.item] = min(latest[link.op.item], link.call.end)
        pairs = [*self.pairs]
        for cause in self.items:
            back = self.names.returned(cause.call)
            pairs += [(cause, effect) for effect in self._on(cause.stream) if effect.call.begin >= back]
        while True:
            before = dict(latest)
            for cause, effect in pairs:
                latest[cause] = min(latest[cause], latest[effect])
            if latest == before:
                break
        lost = [item for item in self.items if self.names.lost(item.call.begin, latest[item], *HANDLES)]
        return {**latest, **dict.fromkeys(lost, NEVER)}


_ORDERS = {
    "cuda.stream_order": "stream_order",
    "cuda.stream_wait_event": "event_order",
    "cuda.legacy_stream": "legacy_order",
    "cuda.graph_order": "graph_order",
    "cuda.graph_exec": "exec_order",
}
_WAITS = {
    "cuda.stream_synchronize": "stream_waits",
    "cuda.event_synchronize": "event_waits",
    "cuda.context_synchronize": "context_waits",
    "cuda.legacy_wait": "legacy_waits",
    "cuda.blocking_copy": "blocking_copies",
    "cuda.stream_query": "stream_queries",
    "cuda.event_query": "event_queries",
}
ORACLE_RULES = ("cuda.submit", *_ORDERS, *_WAITS)


def _start(cause: Op, effect: Op, sure: bool) -> Edge:
    return Edge(cause.name, effect.name, "finish_start", BOUNDED if sure else INFERRED)
