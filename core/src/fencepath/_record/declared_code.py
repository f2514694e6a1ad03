# SPDX-License-Identifier: Apache-2.0
"""What the layers of a plan say of addresses of code in their call records, and those addresses in records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fencepath._record.plan import PlannedSet
from fencepath.calls import CallTable
from fencepath.modules import CodeUse
from fencepath.plugin import CallProbe
from fencepath.records import Flags, Records

__all__ = ["AddressColumn", "LayerCode", "layer_codes"]


class LayerCode(NamedTuple):
    """What a layer says of code, with the table whose columns it names."""

    table: CallTable
    use: CodeUse


def layer_codes(sets: Iterable[PlannedSet]) -> Iterator[LayerCode]:
    """Yield what each set with a call table says."""
    for planned in sets:
        for probe in planned.alternative.probes:
            if isinstance(probe, CallProbe):
                yield LayerCode(probe.table, probe.code)


class AddressColumn:
    """A column of 64 bits, found in the records of a kind as they come from the rings.

    Args:
        table: whose functions.
        kind: of the records.
        column: its name.
    """

    def __init__(self, table: CallTable, kind: str, column: str) -> None:
        self._places: dict[str, npt.NDArray[np.int64]] = {}
        for array in ("args", "out"):
            self._places[array] = np.full(len(table) + 1, -1, np.int64)
        for index, function in enumerate(table.functions):
            if function.kind != kind:
                continue
            for arg in function.args:
                if arg.name == column and arg.width == 64:
                    self._places["args"][index] = arg.slot
            for number, out in enumerate(function.out):
                if out.name == column and out.bytes == 8:
                    self._places["out"][index] = number

    def addresses(self, records: Records) -> set[tuple[int, int]]:
        """Return the distinct (process, address) pairs; 0 is no address."""
        found: set[tuple[int, int]] = set()
        for array, places in self._places.items():
            if array not in (records.dtype.names or ()):
                continue
            place = places[np.minimum(records["function"], len(places) - 1)]
            known = place >= 0
            if array == "out":
                known &= (records["flags"] & np.uint32(Flags.OPEN | Flags.ENTRY_ONLY)) == 0
            rows = np.flatnonzero(known)
            values, tgids = records[array][rows, place[rows]], records["tgid"][rows]
            for tgid in np.unique(tgids).tolist():
                found.update((tgid, address) for address in np.unique(values[tgids == tgid]).tolist() if address)
        return found
