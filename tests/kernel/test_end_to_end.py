# SPDX-License-Identifier: Apache-2.0
"""A simulated CUDA server recorded and reported on this kernel, with the command line a user would type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kernel.run import REQUESTS

from fencepath._bpf.attach import uprobe_attach_method
from fencepath.plugin import DemoCommand

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(180)]


def fencepath(*words: str | Path, environ: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "fencepath", *words]
    done = subprocess.run(command, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's server, recorded as `fencepath demo` does."""
    built = msgspec.json.decode(Path(os.environ["FENCEPATH_VM_DEMO"]).read_bytes(), type=DemoCommand)
    path = tmp_path_factory.mktemp("demo") / "demo.fencepath"
    fencepath("record", "-o", path, "--layers", "cuda,host", "--exact", "--", *built.argv, environ=built.environ)
    return path


def test_uprobes_are_attached_as_this_kernel_takes_them() -> None:
    assert uprobe_attach_method().value == os.environ["FENCEPATH_VM_UPROBES"]


def test_every_request_has_a_path_through_the_device(recording: Path) -> None:
    report: dict[str, Any] = json.loads(fencepath("report", recording, "--json"))
    assert len(report["requests"]) == REQUESTS
    for request in report["requests"]:
        path = request["path"]
        assert request["state"] == "complete"
        assert sum(path["by_category_ns"].values()) == path["end_ns"] - path["start_ns"]
        assert path["unexplained_ns"] <= 0.01 * (path["end_ns"] - path["start_ns"])
        assert {"device_wait"} & path["by_category_ns"].keys(), path["by_category_ns"]
        assert path["violations"] == []
