# SPDX-License-Identifier: Apache-2.0
"""Sorts what came out of the rings by kind, without copying, and counts what did not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from fencepath._bpf.losses import LossCounters, Stage
from fencepath._bpf.rings import RingBatch
from fencepath.recording import LossRow
from fencepath.records import HEADER, Layouts, RecordLayout, Records

__all__ = ["LossSampler", "RowSplitter"]

_KIND_OFFSET = int(RecordLayout("any", HEADER).dtype.fields["kind"][1])  # type: ignore[index]  # a structured dtype has fields

_LOST = (Stage.RING_FULL, Stage.MAP_FULL, Stage.OVERWRITTEN, Stage.NO_ENTRY, Stage.RECURSION, Stage.OTHER)
"""Stages in which an event is missing from the recording. A read fault is flagged in its record instead."""


class RowSplitter:
    """Views ring rows as records of their kinds.

    Attributes:
        unknown: rows whose kind number is not of this recording.
        counts: rows by kind.
    """

    def __init__(self, layouts: Layouts) -> None:
        self._kinds = {layouts.number(kind): (kind, layouts[kind].dtype) for kind in layouts}
        self.unknown = 0
        self.counts = dict.fromkeys(layouts, 0)

    def split(self, batch: RingBatch) -> Iterator[tuple[str, Records]]:
        """Yield (kind, records); records of one kind are in the order of the ring."""
        rows = batch.rows
        kinds = np.ndarray((len(rows),), np.uint16, rows, _KIND_OFFSET, (batch.class_bytes,))
        numbers = np.flatnonzero(np.bincount(kinds))
        for number in numbers.tolist():
            mine = rows if len(numbers) == 1 else rows[kinds == number]
            known = self._kinds.get(number)
            if known is None or known[1].itemsize > batch.class_bytes:
                self.unknown += len(mine)
                continue
            kind, dtype = known
            self.counts[kind] += len(mine)
            yield kind, np.ndarray((len(mine),), dtype, mine, 0, (batch.class_bytes,))


class LossSampler:
    """Turns the loss counters into rows of the loss table, one window (CLOCK_MONOTONIC) after another."""

    def __init__(self, counters: LossCounters, layouts: Layouts) -> None:
        self._counters = counters
        self._names = {layouts.number(kind): kind for kind in layouts}
        self._before_ns = time.monotonic_ns()
        self._before = counters.snapshot()

    def sample(self) -> list[LossRow]:
        """Return what was lost since the last time. Neighbouring windows overlap by the time that reading takes."""
        begin_ns = time.monotonic_ns()
        counts = self._counters.snapshot()
        end_ns = time.monotonic_ns()
        rows = [
            LossRow(
                stage=Stage(stage).name.lower(),
                kind=self._names.get(number, ""),
                cpu=int(cpu),
                from_ns=self._before_ns,
                to_ns=end_ns,
                count=int(counts[cpu, number, stage] - self._before[cpu, number, stage]),
            )
            for cpu, number, stage in zip(*np.nonzero(counts != self._before), strict=True)
            if stage in _LOST
        ]
        self._before, self._before_ns = counts, begin_ns
        return rows

    def recorded(self) -> dict[str, int]:
        """How many records of each kind the BPF programs have submitted so far."""
        totals = self._counters.snapshot()[:, :, int(Stage.RECORDED)].sum(axis=0)
        return {kind: int(totals[number]) for number, kind in self._names.items()}
