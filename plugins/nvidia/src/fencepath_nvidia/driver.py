# SPDX-License-Identifier: Apache-2.0
"""What the loaded driver says of itself and its GPUs, in /proc and /sys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import msgspec

__all__ = ["CHECKED", "DriverVersion", "Gpu", "driver_version", "find_gpus", "parse_version", "version_text"]

DriverVersion: TypeAlias = tuple[int, ...]
"""``580.159.04`` is (580, 159, 4)."""

CHECKED: tuple[DriverVersion, DriverVersion] = ((515,), (596,))
"""The first driver whose layouts were checked, and the first one after those that were."""

_VERSION = re.compile(r"\b(\d{3,})\.(\d+)(?:\.(\d+))?\b")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of the driver.

    Attributes:
        bdf: PCI address with function, lower case: ``0000:01:00.0``.
        name: model.
        uuid: ``GPU-...``.
        minor: N of /dev/nvidiaN, -1 if it is not said.
        vectors: numbers of its interrupts, ascending.
    """

    bdf: str
    name: str = ""
    uuid: str = ""
    minor: int = -1
    vectors: tuple[int, ...] = ()


def parse_version(text: str) -> DriverVersion | None:
    """Return the first thing in a text that is a driver's version, None if nothing is."""
    found = _VERSION.search(text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def version_text(version: DriverVersion) -> str:
    """Return a version as the driver writes it."""
    return ".".join(f"{part:02}" if index > 1 else str(part) for index, part in enumerate(version))


def driver_version(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> DriverVersion | None:
    """Return the version of the module that is loaded, None if none is or it does not say."""
    for path in (sys / "module/nvidia/version", proc / "driver/nvidia/version"):
        # the second begins with "NVRM version: NVIDIA UNIX ... x86_64  580.159.04  Release Build"
        version = parse_version(_read(path))
        if version is not None:
            return version
    return None


def find_gpus(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> tuple[Gpu, ...]:
    """Return the driver's GPUs by PCI address, with the interrupts that the kernel has given them."""
    folder = proc / "driver/nvidia/gpus"
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return ()
    return tuple(_gpu(name, _fields(folder / name / "information"), sys) for name in names)


def _gpu(name: str, said: dict[str, str], sys: Path) -> Gpu:
    bdf = said.get("Bus Location", name).lower()
    minor, line = said.get("Device Minor", ""), said.get("IRQ", "")
    try:
        vectors = {int(path.name) for path in (sys / "bus/pci/devices" / bdf / "msi_irqs").iterdir()}
    except (OSError, ValueError):
        vectors = {int(line)} if line.isdigit() else set()
    return Gpu(
        bdf=bdf,
        name=said.get("Model", ""),
        uuid=said.get("GPU UUID", ""),
        minor=int(minor) if minor.isdigit() else -1,
        vectors=tuple(sorted(vectors)),
    )


def _fields(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in _read(path).splitlines())
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
