# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``i915``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fencepath.events import Batch, Column
from fencepath.records import Records
from fencepath_i915.kinds import EVICT, EVICT_ACTIONS, GUC_CONTEXT, GUC_CONTEXT_ACTIONS

__all__ = ["I915Decoder"]

_ACTIONS = {EVICT: EVICT_ACTIONS, GUC_CONTEXT: GUC_CONTEXT_ACTIONS}


class I915Decoder:
    """Fields become columns, and numbers of actions their names."""

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; an action that is not known is shown as its number."""
        batch = Batch.from_records(kind, records)
        columns = batch.columns
        if kind in _ACTIONS and "action" in columns:
            columns["action"] = _names(columns["action"], _ACTIONS[kind])
        return batch


def _names(numbers: Column, actions: Sequence[str]) -> Column:
    """Numbers as text; there are few different ones."""
    unique, inverse = np.unique(numbers, return_inverse=True)
    names = [actions[number] if number < len(actions) else f"action {number}" for number in unique.tolist()]
    return np.array(names, object)[inverse] if names else np.empty(0, object)
