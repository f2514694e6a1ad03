# SPDX-License-Identifier: Apache-2.0
"""What a recording cost its targets, from what probes cost here and how often they were hit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath._libraries.instructions import InstructionClass
from fencepath._record.calibration import Calibration, Cost
from fencepath.calls import CallTable
from fencepath.records import Flags, Records

__all__ = ["STATED_RECORD_NS", "CallCount", "CallTally", "Estimate", "estimate"]

STATED_RECORD_NS = 210.0
"""What keeping and writing a call adds to an empty program where that was not measured: seen on Linux 6.18 in a virtual
machine; once more for a probed return."""


class CallCount(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded calls that cost the same.

    Attributes:
        kind: of their records.
        calls: how many.
        returning: whether their return was probed.
        instruction: class of the probed instruction; None if not known.
    """

    kind: str
    calls: int
    returning: bool
    instruction: InstructionClass | None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time that probes added to the targets. Calls that were lost or filtered out are not in it.

    Attributes:
        calls: recorded calls.
        marks: marks.
        added_ns: CPU time over all of them, in ns: by the least, the median and the greatest cost that was measured.
        wall_ns: how long was recorded.
        share: `added_ns` over `wall_ns`, least, median and greatest; 1 is one CPU.
        by_kind_ns: the median by kind.
    """

    calls: int
    marks: int
    added_ns: Cost
    wall_ns: int
    share: tuple[float, float, float]
    by_kind_ns: Mapping[str, int]

    def text(self) -> str:
        """Say it in a line."""
        low, middle, high = (f"{100 * share:.2g}" for share in self.share)
        cost = self.added_ns.median_ns / max(1, self.calls + self.marks) / 1e3
        return (
            f"{self.calls + self.marks} probed calls and marks cost the targets about {self.added_ns.median_ns / 1e6:.3g} ms "
            f"of cpu time, {cost:.2g} us each: {middle} % of the time recorded ({low} to {high})"
        )


class CallTally:
    """Counts call records by kind, function and whether their return was probed, as they are taken out of the rings.

    Args:
        tables: call tables of the recording.
    """

    def __init__(self, tables: Iterable[CallTable]) -> None:
        self._tables = {kind: table for table in tables for kind in table.kinds}
        self._counts: Counter[tuple[str, int, bool]] = Counter()

    def add(self, kind: str, records: Records) -> None:
        """Count records; those of kinds that are of no call table are passed over."""
        if kind not in self._tables or not len(records):
            return
        once = (records["flags"] & np.uint32(Flags.ENTRY_ONLY)) != 0
        numbers = np.bincount(records["function"].astype(np.int64) * 2 + once)
        for code in np.flatnonzero(numbers).tolist():
            self._counts[kind, code // 2, code % 2 == 0] += int(numbers[code])

    def counts(self, stepped: Mapping[str, Collection[str]]) -> tuple[CallCount, ...]:
        """Return what was counted, with the class of each function's instruction.

        Args:
            stepped: by layer, the names of functions whose probe lies on an instruction that the kernel steps. Functions
                of a layer that is absent have an unknown class.
        """
        totals: Counter[tuple[str, bool, InstructionClass | None]] = Counter()
        for (kind, index, returning), calls in self._counts.items():
            totals[kind, returning, self._class(kind, index, stepped)] += calls
        return tuple(
            CallCount(kind=kind, calls=calls, returning=returning, instruction=instruction)
            for (kind, returning, instruction), calls in totals.items()
        )

    def _class(self, kind: str, index: int, stepped: Mapping[str, Collection[str]]) -> InstructionClass | None:
        table = self._tables[kind]
        if table.layer not in stepped or index >= len(table):
            return None
        is_stepped = table.functions[index].name in stepped[table.layer]
        return InstructionClass.STEPPED if is_stepped else InstructionClass.EMULATED


def estimate(calibration: Calibration, calls: Iterable[CallCount], wall_ns: int, marks: int = 0) -> Estimate:
    """Return what probes added to the targets' CPU time.

    Args:
        calibration: of this machine.
        calls: recorded calls. One of unknown class counts as emulated in the least cost, else as stepped.
        wall_ns: how long was recorded, in ns.
        marks: how many marks were recorded; their cost is 0 where it was not measured.
    """
    total = np.zeros(3)
    by_kind: Counter[str] = Counter()
    counted = 0
    for count in calls:
        cost = _costs(calibration, count) * count.calls
        total += cost
        by_kind[count.kind] += round(float(cost[1]))
        counted += count.calls
    if calibration.mark is not None:
        total += _array(calibration.mark) * marks
    low, middle, high = total.tolist()
    wall = max(wall_ns, 1)
    return Estimate(
        calls=counted,
        marks=marks,
        added_ns=Cost(low, middle, high),
        wall_ns=wall_ns,
        share=(low / wall, middle / wall, high / wall),
        by_kind_ns=dict(by_kind),
    )


def _costs(calibration: Calibration, count: CallCount) -> npt.NDArray[np.float64]:
    """Least, median and greatest cost of one call."""
    known = count.instruction
    dearest = _array(calibration.cost(known or InstructionClass.STEPPED, returning=count.returning))
    if known is None:
        dearest[0] = calibration.cost(InstructionClass.EMULATED, returning=count.returning).min_ns
    if not calibration.records:
        dearest += STATED_RECORD_NS * (2 if count.returning else 1)
    return dearest


def _array(cost: Cost) -> npt.NDArray[np.float64]:
    return np.array([cost.min_ns, cost.median_ns, cost.max_ns], np.float64)
