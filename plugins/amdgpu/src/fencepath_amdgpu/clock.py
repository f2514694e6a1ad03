# SPDX-License-Identifier: Apache-2.0
"""The GPU's clock, from interrupts: each carries the GPU's time at which it was raised.

An interrupt is recorded after it was raised, never before, by a delay that is mostly small and sometimes large. So the
line through the least delayed ones is taken, and what others come later than it is their delay beyond the least. The
least delay itself cannot be known from one side: it makes every time on the GPU look that much later than it was.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.events import Batch

__all__ = ["GpuClock", "gpu_clock"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WINDOWS = 64
"""Of each so many equal parts of the time the least delayed interrupt counts."""
_LEAST_SPAN_NS = 1_000_000_000
"""Over a shorter time the delays are too large a part of it."""


class GpuClock(msgspec.Struct, frozen=True, kw_only=True):
    """The line ``monotonic_ns = base_ns + (ticks - base_ticks) * ns_per_tick``.

    Attributes:
        base_ns: CLOCK_MONOTONIC of the host in ns.
        base_ticks: of the GPU.
        ns_per_tick: length of a tick; 10 where the reference clock has 100 MHz.
        delay_ns: how late each interrupt of the batch was recorded, beyond the least delay. Shape (n,).
    """

    base_ns: int
    base_ticks: int
    ns_per_tick: float
    delay_ns: tuple[int, ...]

    def monotonic_ns(self, ticks: int) -> int:
        """Return when the GPU's clock was at `ticks`, late by the least delay of an interrupt."""
        return self.base_ns + round((ticks - self.base_ticks) * self.ns_per_tick)


def gpu_clock(interrupts: Batch) -> GpuClock | None:
    """Work the clock out.

    Args:
        interrupts: of kind ``amdgpu.interrupt``, of one GPU: the events do not say which, and the clocks of two differ.

    Returns:
        None if there are too few, over less than a second, or the clock does not run evenly (two GPUs, a reset).
    """
    order = np.argsort(interrupts["gpu_ticks"], kind="stable")
    if len(order) < _WINDOWS:
        return None
    base_ns, base_ticks = int(interrupts["time_ns"][order[0]]), int(interrupts["gpu_ticks"][order[0]])
    at = (interrupts["time_ns"].astype(np.int64) - base_ns)[order]
    ticks = (interrupts["gpu_ticks"] - np.uint64(base_ticks)).astype(np.int64)[order]
    if int(at.max()) < _LEAST_SPAN_NS or int(ticks[-1]) <= 0:
        return None
    rate, offset = _lowest_line(ticks, at)
    if rate <= 0 or not np.all(np.diff(at) > -_LEAST_SPAN_NS):
        return None
    late = np.empty(len(at), np.int64)
    late[order] = np.round(at - (offset + ticks * rate)).astype(np.int64)
    return GpuClock(
        base_ns=base_ns + round(offset), base_ticks=base_ticks, ns_per_tick=rate, delay_ns=tuple(late.tolist())
    )


def _lowest_line(ticks: Ints, at: Ints) -> tuple[float, float]:
    """Slope and height of a line below all points, through the least delayed of the windows."""
    part = np.minimum(ticks * _WINDOWS // (int(ticks[-1]) + 1), _WINDOWS - 1)
    rate = float(at[-1] - at[0]) / float(ticks[-1] - ticks[0])
    for _ in range(3):
        above = at - ticks * rate
        lowest = np.lexsort((above, part))
        first = lowest[np.unique(part[lowest], return_index=True)[1]]
        slope, _ = np.polyfit(ticks[first].astype(np.float64), at[first].astype(np.float64), 1)
        rate = float(slope)
    return rate, float(np.min(at - ticks * rate))
