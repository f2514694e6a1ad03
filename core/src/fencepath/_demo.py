# SPDX-License-Identifier: Apache-2.0
"""Records the demo that a layer offers, or finds the packaged recording of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from fencepath._loader import load_plugins
from fencepath.errors import MachineError
from fencepath.plugin import Demo

__all__ = ["find_demo", "record_demo"]


def find_demo() -> Demo:
    """Return the demo of the first layer that has one.

    Raises:
        MachineError: no installed layer has one.
    """
    for _, demo in load_plugins().collect("fencepath_demo"):
        return cast("Demo", demo)
    raise MachineError("no installed layer has a demo", "reinstall fencepath with its layers")


def record_demo(demo: Demo, path: Path, folder: Path, requests: int) -> None:
    """Build the demo in `folder` and record it to `path` with the command line a user would type.

    Raises:
        MachineError: it cannot be built or recorded here.
    """
    from fencepath.cli.recording import check_machine

    check_machine()
    built = demo.build(folder, requests)
    words = [sys.executable, "-m", "fencepath", "record", "-o", str(path), "--"]
    environ = {**os.environ, **built.environ}
    done = subprocess.run(
        [*words, *built.argv], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MachineError(last.removeprefix("fencepath: "))
