# SPDX-License-Identifier: Apache-2.0
"""Stream captures: which calls became nodes of a graph instead of being run, and what each node has to wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec
import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_cuda.ordered import Ints, Ordered
from fencepath_cuda.rows import FOREVER, RECORD, SUBMITTING, WAIT_EVENT, Mask, Rows

__all__ = ["Captures"]

_RECORD, _WAIT = SUBMITTING.index(RECORD), SUBMITTING.index(WAIT_EVENT)
ILLEGAL_STATE = 401
"""CUDA_ERROR_ILLEGAL_STATE: what it returns of a stream that is in no capture."""
ENDED = (901, 904, 908)
"""What cuStreamEndCapture returns of a capture that it ends without a graph: invalidated, unjoined, on the wrong thread."""
_CUT = -1
"""Stands for a call that is no node."""
EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL: the call makes a node, and does not just carry dependencies."""


class _Windows:
    """Times during which streams were being captured; those of one stream in one capture end together."""

    def __init__(self, stream: Ints, from_ns: Ints, to_ns: Ints, capture: Ints) -> None:
        self.stream, self.from_ns, self.to_ns, self.capture = stream, from_ns, to_ns, capture
        self._ordered = Ordered(stream, from_ns)

    def __len__(self) -> int:
        return len(self.stream)

    def plus(self, stream: Ints, from_ns: Ints, capture: Ints) -> _Windows:
        """Return these and windows of further streams, each to the end of its capture."""
        return _Windows(
            np.concatenate([self.stream, stream]),
            np.concatenate([self.from_ns, from_ns]),
            np.concatenate([self.to_ns, self.to_ns[capture]]),
            np.concatenate([self.capture, capture]),
        )

    def of(self, stream: Ints, time_ns: Ints) -> Ints:
        """Return the capture that each call falls in, -1 if it falls in none."""
        if not len(self):
            return np.full(len(stream), -1, np.int64)
        at = self._ordered.last(stream, time_ns)
        window = self._ordered.order[at]
        inside = (at >= 0) & (self.to_ns[window] >= time_ns)
        return np.where(inside, self.capture[window], -1)


class Captures:
    """All captures of a run.

    Attributes:
        of_row: capture of each of the given rows, -1 for calls that were run.
        graph: handle of the graph that each capture made, 0 if it made none or that was not seen.
        adds: whether it added to a graph that was there before.
        process: of each capture.
        begin: when each began, CLOCK_MONOTONIC in ns.
        end: when each ended, CLOCK_MONOTONIC in ns; for ever if that was not seen.
    """

    def __init__(self, events: Events, rows: Rows) -> None:
        begins, ends = Rows.read(events, "cuda.graph.capture_begin"), Rows.read(events, "cuda.graph.capture_end")
        begins = begins.keep(begins.ok & (begins.stream != NO_ENTITY))
        unbegun = _unbegun(events, begins, ends)
        known = np.arange(len(begins) + len(unbegun)) < len(begins)
        begins = begins.plus(unbegun)
        # A capture ends even if ending it gives an error.
        by_stream = Ordered(ends.stream, ends.begin)
        at = by_stream.first_after(begins.stream, begins.begin)
        ending = np.where(at >= 0, by_stream.order[at], -1) if len(ends) else at
        self.end = np.where(ending >= 0, ends.end[ending], FOREVER) if len(ends) else np.full(len(begins), FOREVER)
        graphs = events.batch("cuda.graph.capture_end")["graph"] if len(ends) else np.empty(0, np.uint64)
        made = known & (ending >= 0) & ends.done[ending] if len(ends) else np.zeros(len(begins), np.bool_)
        self.graph = np.where(made, graphs[ending], 0) if len(ends) else np.zeros(len(begins), np.uint64)
        self.adds = np.zeros(len(begins), np.bool_)
        self.adds[known] = events.batch("cuda.graph.capture_begin")["graph"][begins.row[known]] != 0
        self.process, self.begin = begins.process, begins.begin
        self._rows = rows
        self._external = _external(events, rows)
        windows = self._joined(_Windows(begins.stream, begins.begin, self.end, np.arange(len(begins))))
        self.of_row = windows.of(rows.stream, rows.begin)
        self._cuts = _cuts(events, windows)

    def _joined(self, windows: _Windows) -> _Windows:
        """Follow CUDA events: a stream that waits for one recorded in a capture is captured too from then on."""
        rows = self._rows
        if not len(windows):
            return windows
        records = rows.keep((rows.code == _RECORD) & (rows.event != NO_ENTITY) & ~self._external)
        waits = rows.keep((rows.code == _WAIT) & ~self._external)
        by_event = Ordered(records.event, records.begin)
        at = by_event.last(waits.event, waits.begin)
        waits, record = waits.keep(at >= 0), by_event.order[at[at >= 0]]
        while True:
            capture = windows.of(records.stream[record], records.begin[record])
            joined = (capture >= 0) & (windows.of(waits.stream, waits.begin) < 0)
            joined &= self.end[capture] >= waits.begin
            if not joined.any():
                return windows
            windows = windows.plus(waits.stream[joined], waits.begin[joined], capture[joined])

    def nodes(self) -> Iterator[tuple[int, list[int], list[tuple[int, int]]]]:
        """Yield each capture with the rows that are its nodes, in order, and the edges between them by position."""
        begin, stream = self._rows.begin, self._rows.stream
        steps: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for row in np.flatnonzero(self.of_row >= 0).tolist():
            steps[int(self.of_row[row])].append((int(begin[row]), int(stream[row]), row))
        for capture, at, of in self._cuts:
            steps[capture].append((at, of, _CUT))
        for capture, taken in sorted(steps.items()):
            yield capture, *self._replay([(of, row) for _, of, row in sorted(taken)])

    def _replay(self, steps: list[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
        """A stream's next node waits for the stream's last, and for what the CUDA events it was told to wait for carry."""
        nodes: list[int] = []
        edges: list[tuple[int, int]] = []
        last: dict[int, frozenset[int]] = defaultdict(frozenset)
        carried: dict[int, frozenset[int]] = defaultdict(frozenset)
        for stream, row in steps:
            code = _CUT if row == _CUT or self._external[row] else int(self._rows.code[row])
            if row == _CUT:
                last[stream] = frozenset()
            elif code == _RECORD:
                carried[int(self._rows.event[row])] = last[stream]
            elif code == _WAIT:
                last[stream] |= carried[int(self._rows.event[row])]
            else:
                edges += [(before, len(nodes)) for before in sorted(last[stream])]
                last[stream] = frozenset((len(nodes),))
                nodes.append(row)
        return nodes, edges


def _unbegun(events: Events, begins: Rows, ends: Rows) -> Rows:
    """Captures of which only the end was recorded, begun when their streams were last known to be in none.

    Their nodes are known in part, so their graphs are not.
    """
    ended = (ends.done | np.isin(ends.result, ENDED)) & (ends.stream != NO_ENTITY)
    # A capture that is going on refuses a wait for its stream.
    waits = Rows.read(events, "cuda.stream.synchronize")
    apart = ends.keep(ended | (ends.result == ILLEGAL_STATE)).plus(waits.keep(waits.done))
    outside = Ordered(apart.stream, apart.end)
    at = outside.last(ends.stream, ends.begin)
    since = np.where(at >= 0, apart.end[outside.order[at]], 0) if len(apart) else np.zeros(len(ends), np.int64)
    begun = Ordered(begins.stream, begins.begin)
    last = begun.last(ends.stream, ends.begin)
    seen = (last >= 0) & (begins.begin[begun.order[last]] >= since) if len(begins) else np.zeros(len(ends), np.bool_)
    rows = np.flatnonzero(ended & ~seen)
    return msgspec.structs.replace(ends.keep(rows), begin=since[rows])


def _cuts(events: Events, windows: _Windows) -> list[tuple[int, int, int]]:
    """Capture, begin and stream of calls that replaced what a stream's next node waits for by nodes of which none is known."""
    updates = Rows.read(events, "cuda.graph.capture_update")
    replaced = events.batch("cuda.graph.capture_update")["replaced"]
    updates = updates.keep(updates.ok & (updates.stream != NO_ENTITY) & replaced)
    capture = windows.of(updates.stream, updates.begin)
    cuts = zip(capture.tolist(), updates.begin.tolist(), updates.stream.tolist(), strict=True)
    return [cut for cut in cuts if cut[0] >= 0]


def _external(events: Events, rows: Rows) -> Mask:
    external = np.zeros(len(rows), np.bool_)
    for kind, code in ((RECORD, _RECORD), (WAIT_EVENT, _WAIT)):
        mine = np.flatnonzero(rows.code == code)
        batch = events.batch(kind)
        if len(mine) and "event_flags" in batch:
            external[mine] = (batch["event_flags"][rows.row[mine]] & EXTERNAL) != 0
    return external
