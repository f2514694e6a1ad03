# SPDX-License-Identifier: Apache-2.0
"""Attaches a driver's layer where the driver's module is loaded: modules load without their hardware, and say nothing then."""

from __future__ import annotations

import os

import pytest

from fencepath._loader import load_plugins
from fencepath._record.plan import make_plan
from fencepath.system import System
from fencepath.testing import LiveRecording
from fencepath.tracepoints import LiveTracepoints

__all__ = ["attaches_everything"]

_FORCE = "FENCEPATH_REQUIRE_MODULES"


def attaches_everything(layer: str, record: LiveRecording, group: str = "") -> None:
    """Record a command by a layer alone: everything that this kernel offers is attached, and nothing is isolated.

    Skipped where the module is not loaded; ``FENCEPATH_REQUIRE_MODULES`` names modules for which that is a failure.

    Args:
        layer: name of the layer.
        record: the fixture ``live_recording``.
        group: of the module's tracepoints, if it is not called like the layer.
    """
    if not LiveTracepoints().events(group or layer):
        reason = f"the module {layer} is not loaded here (modprobe {layer}; with {_FORCE}={layer} this fails)"
        if layer in os.environ.get(_FORCE, "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    plan = make_plan(load_plugins(), System.here("full"), [layer, "process"])
    planned = [each for each in plan.sets if each.plugin.name == layer]
    events = {program.resolved.name for each in planned for program in each.programs}
    assert events
    done = record(["true"], options=["--layers", layer, "--detail", "full"])
    assert done.code == 0, done.errors
    seen = done.recording.manifest.layers[layer]
    lacking = events - set(seen.attached)
    assert not lacking, f"not attached: {sorted(lacking)}; {seen.missing}"
