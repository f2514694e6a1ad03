# SPDX-License-Identifier: Apache-2.0
"""The suite that runs on a real GPU, plugins/nvidia/tests/gpu, with its program, on the stand-in and a libcuda of its few functions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel import nvidia_standin as standin

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(500)]

HERE = Path(__file__).parent
SUITE = "plugins/nvidia/tests/gpu/test_nvidia_gpu.py"
PLUGINS = ("fencepath.testing.pytest_plugin", "pytest_timeout", "no:cacheprovider")
TESTS = 7


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a libcuda.so.1."""
    target = tmp_path / "libcuda.so.1"
    words = [
        "cc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{target.name}",
        "-o",
        str(target),
    ]
    subprocess.run([*words, str(HERE / "nvidia_libcuda.c")], check=True)
    return tmp_path


@pytest.fixture
def driver() -> Iterator[None]:
    standin.insert("nvidia")
    yield
    assert standin.remove("nvidia")


def test_the_suite_of_the_gpu_passes(driver: None, library: Path) -> None:
    environ = {**os.environ, "FENCEPATH_REQUIRE_GPU": "1", "LD_LIBRARY_PATH": str(library)}
    loaded = [word for name in PLUGINS for word in ("-p", name)]
    words = [sys.executable, "-m", "pytest", *loaded, "-q", "--timeout", "250", "-m", "bpf", SUITE]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{TESTS} passed" in done.stdout
