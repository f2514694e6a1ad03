# SPDX-License-Identifier: Apache-2.0
"""From records to batches with the columns of :mod:`fencepath_acme.events`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fencepath.events import Batch, Column, Event, columns_of, kind_of
from fencepath.records import Records

from fencepath_acme.events import EVENTS
from fencepath_acme.functions import TABLE

__all__ = ["LABELS", "LayerDecoder"]

LABELS = tuple(function.name for function in TABLE.functions)
"""What the column ``label`` indexes."""

_HEAD = columns_of(Event)
_COLUMNS = {
    kind_of(event): {name: dtype for name, dtype in columns_of(event).items() if name not in _HEAD} for event in EVENTS
}


class LayerDecoder:
    """Decodes one recording; see :class:`fencepath.plugin.Decoder`.

    Args:
        functions: what the recording's manifest keeps of the call table that wrote it.
    """

    def __init__(self, functions: Sequence[str]) -> None:
        self._functions = tuple(functions)

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode the records of one kind."""
        if kind not in TABLE.kinds:
            return Batch.from_records(kind, records)
        calls = TABLE.decode(kind, records, self._functions)
        found = {**calls, "label": calls["function"]}
        columns = {name: self._column(found, name, dtype, len(calls.records)) for name, dtype in _COLUMNS[kind].items()}
        return Batch.from_records(kind, calls.records, columns, LABELS)

    @staticmethod
    def _column(found: dict[str, Column], name: str, dtype: np.dtype[np.generic], rows: int) -> Column:
        """A column as its event class declares it; 0 where an older recording does not have it."""
        return np.ascontiguousarray(found.get(name, np.zeros(rows)), dtype)
