# SPDX-License-Identifier: Apache-2.0
"""The small rows of a recording: facts and loss (one JSON line each), and damage found on reading."""

from __future__ import annotations

from typing import Any

import msgspec

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
