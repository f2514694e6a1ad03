# SPDX-License-Identifier: Apache-2.0
"""Stories of every kind for hypothesis: what the calls name is drawn from few handles, so that they meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from plugins.cuda.tests.story import LEGACY, OPEN, PER_THREAD, Story

from fencepath_cuda.events import NodeKind

STREAMS = (0x5100, 0x5200)
EVENTS = (0xE100, 0xE200)
CONTEXTS = (0xC100, 0xC200)
GRAPHS = (0x6100, 0x6100, 0x6100, 0x6200)
EXECS = (0xA100, 0xA100, 0xA100, 0xA200)
THREADS = ((1, 1), (1, 1), (1, 2), (2, 3))
"""Process and thread."""


class Plot(msgspec.Struct, frozen=True):
    """What a story is made of: each is about a few rules, so that what they are about comes up often.

    Attributes:
        kinds: drawn from.
        begins: what it begins with.
        threads: drawn from.
    """

    kinds: tuple[str, ...]
    begins: tuple[str, ...] = ()
    threads: tuple[tuple[int, int], ...] = THREADS


_WORK = ("launch", "launch", "memcpy", "malloc", "semaphore")
_EVENTS = ("record", "wait_event")
_CREATES = ("stream_create", "event_create")
_ALONE = ((1, 1), (1, 1), (1, 1), (1, 2))
_BUILT = ("graph_create", "node", "node", "instantiate", "graph_launch")
_CAPTURED = ("capture_begin", "launch", "record", "wait_event", "launch", "capture_end", "instantiate", "graph_launch")
_CHANGES = ("node", "node", "dependency", "node_destroy", "params", "clone", "update", "graph_destroy", "exec_destroy")
PLOTS = (
    Plot(
        (*_WORK, *_EVENTS, *_CREATES, "stream_sync", "event_sync", "context_sync"), ("stream_create", "stream_create")
    ),
    Plot((*_WORK, *_EVENTS, "stream_query", "event_query", "event_query", "elapsed")),
    Plot(("launch", *_EVENTS, "event_query", "event_query"), ("record", "wait_event", "launch", "event_query"), _ALONE),
    Plot(("launch", "launch", "stream_create", "stream_sync", "context_sync"), ("stream_create",), _ALONE),
    Plot(
        ("launch", "context_sync", "context_create", "context_set", "context_destroy", "stream_create", "stream_sync")
    ),
    Plot(
        ("launch", *_EVENTS, *_EVENTS, "event_sync", "event_query", "record_elsewhere", "event_create", "event_export")
    ),
    Plot(("launch", *_EVENTS, "capture_begin", "capture_end", "stream_sync", "graph_launch"), _CAPTURED, _ALONE),
    Plot(
        ("launch", *_EVENTS, "capture_end", "capture_update", "external_record", "external_wait"), _CAPTURED[:3], _ALONE
    ),
    Plot(
        ("external_record", "launch", "capture_end", "instantiate", "graph_launch", "event_sync"), _CAPTURED[:2], _ALONE
    ),
    Plot((*_CAPTURED, "event_query", "context_sync"), _CAPTURED, _ALONE),
    Plot((*_BUILT, "graph_launch", "stream_sync", "wait_event"), _BUILT, _ALONE),
    Plot((*_CHANGES, "instantiate", "graph_launch", "graph_launch"), _BUILT[:-1], _ALONE),
    Plot((*_BUILT, "launch", *_EVENTS, "event_sync", "event_query", "update", "context_sync"), _BUILT, _ALONE),
)

LENGTHS = (None, 1, 3, 9, 9, 10, 12, 20, 27, 65)
"""Calls begin 10 apart: some end within the next one, some just when it begins."""


class Teller:
    """Tells a story, one call after the other."""

    def __init__(
        self, random: Random, streams: Sequence[int] = STREAMS, threads: Sequence[tuple[int, int]] = THREADS
    ) -> None:
        self.story = Story()
        self._random = random
        self._streams = streams
        self._threads = threads
        self._events = [*EVENTS]
        self._nodes = [0x9000]
        self._free: dict[int, int] = {}
        self.begin = 1
        self.ending = False
        """Whether calls may last to the end of the recording."""

    def one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def tell(self, what: str) -> None:
        """Add one call of a thread that is not in another, if there is one."""
        free = [(pid, tid) for pid, tid in self._threads if self._free.get(tid, 0) <= self.begin]
        if free:
            self._thread = self.one(*free)
            make: Callable[[], None] = getattr(self, f"_{what}")
            make()
        self.begin += 10

    def lose(self) -> None:
        """Lose records some time."""
        kind = self.one("", "cuda.stream.create", "cuda.event.record", "cuda.graph.instantiate", "cuda.graph.create")
        from_ns = self._random.randint(0, self.begin)
        self.story.lose(kind, from_ns, from_ns + self.one(0, 5, 30))

    def _call(self, kind: str, length: int | None = 5, **columns: Any) -> None:
        pid, tid = self._thread
        end = None if length is None else self.begin + length
        if columns.get("flags") == OPEN:
            end = 2000
        self._free[tid] = self.begin if end is None else end
        self.story.call(kind, self.begin, end, pid=pid, tid=tid, **columns)

    def _long(self, kind: str, **columns: Any) -> None:
        """A call that may take long, fail, never come back or be recorded at its entry only."""
        result = self.one(0, 0, 0, 0, 0, 1)
        if self.ending and self.one(0, 0, 1):
            self._call(kind, flags=OPEN, **columns)
        else:
            length = self.one(*LENGTHS)
            self._call(kind, length, result=0 if length is None else result, **columns)

    def _handing_out(self, kind: str, **columns: Any) -> None:
        """A call that hands out handles, if it does not fail."""
        if self.one(*range(8)) == 7:
            handles = {name: 0 for name in columns if name in ("stream", "event", "context_handle")}
            self._call(kind, result=1, **{**columns, **handles})
        else:
            self._call(kind, **columns)

    def _stream(self) -> int:
        return int(self.one(*self._streams))

    def _event(self) -> int:
        return int(self.one(*self._events))

    def _new_event(self) -> int:
        self._events.append(0xE900 + len(self.story.calls))
        return self._events[-1]

    def _launch(self) -> None:
        self._long("cuda.launch", stream=self._stream(), attributes=self.one(0, 0, 0, 1))

    def _memcpy(self) -> None:
        self._long("cuda.memcpy", stream=self._stream(), direction=self.one(1, 2, 2))

    def _malloc(self) -> None:
        self._long("cuda.malloc", stream=self.one(self._stream(), 0))

    def _semaphore(self) -> None:
        self._long("cuda.stream.semaphore", stream=self._stream())

    def _record(self) -> None:
        self._long("cuda.event.record", stream=self._stream(), event=self._event())

    def _record_elsewhere(self) -> None:
        self._long("cuda.event.record", event=self._event(), context_handle=CONTEXTS[0])

    def _wait_event(self) -> None:
        self._long("cuda.stream.wait_event", stream=self._stream(), event=self.one(self._event(), self._event(), 0))

    def _external_record(self) -> None:
        self._long("cuda.event.record", stream=self._stream(), event=self._new_event(), event_flags=1)

    def _external_wait(self) -> None:
        self._long("cuda.stream.wait_event", stream=self._stream(), event=self._event(), event_flags=1)

    def _stream_sync(self) -> None:
        self._long("cuda.stream.synchronize", stream=self._stream())

    def _event_sync(self) -> None:
        self._long("cuda.event.synchronize", event=self._event())

    def _context_sync(self) -> None:
        self._long("cuda.context.synchronize", context_handle=self.one(0, 0, 0, *CONTEXTS))

    def _stream_query(self) -> None:
        self._call("cuda.stream.query", self.one(3, 12), stream=self._stream(), result=self.one(0, 0, 600))

    def _event_query(self) -> None:
        self._call("cuda.event.query", self.one(3, 12), event=self._event(), result=self.one(0, 600, 600))

    def _elapsed(self) -> None:
        event, other = self._event(), self._event()
        self._call("cuda.event.elapsed", event=event, end_event_handle=other, result=self.one(0, 0, 600))

    def _stream_create(self) -> None:
        self._handing_out("cuda.stream.create", stream=self.one(*STREAMS), stream_flags=self.one(0, 0, 1))

    def _event_create(self) -> None:
        self._handing_out("cuda.event.create", event=self._event(), event_flags=self.one(0, 0, 4))

    def _event_export(self) -> None:
        self._call("cuda.event.export", event=self._event())

    def _context_create(self) -> None:
        self._handing_out("cuda.context.create", context_handle=self.one(*CONTEXTS), primary=self.one(0, 0, 1))

    def _context_set(self) -> None:
        self._handing_out("cuda.context.set", context_handle=self.one(0, *CONTEXTS), how=self.one(0, 0, 1, 2))

    def _context_destroy(self) -> None:
        self._handing_out("cuda.context.destroy", context_handle=self.one(*CONTEXTS))

    def _capture_begin(self) -> None:
        self._handing_out("cuda.graph.capture_begin", stream=self._stream(), graph=self.one(0, 0, *GRAPHS))

    def _capture_end(self) -> None:
        self._handing_out("cuda.graph.capture_end", stream=self._stream(), graph=self.one(*GRAPHS))

    def _capture_update(self) -> None:
        self._call("cuda.graph.capture_update", stream=self._stream(), replaced=self.one(0, 1, 1))

    def _graph_create(self) -> None:
        self._call("cuda.graph.create", graph=self.one(*GRAPHS))

    def _graph_destroy(self) -> None:
        self._call("cuda.graph.destroy", graph=self.one(*GRAPHS))

    def _clone(self) -> None:
        self._call("cuda.graph.clone", graph=self.one(*GRAPHS), clone=self.one(*GRAPHS))

    def _node(self) -> None:
        kind = self.one(*[NodeKind.KERNEL] * 3, NodeKind.CHILD_GRAPH, NodeKind.EVENT_RECORD, NodeKind.EVENT_WAIT)
        count = self.one(0, 1, 1, 2, 5)
        before = {f"dependency_{place}": self.one(*self._nodes[-3:]) for place in range(min(4, count))}
        child = self.one(*GRAPHS) if kind == NodeKind.CHILD_GRAPH else 0
        event = {NodeKind.EVENT_RECORD: self._new_event, NodeKind.EVENT_WAIT: self._event}.get(kind, lambda: 0)()
        node = 0x9000 + len(self.story.calls) + 1
        columns = {"node": node, "node_kind": int(kind), "dependencies": count, "child_graph": child, **before}
        self._call("cuda.graph.node", graph=self.one(*GRAPHS), event=event, **columns)
        self._nodes.append(node)

    def _node_destroy(self) -> None:
        self._call("cuda.graph.node.destroy", node=self.one(*self._nodes))

    def _dependency(self) -> None:
        count, removed = self.one(1, 1, 2, 5), self.one(0, 0, 1)
        ends = {
            f"{end}_{place}": self.one(*self._nodes[-4:]) for end in ("from", "to") for place in range(min(4, count))
        }
        ends = ends if removed or all(ends[f"from_{n}"] < ends[f"to_{n}"] for n in range(min(4, count))) else {}
        count = count if ends else 0
        self._call("cuda.graph.dependency", graph=self.one(*GRAPHS), dependencies=count, removed=removed, **ends)

    def _params(self) -> None:
        self._call("cuda.graph.params", node=self.one(*self._nodes), event=self._event())

    def _instantiate(self) -> None:
        self._call("cuda.graph.instantiate", graph=self.one(*GRAPHS), graph_exec=self.one(*EXECS))

    def _update(self) -> None:
        self._call(
            "cuda.graph.update", graph=self.one(*GRAPHS), graph_exec=self.one(*EXECS), result=self.one(0, 0, 910)
        )

    def _exec_destroy(self) -> None:
        self._call("cuda.graph.exec.destroy", graph_exec=self.one(*EXECS))

    def _graph_launch(self) -> None:
        self._long("cuda.graph.launch", stream=self._stream(), graph_exec=self.one(*EXECS))


def tale(seed: int, length: int) -> Story:
    """Return a story of some calls of up to two processes, and sometimes a loss; each begins at a time of its own."""
    random = Random(seed)
    plot = random.choice(PLOTS)
    streams = random.choice(((*STREAMS, STREAMS[0], LEGACY, PER_THREAD), (STREAMS[0], LEGACY), STREAMS, STREAMS[:1]))
    teller = Teller(random, streams, plot.threads)
    for place, what in enumerate((*plot.begins, *random.choices(plot.kinds, k=30))[:length]):
        teller.ending = place > length - 5
        teller.tell(what)
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        teller.lose()
    return teller.story


def tales() -> st.SearchStrategy[Story]:
    """Any story: of a smaller one that fails, hypothesis finds the shortest beginning that does."""
    return st.builds(tale, st.integers(0, 1 << 48), st.integers(1, 30))
