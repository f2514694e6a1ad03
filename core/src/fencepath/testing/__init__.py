# SPDX-License-Identifier: Apache-2.0
"""Tests for plugins: what every plugin, ours and others', must pass, and fixtures for tests of your own.

In a plugin's tests::

    from pathlib import Path

    from fencepath.testing import PluginConformance


    class TestConformance(PluginConformance):
        layer = "acme"
        readme = Path(__file__).parent.parent / "README.md"

Fixtures come with the pytest plugin that fencepath installs: ``live_recording`` records a command and opens the recording,
``recording_from`` opens one made by hand from records, ``system_from`` gives a machine of saved tracefs formats, and the
marker ``bpf`` says that a test needs root and BPF. :func:`without_events` takes tracepoints from a machine, to see what a
plugin does on a kernel that lacks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepath.testing._declared import without_events as without_events
    from fencepath.testing.clock import FakeClock as FakeClock
    from fencepath.testing.conformance import PluginConformance as PluginConformance
    from fencepath.testing.fixtures import LiveRecording as LiveRecording
    from fencepath.testing.fixtures import Recorded as Recorded
    from fencepath.testing.fixtures import RecordingFrom as RecordingFrom
    from fencepath.testing.fixtures import SystemFrom as SystemFrom
    from fencepath.testing.fixtures import write_recording as write_recording

__all__ = [
    "FakeClock",
    "LiveRecording",
    "PluginConformance",
    "Recorded",
    "RecordingFrom",
    "SystemFrom",
    "without_events",
    "write_recording",
]

_HOMES = {"FakeClock": "clock", "PluginConformance": "conformance", "without_events": "_declared"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'fencepath.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fencepath.testing.{_HOMES.get(name, 'fixtures')}"), name)
