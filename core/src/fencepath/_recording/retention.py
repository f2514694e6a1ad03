# SPDX-License-Identifier: Apache-2.0
"""Which segments are dropped when a recording is bounded in time or size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fencepath._recording.segments import SegmentIndex

__all__ = ["Retention"]

# A limit is kept to within a part of itself, as segments are dropped whole.
_PARTS = 4
_LEAST_SEGMENT_NS = 1_000_000_000
_LEAST_SEGMENT_BYTES = 1 << 16


class Retention:
    """The closed segments of a recording, oldest first.

    Args:
        keep_ns: how long a segment is kept after its newest record; None for ever.
        max_bytes: bound of the whole recording; None for no bound.

    Attributes:
        size_bytes: of the segments that are there.
    """

    def __init__(self, keep_ns: int | None, max_bytes: int | None) -> None:
        self._keep_ns = keep_ns
        self._max_bytes = max_bytes
        self._segments: deque[tuple[int, SegmentIndex]] = deque()
        self.size_bytes = 0

    @property
    def limited(self) -> bool:
        """Whether anything is ever dropped."""
        return self._keep_ns is not None or self._max_bytes is not None

    def segment_ns(self, wanted_ns: int) -> int:
        """Return how long a segment may be open: `wanted_ns`, or less where the limit is small."""
        return wanted_ns if self._keep_ns is None else min(wanted_ns, max(self._keep_ns // _PARTS, _LEAST_SEGMENT_NS))

    def segment_bytes(self, wanted_bytes: int) -> int:
        """Return how large a segment may be: `wanted_bytes`, or less where the limit is small."""
        if self._max_bytes is None:
            return wanted_bytes
        return min(wanted_bytes, max(self._max_bytes // _PARTS, _LEAST_SEGMENT_BYTES))

    def add(self, number: int, index: SegmentIndex) -> None:
        """Take note of a segment that was closed."""
        self._segments.append((number, index))
        self.size_bytes += index.bytes

    def drop(self, now_ns: int | None, other_bytes: int) -> Iterator[tuple[int, SegmentIndex]]:
        """Yield the segments to drop now, oldest first.

        Args:
            now_ns: CLOCK_MONOTONIC; None when no time is known yet.
            other_bytes: size of the rest of the recording.
        """
        while self._segments and self._is_due(self._segments[0][1], now_ns, other_bytes):
            number, index = self._segments.popleft()
            self.size_bytes -= index.bytes
            yield number, index

    def _is_due(self, oldest: SegmentIndex, now_ns: int | None, other_bytes: int) -> bool:
        too_old = self._keep_ns is not None and now_ns is not None and oldest.time_ns < now_ns - self._keep_ns
        return too_old or (self._max_bytes is not None and self.size_bytes + other_bytes > self._max_bytes)
