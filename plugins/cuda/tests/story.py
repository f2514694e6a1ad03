# SPDX-License-Identifier: Apache-2.0
"""What the tests share: calls told one by one, and a run of the real engine over them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import numpy as np

from fencepath._engine.activities import ActivityTable
from fencepath._engine.edges import EdgeTable
from fencepath._engine.processes import ProcessTable
from fencepath._engine.runstate import RunStates
from fencepath._engine.timeline import Timelines
from fencepath._engine.view import EngineView
from fencepath._engine.walk import PathColumns, Walker
from fencepath.entities import Entities
from fencepath.events import Batch, Column, columns_of, kind_of
from fencepath.joins import EdgeBatch, GraphRule
from fencepath.records import Flags
from fencepath_cuda.decoder import LABELS
from fencepath_cuda.entities import CREATES, CudaEntities
from fencepath_cuda.events import EVENTS, StreamKind
from fencepath_cuda.rules import cuda_rules

COLUMNS = {kind_of(event): columns_of(event) for event in EVENTS}
INFOS = {kind_of(event): event.info for event in EVENTS}

LEGACY, PER_THREAD = 0x1, 0x2


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call; `number` is its place in the story."""

    number: int
    kind: str
    begin: int
    end: int
    pid: int = 1
    tid: int = 1
    stream: int = 0
    event: int = 0
    result: int = 0
    flags: int = int(Flags.TASK)
    more: dict[str, int] = {}

    @property
    def failed(self) -> bool:
        return self.returned and self.result != 0

    @property
    def returned(self) -> bool:
        return not self.flags & (Flags.ENTRY_ONLY | Flags.OPEN)

    def value(self, column: str) -> int:
        own = {
            "time_ns": self.end,
            "begin_ns": self.begin,
            "tgid": self.pid,
            "tid": self.tid,
            "flags": self.flags,
            "result": self.result,
            "returned": int(self.returned),
            "stream_handle": self.stream,
            "stream_kind": int(stream_kind(self.stream)),
            "event_handle": self.event,
            "number": self.number,
        }
        return self.more.get(column, own.get(column, 0))


def stream_kind(handle: int) -> StreamKind:
    """What a handle names in a story: 0 is no stream here."""
    if handle in (0, LEGACY, PER_THREAD):
        return (StreamKind.NONE, StreamKind.LEGACY, StreamKind.PER_THREAD)[handle]
    return StreamKind.CREATED


class Edge(msgspec.Struct, frozen=True, order=True):
    """One edge between calls, by their numbers."""

    cause: int
    effect: int
    order: str
    confidence: str


class Story:
    """Calls in the making."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def call(self, kind: str, begin: int, end: int | None = None, **columns: Any) -> int:
        """Tell one call and return its number; without an end it was recorded at entry only."""
        fields = {name: columns.pop(name) for name in Call.__struct_fields__ if name in columns}
        if end is None:
            fields["flags"] = int(Flags.TASK | Flags.ENTRY_ONLY)
        call = Call(
            number=len(self.calls), kind=kind, begin=begin, end=begin if end is None else end, more=columns, **fields
        )
        self.calls.append(call)
        return call.number

    def run(self) -> Run:
        """Run the engine over it."""
        return Run(_batches(self.calls))


class Run:
    """The engine over batches: entities, activities and rules."""

    def __init__(self, batches: dict[str, Batch]) -> None:
        self.entities = Entities()
        processes = ProcessTable("boot", [], self.entities)
        processes.build(None, None)
        self.batches = batches
        for batch in self.batches.values():
            processes.identify(batch)
        tracker = CudaEntities()
        for kind in sorted(self.batches, key=lambda kind: kind not in CREATES):
            tracker.update(self.batches[kind], self.entities)
        self.table = ActivityTable(self.batches, INFOS, self.entities)
        self.view = EngineView(self.batches, self.table, 0)
        self._numbers = np.concatenate([np.empty(0, np.int64), *(batches[kind]["number"] for kind in self.table.kinds)])

    def batches_of(self, rule: str) -> list[EdgeBatch]:
        """What a rule gave."""
        found = next(each for each in cuda_rules() if each.name == rule)
        assert isinstance(found, GraphRule)
        return found.apply(self.view)

    def edges(self, rule: str) -> list[Edge]:
        """The edges of a rule, sorted."""
        return sorted(
            Edge(int(self._numbers[cause]), int(self._numbers[effect]), str(batch.order), str(batch.confidence))
            for batch in self.batches_of(rule)
            for cause, effect in zip(batch.cause.tolist(), batch.effect.tolist(), strict=True)
        )

    def counts(self, rule: str) -> tuple[int, int]:
        """Return (unmatched, ambiguous) of a rule."""
        batches = self.batches_of(rule)
        return sum(batch.unmatched for batch in batches), sum(batch.ambiguous for batch in batches)

    def text(self, number: int, column: str) -> str:
        """Text of an entity that a call names, "" for none."""
        activity = int(np.flatnonzero(self._numbers == number)[0])
        kind, row = self.table.locate(activity)
        entity = int(self.batches[kind][column][row])
        return self.entities.text(entity) if entity >= 0 else ""

    def walk(self, thread: str, start_ns: int, end_ns: int) -> tuple[PathColumns, tuple[str, ...]]:
        """Return the path that ends on a thread, and the names of its rules."""
        given = [
            (rule.name, batch)
            for rule in cuda_rules()
            if isinstance(rule, GraphRule)
            for batch in rule.apply(self.view)
        ]
        edges = EdgeTable(given, self.table, 0)
        states = RunStates(observed=False)
        walker = Walker(self.table, edges, Timelines(self.table, states), states, lambda thread: None, 0)
        texts = [self.entities.text(number) for number in range(len(self.entities))]
        return walker.path(
            next(i for i, text in enumerate(texts) if text.endswith(thread)), start_ns, end_ns
        ), walker.rules


def _batches(calls: list[Call]) -> dict[str, Batch]:
    by_kind: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_kind[call.kind].append(call)
    return {kind: _batch(kind, sorted(mine, key=lambda call: call.end)) for kind, mine in by_kind.items()}


def _batch(kind: str, calls: list[Call]) -> Batch:
    names = (*COLUMNS[kind], "number")
    return batch_of(kind, {name: np.array([call.value(name) for call in calls]) for name in names})


def batch_of(kind: str, columns: dict[str, Column]) -> Batch:
    """Make a batch of a kind; columns that are not given are 0."""
    rows = len(columns["time_ns"])
    every = {name: columns.get(name, np.zeros(rows)).astype(dtype) for name, dtype in COLUMNS[kind].items()}
    return Batch(kind, {**every, "number": columns["number"].astype(np.int64)}, LABELS)
