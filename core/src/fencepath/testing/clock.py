# SPDX-License-Identifier: Apache-2.0
"""A clock for tests that runs when it is told to."""

from __future__ import annotations

from fencepath.clocks import ClockSample

__all__ = ["FakeClock"]


class FakeClock:
    """Another clock with a given offset and drift against CLOCK_MONOTONIC; implements :class:`fencepath.clocks.ClockSource`.

    Attributes:
        now_ns: CLOCK_MONOTONIC of this clock's world.
    """

    def __init__(self, domain: str = "fake", offset_ns: int = 0, drift_ppm: float = 0.0, bracket_ns: int = 100) -> None:
        self._domain = domain
        self._offset_ns = offset_ns
        self._drift_ppm = drift_ppm
        self._bracket_ns = bracket_ns
        self.now_ns = 0

    @property
    def domain(self) -> str:
        """Name of the clock."""
        return self._domain

    def advance(self, by_ns: int) -> None:
        """Let time pass."""
        self.now_ns += by_ns

    def value_ns(self, at_ns: int) -> int:
        """What the clock shows at a moment of CLOCK_MONOTONIC."""
        return at_ns + self._offset_ns + round(at_ns * self._drift_ppm * 1e-6)

    def sample(self) -> ClockSample:
        """Read it, with a bracket around the middle of which the reading is exact."""
        half = self._bracket_ns // 2
        before, after = self.now_ns - half, self.now_ns + half
        return ClockSample(domain=self._domain, before_ns=before, value_ns=self.value_ns(self.now_ns), after_ns=after)
