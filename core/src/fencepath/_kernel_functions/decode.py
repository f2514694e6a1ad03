# SPDX-License-Identifier: Apache-2.0
"""Batches from records of kernel functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.events import HEAD_COLUMNS, Batch
from fencepath.records import Records

__all__ = ["decode_functions"]

_NO_COLUMNS = (*HEAD_COLUMNS, "kind", "function", "reserved")


def decode_functions(kind: str, records: Records, recorded: Sequence[str]) -> Batch:
    """Decode records of one kind of kernel functions.

    Args:
        kind: its name.
        records: of :attr:`FunctionRecord.layout`.
        recorded: names of its functions, from the manifest.

    Returns:
        A batch with the columns ``label`` (index of the function's name, -1 for one that the manifest does not know), ``result``
        and those of the values.
    """
    names = records.dtype.names or ()
    function = records["function"].astype(np.int64)
    columns = {name: np.ascontiguousarray(records[name]) for name in names if name not in _NO_COLUMNS}
    columns["label"] = np.where(function < len(recorded), function, -1).astype(np.int32)
    return Batch.from_records(kind, records, columns, recorded)
