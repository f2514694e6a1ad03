# SPDX-License-Identifier: Apache-2.0
"""Names fences, so that they are the same entities as those of the layer ``drm``: context and number are the kernel's."""

from __future__ import annotations

import numpy as np

from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch

__all__ = ["Fences"]

_NAMES = (("fence", "fence_context", "fence_seqno"),)
"""Key columns, each with the columns that have the fence's context and number."""


class Fences:
    """Implements :class:`fencepath.entities.EntityTracker`."""

    def __init__(self) -> None:
        self._boot = ""

    def update(self, batch: Batch, entities: Entities) -> None:
        """Add the column ``fence`` to the hardware's fences; context 0 names none."""
        self._boot = self._boot or _boot_of(batch, entities)
        for key, context, seqno in _NAMES:
            if context in batch:
                columns = [batch[context].astype(np.uint64), batch[seqno].astype(np.uint64)]
                batch.columns[key] = entities.intern_columns("fence", columns, self._text, columns[0] != 0)

    def _text(self, context: int, seqno: int) -> str:
        return f"fence:{self._boot}/{context}/{seqno}"


def _boot_of(batch: Batch, entities: Entities) -> str:
    """The boot id, which stands at the begin of every process's text; "" if the batch names no process."""
    processes = batch["process"]
    known = processes[processes != NO_ENTITY]
    return entities.text(int(known[0])).removeprefix("process:").split("/")[0] if len(known) else ""
