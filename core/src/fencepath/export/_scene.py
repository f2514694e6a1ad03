# SPDX-License-Identifier: Apache-2.0
"""What a trace viewer shows of an analysis: tracks, slices on them, and arrows between slices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from fencepath._engine.edges import ORDERS
from fencepath.analysis import Analysis
from fencepath.entities import NO_ENTITY
from fencepath.events import Role
from fencepath.joins import Order
from fencepath.report import RequestReport
from fencepath.requests import Request

__all__ = ["Flow", "Scene", "Slice", "Track", "lanes", "scene_of"]

_THREAD = re.compile(r"(?P<process>process:.*/(?P<pid>\d+)@[^/]*)/(?P<tid>\d+)@[^/]*")
_NOT_SHOWN = frozenset({Role.RUN_STATE, Role.WAKE})
"""Kinds of which there are many and whose meaning is in the path; they are not intervals of anything."""


class Track(msgspec.Struct, frozen=True):
    """A line of slices.

    Attributes:
        name: unique.
        title: what to write beside it.
        pid: process, 0 if it belongs to none.
        tid: thread, 0 if it is none.
        process: text of the process, "" if it belongs to none.
    """

    name: str
    title: str
    pid: int = 0
    tid: int = 0
    process: str = ""


class Slice(msgspec.Struct, frozen=True):
    """An interval, or an instant if it begins when it ends. Times are CLOCK_MONOTONIC in ns."""

    track: str
    begin_ns: int
    end_ns: int
    name: str
    category: str
    details: Mapping[str, str | int | bool]


class Flow(msgspec.Struct, frozen=True):
    """An arrow from one slice to another, as indices."""

    cause: int
    effect: int
    rule: str


class Scene(msgspec.Struct, frozen=True):
    """Everything to show."""

    tracks: Mapping[str, Track]
    slices: Sequence[Slice]
    flows: Sequence[Flow]


def scene_of(analysis: Analysis, requests: Sequence[Request]) -> Scene:
    """Return activities within the requests, the edges between them, and a track with the path of each request."""
    builder = _Builder(analysis)
    builder.add_activities(requests)
    builder.add_flows()
    for report in analysis.report(requests).requests:
        builder.add_path(report)
    return Scene(builder.tracks, builder.slices, builder.flows)


class _Builder:
    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._places: dict[int, int] = {}
        self._broadest: dict[str, Sequence[str]] = {}
        self.tracks: dict[str, Track] = {}
        self.slices: list[Slice] = []
        self.flows: list[Flow] = []

    def add_activities(self, requests: Sequence[Request]) -> None:
        table = self._analysis.table
        within = np.zeros(len(table), np.bool_)
        for request in requests:
            within |= (table.end >= request.start_ns) & (table.begin <= request.end_ns)
        within &= ~table.bounds  # what has bounds for times would be drawn over all that it may have overlapped
        kinds = self._analysis.registry.kinds
        for kind in table.kinds:
            if kinds[kind].role not in _NOT_SHOWN:
                activities = table.of_kind(kind)
                for activity in activities[within[activities]].tolist():
                    self._places[activity] = len(self.slices)
                    self.slices.append(self._slice(kind, activity))

    def _slice(self, kind: str, activity: int) -> Slice:
        table = self._analysis.table
        track = self._track_of(kind, activity)
        self._add_track(track)
        entities = table.entities(activity)
        details: dict[str, str | int | bool] = {"kind": kind, "id": table.id(activity)}
        if entities:
            details["entities"] = " ".join(entities)
        layer = kind.split(".", maxsplit=1)[0]
        return Slice(track, int(table.begin[activity]), int(table.end[activity]), table.name(activity), layer, details)

    def _track_of(self, kind: str, activity: int) -> str:
        """The thread; of what is on none the entity that most is done on: a stream rather than a fence."""
        batch = self._analysis.view.batch(kind)
        row = self._analysis.table.locate(activity)[1]
        if int(batch["thread"][row]) != NO_ENTITY:
            return self._analysis.entity_text(int(batch["thread"][row]))
        for column in self._broadest_first(kind):
            if int(batch[column][row]) != NO_ENTITY:
                return self._analysis.entity_text(int(batch[column][row]))
        return kind

    def _broadest_first(self, kind: str) -> Sequence[str]:
        if kind not in self._broadest:
            batch = self._analysis.view.batch(kind)
            keys = [key.column for key in self._analysis.registry.kinds[kind].keys if key.column in batch]
            self._broadest[kind] = sorted(keys, key=lambda column: len(np.unique(batch[column])))
        return self._broadest[kind]

    def _add_track(self, text: str) -> None:
        if text in self.tracks:
            return
        thread = _THREAD.fullmatch(text.removeprefix("thread:")) if text.startswith("thread:") else None
        if thread is None:
            self.tracks[text] = Track(text, text)
            return
        name = self._analysis.thread_names.get(text, "")
        self.tracks[text] = Track(
            text, name or f"thread {thread['tid']}", int(thread["pid"]), int(thread["tid"]), thread["process"]
        )

    def add_flows(self) -> None:
        edges = self._analysis.edges
        self._stand_in()
        pairs = zip(edges.cause.tolist(), edges.effect.tolist(), edges.rule.tolist(), strict=True)
        for cause, effect, rule in pairs:
            if cause in self._places and effect in self._places and self._places[cause] != self._places[effect]:
                self.flows.append(Flow(self._places[cause], self._places[effect], edges.rules[rule]))

    def _stand_in(self) -> None:
        """Let the call that submitted an operation stand for it where the operation itself has no slice."""
        table, edges = self._analysis.table, self._analysis.edges
        starts = edges.order == ORDERS.index(Order.START_START)
        for edge in np.flatnonzero(starts & table.bounds[edges.effect] & ~table.bounds[edges.cause]).tolist():
            place = self._places.get(int(edges.cause[edge]))
            if place is not None:
                self._places.setdefault(int(edges.effect[edge]), place)

    def add_path(self, report: RequestReport) -> None:
        track = f"path:{report.id}"
        self.tracks[track] = Track(track, f"critical path of {report.key}")
        for segment in report.path.segments:
            details: dict[str, str | int | bool] = {
                "activity": segment.activity,
                "entities": " ".join(segment.entities),
                "rule": segment.rule or "",
                "confidence": str(segment.confidence),
                "phase": segment.phase,
                "error_ns": segment.error_ns,
                "ambiguous": segment.ambiguous,
            }
            shown = {name: value for name, value in details.items() if value not in ("", 0, "none")}
            self.slices.append(
                Slice(track, segment.start_ns, segment.end_ns, str(segment.category), "critical_path", shown)
            )


def lanes(slices: Sequence[Slice]) -> Iterator[tuple[str, int, list[int]]]:
    """Divide slices into lanes in which each lies wholly inside or outside of each other, as viewers need it.

    Yields:
        Track, number of the lane on it from 0, and indices of its slices, by begin, outer ones first.
    """
    order = sorted(range(len(slices)), key=lambda i: (slices[i].begin_ns, -slices[i].end_ns, i))
    found: dict[str, list[_Lane]] = {}
    for index in order:
        one = slices[index]
        of_track = found.setdefault(one.track, [])
        lane = next((lane for lane in of_track if lane.has_room_for(one)), None)
        if lane is None:
            of_track.append(lane := _Lane())
        lane.add(index, one)
    for track, of_track in found.items():
        for number, lane in enumerate(of_track):
            yield track, number, lane.members


class _Lane:
    """Slices of which each lies wholly inside or outside of each other; `ends` are those of the open ones."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self._ends: list[int] = []

    def has_room_for(self, one: Slice) -> bool:
        while self._ends and self._ends[-1] <= one.begin_ns:
            self._ends.pop()
        return not self._ends or one.end_ns <= self._ends[-1]

    def add(self, index: int, one: Slice) -> None:
        self.members.append(index)
        if one.end_ns > one.begin_ns:
            self._ends.append(one.end_ns)
