# SPDX-License-Identifier: Apache-2.0
"""The simulated CUDA library, compiled once, and programs that run on it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.simcuda.truths import Interpret, check_truth

from fencepath_cuda import simcuda
from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.programs import Program, Run, run_programs
from fencepath_cuda.simcuda.truth import Truth, read_truth

HERE = Path(__file__).parent

SANITIZERS = os.environ.get("SIMCUDA_TEST_FLAGS", "").split()
"""More compiler flags, such as -fsanitize=thread."""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> SimCuda:
    return simcuda.build(tmp_path_factory.mktemp("simcuda"), flags=["-Werror", *SANITIZERS])


@pytest.fixture
def program(library: SimCuda, tmp_path: Path) -> Callable[..., Truth]:
    """Run Python code on the simulated library and return the truth about it; see driver.py for what it has."""

    def run(body: str, **environment: Any) -> Truth:
        code = f"import sys\nsys.path.insert(0, {str(HERE)!r})\nimport ctypes\nfrom driver import *\n"
        truth = tmp_path / "truth.jsonl"
        truth.unlink(missing_ok=True)
        command = [sys.executable, "-c", code + textwrap.dedent(body)]
        done = subprocess.run(
            command,
            env=library.environment(truth=truth, **environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = read_truth(truth)
        check_truth(found)
        return found

    return run


@pytest.fixture
def interpret(library: SimCuda, tmp_path: Path) -> Interpret:
    """Run programs, as text or made, with the interpreter; their truth is checked."""

    def run(programs: Sequence[Program | str], **options: Any) -> list[Run]:
        runs = run_programs(library, programs, tmp_path, results=True, **options)
        for each in runs:
            assert each.status == 0
            assert each.truth is not None
            check_truth(each.truth)
        return runs

    return run
