# SPDX-License-Identifier: Apache-2.0
"""What ``fencepath doctor`` says of this kernel."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from fencepath._doctor.layers import live_layer_checks
from fencepath._loader import load_plugins

pytestmark = [pytest.mark.kernel, pytest.mark.bpf]


@pytest.fixture(scope="module", autouse=True)
def scheduler() -> None:
    subprocess.run(["modprobe", "gpu-sched"], check=True)


def test_the_layers_say_what_this_kernel_has() -> None:
    checks = live_layer_checks(load_plugins()).checks
    drm = {check.name: check for layer, check in checks if layer == "drm"}
    old = os.environ["FENCEPATH_VM_EVENTS"] == "old"
    names = ("drm_sched_job", "drm_run_job", "drm_sched_process_job") if old else ("", "", "")
    for event, old_name in zip(("queue", "run", "done"), names, strict=True):
        check = drm[f"tracepoint gpu_scheduler:drm_sched_job_{event}"]
        assert check.verdict == "ok"
        assert check.evidence == (f"is there, as gpu_scheduler:{old_name}" if old_name else "is there")
    assert drm["jobs"].verdict == "ok"
    assert "GPU scheduler" not in drm
    other = [check for layer, check in checks if layer in ("amdgpu", "i915", "xe") and "module" in check.evidence]
    assert other
    assert all(check.verdict in ("ok", "degrade") for check in other)


def test_the_command_finds_that_recording_works_here() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepath", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["machine"]["kernel"] == platform.release()
    assert not [check for check in said["checks"] if check["verdict"] == "refuse"]
    assert {"drm", "host", "process"} <= {check["layer"] for check in said["checks"]}
