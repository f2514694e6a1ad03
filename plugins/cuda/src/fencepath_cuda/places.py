# SPDX-License-Identifier: Apache-2.0
"""Which calls were in one context, as far as that is known."""

from __future__ import annotations

import numpy as np

from fencepath.entities import NO_ENTITY
from fencepath.joins import Events
from fencepath_cuda.contexts import CONTEXT_CHANGES
from fencepath_cuda.events import StreamKind
from fencepath_cuda.lost import Lost, may_be_another
from fencepath_cuda.ordered import Ints
from fencepath_cuda.rows import Mask, Rows

__all__ = ["Places"]

_NAMING = ("cuda.context.create", "cuda.context.set", "cuda.context.synchronize")


class Places:
    """The contexts of calls.

    A process is taken to have no other contexts than its calls name, and one if they name none: then what is not known to be
    in another is in that.
    """

    def __init__(self, events: Events) -> None:
        batches = [batch.take(batch["context_handle"] != 0) for batch in map(events.batch, _NAMING)]
        batches = [batch.take(~batch["returned"] | (batch["result"] == 0)) for batch in batches]
        named = zip(
            *(
                np.concatenate([batch[name] for batch in batches]).tolist()
                for name in ("process", "context_handle", "context")
            ),
            strict=True,
        )
        contexts: dict[int, dict[int, int]] = {}
        for process, handle, context in named:
            contexts.setdefault(process, {})[handle] = context
        self._several: Ints = np.array([owner for owner, of in contexts.items() if len(of) > 1], np.int64)
        self._only = {owner: next(iter(of.values())) for owner, of in contexts.items() if len(of) == 1}
        self._made: Ints = events.batch("cuda.stream.create")["stream"]
        self._events = events
        self._lost = Lost(events, *CONTEXT_CHANGES)

    def of(self, rows: Rows) -> Ints:
        """Return what stands for the context of each call: of those that are not known, one for each process."""
        owners, inverse = np.unique(rows.process, return_inverse=True)
        others = np.array([self._only.get(owner, -2 - owner) for owner in owners.tolist()], np.int64)
        return np.where(rows.context != NO_ENTITY, rows.context, others[inverse])

    def known(self, rows: Rows) -> Mask:
        """Whether it is known which context each call was in.

        A stream from before the recording is taken to belong to the context that its caller has, which is no more than likely
        where there may be several.
        """
        made = np.isin(rows.stream, self._made)
        made &= ~may_be_another(self._events, "cuda.stream.create", "stream", rows.stream, rows.begin)
        guessed = (rows.context == NO_ENTITY) | ((rows.stream_kind == StreamKind.CREATED) & ~made)
        several = np.isin(rows.process, self._several) | self._lost.before(rows.begin)
        return np.asarray(~(several & guessed))
