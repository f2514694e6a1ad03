# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``xe``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fencepath.events import Batch, Column
from fencepath.records import Records
from fencepath_xe.kinds import ACTIONS

__all__ = ["XeDecoder"]


class XeDecoder:
    """Fields become columns, and numbers of actions and bytes text."""

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; an action that is not known is shown as its number, bytes that are no text with replacements."""
        batch = Batch.from_records(kind, records)
        columns = batch.columns
        for name, column in columns.items():
            if column.dtype.kind == "S":
                columns[name] = _texts(column, _decoded)
        if kind in ACTIONS and "action" in columns:
            actions = ACTIONS[kind]

            def name_of(number: int) -> str:
                return actions[number] if number < len(actions) else f"action {number}"

            columns["action"] = _texts(columns["action"], name_of)
        return batch


def _decoded(name: bytes) -> str:
    return name.decode(errors="replace")


def _texts(values: Column, say: Callable[..., str]) -> Column:
    """Values as text; there are few different ones."""
    unique, inverse = np.unique(values, return_inverse=True)
    texts = [say(value) for value in unique.tolist()]
    return np.array(texts, object)[inverse] if texts else np.empty(0, object)
