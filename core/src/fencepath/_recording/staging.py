# SPDX-License-Identifier: Apache-2.0
"""Where records wait until there are enough of them for a batch."""

from __future__ import annotations

import numpy as np

from fencepath._recording.columns import BatchCodec
from fencepath.records import Records

__all__ = ["Stage"]

# Fields are gathered from the batch one after the other, so it should stay in the L2 cache; compression gains little
# beyond this (benchmarks/recording.py).
_BATCH_BYTES = 1 << 20


class Stage:
    """Records of one kind that wait, copied, so that the caller's buffer is free at once.

    Attributes:
        codec: of their layout.
    """

    def __init__(self, codec: BatchCodec) -> None:
        self.codec = codec
        self._rows: Records = np.empty(max(1, _BATCH_BYTES // codec.dtype.itemsize), dtype=codec.dtype)
        # As plain bytes: numpy copies a structured dtype field by field.
        self._raw = self._rows.view(f"V{codec.dtype.itemsize}")
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether a batch is ready."""
        return self._count == len(self._rows)

    def take(self, records: Records) -> Records:
        """Copy what fits of `records` and return the rest."""
        count = min(len(records), len(self._rows) - self._count)
        self._raw[self._count : self._count + count] = records[:count].view(self._raw.dtype)
        self._count += count
        return records[count:]

    def drain(self) -> Records:
        """Return what waits, valid until the next :meth:`take`, and be empty."""
        records, self._count = self._rows[: self._count], 0
        return records
