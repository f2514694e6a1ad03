# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of an open DRM device in /proc/PID/fdinfo/FD: which client it is and how long its engines were busy.

Format: Documentation/gpu/drm-usage-stats.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Client", "parse_fdinfo"]

_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LINE = re.compile(r"(drm-[^:]+):\s*(.*?)\s*$")
_QUANTITY = re.compile(r"(\d+)(?:\s+(\w+))?$")
_MEMORY = ("total", "shared", "resident", "purgeable", "active", "memory")


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """An open DRM device.

    Attributes:
        driver: kernel driver, such as ``amdgpu``.
        device: such as ``0000:03:00.0``; "" if it has no such place.
        client_id: unique on the device; what ``drm.job.queue`` calls ``client_id``. 0 if the driver does not say.
        engine_ns: busy time of each engine since the file was opened.
        engines: how many of an engine there are, where it is not one.
        cycles: busy time of each engine in cycles of a clock of the device, as xe tells it.
        total_cycles: that clock, when `cycles` was read.
        memory_bytes: by ``<what>-<region>``, such as ``resident-vram``.
    """

    driver: str
    device: str = ""
    client_id: int = 0
    engine_ns: Mapping[str, int] = {}
    engines: Mapping[str, int] = {}
    cycles: Mapping[str, int] = {}
    total_cycles: Mapping[str, int] = {}
    memory_bytes: Mapping[str, int] = {}


def parse_fdinfo(text: str) -> Client | None:
    """Read a file's fdinfo; None if it is none of a DRM device.

    Lines that are not understood are left out, as drivers add their own.
    """
    lines = {found[1].removeprefix("drm-"): found[2] for found in map(_LINE.match, text.splitlines()) if found}
    if "driver" not in lines:
        return None
    numbers = {name: _quantity(value) for name, value in lines.items()}
    known = {name: number for name, number in numbers.items() if number is not None}
    return Client(
        driver=lines["driver"],
        device=lines.get("pdev", ""),
        client_id=known.get("client-id", 0),
        engine_ns=_under("engine-", known, but="engine-capacity-"),
        engines=_under("engine-capacity-", known),
        cycles=_under("cycles-", known),
        total_cycles=_under("total-cycles-", known),
        memory_bytes={
            name: number
            for name, number in known.items()
            if name.partition("-")[0] in _MEMORY and not name.startswith("total-cycles-")
        },
    )


def _under(prefix: str, numbers: Mapping[str, int], but: str = " ") -> dict[str, int]:
    """Those whose names begin with `prefix`, and not with `but`, without it."""
    return {
        name.removeprefix(prefix): number
        for name, number in numbers.items()
        if name.startswith(prefix) and not name.startswith(but)
    }


def _quantity(text: str) -> int | None:
    """A number in ns, bytes or pieces; None if it is something else."""
    found = _QUANTITY.match(text)
    if found is None:
        return None
    unit = found[2] or ""
    return int(found[1]) * _BYTES[unit] if unit in _BYTES else int(found[1]) if unit == "ns" else None
