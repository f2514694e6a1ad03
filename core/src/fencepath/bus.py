# SPDX-License-Identifier: Apache-2.0
"""The event bus: batches go from decoders to whoever follows a kind, in time order.

Ring order is not time order, so batches pass a :class:`Sorter` first: it holds events back until the watermark says
that nothing older can come any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from fencepath.events import Batch, concatenate

__all__ = ["EventBus", "Sorter", "Subscriber"]

Subscriber = Callable[[Batch], None]
"""Called with each batch; must not change columns that are there, may add columns."""


class EventBus:
    """Hands each batch to the subscribers of its kind, in the order they subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[tuple[str, Subscriber]] = []
        self._of_kind: dict[str, tuple[Subscriber, ...]] = {}

    def subscribe(self, kinds: str, subscriber: Subscriber) -> None:
        """Follow kinds.

        Args:
            kinds: a kind (``cuda.launch``), a prefix (``cuda.*``) or everything (``*``).
            subscriber: called in the publisher's thread.
        """
        self._subscribers.append((kinds, subscriber))
        self._of_kind.clear()

    def publish(self, batch: Batch) -> None:
        """Hand `batch` to its subscribers."""
        found = self._of_kind.get(batch.kind)
        if found is None:
            found = tuple(subscriber for kinds, subscriber in self._subscribers if _matches(kinds, batch.kind))
            self._of_kind[batch.kind] = found
        for subscriber in found:
            subscriber(batch)


def _matches(kinds: str, kind: str) -> bool:
    return kinds == kind or (kinds.endswith("*") and kind.startswith(kinds[:-1]))


class Sorter:
    """Sorts events by ``time_ns`` across batches of a kind.

    Attributes:
        late: events that came with a time before a watermark that had already passed; they are handed on all the same.
    """

    def __init__(self, publish: Subscriber) -> None:
        self._publish = publish
        self._held: dict[str, list[Batch]] = defaultdict(list)
        self._watermark_ns = 0
        self.late = 0

    def add(self, batch: Batch) -> None:
        """Take a batch in any order."""
        if len(batch):
            self.late += int(np.count_nonzero(batch["time_ns"] < self._watermark_ns))
            self._held[batch.kind].append(batch)

    def advance(self, watermark_ns: int) -> None:
        """Publish everything older than the watermark: CLOCK_MONOTONIC before which nothing more is expected."""
        self._watermark_ns = max(self._watermark_ns, watermark_ns)
        for kind in list(self._held):
            batch = _sorted(concatenate(self._held.pop(kind)))
            ready = int(np.searchsorted(batch["time_ns"], self._watermark_ns, "left"))
            if ready:
                self._publish(batch.take(np.arange(ready)) if ready < len(batch) else batch)
            if ready < len(batch):
                self._held[kind].append(batch.take(np.arange(ready, len(batch))))

    def finish(self) -> None:
        """Publish everything that is left."""
        for kind in list(self._held):
            self._publish(_sorted(concatenate(self._held.pop(kind))))


def _sorted(batch: Batch) -> Batch:
    """Sort by time; what is equal is told apart by more columns, so that the order of arrival does not matter."""
    times = batch["time_ns"]
    if len(times) < 2 or bool(np.all(times[:-1] < times[1:])):
        return batch
    return batch.take(np.lexsort((batch["cpu"], batch["begin_ns"], batch["tid"], times)))
