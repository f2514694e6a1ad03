# SPDX-License-Identifier: Apache-2.0
"""Times of a recording as CLOCK_REALTIME, for tools that know no other clock."""

from __future__ import annotations

from fencepath.clocks import ClockModel
from fencepath.errors import RecordingDamagedError
from fencepath.recording import Recording

__all__ = ["Shift", "model_of", "shift_of"]

DOMAIN = "realtime"


class Shift:
    """What is added to the times of one request.

    One offset for a whole request, and not one a moment: durations stay exact, children fill their parent to the nanosecond,
    and time never runs backwards where the wall clock was set during the request. What the wall clock changed is in the
    error instead.

    Attributes:
        offset_ns: CLOCK_REALTIME less CLOCK_MONOTONIC.
        error_ns: how far a converted time may be off.
    """

    def __init__(self, offset_ns: int, error_ns: int) -> None:
        self.offset_ns = offset_ns
        self.error_ns = error_ns

    def __call__(self, time_ns: int) -> int:
        """Convert one time from CLOCK_MONOTONIC."""
        return time_ns + self.offset_ns


def model_of(recording: Recording) -> ClockModel:
    """Return the model of CLOCK_REALTIME.

    Raises:
        RecordingDamagedError: the recording holds no readings of that clock.
    """
    samples = [sample for sample in recording.clocks if sample.domain == DOMAIN]
    if not samples:
        raise RecordingDamagedError(
            f"{recording.path} has no readings of the wall clock, so its times cannot be converted; export to graphml or chrome instead"
        )
    return ClockModel(samples)


def shift_of(model: ClockModel, start_ns: int, end_ns: int) -> Shift:
    """Return the shift for a window of time, CLOCK_MONOTONIC in ns."""
    (start, start_error), (end, end_error) = model.convert(start_ns), model.convert(end_ns)
    offset = start - start_ns
    return Shift(offset, max(start_error, end_error) + abs(end - end_ns - offset))
