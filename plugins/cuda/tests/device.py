# SPDX-License-Identifier: Apache-2.0
"""A simulated device, which obeys what CUDA documents and nothing more: how long things take is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

import msgspec
from plugins.cuda.tests.story import LEGACY, Name

Stream = tuple[int, int, int]
"""Context, handle and, of a per-thread stream, the thread; of a created one how often its handle had been created."""


class Ran(msgspec.Struct, frozen=True):
    """When an operation ran."""

    start: int
    end: int


class Node(msgspec.Struct, frozen=True):
    """A node of a graph: the call that made it, and the places of those it waits for."""

    maker: int
    before: tuple[int, ...]
    records: int = 0
    waits_for: int = 0


class Exec:
    """An executable graph, and when its last launch ended."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes, self.end = nodes, 0


class Device:
    """Streams of several contexts. Every method is called when a call takes effect, in that order, with that time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last: dict[Stream, int] = defaultdict(int)
        self._free: set[Stream] = set()
        self._kernel: dict[Stream, Ran] = {}
        self.events: dict[int, int] = {}
        self.ran: dict[Name, Ran] = {}

    def create(self, stream: Stream, non_blocking: bool) -> None:
        if non_blocking:
            self._free.add(stream)
        self._last[stream] = 0

    def _orders(self, stream: Stream) -> list[Stream]:
        """Streams that hold up what is put on one."""
        context, handle, _ = stream
        if handle == LEGACY:
            return [each for each in self._last if each[0] == context and each not in self._free]
        return [stream] if stream in self._free else [stream, (context, LEGACY, 0)]

    def idle_at(self, stream: Stream) -> int:
        """When what is on a stream now has finished; of a legacy stream with all that it waits for."""
        legacy = stream[1] == LEGACY
        return max((self._last[each] for each in (self._orders(stream) if legacy else [stream])), default=0)

    def all_idle_at(self, context: int) -> int:
        return max((end for stream, end in self._last.items() if stream[0] == context), default=0)

    def _ready(self, stream: Stream, now: int) -> int:
        return max([now, *(self._last[each] for each in self._orders(stream))])

    def _gap(self) -> int:
        return self._random.choice((0, 0, 1, 7, 30))

    def _length(self) -> int:
        return self._random.choice((1, 3, 10, 60, 200))

    def run(self, name: Name, stream: Stream, now: int, *, kernel: bool = False, early: bool = False) -> int:
        """Put an operation on a stream and return when it will have ended."""
        before = self._kernel.get(stream)
        ready = self._ready(stream, now)
        if early and kernel and before:
            others = [self._last[each] for each in self._orders(stream) if each != stream]
            ready = max(now, before.start, *others)
        start = ready + self._gap()
        return self._end(name, stream, Ran(start, start + self._length()), kernel)

    def _end(self, name: Name, stream: Stream, ran: Ran, kernel: bool = False) -> int:
        self.ran[name] = ran
        self._last[stream] = max(self._last[stream], ran.end)
        self._kernel.pop(stream, None)
        if kernel:
            self._kernel[stream] = ran
        return ran.end

    def record(self, name: Name, stream: Stream, now: int, event: int) -> None:
        done = self._ready(stream, now) + self._gap()
        self.events[event] = self._end(name, stream, Ran(done, done))

    def wait(self, name: Name, stream: Stream, now: int, event: int) -> None:
        done = max(self._ready(stream, now), self.events.get(event, 0)) + self._gap()
        self._end(name, stream, Ran(done, done))

    def launch(self, number: int, stream: Stream, now: int, graph: Exec) -> None:
        """Put a graph on a stream."""
        ready, events = max(self._ready(stream, now), graph.end), dict(self.events)
        ends: list[int] = []
        for node in graph.nodes:
            waited = events.get(node.waits_for, 0)
            start = max((ready, waited, *(ends[place] for place in node.before))) + self._gap()
            ends.append(start + (0 if node.records or node.waits_for else self._length()))
            self.ran[number, node.maker] = Ran(start, ends[-1])
            if node.records:
                self.events[node.records] = ends[-1]
        graph.end = max(ends)
        self._last[stream] = max(self._last[stream], graph.end)
        self._kernel.pop(stream, None)
