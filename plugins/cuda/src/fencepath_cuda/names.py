# SPDX-License-Identifier: Apache-2.0
"""Names of kernels by their handles, as modules and libraries were asked for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath.events import Batch, Column
from fencepath.joins import Events
from fencepath_cuda.ordered import Ints, Ordered

__all__ = ["KernelNames"]


class KernelNames:
    """What kernels are called.

    A handle means what the last call that handed it out said; CUfunction and CUkernel are looked up alike, since a launch
    takes either.

    Attributes:
        names: distinct names.
    """

    def __init__(self, events: Events) -> None:
        known = events.batch("cuda.module.kernel")
        done = known["returned"] & (known["result"] == 0) & (known["kernel"] != 0)
        self.names: list[str] = []
        numbers: dict[str, int] = {}
        handed: dict[tuple[int, int], int] = {}
        owners, handles, times, named = (list[int]() for _ in range(4))
        for row in np.flatnonzero(done)[np.argsort(known["time_ns"][done], kind="stable")].tolist():
            owner, handle, name = int(known["process"][row]), int(known["kernel"][row]), str(known["name"][row])
            number = (
                numbers.setdefault(name, len(numbers)) if name else handed.get((owner, int(known["of_kernel"][row])))
            )
            if number is None:
                continue
            handed[owner, handle] = number
            for column, value in (
                (owners, owner),
                (handles, handle),
                (times, int(known["time_ns"][row])),
                (named, number),
            ):
                column.append(value)
        self.names = list(numbers)
        self._handles = np.unique(np.array(handles, np.uint64))
        self._named: Ints = np.array(named, np.int64)
        self._ordered = Ordered(
            self._key(np.array(owners, np.int64), np.array(handles, np.uint64)), np.array(times, np.int64)
        )

    def of(self, process: Column, kernel: Column, time_ns: Column) -> Ints:
        """Return the index of each kernel's name, -1 where it is not known.

        Args:
            process: entity, shape (n,).
            kernel: CUfunction or CUkernel handle, shape (n,).
            time_ns: when it was used, CLOCK_MONOTONIC, shape (n,).
        """
        if not len(self._handles):
            return np.full(len(kernel), -1, np.int64)
        place = np.minimum(np.searchsorted(self._handles, kernel), len(self._handles) - 1)
        at = self._ordered.last(self._key(process.astype(np.int64), kernel), time_ns.astype(np.int64))
        known = (self._handles[place] == kernel) & (at >= 0)
        return np.where(known, self._named[self._ordered.order[at]], -1)

    def _key(self, process: Ints, handle: npt.NDArray[np.uint64]) -> Ints:
        place = np.searchsorted(self._handles, handle)
        return np.asarray(process * (len(self._handles) + 1) + place)


def launched(names: KernelNames, launches: Batch) -> Ints:
    """Return the index of the name of each launch's kernel, -1 where it is not known."""
    return names.of(launches["process"], launches["kernel"], launches["begin_ns"])
