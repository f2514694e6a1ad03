# SPDX-License-Identifier: Apache-2.0
"""What the tests share: calls told one by one, and a run of the real engine over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from fencepath._engine.activities import ActivityTable
from fencepath._engine.edges import EdgeTable
from fencepath._engine.processes import ProcessTable
from fencepath._engine.runstate import RunStates
from fencepath._engine.timeline import Timelines
from fencepath._engine.view import EngineEvents, EngineView
from fencepath._engine.walk import PathColumns, Walker
from fencepath.entities import Entities
from fencepath.events import Batch, Column, Event, Role, columns_of, kind_of
from fencepath.joins import EdgeBatch
from fencepath.recording import LossRow
from fencepath.records import Flags
from fencepath_cuda.drafts import ADDED
from fencepath_cuda.entities import CudaEntities
from fencepath_cuda.events import EVENTS, StreamKind
from fencepath_cuda.events.operation import Operation
from fencepath_cuda.model import OPERATION, SUBMIT, CudaModel, SubmitRule
from fencepath_cuda.rows import SUBMITTING

_ALL: tuple[type[Event], ...] = (*EVENTS, Operation)
CLASSES = {kind_of(event): event for event in _ALL}
COLUMNS = {kind: columns_of(event) for kind, event in CLASSES.items()}
INFOS = {kind: event.info for kind, event in CLASSES.items()}
NAMES_TEXT = frozenset(
    name for columns in COLUMNS.values() for name, dtype in columns.items() if dtype == np.dtype("O")
)

LEGACY, PER_THREAD = 0x1, 0x2
OPEN = int(Flags.TASK | Flags.OPEN)

Name = tuple[int, ...]
"""``(number,)`` is a call; ``(number, maker)`` an operation: of the call that submitted it, and of the call that made the
node, -1 if it is no node."""


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
    more: dict[str, Any] = {}

    @property
    def ok(self) -> bool:
        """Not known to have failed."""
        return not self.returned or self.result == 0

    @property
    def done(self) -> bool:
        return self.returned and self.result == 0

    @property
    def returned(self) -> bool:
        return not self.flags & (Flags.ENTRY_ONLY | Flags.OPEN)

    def get(self, column: str) -> int:
        return int(self.more.get(column, 0))

    def value(self, column: str) -> Any:
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
        return self.more.get(column, own.get(column, "" if column in NAMES_TEXT else 0))


def stream_kind(handle: int) -> StreamKind:
    """What a handle names in a story: 0 is no stream here."""
    if handle in (0, LEGACY, PER_THREAD):
        return (StreamKind.NONE, StreamKind.LEGACY, StreamKind.PER_THREAD)[handle]
    return StreamKind.CREATED


class Edge(msgspec.Struct, frozen=True, order=True):
    """One edge between operations and calls."""

    cause: Name
    effect: Name
    order: str
    confidence: str


class Loss(msgspec.Struct, frozen=True):
    """Records of a kind, "" for any, lost in a window."""

    kind: str
    from_ns: int
    to_ns: int


class Span(msgspec.Struct, frozen=True, order=True):
    """When an operation ran: earliest start, and latest end; -1 for none known."""

    name: Name
    earliest: int
    latest: int


class Story:
    """Calls in the making."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.losses: list[Loss] = []

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

    def lose(self, kind: str, from_ns: int, to_ns: int) -> None:
        """Lose records of a kind, "" for any."""
        self.losses.append(Loss(kind, from_ns, to_ns))

    def run(self) -> Run:
        """Run the engine over it."""
        return Run(_batches(self.calls), self.losses)


class Run:
    """The engine over batches: entities, derived operations, activities and rules."""

    def __init__(self, batches: dict[str, Batch], losses: Sequence[Loss] = ()) -> None:
        loss = [LossRow("ring", one.kind, 0, one.from_ns, one.to_ns, 1) for one in losses]
        self.entities = Entities(loss)
        processes = ProcessTable("boot", [], self.entities)
        processes.build(None, None)
        for batch in batches.values():
            processes.identify(batch)
        tracker = CudaEntities()
        for kind in sorted((kind for kind in CLASSES if kind in batches), key=lambda kind: not _early(kind)):
            tracker.update(batches[kind], self.entities)
        self.model = CudaModel()
        self.events = EngineEvents(batches, CLASSES, loss)
        derived = {batch.kind: batch for batch in self.model.derive(self.events, self.entities) if len(batch)}
        self.batches = {**batches, **derived}
        self.table = ActivityTable(self.batches, INFOS, self.entities)
        self.view = EngineView(self.batches, self.table, 0, CLASSES, loss)
        self.rules = {rule.name: rule for rule in self.model.rules()}
        self.names = [name for kind in self.table.kinds for name in self._names(kind)]

    def _names(self, kind: str) -> list[Name]:
        if kind != OPERATION:
            return [(number,) for number in self.batches[kind]["number"].tolist()]
        rule = self.rules[SUBMIT]
        assert isinstance(rule, SubmitRule)
        operations, place, items = rule.operations, rule.place, rule.operations.items
        code, row = operations.made_by()
        found: list[Name] = [()] * len(operations)
        for operation in range(len(operations)):
            item = operations.item[operation]
            submitted = self._number(SUBMITTING[items.code[item]], int(items.row[item]))
            made = -1
            if operations.node[operation] >= 0:
                source = "cuda.graph.node" if code[operation] == ADDED else SUBMITTING[code[operation]]
                made = self._number(source, int(row[operation]))
            found[place[operation]] = submitted, made
        return found

    def _number(self, kind: str, row: int) -> int:
        return int(self.batches[kind]["number"][row])

    def batches_of(self, rule: str) -> list[EdgeBatch]:
        """What a rule gave."""
        return list(self.rules[rule].apply(self.view))

    def edges(self, rule: str) -> list[Edge]:
        """The edges of a rule, sorted."""
        return sorted(
            Edge(self.names[cause], self.names[effect], str(batch.order), str(batch.confidence))
            for batch in self.batches_of(rule)
            for cause, effect in zip(batch.cause.tolist(), batch.effect.tolist(), strict=True)
        )

    def counts(self, rule: str) -> tuple[int, int]:
        """Return (unmatched, ambiguous) of a rule."""
        batches = self.batches_of(rule)
        return sum(batch.unmatched for batch in batches), sum(batch.ambiguous for batch in batches)

    def spans(self) -> list[Span]:
        """Bounds of every operation, sorted."""
        batch, activities = self.view.batch(OPERATION), self.view.activities(OPERATION)
        columns = (batch[name].tolist() for name in ("begin_ns", "time_ns", "flags"))
        return sorted(
            Span(self.names[activity], begin, -1 if flags & Flags.OPEN else end)
            for activity, begin, end, flags in zip(activities.tolist(), *columns, strict=True)
        )

    def text(self, number: int, column: str) -> str:
        """Text of an entity that a call names, "" for none."""
        kind, row = self.table.locate(self.names.index((number,)))
        entity = int(self.batches[kind][column][row])
        return self.entities.text(entity) if entity >= 0 else ""

    def operation(self, number: int, maker: int = -1) -> Operation:
        """The first operation of that name."""
        batch = self.view.batch(OPERATION)
        rows = [self.names[activity] for activity in self.view.activities(OPERATION)]
        (found,) = batch.take(np.array([rows.index((number, maker))])).events(Operation)
        return found

    def label(self, number: int, maker: int = -1) -> str:
        """What an operation is called."""
        return self.view.batch(OPERATION).labels[self.operation(number, maker).label]

    def walk(self, thread: str, start_ns: int, end_ns: int) -> tuple[PathColumns, tuple[str, ...]]:
        """Return the path that ends on a thread, and the names of its rules."""
        given = [(name, batch) for name in self.rules for batch in self.batches_of(name)]
        edges = EdgeTable(given, self.table, 0)
        states = RunStates(observed=False)
        walker = Walker(self.table, edges, Timelines(self.table, states), states, lambda thread: None, 0)
        texts = [self.entities.text(number) for number in range(len(self.entities))]
        owner = next(number for number, text in enumerate(texts) if text.endswith(thread))
        return walker.path(owner, start_ns, end_ns), walker.rules


def _early(kind: str) -> bool:
    return INFOS[kind].keep or INFOS[kind].role is Role.LIFE


def _batches(calls: Sequence[Call]) -> dict[str, Batch]:
    by_kind: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_kind[call.kind].append(call)
    return {kind: _batch(kind, sorted(mine, key=lambda call: call.end)) for kind, mine in by_kind.items()}


def _batch(kind: str, calls: Sequence[Call]) -> Batch:
    names = (*COLUMNS[kind], "number")
    return batch_of(kind, {name: np.array([call.value(name) for call in calls]) for name in names})


def batch_of(kind: str, columns: dict[str, Column]) -> Batch:
    """Make a batch of a kind; columns that are not given are 0."""
    rows = len(columns["time_ns"])
    every = {name: columns.get(name, np.zeros(rows)).astype(dtype) for name, dtype in COLUMNS[kind].items()}
    return Batch(kind, {**every, "number": columns["number"].astype(np.int64)}, ("call",))
