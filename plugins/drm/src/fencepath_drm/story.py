# SPDX-License-Identifier: Apache-2.0
"""What was worked out of one run's events, for the rules that follow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath_drm.busy import Busy
from fencepath_drm.holds import Holds
from fencepath_drm.jobs import Jobs
from fencepath_drm.parts import Parts
from fencepath_drm.sleeps import Sleeps

__all__ = ["Story"]

Ints = npt.NDArray[np.int64]


class Story:
    """Filled by :class:`fencepath_drm.derived.DrmDerived` before its rules run.

    Attributes:
        jobs: all of them.
        busy: when they had their rings.
        parts: which of them fences stand for.
        holds: what held them up.
        sleeps: threads that slept for a fence.
        executes: rows of `jobs` that the batch ``drm.job.execute`` has, in its order.
        held: rows of `holds` that the batch ``drm.job.hold`` has, in its order.
    """

    jobs: Jobs
    busy: Busy
    parts: Parts
    holds: Holds
    sleeps: Sleeps
    executes: Ints
    held: Ints
