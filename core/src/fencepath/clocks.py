# SPDX-License-Identifier: Apache-2.0
"""Clocks: samples that relate two time domains, and conversions that state their error.

Every time in a recording is CLOCK_MONOTONIC of the host in ns. Another clock enters through bracketed samples: the
host's clock is read, then the other, then the host's again, so the true moment of the middle reading lies between the
outer two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

__all__ = ["ClockModel", "ClockSample", "ClockSource", "realtime_sample", "sample"]


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
    """One bracketed reading.

    Attributes:
        domain: name of the other clock, such as ``realtime`` or ``gpu:0000:01:00.0``.
        before_ns: CLOCK_MONOTONIC before the reading.
        value_ns: the other clock.
        after_ns: CLOCK_MONOTONIC after the reading.
    """

    domain: str
    before_ns: int
    value_ns: int
    after_ns: int

    @property
    def monotonic_ns(self) -> int:
        """Middle of the bracket."""
        return (self.before_ns + self.after_ns) // 2

    @property
    def error_ns(self) -> int:
        """How far the middle can be from the true moment."""
        return (self.after_ns - self.before_ns + 1) // 2


class ClockSource(Protocol):
    """A clock that a plugin can read while recording."""

    @property
    def domain(self) -> str:
        """Name of the clock."""
        ...

    def sample(self) -> ClockSample:
        """Read it once, bracketed. Called by the recorder about once a second."""
        ...


def sample(domain: str, read_ns: Callable[[], int], tries: int = 5) -> ClockSample:
    """Return the tightest of a few bracketed readings of a clock."""
    best: ClockSample | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        value = read_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best.after_ns - best.before_ns:
            best = ClockSample(domain=domain, before_ns=before, value_ns=value, after_ns=after)
    assert best is not None
    return best


def realtime_sample() -> ClockSample:
    """Relate CLOCK_REALTIME to CLOCK_MONOTONIC now."""
    return sample("realtime", time.time_ns)


class ClockModel:
    """Converts CLOCK_MONOTONIC to another clock by its samples, linear between them, and says how wrong it may be.

    Between two samples the error is the larger bracket plus what the offset changed between them: a clock that was
    stepped in between was stepped at an unknown moment. Outside the samples the nearest offset is used and the error
    grows by `drift_ppm`.
    """

    def __init__(self, samples: Sequence[ClockSample], drift_ppm: float = 100.0) -> None:
        if not samples:
            raise ValueError("a clock model needs at least one sample")
        ordered = sorted(samples, key=lambda s: s.monotonic_ns)
        self.domain = ordered[0].domain
        self._base = ordered[0].monotonic_ns
        self._at = np.array([s.monotonic_ns - self._base for s in ordered], np.int64)
        self._offset_base = ordered[0].value_ns - ordered[0].monotonic_ns
        self._offset = np.array([s.value_ns - s.monotonic_ns - self._offset_base for s in ordered], np.int64)
        self._error = np.array([s.error_ns for s in ordered], np.int64)
        self._drift = drift_ppm * 1e-6

    def convert(self, time_ns: int) -> tuple[int, int]:
        """Convert one time.

        Args:
            time_ns: CLOCK_MONOTONIC.

        Returns:
            The other clock in ns and the bound of its error in ns.
        """
        at = time_ns - self._base
        right = int(np.searchsorted(self._at, at))
        if right in (0, len(self._at)):
            near = min(right, len(self._at) - 1)
            away = abs(at - int(self._at[near]))
            return time_ns + self._offset_base + int(self._offset[near]), int(self._error[near]) + round(
                away * self._drift
            )
        left = right - 1
        span = int(self._at[right] - self._at[left])
        change = int(self._offset[right] - self._offset[left])
        offset = int(self._offset[left]) + (change * (at - int(self._at[left])) // span if span else 0)
        error = max(int(self._error[left]), int(self._error[right])) + abs(change)
        return time_ns + self._offset_base + offset, error
