# SPDX-License-Identifier: Apache-2.0
"""Address ranges that hold for a while, and which of them an address lies in at a time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ALWAYS_NS", "Intervals", "Row"]

ALWAYS_NS = (1 << 63) - 1
"""End of a mapping that was not seen to go away."""

_Column = npt.NDArray[Any]


class Row(NamedTuple):
    """One mapping: addresses `start` to `end`, times (CLOCK_MONOTONIC) `from_ns` to `until_ns`, ends excluded."""

    start: int
    end: int
    offset: int
    module: int
    from_ns: int
    until_ns: int


class Intervals:
    """The mappings of one process.

    They are laid out in layers in which no two overlap, so that each layer is one binary search. There is one layer, and
    one more for each time that the same addresses were mapped anew.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._layers = [_Layer(layer) for layer in _layers(rows)]

    def find(self, times_ns: _Column, addresses: _Column) -> tuple[_Column, _Column]:
        """Return module (-1 where there is none) and file offset for each address at its time.

        Of mappings that hold at one time, which is so while it is not known when the earlier went away, the latest counts.
        """
        module = np.full(len(addresses), -1, np.int32)
        offset = np.zeros(len(addresses), np.int64)
        best = np.full(len(addresses), -1, np.int64)
        for layer in self._layers:
            at = np.searchsorted(layer.start, addresses, "right") - 1
            inside = (at >= 0) & (addresses < layer.end[at])
            inside &= (times_ns >= layer.from_ns[at]) & (times_ns < layer.until_ns[at]) & (layer.from_ns[at] > best)
            rows = np.flatnonzero(inside)
            chosen = at[rows]
            module[rows] = layer.module[chosen]
            offset[rows] = (addresses[rows] - layer.start[chosen]).astype(np.int64) + layer.offset[chosen]
            best[rows] = layer.from_ns[chosen]
        return module, offset


class _Layer:
    """Mappings of which no two overlap, by address."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.start = np.array([row.start for row in rows], np.uint64)
        self.end = np.array([row.end for row in rows], np.uint64)
        self.offset = np.array([row.offset for row in rows], np.int64)
        self.module = np.array([row.module for row in rows], np.int32)
        self.from_ns = np.array([row.from_ns for row in rows], np.int64)
        self.until_ns = np.array([row.until_ns for row in rows], np.int64)


def _layers(rows: Sequence[Row]) -> list[list[Row]]:
    """Split rows into the least number of layers: each goes into the one that has been free for longest."""
    layers: list[list[Row]] = []
    free: list[tuple[int, int]] = []
    for row in sorted(rows):
        if free and free[0][0] <= row.start:
            number = heapq.heappop(free)[1]
        else:
            number = len(layers)
            layers.append([])
        layers[number].append(row)
        heapq.heappush(free, (row.end, number))
    return layers
