# SPDX-License-Identifier: Apache-2.0
"""The layer on this machine. What needs jobs runs where there is a driver: tests/kernel/test_drm.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fencepath.testing import LiveRecording

pytestmark = pytest.mark.bpf


def test_what_cannot_be_recorded_here_is_said(live_recording: LiveRecording) -> None:
    recorded = live_recording([sys.executable, "-c", "print(7)"], options=["--layers", "drm"])
    assert (recorded.code, recorded.output.strip()) == (0, "7")
    drm = recorded.recording.manifest.layers["drm"]
    assert "dma_fence:dma_fence_signaled" in drm.attached
    missing = {one.probe: one.why for one in drm.missing}
    if not Path("/sys/kernel/tracing/events/gpu_scheduler").exists():
        assert "no driver that uses the GPU scheduler was loaded" in missing["jobs"]
    assert [row for row in recorded.recording.loss if row.kind.startswith("drm.") and row.count] == []


def test_a_program_with_other_devices_has_no_client(live_recording: LiveRecording) -> None:
    code = "import time; kept = [open('/dev/null'), open('/dev/zero')]; time.sleep(1.7); print(11)"
    recorded = live_recording([sys.executable, "-c", code], options=["--layers", "drm"])
    assert (recorded.code, recorded.output.strip()) == (0, "11")
    assert recorded.recording.facts("drm.client") == []
