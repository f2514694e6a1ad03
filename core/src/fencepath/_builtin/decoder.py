# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layers ``mark`` and ``process``."""

from __future__ import annotations

import numpy as np

from fencepath._builtin.events import MARK_TEXT
from fencepath.events import Batch, Column
from fencepath.records import Records

__all__ = ["BuiltinDecoder"]


class BuiltinDecoder:
    """Fields of the record become columns; byte arrays become text."""

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; text that is not UTF-8 is shown with replacement characters."""
        batch = Batch.from_records(kind, records)
        if kind.startswith("mark."):
            batch.columns["trace_id"] = _hex(records["trace_id"])
            batch.columns["span_id"] = _hex(records["span_id"])
        if kind == MARK_TEXT:
            batch.columns["text"] = _texts(records["text"], records["len"])
        return batch


def _hex(columns: Column) -> Column:
    """Bytes as hex digits; all zero means none and gives an empty text."""
    return np.array([row.tobytes().hex() if row.any() else "" for row in columns], object)


def _texts(columns: Column, lengths: Column) -> Column:
    return np.array(
        [
            row[:length].tobytes().decode(errors="replace")
            for row, length in zip(columns, lengths.tolist(), strict=True)
        ],
        object,
    )
