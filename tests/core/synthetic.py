# SPDX-License-Identifier: Apache-2.0
"""Builds recordings of things that never happened, to know exactly what must be read out of them.

    story = Story()
    story.request("r", 100, 900, tid=7)
    story.call("launch", 150, 200, tid=7, fence=1)
    story.job(300, 600, fence=1)
    story.wait(250, 650, tid=7, fence=1)
    analysis = story.analysis(tmp_path)

The recordings are real ones on disk. Two test plugins come with them: the layer ``toy`` (calls, waits, copies, and jobs
of a device, tied by fences and rings) and the layer ``sched`` (switches and wake-ups). Times are CLOCK_MONOTONIC in ns.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fencepath._builtin.events import MARK_LAYOUTS, MARK_POINT, MARK_TEXT, PROCESS_LAYOUTS
from fencepath._builtin.marks import PHASES, Op
from fencepath._engine.processes import THREAD_FLAG
from fencepath._loader import Registry, load_plugins
from fencepath.analysis import Analysis
from fencepath.clocks import ClockSample
from fencepath.entities import Entities
from fencepath.events import U32, U64, Batch, Category, Event, Key, KindInfo, Role
from fencepath.joins import Confidence, JoinRule, Order, Pick, Relation, Select
from fencepath.mark import request_id_hash
from fencepath.plugin import API_VERSION, AttributeValue, LayerInfo, hookimpl
from fencepath.recording import KindInfo as RecordedKind
from fencepath.recording import LossRow, Recording, RecordingWriter, new_manifest, open_recording
from fencepath.records import HEADER, INTERVAL, Field, Flags, Layouts, RecordLayout, Records

__all__ = ["BOOT_ID", "PID", "RULES", "SchedPlugin", "Story", "ToyPlugin", "plugins", "served_requests"]

BOOT_ID = "01234567-89ab-cdef-0123-456789abcdef"
PID = 100
FENCE = Key("fence_id", "toy.fence")
RING = Key("ring_id", "toy.ring")
_KEYS = (Field("function", "u32"), Field("ring", "u32"), Field("fence", "u64"))


class ToyCall(Event, frozen=True, kw_only=True, tag="toy.call"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(FENCE, RING))
    function: U32
    ring: U32
    fence: U64


class ToySubmit(Event, frozen=True, kw_only=True, tag="toy.submit"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT, keys=(FENCE, RING))
    function: U32
    ring: U32
    fence: U64


class ToyWait(Event, frozen=True, kw_only=True, tag="toy.wait"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, keys=(FENCE,))
    function: U32
    ring: U32
    fence: U64


class ToyCopy(Event, frozen=True, kw_only=True, tag="toy.copy"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER, keys=(FENCE, RING))
    function: U32
    ring: U32
    fence: U64


class ToyJob(Event, frozen=True, kw_only=True, tag="toy.job"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(FENCE, RING))
    function: U32
    ring: U32
    fence: U64


class Switch(Event, frozen=True, kw_only=True, tag="sched.switch"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.RUN_STATE)
    prev_tid: U32
    prev_state: U32
    next_tid: U32


class Waking(Event, frozen=True, kw_only=True, tag="sched.waking"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.WAKE)
    wakee_tid: U32


TOY = (ToyCall, ToySubmit, ToyWait, ToyCopy, ToyJob)
TOY_LAYOUTS = tuple(
    RecordLayout(kind, (*INTERVAL, *_KEYS)) for kind in ("toy.call", "toy.submit", "toy.wait", "toy.copy", "toy.job")
)
SCHED_LAYOUTS = (
    RecordLayout(
        "sched.switch", (*HEADER, Field("prev_tid", "u32"), Field("prev_state", "u32"), Field("next_tid", "u32"))
    ),
    RecordLayout("sched.waking", (*HEADER, Field("wakee_tid", "u32"))),
)
RULES = (
    JoinRule(
        name="toy.launch", cause=Select(kind="toy.call"), effect=Select(kind="toy.job"), on=("fence_id",),
        relation=Relation.SAME, pick=Pick.LATEST, order=Order.START_START, gap=Category.LAUNCH_QUEUE,
    ),
    JoinRule(
        name="toy.ring", cause=Select(kind="toy.job"), effect=Select(kind="toy.job"), on=("ring_id",),
        relation=Relation.LAST_BEFORE, pick=Pick.LATEST, order=Order.FINISH_START, gap=Category.DEPENDENCY,
    ),
    JoinRule(
        name="toy.done", cause=Select(kind="toy.job"), effect=Select(kind="toy.wait"), on=("fence_id",),
        relation=Relation.SAME, pick=Pick.LATEST, order=Order.FINISH_FINISH, gap=Category.DRIVER,
        confidence=Confidence.BOUNDED,
    ),
)  # fmt: skip


class _Decoder:
    def __init__(self, functions: Mapping[str, Sequence[str]]) -> None:
        self._functions = tuple(functions.get("toy", ()))

    def decode(self, kind: str, records: Records) -> Batch:
        batch = Batch.from_records(kind, records)
        if kind.startswith("toy."):
            batch.columns["label"] = batch["function"]
            batch.labels = self._functions
        return batch


class _Tracker:
    def update(self, batch: Batch, entities: Entities) -> None:
        for key, column in ((FENCE, "fence"), (RING, "ring")):
            named = batch[column] != 0
            batch.columns[key.column] = entities.intern_columns(
                key.entity, [batch[column]], lambda number, key=key: f"{key.entity}:{number}", named
            )


class ToyPlugin:
    """The layer ``toy``."""

    def __init__(self, rules: Sequence[Any] = RULES) -> None:
        self._rules = rules

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(name="toy", title="a device that does as it is told", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return TOY

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> _Decoder:
        return _Decoder(functions)

    @hookimpl
    def fencepath_entities(self) -> _Tracker:
        return _Tracker()

    @hookimpl
    def fencepath_rules(self) -> Sequence[Any]:
        return self._rules

    @hookimpl
    def fencepath_span_attributes(self, kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        return {"toy.fence": row["fence"]} if row["fence"] else {}


class SchedPlugin:
    """The layer ``sched``."""

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(name="sched", title="a scheduler that does as it is told", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (Switch, Waking)

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> _Decoder:
        return _Decoder(functions)


def plugins(*others: object, rules: Sequence[Any] = RULES) -> Registry:
    """Load core's own layers, ``toy``, ``sched`` and others, and nothing that is installed."""
    extra = {"toy": ToyPlugin(rules), "sched": SchedPlugin()} | {f"other{i}": other for i, other in enumerate(others)}
    return load_plugins(extra=extra, entry_points=False)


class Story:
    """What shall have happened; every method is one event or a few. The order of calls does not matter.

    Args:
        sched: whether the layer ``sched`` was recorded.
    """

    def __init__(self, *, sched: bool = True) -> None:
        layouts = [*MARK_LAYOUTS, *PROCESS_LAYOUTS, *TOY_LAYOUTS, *(SCHED_LAYOUTS if sched else ())]
        self.layouts = {layout.kind: layout for layout in layouts}
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._functions: dict[str, int] = {"wait": 0, "copy": 1, "job": 2}
        self._losses: list[LossRow] = []
        self._facts: list[tuple[str, dict[str, Any]]] = []
        self._clocks: list[ClockSample] = []

    def add(self, kind: str, time_ns: int, tid: int, flags: Flags = Flags.TASK, pid: int = PID, **fields: Any) -> None:
        """Add a record of any kind."""
        self._rows[kind].append({"time_ns": time_ns, "tgid": pid, "tid": tid, "flags": int(flags), **fields})

    def request(
        self, key: str, begin: int | None, end: int | None, tid: int, end_tid: int | None = None,
        trace_id: str = "", parent_span_id: str = "", trace_flags: int = 1,
    ) -> None:  # fmt: skip
        """Begin and end of a request; None leaves one out."""
        text = key.encode()
        if begin is not None:
            self.add(
                MARK_TEXT, begin, tid, op=Op.REQUEST_BEGIN, request=request_id_hash(key),
                text=_bytes(text, 256), len=len(text), trace_id=_bytes(bytes.fromhex(trace_id), 16), span_id=_bytes(bytes.fromhex(parent_span_id), 8),
                trace_flags=trace_flags if trace_id else 0,
            )  # fmt: skip
        if end is not None:
            self.mark(Op.REQUEST_END, end, tid if end_tid is None else end_tid, key)

    def mark(self, op: Op, time_ns: int, tid: int, key: str, value: int = 0, phase: str = "none") -> None:
        """A mark without text."""
        self.add(MARK_POINT, time_ns, tid, op=op, request=request_id_hash(key), value=value, phase=PHASES.index(phase))

    def phase(self, key: str, phase: str, begin: int, end: int, tid: int) -> None:
        """A phase of a request."""
        self.mark(Op.PHASE_BEGIN, begin, tid, key, phase=phase)
        self.mark(Op.PHASE_END, end, tid, key, phase=phase)

    def attribute(self, key: str, text: str, time_ns: int, tid: int) -> None:
        """``name=value`` that the program said of a request."""
        data = text.encode()
        self.add(
            MARK_TEXT,
            time_ns,
            tid,
            op=Op.ATTRIBUTE,
            request=request_id_hash(key),
            text=_bytes(data, 256),
            len=len(data),
        )

    def _toy(self, kind: str, name: str, begin: int, end: int, tid: int, flags: Flags, ring: int, fence: int) -> None:
        number = self._functions.setdefault(name, len(self._functions))
        self.add(kind, end, tid, flags, begin_ns=begin, function=number, ring=ring, fence=fence)

    def call(
        self, name: str, begin: int, end: int, tid: int, *, ring: int = 0, fence: int = 0, flags: Flags = Flags.TASK
    ) -> None:
        """A thread is inside a function."""
        self._toy("toy.call", name, begin, end, tid, flags, ring, fence)

    def entry(self, name: str, begin: int, tid: int, *, ring: int = 0, fence: int = 0) -> None:
        """A call of which only the entry was recorded."""
        self.call(name, begin, begin, tid, ring=ring, fence=fence, flags=Flags.TASK | Flags.ENTRY_ONLY)

    def submit(self, begin: int, end: int, tid: int, *, fence: int = 0) -> None:
        """A thread hands work to a driver."""
        self._toy("toy.submit", "submit", begin, end, tid, Flags.TASK, 0, fence)

    def wait(self, begin: int, end: int, tid: int, *, fence: int = 0) -> None:
        """A thread waits for the device."""
        self._toy("toy.wait", "wait", begin, end, tid, Flags.TASK, 0, fence)

    def copy(self, begin: int, end: int, tid: int, *, fence: int = 0) -> None:
        """A thread copies."""
        self._toy("toy.copy", "copy", begin, end, tid, Flags.TASK, 0, fence)

    def job(self, begin: int, end: int, *, fence: int, ring: int = 0, name: str = "job") -> None:
        """The device runs a job; whoever was interrupted by its end is named by nobody."""
        self._toy("toy.job", name, begin, end, 0, Flags(0), ring, fence)

    def switch(self, time_ns: int, prev: int, following: int, *, runnable: bool = False) -> None:
        """A CPU goes from one thread to another."""
        self.add("sched.switch", time_ns, prev, prev_tid=prev, prev_state=0 if runnable else 1, next_tid=following)

    def wake(self, time_ns: int, wakee: int, by: int, *, interrupt: bool = False) -> None:
        """A thread is made runnable, by another or by an interrupt that came upon it."""
        self.add("sched.waking", time_ns, by, Flags(0) if interrupt else Flags.TASK, wakee_tid=wakee)

    def sleep(self, tid: int, begin: int, woken: int, runs: int, by: int | None = None) -> None:
        """A thread blocks, is woken by a thread or by an interrupt, and runs again."""
        self.switch(begin, tid, 0)
        self.wake(woken, tid, by if by is not None else 0, interrupt=by is None)
        self.switch(runs, 0, tid)

    def preempt(self, tid: int, begin: int, runs: int) -> None:
        """A thread loses its CPU while it could run."""
        self.switch(begin, tid, 0, runnable=True)
        self.switch(runs, 0, tid)

    def fork(self, time_ns: int, tid: int, child: int, *, process: bool = False) -> None:
        """A thread creates a thread, or a process."""
        self.add("process.fork", time_ns, tid, child_tid=child, clone_flags=0 if process else THREAD_FLAG)

    def thread(self, tid: int, name: str = "", pid: int = PID, time_ns: int = 0) -> None:
        """What the live machine knew of a thread."""
        self._facts.append(("thread", {"pid": pid, "tid": tid, "start_ticks": tid, "time_ns": time_ns, "name": name}))

    def process(self, pid: int = PID, time_ns: int = 0) -> None:
        """What the live machine knew of a process."""
        self._facts.append(("process", {"pid": pid, "start_ticks": pid, "time_ns": time_ns}))

    def loss(self, kind: str, from_ns: int, to_ns: int, count: int, stage: str = "ring") -> None:
        """Records that were lost."""
        self._losses.append(LossRow(stage, kind, 0, from_ns, to_ns, count))

    def realtime(self, time_ns: int, realtime_ns: int, error_ns: int = 10) -> None:
        """A reading of CLOCK_REALTIME."""
        self._clocks.append(
            ClockSample(
                domain="realtime", before_ns=time_ns - error_ns, value_ns=realtime_ns, after_ns=time_ns + error_ns
            )
        )

    def write(self, path: Path, shuffled: random.Random | None = None) -> Recording:
        """Write the recording, with records and batches in a random order if asked, and open it."""
        kinds = {
            kind: RecordedKind(number=number, layer=kind.split(".")[0], fields=layout.fields)
            for number, (kind, layout) in enumerate(self.layouts.items())
        }
        manifest = new_manifest(
            kinds, boot_id=BOOT_ID, host="toyhost", kernel="6.99.0", functions={"toy": tuple(self._functions)}
        )
        pieces = list(self._pieces(shuffled))
        with RecordingWriter(path, manifest) as writer:
            for kind, records in pieces:
                writer.append(kind, records)
                writer.flush()
            for name, fact in self._facts:
                writer.fact(name, fact)
            writer.loss(self._losses)
            for sample in self._clocks:
                writer.clock_sample(sample)
        return open_recording(path)

    def _pieces(self, shuffled: random.Random | None) -> list[tuple[str, Records]]:
        pieces: list[tuple[str, Records]] = []
        for kind, rows in self._rows.items():
            if kind not in self.layouts:
                continue
            records = _records(self.layouts[kind], rows)
            if shuffled is None:
                pieces.append((kind, records[np.argsort(records["time_ns"], kind="stable")]))
                continue
            order = list(range(len(rows)))
            shuffled.shuffle(order)
            cut = shuffled.randint(0, len(rows))
            pieces += [(kind, records[part]) for part in (order[:cut], order[cut:]) if part]
        if shuffled is not None:
            shuffled.shuffle(pieces)
        return pieces

    def analysis(
        self, folder: Path, registry: Registry | None = None, *, without: Sequence[str] = (), name: str = "r"
    ) -> Analysis:
        """Write the recording into a folder and analyse it."""
        recording = self.write(folder / f"{name}.fencepath")
        return Analysis(recording, registry if registry is not None else plugins(), without)


def _records(layout: RecordLayout, rows: Sequence[Mapping[str, Any]]) -> Records:
    records = np.zeros(len(rows), layout.dtype)
    for index, row in enumerate(rows):
        for name, value in row.items():
            records[name][index] = value
    return records


def _bytes(data: bytes, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(data.ljust(size, b"\0"), np.uint8)


def served_requests() -> Story:
    """Two requests as a server has them: ``chat-1`` belongs to a trace and has phases and tokens, ``chat-2`` is short.

    ``chat-1`` takes 10 ms: 1 ms blocked until a thread of the frontend wakes the engine, then launches, one job after the
    other on one ring, and waits.
    """
    engine, frontend = 201, 202
    story = Story()
    story.process()
    story.thread(engine, "engine")
    story.thread(frontend, "frontend")
    story.realtime(0, 1_700_000_000_000_000_000, error_ns=50)
    story.realtime(20_000_000, 1_700_000_000_020_000_300, error_ns=70)
    story.request("chat-1", 1_000_000, 11_000_000, frontend, engine, trace_id="ab" * 16, parent_span_id="cd" * 8)
    story.attribute("chat-1", "gen_ai.request.model=toy-7b", 1_000_100, frontend)
    story.attribute("chat-1", "gen_ai.operation.name=chat", 1_000_200, frontend)
    story.attribute("chat-1", "gen_ai.usage.input_tokens=17", 1_000_300, frontend)
    story.attribute("chat-1", "tenant=seventh", 1_000_400, frontend)
    story.phase("chat-1", "queue", 1_000_500, 2_000_000, frontend)
    story.phase("chat-1", "prefill", 2_000_001, 6_000_000, engine)
    story.phase("chat-1", "decode", 6_000_001, 10_900_000, engine)
    story.mark(Op.TOKEN, 6_500_000, engine, "chat-1", value=1)
    story.mark(Op.TOKEN, 10_800_000, engine, "chat-1", value=2)
    story.sleep(engine, 500_000, 2_000_000, 2_050_000, by=frontend)
    for step, begin in enumerate((2_100_000, 6_600_000), 1):
        story.call("launch", begin, begin + 20_000, engine, ring=1, fence=step)
        story.job(begin + 400_000, begin + 3_800_000, fence=step, ring=1, name="gemm")
        story.wait(begin + 30_000, begin + 3_850_000, engine, fence=step)
        story.sleep(engine, begin + 40_000, begin + 3_810_000, begin + 3_830_000)
    story.request("chat-2", 12_000_000, 13_000_000, engine)
    story.call("tokenize", 12_100_000, 12_900_000, engine)
    return story
