# SPDX-License-Identifier: Apache-2.0
"""Device classes: which character devices a plugin means, by driver and not by path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

__all__ = ["ANY_MINOR", "DeviceClass", "Devices", "device_number", "open_devices"]

ANY_MINOR = 0xFFFFF
"""In a device number: every minor that has no entry of its own."""

_MISC_MAJOR = 10


class DeviceClass(msgspec.Struct, frozen=True):
    """Character devices that are spoken to in one language.

    Attributes:
        name: unique among all plugins, such as ``nvidia-uvm`` or ``drm-amdgpu``.
        drivers: names in /proc/devices or /proc/misc; the majors of drivers that have no fixed one are found there.
        major: the fixed major number, or None.
        minors: first and last minor that count, or None for all.
        kernel_driver: only minors whose device is bound to this driver (DRM's ioctls overlap between drivers); "" for
            any.
    """

    name: str
    drivers: tuple[str, ...] = ()
    major: int | None = None
    minors: tuple[int, int] | None = None
    kernel_driver: str = ""


def device_number(major: int, minor: int) -> int:
    """Return the kernel's own form of a device number: ``major << 20 | minor``."""
    return major << 20 | minor


class Devices:
    """The character devices of a machine.

    Args:
        proc: where procfs is.
        sys: where sysfs is.
    """

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc = proc
        self._sys = sys

    def numbers(self, device: DeviceClass) -> tuple[int, ...]:
        """Return the device numbers of a class as they are now; :data:`ANY_MINOR` stands for all minors of a major.

        Empty while its module is not loaded: ask again later.
        """
        found: set[int] = set()
        for major in self._majors(device):
            found.update(self._minors(device, major))
        misc = self._table("misc")
        found.update(device_number(_MISC_MAJOR, misc[name]) for name in device.drivers if name in misc)
        return tuple(sorted(found))

    def _majors(self, device: DeviceClass) -> Iterable[int]:
        listed = self._table("devices")
        majors = [listed[name] for name in device.drivers if name in listed]
        return dict.fromkeys(majors if device.major is None else [device.major, *majors])

    def _minors(self, device: DeviceClass, major: int) -> Iterable[int]:
        if device.kernel_driver:
            present = [minor for minor in self._present(major) if self._driver(major, minor) == device.kernel_driver]
        elif device.minors is None:
            return (device_number(major, ANY_MINOR),)
        else:
            present = list(range(device.minors[0], device.minors[1] + 1))
        first, last = device.minors or (0, ANY_MINOR)
        return (device_number(major, minor) for minor in present if first <= minor <= last)

    def _present(self, major: int) -> list[int]:
        return [int(path.name.split(":")[1]) for path in (self._sys / "dev/char").glob(f"{major}:*")]

    def _driver(self, major: int, minor: int) -> str:
        return (self._sys / f"dev/char/{major}:{minor}/device/driver").resolve().name

    def _table(self, name: str) -> Mapping[str, int]:
        try:
            text = (self._proc / name).read_text()
        except OSError:
            return {}
        rows = (line.split() for line in text.split("Block devices:")[0].splitlines())
        return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}


def open_devices(pid: int) -> dict[int, tuple[str, int]]:
    """Return the character devices that a process has open: fd -> (path as /proc says, device number).

    For facts of a recording. What a system call is for is decided in the kernel, by the file behind its fd.
    """
    found: dict[int, tuple[str, int]] = {}
    folder = Path(f"/proc/{pid}/fd")
    try:
        fds = [int(path.name) for path in folder.iterdir()]
    except OSError:
        return found
    for fd in fds:
        path = folder / str(fd)
        try:
            status = path.stat()
            if path.is_char_device():
                found[fd] = (str(path.readlink()), device_number(os.major(status.st_rdev), os.minor(status.st_rdev)))
        except OSError:
            # Closed meanwhile.
            continue
    return found
