# SPDX-License-Identifier: Apache-2.0
"""Threads that use a simulated device, and what a recorder makes of their calls.

When within a call it takes effect is drawn, as is how long it lasts beyond what it has to wait for.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from plugins.cuda.tests.device import Device, Exec, Node, Stream
from plugins.cuda.tests.story import LEGACY, OPEN, PER_THREAD, Call, Story

from fencepath.records import Flags
from fencepath_cuda.events import NodeKind
from fencepath_cuda.rows import RECORD

CONTEXTS = (0xC100, 0xC200)
SHARED = (0x5100, 0x5200)
EVENTS = (0xE100, 0xE200, 0xE300)
INTERPROCESS = 0xE400
THREADS = (1, 2, 3, 4)
OWNERS = (1, 2)
"""Threads that make contexts and streams of their own."""
TO_HOST = 2
_HANDLES = ("cuda.stream.create", "cuda.stream.create", "cuda.context.set", "cuda.graph.instantiate")
ENTRY_ONLY = ("cuda.launch", "cuda.memcpy.async", "cuda.event.record", "cuda.stream.wait_event", "cuda.graph.launch")


class _Plan(msgspec.Struct, frozen=True):
    """What a thread is about to do: the call, and what it does when it takes effect.

    `effect` gets the time and the call's number, and returns what further is known of the call when it has returned, and
    until when it lasts at least.
    """

    kind: str
    columns: Mapping[str, Any]
    effect: Callable[[int, int], tuple[Mapping[str, Any], int]]


def _nothing(now: int, number: int) -> tuple[Mapping[str, Any], int]:
    del now, number
    return {}, 0


class Program:
    """Threads of one process that use a device.

    Args:
        random: decides everything.
        contexts: whether there are two, and the threads go from one to the other; else there is one that nobody made.
        plain: whether CUDA events are recorded by calls alone, and neither by graphs nor by another process.
    """

    def __init__(self, random: Random, *, contexts: bool, plain: bool) -> None:
        self.random = random
        self.device = Device(random)
        self.calls: list[Call] = []
        self._contexts = contexts
        self._plain = plain
        self._current: dict[int, int] = dict.fromkeys(THREADS, 0)
        self._owner: dict[int, int] = {}
        self._generation: dict[int, int] = defaultdict(int)
        self._execs: dict[int, Exec] = {}
        self._handed_out: set[int] = set()
        self._scripts: dict[int, list[_Plan]] = {tid: self._begin(tid) for tid in THREADS}

    def run(self, calls: int) -> None:
        """Let the threads make calls."""
        queue: list[tuple[int, Callable[[int], None]]] = []
        taken: set[int] = set()

        def at(time: int, action: Callable[[int], None]) -> None:
            while time in taken:
                time += 1
            taken.add(time)
            heapq.heappush(queue, (time, action))

        def begin(tid: int, now: int) -> None:
            if len(self.calls) < calls:
                plan, number = self._next(tid), len(self.calls)
                self.calls.append(
                    Call(number=number, kind=plan.kind, begin=now, end=now, pid=1, tid=tid, **_fields(plan.columns))
                )
                at(now + self._delay(), lambda effect: take(tid, number, plan, effect))

        def take(tid: int, number: int, plan: _Plan, now: int) -> None:
            known, until = plan.effect(now, number)
            at(max(now, until) + self._delay(), lambda end: back(tid, number, known, end))

        def back(tid: int, number: int, known: Mapping[str, Any], now: int) -> None:
            call = self.calls[number]
            fields = _fields(known)
            more = {**call.more, **fields.pop("more", {})}
            self.calls[number] = msgspec.structs.replace(call, end=now, more=more, **fields)
            self._handed_out.update(handle for handle in (fields.get("stream"), fields.get("event")) if handle)
            at(now + self._delay(), lambda time: begin(tid, time))

        for tid in THREADS:
            at(self._delay(), lambda time, tid=tid: begin(tid, time))  # type: ignore[misc]
        while queue:
            time, action = heapq.heappop(queue)
            action(time)

    def _delay(self) -> int:
        return self.random.choice((1, 2, 5, 5, 40))

    def _next(self, tid: int) -> _Plan:
        script = self._scripts[tid]
        while not script:
            script += self.random.choice(_FRAGMENTS)(self, tid)
        return script.pop(0)

    # streams

    def _stream(self, tid: int, handle: int) -> Stream:
        if handle == LEGACY:
            return self._current[tid], handle, 0
        if handle == PER_THREAD:
            return self._current[tid], handle, tid
        return self._owner.get(handle, 0), handle, self._generation[handle]

    def _a_stream(self, tid: int) -> int:
        """A stream that the thread may use now: its context is current."""
        own = (0x5000 + tid * 16, 0x5001 + tid * 16)
        mine = [handle for handle in (*self._shared(), *own) if self._owner.get(handle, 0) == self._current[tid]]
        return self.random.choice((LEGACY, PER_THREAD, *mine, *mine))

    def _any_stream(self, tid: int) -> int:
        """A stream that the thread may use if no kernel goes there, whichever context is current."""
        shared = self._shared()
        own = [] if self._lacks_context(tid) else [self._a_stream(tid)]
        return self.random.choice((*shared, *own, *own)) if (*shared, *own) else 0

    def _shared(self) -> Sequence[int]:
        """Streams that every thread may know: made before the program began, or by a call that has returned."""
        return [handle for handle in SHARED if not self._contexts or handle in self._handed_out]

    def _an_event(self) -> int:
        """One that every thread may know: made before the program began, or by a call that has returned."""
        return self.random.choice((*EVENTS, *{INTERPROCESS}.intersection(self._handed_out)))

    def _private(self, tid: int, number: int) -> int:
        return 0x5000 + tid * 16 + number

    # what happens at the begin

    def _begin(self, tid: int) -> list[_Plan]:
        script = [self._create_event(INTERPROCESS, 4)] if tid == 1 else []
        if self._contexts and tid in OWNERS:
            script += [self._create_context(tid), self._create_stream(tid, SHARED[tid - 1])]
        if self._contexts and tid not in OWNERS:
            script += [self._set_unseen(tid)] * 12
        script += [self._create_stream(tid, self._private(tid, number)) for number in (0, 1) if tid in OWNERS]
        return script

    def _create_context(self, tid: int) -> _Plan:
        handle = CONTEXTS[tid - 1]

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._current[tid] = handle
            return {"context_handle": handle}, 0

        return _Plan("cuda.context.create", {}, effect)

    def _lacks_context(self, tid: int) -> bool:
        return self._contexts and not self._current[tid]

    def _set_unseen(self, tid: int) -> _Plan:
        """A thread's context was set by a call that was not recorded; it stays. Seen is only a call beside it."""

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._current[tid] = self._current[tid] or self._current[self.random.choice(OWNERS)]
            return {}, 0

        return _Plan("cuda.graph.capture_mode", {}, effect)

    def _set_context(self, tid: int) -> list[_Plan]:
        made = set(self._current.values()) - {0}
        if len(made) < 2 or tid not in OWNERS:
            return []
        handle = self.random.choice(CONTEXTS)

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._current[tid] = handle
            return {}, 0

        return [_Plan("cuda.context.set", {"context_handle": handle, "how": 0}, effect)]

    def _create_stream(self, tid: int, handle: int) -> _Plan:
        flags = self.random.choice((0, 0, 1))

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._owner[handle] = self._current[tid]
            self._generation[handle] += 1
            self.device.create(self._stream(tid, handle), bool(flags))
            return {"stream": handle}, 0

        return _Plan("cuda.stream.create", {"stream_flags": flags}, effect)

    def _create_event(self, handle: int, flags: int) -> _Plan:
        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.events.pop(handle, None)
            return {"event": handle}, 0

        return _Plan("cuda.event.create", {"event_flags": flags}, effect)

    # fragments of programs

    def _work(self, tid: int) -> list[_Plan]:
        if self._lacks_context(tid):
            return self._anywhere(tid)
        handle, kind = self._a_stream(tid), self.random.choice(("cuda.launch", "cuda.launch", "cuda.memcpy.async"))
        attributes = self.random.choice((0, 0, 0, 1)) if kind == "cuda.launch" else 0
        if self.random.random() < 0.05:
            return [_Plan(kind, {"stream": handle}, lambda now, number: ({"result": 1}, 0))]

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            stream, kernel = self._stream(tid, handle), kind == "cuda.launch"
            self.device.run((number, -1), stream, now, kernel=kernel, early=bool(attributes))
            return {}, 0

        return [_Plan(kind, {"stream": handle, "attributes": attributes}, effect)]

    def _copy(self, tid: int) -> list[_Plan]:
        if self._lacks_context(tid):
            return self._anywhere(tid)
        handle, direction = self.random.choice((LEGACY, PER_THREAD)), self.random.choice((1, TO_HOST))

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            end = self.device.run((number, -1), self._stream(tid, handle), now)
            return {}, end if direction == TO_HOST else 0

        return [_Plan("cuda.memcpy", {"stream": handle, "direction": direction}, effect)]

    def _record(self, tid: int) -> list[_Plan]:
        handle = self._any_stream(tid)
        if not handle:
            return []
        event = self._an_event()

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.record((number, -1), self._stream(tid, handle), now, event)
            return {}, 0

        return [_Plan("cuda.event.record", {"stream": handle, "event": event}, effect)]

    def _record_context(self, tid: int) -> list[_Plan]:
        event, context = self.random.choice(EVENTS), self._current[tid]

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.events[event] = max(now, self.device.all_idle_at(context))
            return {}, 0

        return [_Plan("cuda.event.record", {"event": event, "context_handle": context or 0xC900}, effect)]

    def _wait(self, tid: int) -> list[_Plan]:
        handle = self._any_stream(tid)
        if not handle:
            return []
        event = self._an_event()

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.wait((number, -1), self._stream(tid, handle), now, event)
            return {}, 0

        return [_Plan("cuda.stream.wait_event", {"stream": handle, "event": event}, effect)]

    def _foreign(self, tid: int) -> list[_Plan]:
        """Another process records the CUDA event that it shares; nothing is seen of that but a call beside it."""
        if self._plain:
            return []

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.events[INTERPROCESS] = now + self.random.choice((0, 50, 400))
            return {}, 0

        return [_Plan("cuda.graph.capture_mode", {}, effect)]

    def _synchronize(self, tid: int) -> list[_Plan]:
        handle = self._any_stream(tid)
        if not handle:
            return []

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            return {}, self.device.idle_at(self._stream(tid, handle))

        return [_Plan("cuda.stream.synchronize", {"stream": handle}, effect)]

    def _synchronize_context(self, tid: int) -> list[_Plan]:
        if self._lacks_context(tid):
            return self._anywhere(tid)
        return [
            _Plan("cuda.context.synchronize", {}, lambda now, number: ({}, self.device.all_idle_at(self._current[tid])))
        ]

    def _synchronize_event(self, tid: int) -> list[_Plan]:
        event = self._an_event()
        return [
            _Plan(
                "cuda.event.synchronize", {"event": event}, lambda now, number: ({}, self.device.events.get(event, 0))
            )
        ]

    def _anywhere(self, tid: int) -> list[_Plan]:
        """What may be done without a context."""
        return self.random.choice((self._record, self._wait, self._synchronize, self._synchronize_event))(tid)

    def _query(self, tid: int) -> list[_Plan]:
        handle, event = self._any_stream(tid), self._an_event()

        def stream(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            return {"result": 0 if self.device.idle_at(self._stream(tid, handle)) <= now else 600}, 0

        def one(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            return {"result": 0 if self.device.events.get(event, 0) <= now else 600}, 0

        if handle and self.random.random() < 0.3:
            return [_Plan("cuda.stream.query", {"stream": handle}, stream)]
        return [_Plan("cuda.event.query", {"event": event}, one)]

    def _elapsed(self, tid: int) -> list[_Plan]:
        both = self.random.choice(EVENTS), self.random.choice(EVENTS)

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            ends = [self.device.events.get(event) for event in both]
            if None in ends:
                return {"result": 400}, 0
            return {"result": 0 if all(end is not None and end <= now for end in ends) else 600}, 0

        return [_Plan("cuda.event.elapsed", {"event": both[0], "end_event_handle": both[1]}, effect)]

    def _renew(self, tid: int) -> list[_Plan]:
        """Destroy a stream and make another, which gets the handle of the old one."""
        if tid not in OWNERS:
            return []
        handle = self._private(tid, 1)
        return [_Plan("cuda.stream.destroy", {"stream": handle}, _nothing), self._create_stream(tid, handle)]

    # graphs

    def _capture(self, tid: int) -> list[_Plan]:
        """Capture two of the thread's own streams: two launches, one after the other or not, and one after both."""
        if tid not in OWNERS or self._owner.get(self._private(tid, 0)) != self._owner.get(self._private(tid, 1)):
            return []
        one, two = self._private(tid, 0), self._private(tid, 1)
        fork, join, graph = 0xE700 + tid, 0xE800 + tid, 0x6000 + tid
        makers: list[int] = []

        def node(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            makers.append(number)
            return {}, 0

        def made(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            before = ((), (0,), (0,), (1, 2))
            self._execs[graph] = Exec([Node(maker, before[place]) for place, maker in enumerate(makers)])
            return {"graph": graph}, 0

        launches = [_Plan("cuda.launch", {"stream": stream}, node) for stream in (one, two, one, one)]
        return [
            _Plan("cuda.graph.capture_begin", {"stream": one}, _nothing),
            launches[0],
            _Plan("cuda.event.record", {"stream": one, "event": fork}, _nothing),
            _Plan("cuda.stream.wait_event", {"stream": two, "event": fork}, _nothing),
            launches[1],
            _Plan("cuda.event.record", {"stream": two, "event": join}, _nothing),
            launches[2],
            _Plan("cuda.stream.wait_event", {"stream": one, "event": join}, _nothing),
            launches[3],
            _Plan("cuda.graph.capture_end", {"stream": one}, made),
            *self._instantiated(tid, graph),
        ]

    def _instantiated(self, tid: int, graph: int) -> list[_Plan]:
        handle = 0xA000 + tid

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._execs[handle] = Exec(self._execs[graph].nodes)
            return {"graph_exec": handle}, 0

        destroy = _Plan("cuda.graph.exec.destroy", {"graph_exec": handle}, _nothing)
        make = _Plan("cuda.graph.instantiate", {"graph": graph}, effect)
        throw = _Plan("cuda.graph.destroy", {"graph": graph}, _nothing)
        return [destroy, make, throw] if self.random.random() < 0.5 else [make, throw]

    def _build(self, tid: int) -> list[_Plan]:
        """Build a graph node by node: it records a CUDA event and waits for one, among kernels."""
        if tid not in OWNERS:
            return []
        graph, nodes = 0x6000 + tid, list[Node]()
        naming = (NodeKind.EVENT_WAIT,) if self._plain else (NodeKind.EVENT_WAIT, NodeKind.EVENT_RECORD)
        kinds = self.random.choices((NodeKind.KERNEL, NodeKind.KERNEL, *naming), k=4)
        plans = [_Plan("cuda.graph.create", {}, lambda now, number: ({"graph": graph}, 0))]
        for place, kind in enumerate(kinds):
            before = tuple(sorted(self.random.sample(range(place), k=min(place, self.random.choice((0, 1, 2))))))
            plans.append(self._node(graph, nodes, kind, before))

        def done(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self._execs[graph] = Exec(tuple(nodes))
            return {"node": nodes[0].maker + 0x9000}, 0

        return [*plans, _Plan("cuda.graph.params", {}, done), *self._instantiated(tid, graph)]

    def _node(self, graph: int, nodes: list[Node], kind: NodeKind, before: tuple[int, ...]) -> _Plan:
        event = self.random.choice(EVENTS) if kind != NodeKind.KERNEL else 0
        records = event if kind == NodeKind.EVENT_RECORD else 0

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            handles = {f"dependency_{n}": nodes[place].maker + 0x9000 for n, place in enumerate(before)}
            nodes.append(Node(number, before, records, event - records))
            return {"node": number + 0x9000, **handles}, 0

        columns = {"graph": graph, "node_kind": int(kind), "dependencies": len(before), "event": event}
        return _Plan("cuda.graph.node", columns, effect)

    def _launch(self, tid: int) -> list[_Plan]:
        handle, stream = 0xA000 + tid, self._a_stream(tid)
        if handle not in self._execs or (self._lacks_context(tid)):
            return []

        def effect(now: int, number: int) -> tuple[Mapping[str, Any], int]:
            self.device.launch(number, self._stream(tid, stream), now, self._execs[handle])
            return {}, 0

        return [_Plan("cuda.graph.launch", {"stream": stream, "graph_exec": handle}, effect)]


_FRAGMENTS: Sequence[Callable[[Program, int], list[_Plan]]] = (
    *[Program._work] * 8,
    Program._copy,
    *[Program._record] * 4,
    Program._record_context,
    *[Program._wait] * 3,
    Program._foreign,
    *[Program._synchronize] * 2,
    Program._synchronize_context,
    Program._synchronize_event,
    *[Program._query] * 4,
    Program._elapsed,
    *[Program._renew] * 3,
    Program._set_context,
    Program._capture,
    Program._build,
    *[Program._launch] * 3,
)


def _fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in columns.items() if name in Call.__struct_fields__}
    return {**own, "more": {name: value for name, value in columns.items() if name not in own}}


def recorded(program: Program, *, attached: bool, lossy: bool) -> Story:
    """Return what a recorder makes of a program: it sees some calls only at their entry, and stops while some still run.

    Args:
        program: that has run.
        attached: whether the recording begins in its midst.
        lossy: whether records are lost, of one kind or of any, in some windows.
    """
    random, story = program.random, Story()
    last = max(call.begin for call in program.calls)
    first = min(_attach(program, random.randint(0, last // 2)), last) if attached else 0
    for _ in range(random.choice((1, 2)) if lossy else 0):
        kind, begin = (
            random.choice(("", *_HANDLES, *sorted({call.kind for call in program.calls}))),
            random.randint(first, last),
        )
        story.lose(kind, begin, begin + random.choice((10, 200, 2000)))
    seen = (call for call in program.calls if call.begin >= first and not _lost(call, story))
    story.calls = [_as_seen(call, last, random) for call in seen]
    return story


def _attach(program: Program, time_ns: int) -> int:
    """The first moment from a time on at which no CUDA event is being recorded.

    Such a call would not be seen, and the model takes it that there is none, and says so.
    """
    while running := [call for call in program.calls if _records(call) and call.begin < time_ns < call.end]:
        time_ns = max(call.end for call in running)
    return time_ns


def _records(call: Call) -> bool:
    return call.kind in (RECORD, "cuda.graph.launch")


def _lost(call: Call, story: Story) -> bool:
    return any(one.kind in ("", call.kind) and one.from_ns <= call.end <= one.to_ns for one in story.losses)


def _as_seen(call: Call, last: int, random: Random) -> Call:
    if call.end > last:
        return msgspec.structs.replace(call, end=last, flags=OPEN, result=0)
    # the model takes a call for successful whose result is not recorded, and says so
    if call.kind in ENTRY_ONLY and not call.result and random.random() < 0.1:
        return msgspec.structs.replace(call, end=call.begin, flags=int(Flags.TASK | Flags.ENTRY_ONLY), result=0)
    return call
