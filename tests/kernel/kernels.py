# SPDX-License-Identifier: Apache-2.0
"""The kernels to test on, and how they are got."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["KERNELS", "SCRIPTS", "Kernel", "KernelError", "cache_folder", "unpack"]

SCRIPTS = Path(__file__).parent / "vm"


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel to test on.

    Attributes:
        name: what it is called here.
        suite: of Debian's archive.
        package: of the image.
        required: whether the run fails if this one does.
        events: names that its GPU scheduler's events must turn out to have (renamed in 6.17).
        uprobes: how uprobes must turn out to be attached (uprobe_multi links came with 6.6).
        functions: how functions of the stand-in for NVIDIA's driver must turn out to be probed: for fentry it is built with BTF.
    """

    name: str
    suite: str
    package: str
    required: bool
    events: Literal["old", "new"]
    uprobes: Literal["perf", "multi"]
    functions: Literal["kprobe", "fentry"]


KERNELS = (
    Kernel(
        name="6.1",
        suite="bookworm-security",
        package="linux-image-amd64",
        required=True,
        events="old",
        uprobes="perf",
        functions="kprobe",
    ),
    Kernel(
        name="6.12",
        suite="bookworm-security",
        package="linux-image-6.12-amd64",
        required=True,
        events="old",
        uprobes="multi",
        functions="fentry",
    ),
    # Its version changes, and with it what the mock driver must be built for: a failure there must not hold up a change here.
    Kernel(
        name="newest",
        suite="trixie-backports",
        package="linux-image-amd64",
        required=False,
        events="new",
        uprobes="multi",
        functions="fentry",
    ),
)


class KernelError(Exception):
    """A kernel could not be got or booted; the message says why."""


def cache_folder() -> Path:
    """Return where unpacked kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fencepath" / "kernels"


def unpack(kernel: Kernel, folder: Path) -> str:
    """Get the kernel's packages unless they are unpacked already, build the drivers; return the version.

    Raises:
        KernelError: with the last line that a tool said.
    """
    if not (folder / "kver").exists():
        _tool("fetch-kernel.sh", kernel.suite, str(folder), kernel.package)
    _tool("build-module.sh", str(folder), *(["btf"] if kernel.functions == "fentry" else []))
    return (folder / "kver").read_text().strip()


def _tool(name: str, *arguments: str) -> None:
    done = subprocess.run([SCRIPTS / name, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise KernelError(f"{name}: {said[-1] if said else f'exit code {done.returncode}'}")
