# SPDX-License-Identifier: Apache-2.0
"""Records programs on a real NVIDIA GPU, with CUPTI as the judge. Elsewhere these tests are skipped.

FENCEPATH_GPU_CUPTI names a folder with CUPTI's include/ and lib/ (of the CUDA toolkit or of the wheel nvidia-cuda-cupti),
FENCEPATH_GPU_PYTHON a Python with torch and transformers, if it is not this one. The traced programs get
FENCEPATH_GPU_LIBRARY_PATH as LD_LIBRARY_PATH and nothing of this one's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.gpu.cupti import Log, build, read_log

from fencepath import Analysis, open_recording
from fencepath._loader import load_plugins

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where there is no GPU, unless one is asked for."""
    if Path("/dev/nvidiactl").exists() or os.environ.get("FENCEPATH_REQUIRE_GPU") == "1":
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU: /dev/nvidiactl does not exist"))


class Recorded:
    """A recording of a program, and what CUPTI saw of the same run."""

    def __init__(self, recording: Path, log: Log, output: str) -> None:
        self.analysis = Analysis(open_recording(recording), load_plugins())
        self.log = log
        self.output = output


@pytest.fixture(scope="session")
def cupti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that writes what CUPTI sees."""
    where = os.environ.get("FENCEPATH_GPU_CUPTI", "/usr/local/cuda/extras/CUPTI")
    return build(tmp_path_factory.mktemp("cupti"), Path(where))


@pytest.fixture(scope="session")
def record(cupti: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorded]:
    """Return a function that records a command through the command line, under CUPTI."""

    def run(command: Sequence[str | Path], *options: str, activities: bool = False) -> Recorded:
        folder = tmp_path_factory.mktemp("recorded")
        recording, log = folder / "run.fencepath", folder / "cupti.log"
        target = ["env", f"PYTHONPATH={ROOT / 'core/src'}"]  # for fencepath.mark, which needs nothing else
        target += [f"LD_LIBRARY_PATH={os.environ.get('FENCEPATH_GPU_LIBRARY_PATH', '')}"]
        target += [f"CUDA_INJECTION64_PATH={cupti}", f"CUPTI_LOG={log}"]
        target += ["CUPTI_LOG_ACTIVITY=1"] if activities else []
        recorder = [sys.executable, "-m", "fencepath", "record", "-o", recording, "--as-root", *options, "--"]
        words = list(map(str, [*recorder, *target, *command]))
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return Recorded(recording, read_log(log), done.stdout)

    return run


@pytest.fixture(scope="session")
def gpu_python() -> str:
    """A Python with torch."""
    return os.environ.get("FENCEPATH_GPU_PYTHON", sys.executable)
