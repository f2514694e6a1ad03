# SPDX-License-Identifier: Apache-2.0
"""Random programs of CUDA calls, for hypothesis: mostly right ones, with mistakes now and then."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from fencepath_cuda.simcuda.programs import Program, Thread

__all__ = ["programs", "racing_programs"]

STREAMS, EVENTS, BUFFERS, GRAPHS = 4, 3, 2, 2
NON_BLOCKING = 1
EXTERNAL = 1


class _Writer:
    """Writes steps and knows enough of what they do to make sense most of the time."""

    def __init__(self, draw: st.DrawFn, program: Program) -> None:
        self._draw = draw
        self.program = program
        self.thread = program.on(0)
        self.capturing: set[str] = set()
        self._node = 0

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def one_of(self, *values: str) -> str:
        return self._draw(st.sampled_from(values))

    def stream(self) -> str:
        return self.one_of(*(f"s{number}" for number in range(STREAMS)), "s0", "s1", "null", "own")

    def event(self) -> str:
        return f"e{self.number(0, EVENTS - 1)}"

    def add(self, step: str, *arguments: str | int) -> None:
        """Add a step, sometimes through the function for per-thread default streams."""
        if "null" in arguments and step in _PER_THREAD and self.number(0, 3) == 0:
            step = f"ptsz {step}"
        self.thread.add(step, *arguments)

    def set_up(self) -> None:
        for device in (0, 1):
            self.thread.add("ctx_create", f"c{device}", device, 0)
            for number in range(device * 2, device * 2 + 2):
                self.thread.add("stream_create", f"s{number}", self.number(0, 1), 0)
        self.thread.add("ctx_set", "c0")
        for number in range(EVENTS):
            self.thread.add("event_create", f"e{number}", self.number(0, 1))
        for number in range(BUFFERS):
            self.thread.add("alloc", f"b{number}", 4096)
        self.thread.add("alloc_host", "h0", 4096)

    def step(self) -> None:
        self._draw(st.sampled_from(_STEPS))(self)

    def work(self) -> None:
        stream = self.stream()
        step = self.one_of(
            "launch", "launch", "launch", "launch_ex", "htod_async", "dtoh_async", "memset_async", "host"
        )
        if step in ("htod_async", "dtoh_async"):
            device, host = "b0", self.one_of("h0", "pageable")
            ends = (device, host) if step == "htod_async" else (host, device)
            self.add(step, *ends, self.number(1, 4096), stream)
        elif step == "memset_async":
            self.add(step, "b1", 7, self.number(1, 4096), stream)
        else:
            self.add(step, stream, 1000 * self.number(1, 150))

    def record(self) -> None:
        self.add("record", self.event(), self.stream())

    def wait(self) -> None:
        self.add("wait", self.stream(), self.event(), 0)

    def fork_and_join(self) -> None:
        """What streams are made to do: work on one, a CUDA event, work on another."""
        first, second, event = self.stream(), self.stream(), self.event()
        self.add("launch", first, 1000 * self.number(1, 80))
        self.add("record", event, first)
        self.add("wait", second, event, 0)
        self.add("launch", second, 1000 * self.number(1, 80))

    def synchronize(self) -> None:
        step = self.one_of("stream_sync", "event_sync", "ctx_sync", "stream_query", "event_query", "elapsed")
        if step in ("stream_sync", "stream_query"):
            self.add(step, self.stream())
        elif step == "elapsed":
            self.add(step, self.event(), self.event())
        else:
            self.add(step, *([self.event()] if step != "ctx_sync" else []))

    def blocking_copy(self) -> None:
        steps: dict[str, tuple[str | int, ...]] = {
            "dtoh": ("h0", "b0", 512),
            "htod": ("b0", "h0", 512),
            "memset": ("b1", 3, 512),
        }
        step = self.one_of(*steps)
        self.add(step, *steps[step])

    def context(self) -> None:
        which = f"c{self.number(0, 1)}"
        step = self.one_of("ctx_set", "ctx_push", "ctx_pop", "ctx_sync_of")
        self.add(step, *([which] if step != "ctx_pop" else []))
        if step == "ctx_pop":
            self.add("ctx_set", which)  # so that there is one

    def replace(self) -> None:
        """Destroy something with what it has to do, and create another, which gets its handle."""
        if self.number(0, 1):
            stream = f"s{self.number(0, STREAMS - 1)}"
            self.add("stream_destroy", stream)
            self.add("stream_create", stream, self.number(0, 1), 0)
        else:
            event = self.event()
            self.add("event_destroy", event)
            self.add("event_create", event, 0)

    def capture(self) -> None:
        """A capture over one stream or two, made executable and launched."""
        number = self.number(0, GRAPHS - 1)
        origin, other = self.one_of("s0", "s1"), self.one_of("s0", "s1")
        self.add("begin", origin, 2)
        for _ in range(self.number(0, 3)):
            self.add("launch", origin, 1000 * self.number(1, 50))
            if other != origin and self.number(0, 1):
                self.add("record", "e0", origin)
                self.add("wait", other, "e0", 0)
                for _ in range(self.number(0, 2)):
                    self.add(self.one_of("launch", "host"), other, 1000 * self.number(1, 50))
                if self.number(0, 1):
                    self.add("launch", origin, 1000)
                self.add("record", "e1", other)
                self.add("wait", origin, "e1", 0)
        if self.number(0, 4) == 0:
            self.add("record_flags", "e2", origin, EXTERNAL)
        self.add("end", origin, f"g{number}")
        self._make(number)

    def build(self) -> None:
        """A graph of nodes added one by one."""
        number, first = self.number(0, GRAPHS - 1), self._node
        self.add("graph_create", f"g{number}")
        for node in range(first, first + self.number(1, 5)):
            before = [f"n{other}" for other in range(first, node) if self.number(0, 1)]
            kinds = ["graph_kernel", "graph_kernel", "graph_empty", "graph_host", "graph_wait"]
            # of two records of one CUDA event in a graph it is not known which is the last
            kind = self.one_of(*kinds, *(["graph_record"] if node == first else []))
            more: list[str | int] = [1000 * self.number(1, 50)] if kind in ("graph_kernel", "graph_host") else []
            # nothing says which comes first where a graph records and waits for one CUDA event
            more = ["e0"] if kind == "graph_record" else ["e1"] if kind == "graph_wait" else more
            self.add(kind, f"g{number}", f"n{node}", *more, *before)
            self._node = (node + 1) % 200
        self._make(number)

    def _make(self, number: int) -> None:
        graph, ready = f"g{number}", f"x{number}"
        how = self.number(0, 5)
        if how == 0:
            self.add("update", ready, graph)
        elif how == 1:
            self.add("exec_destroy", ready)
            self.add("instantiate", ready, graph, 0)
        else:
            self.add("instantiate", ready, graph, 0)
        for _ in range(self.number(0, 2)):
            self.launch_graph()

    def launch_graph(self) -> None:
        self.add("graph_launch", f"x{self.number(0, GRAPHS - 1)}", self.one_of("s0", "s1", "s0", "null"))

    def pool(self) -> None:
        stream = self.one_of("s0", "s1")
        self.add("alloc_async", "b9", 512, stream)
        self.add("launch", stream, 2000)
        self.add("free_async", "b9", stream)


_PER_THREAD = frozenset(
    {"launch", "htod_async", "dtoh_async", "memset_async", "record", "wait", "stream_sync", "stream_query"}
)

_STEPS: tuple[Callable[[_Writer], None], ...] = (
    *[_Writer.work] * 6,
    *[_Writer.fork_and_join] * 3,
    *[_Writer.record] * 2,
    *[_Writer.wait] * 2,
    *[_Writer.synchronize] * 4,
    _Writer.blocking_copy,
    _Writer.context,
    _Writer.replace,
    *[_Writer.capture] * 2,
    _Writer.build,
    *[_Writer.launch_graph] * 2,
    _Writer.pool,
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of up to three threads that take turns, so that the order of all calls is known."""
    program = Program()
    writer = _Writer(draw, program)
    writer.set_up()
    threads = draw(st.sampled_from((1, 1, 2, 3)))
    for number in range(1, threads):
        writer.thread = program.on(number).add("barrier", 0)
    program.on(0)
    if threads > 1:
        program.on(0).add("barrier", 0)
    for number in range(1, threads):
        program.on(number).add("ctx_set", f"c{draw(st.integers(0, 1))}")
    for turn in range(1, draw(st.integers(1, 5)) + 1):
        writer.thread = program.on(draw(st.integers(0, threads - 1)))
        for _ in range(draw(st.integers(1, 8))):
            writer.step()
        if threads > 1:
            for number in range(threads):
                program.on(number).add("barrier", turn)
    return program


@st.composite
def racing_programs(draw: st.DrawFn) -> Program:
    """Threads that all use the same streams and CUDA events at once, without graphs."""
    program = Program()
    writer = _Writer(draw, program)
    writer.set_up()
    threads: list[Thread] = [program.on(number).add("barrier", 0) for number in range(3)]
    steps = (_Writer.work, _Writer.fork_and_join, _Writer.record, _Writer.wait, _Writer.synchronize)
    for number, thread in enumerate(threads):
        writer.thread = thread
        if number:
            thread.add("ctx_set", "c0")
        for _ in range(draw(st.integers(5, 15))):
            draw(st.sampled_from(steps))(writer)
    return program
