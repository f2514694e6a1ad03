# SPDX-License-Identifier: Apache-2.0
"""The small rows of a recording: facts and loss (one JSON line each), and damage found on reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["ALL_CPUS", "Damage", "Fact", "LossRow"]

ALL_CPUS = -1
"""``cpu`` of a loss that belongs to no single CPU."""


class LossRow(msgspec.Struct, frozen=True):
    """Events that are known to be missing.

    Attributes:
        stage: where they were lost, such as ``ring``. This package uses ``disk`` (could not be written), ``kept`` (the
            bound of the kept kinds was reached), ``retention`` (dropped as oldest) and ``repair`` (cut by a repair).
        kind: event kind, or "" when unknown.
        cpu: CPU number, or :data:`ALL_CPUS`.
        from_ns: CLOCK_MONOTONIC; nothing of this row was lost before it.
        to_ns: CLOCK_MONOTONIC; nothing of this row was lost after it.
        count: how many events.
    """

    stage: str
    kind: str
    cpu: int
    from_ns: int
    to_ns: int
    count: int


def lost_windows(rows: Iterable[LossRow], *kinds: str) -> npt.NDArray[np.int64]:
    """Return windows in which records of these kinds, or of a kind that is not known, were lost.

    Returns:
        Shape (n, 2): from and to, CLOCK_MONOTONIC in ns, ascending by begin; they may overlap.
    """
    windows = [(row.from_ns, row.to_ns) for row in rows if row.count and row.kind in ("", *kinds)]
    return np.array(sorted(windows), np.int64).reshape(-1, 2)


class Fact(msgspec.Struct, frozen=True):
    """Something that only the live machine knew: a process, a thread, a library, an fd, a cgroup, a GPU.

    Attributes:
        type: what it is about, such as ``process``.
        data: its JSON object.
    """

    type: str
    data: dict[str, Any]


class Damage(msgspec.Struct, frozen=True):
    """A part of a recording that cannot be read.

    Attributes:
        file: path inside the recording.
        what: what is wrong, in words.
        lost_bytes: bytes of the file that were not read; 0 when unknown, as for a missing file.
        lost_rows: rows that are known to be lost; None when the file's own count is not known.
    """

    file: str
    what: str
    lost_bytes: int = 0
    lost_rows: int | None = None
