# SPDX-License-Identifier: Apache-2.0
"""Counters of what was recorded and what was lost, kept by the BPF programs and read without a system call."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from fencepath._bpf import sys as bpf
from fencepath._bpf.maps import Map

__all__ = ["LossCounters", "Stage"]


class Stage(enum.IntEnum):
    """What became of one event; every event a program was run for ends in one of the first three.

    The numbers are the ``FP_STAGE_*`` of fencepath.h.
    """

    RECORDED = 0
    """Submitted to a ring."""
    RING_FULL = 1
    """Lost: its ring had no room."""
    MAP_FULL = 2
    """Lost: the entry could not be kept until its return."""
    READ_FAULT = 3
    """Recorded, but a read of user memory failed; also flagged in the record."""
    NO_ENTRY = 4
    """A return whose entry was not seen."""
    OVERWRITTEN = 5
    """An entry found another one under its key, which is lost."""
    RECURSION = 6
    """The kernel skipped the program. Counted per program (:func:`fencepath._bpf.sys.prog_recursion_misses`)."""
    OTHER = 7
    """Anything else a program gives up for; its plugin says what."""


class LossCounters:
    """One count a CPU, kind and stage.

    Programs add to the element of the CPU they run on, atomically, since they may be interrupted by one another.

    Args:
        kinds: how many kind numbers there are; a program's kinds are below that.
    """

    def __init__(self, kinds: int) -> None:
        self.kinds = kinds
        self._rows = 1 << max(kinds - 1, 0).bit_length()
        self._map = Map.array("fp_losses", 8 * self._rows * len(Stage), bpf.possible_cpus(), mmapable=True)
        self._memory = self._map.mmap()
        shape = (self._map.max_entries, self._rows, len(Stage))
        self._counts: npt.NDArray[np.uint64] = np.frombuffer(
            self._memory, dtype=np.uint64, count=int(np.prod(shape))
        ).reshape(shape)

    @property
    def fd(self) -> int:
        """File descriptor of the map."""
        return self._map.fd

    def defines(self) -> dict[str, int]:
        """Return the macros by which fencepath.h finds the counters."""
        return {"FP_LOSSES_FD": self.fd, "FP_ROWS": self._rows}

    def snapshot(self) -> npt.NDArray[np.uint64]:
        """Return a copy of the counts since the start, of shape (possible CPUs, kinds, stages). They never fall."""
        return self._counts[:, : self.kinds].copy()

    def close(self) -> None:
        """Let go of the memory and the file descriptor; :meth:`snapshot` keeps giving the last counts."""
        if self._map.fd < 0:
            return
        self._counts = self._counts.copy()
        self._memory.close()
        self._map.close()
