# SPDX-License-Identifier: Apache-2.0
"""A process under whose eyes drivers come and go: ``python -m tests.kernel.mock_modules reload|load FOLDER``.

It leaves the driver's account in FOLDER: ``truth``, and of the driver that went ``truth.before``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.kernel.mockgpu_client import TRUTH, Gpu, Point

__all__ = ["AFTER", "BEFORE", "PARAMETERS"]

PARAMETERS = ("gpus=1", "rings=2", "hw_limit=2")
BEFORE, AFTER = 5, 7
"""Jobs for the first driver, and for the one that is loaded while recording."""

MS = 1_000_000


def run_jobs(count: int) -> None:
    """One after another, each waited for in the kernel."""
    with Gpu(0) as gpu:
        for index in range(count):
            out = Point(gpu.syncobj())
            gpu.submit(index % 2, MS, out=out)
            gpu.fence_wait(out.handle)


def insmod() -> None:
    subprocess.run(["insmod", os.environ["FENCEPATH_VM_MOCKGPU"], *PARAMETERS], check=True)


def rmmod() -> None:
    subprocess.run(["rmmod", "mockgpu"], check=True)


def reload(folder: Path) -> None:
    run_jobs(BEFORE)
    (folder / "truth.before").write_bytes(TRUTH.read_bytes())
    rmmod()
    # what programs are attached to stays
    assert subprocess.run(["rmmod", "gpu-sched"], check=False, capture_output=True).returncode
    insmod()
    time.sleep(2.5)  # devices are looked up each second
    run_jobs(AFTER)


def load(folder: Path) -> None:
    del folder
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    insmod()
    time.sleep(2.5)
    run_jobs(AFTER)


if __name__ == "__main__":
    target = Path(sys.argv[2])
    {"reload": reload, "load": load}[sys.argv[1]](target)
    (target / "truth").write_bytes(TRUTH.read_bytes())
