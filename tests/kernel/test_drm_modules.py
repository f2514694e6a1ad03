# SPDX-License-Identifier: Apache-2.0
"""Drivers that are loaded, and loaded anew, while fencepath records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel.mock_modules import AFTER, BEFORE, insmod, rmmod
from tests.kernel.mockgpu_client import Fence, truth

from fencepath.analysis import Analysis
from fencepath.recording import open_recording

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(120)]


@pytest.fixture
def scheduler() -> Iterator[None]:
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    yield
    rmmod()


@pytest.fixture
def no_scheduler() -> Iterator[None]:
    subprocess.run(["modprobe", "-r", "gpu-sched"], check=True)
    yield
    rmmod()


def recorded(way: str, folder: Path) -> Analysis:
    path = folder / "r.fencepath"
    workload = [sys.executable, "-m", "tests.kernel.mock_modules", way, str(folder)]
    options = ["-o", str(path), "--layers", "drm", "--detail", "launch", "--as-root"]
    command = [sys.executable, "-m", "fencepath", "record", *options, "--", *workload]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Analysis(open_recording(path))


def fences(analysis: Analysis, kind: str) -> list[Fence]:
    batch = analysis.view.batch(kind)
    names = ("fence_context", "fence_seqno") if "fence_context" in batch else ("context", "seqno")
    return list(map(Fence, *(batch[name].tolist() for name in names)))


def test_a_driver_that_is_loaded_anew_is_followed(scheduler: None, tmp_path: Path) -> None:
    """Its devices can have the numbers of the ones before, and its rings their names."""
    insmod()
    analysis = recorded("reload", tmp_path)
    jobs = [*truth(tmp_path / "truth.before"), *truth(tmp_path / "truth")]
    assert len(jobs) == BEFORE + AFTER
    for kind in ("drm.job.queue", "drm.job.run", "drm.job.done", "drm.fence.signaled"):
        assert fences(analysis, kind) == [job.finished for job in jobs], kind
    assert fences(analysis, "drm.fence.wait") == [job.finished for job in jobs]
    counts = {count.rule: (count.matched, count.unmatched) for count in analysis.joins}
    assert counts["drm.fence_wait"] == (len(jobs), 0)
    assert counts["drm.submit_ioctl"] == (len(jobs), 0)
    assert not [row for row in analysis.recording.loss if row.count]


def test_a_driver_that_is_loaded_later_is_said_to_be_missing(no_scheduler: None, tmp_path: Path) -> None:
    """The scheduler's tracepoints came after the recording had begun. Fences have always been there, and so have ioctls."""
    analysis = recorded("load", tmp_path)
    jobs = truth(tmp_path / "truth")
    assert len(jobs) == AFTER
    (why,) = (one.why for one in analysis.recording.manifest.layers["drm"].missing if one.probe == "jobs")
    assert "no driver that uses the GPU scheduler was loaded" in why
    assert fences(analysis, "drm.fence.wait") == [job.finished for job in jobs]
    assert len(analysis.view.batch("drm.job.queue")) == 0
    ioctls = analysis.view.batch("drm.ioctl")
    submits = [label for label in ioctls["label"].tolist() if ioctls.labels[label] == "ioctl 0x40"]
    assert len(submits) == AFTER
