# SPDX-License-Identifier: Apache-2.0
"""The drivers' layers with Debian's own modules, which load without their hardware: every program is taken and attached."""

from __future__ import annotations

import subprocess

import pytest
from tests.core.driver_live import attaches_everything

from fencepath.testing import LiveRecording

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(180)]


@pytest.mark.parametrize("driver", ["amdgpu", "i915", "xe"])
def test_every_program_attaches(driver: str, live_recording: LiveRecording, monkeypatch: pytest.MonkeyPatch) -> None:
    if subprocess.run(["modprobe", "--dry-run", driver], capture_output=True, check=False).returncode:
        pytest.skip(f"this kernel has no module {driver}")
    subprocess.run(["modprobe", driver], check=True)
    monkeypatch.setenv("FENCEPATH_REQUIRE_MODULES", driver)
    attaches_everything(driver, live_recording)
