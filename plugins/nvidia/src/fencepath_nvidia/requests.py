# SPDX-License-Identifier: Apache-2.0
"""What is taken of system calls on the driver's device files, for one version of the driver.

Requests and their layouts are in ``data/rm.csv`` and ``data/uvm.csv``. A request whose layout is not known for the version, or
whose structure has another size, is recorded by its name alone; one that is not in the files, by its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from fencepath.syscalls import (
    FOUND,
    Argument,
    DeviceClass,
    Equals,
    IoctlDecoder,
    Read,
    SyscallProbe,
    SyscallTable,
    Wrapped,
)
from fencepath_nvidia.driver import CHECKED, DriverVersion, parse_version
from fencepath_nvidia.kinds import CLOSE, IOCTL, MMAP, MUNMAP, POLL, UVM_CALL
from fencepath_nvidia.tables import class_groups, read_rows

__all__ = ["MODESET", "OTHER", "RM", "UVM", "ioctl_table", "mapping_table", "wait_table"]

RM = DeviceClass("nvidia", drivers=("nvidia", "nvidia-frontend"), major=195)
"""/dev/nvidiactl and /dev/nvidiaN; their region is called nvidia-frontend up to driver 535."""
MODESET = DeviceClass("nvidia-modeset", major=195, minors=(254, 254))
UVM = DeviceClass("nvidia-uvm", drivers=("nvidia-uvm",))
"""/dev/nvidia-uvm and -uvm-tools; the major number is handed out when the module is loaded."""

OTHER = "other"
"""Name of the rows for requests that are in no table."""

_TYPE = ord("F")
_XFER_CMD = 211
_VALUE = re.compile(r"(?P<when>>?)(?P<name>\w+)@(?:\*(?P<via>\d+)\+)?(?P<offset>\d+)(?::(?P<type>u\d+))?")
_UUID_BYTES = 16


def ioctl_table(version: DriverVersion | None, rm: DeviceClass = RM, uvm: DeviceClass = UVM) -> SyscallTable:
    """Return what is recorded of ioctls.

    Args:
        version: of the loaded driver; None if it is not known, then only what is the same in all versions is taken.
        rm: device class of the resource manager's files.
        uvm: device class of nvidia-uvm's.
    """
    return SyscallTable(
        (rm, MODESET, uvm),
        (
            *_rm_decoders(rm.name, version),
            *_uvm_decoders(uvm.name, version),
            IoctlDecoder(IOCTL, MODESET.name, OTHER),
        ),
    )


def wait_table(rm: DeviceClass = RM) -> SyscallTable:
    """Return what is recorded of poll and ppoll on the resource manager's files.

    Args:
        rm: their device class.
    """
    found = (Read("events", "u16", 4, argument=FOUND), Read("revents", "u16", 6, argument=FOUND, when="return"))
    # a pointer of 0 is for ever
    timeout = (
        Argument("timeout_at", 2),
        Read("timeout_s", "u64", 0, nullable=True),
        Read("timeout_ns", "u64", 8, nullable=True),
    )
    return SyscallTable(
        (rm,),
        probes=(
            SyscallProbe(
                POLL, "poll", rm.name, fds=0, values=(Argument("count", 1), Argument("timeout_ms", 2), *found)
            ),
            SyscallProbe(POLL, "ppoll", rm.name, fds=0, values=(*timeout, *found)),
        ),
    )


def mapping_table(rm: DeviceClass = RM, uvm: DeviceClass = UVM) -> SyscallTable:
    """Return what is recorded of mmap, munmap and close.

    Args:
        rm: device class of the resource manager's files.
        uvm: device class of nvidia-uvm's.
    """
    mapped = (Argument("length_bytes", 1), Argument("protection", 2), Argument("offset", 5))
    unmapped = (Argument("address", 0), Argument("length_bytes", 1))
    names = (rm.name, uvm.name)
    return SyscallTable(
        (rm, uvm),
        probes=(
            *(SyscallProbe(MMAP, "mmap", name, fd=4, maps=True, values=mapped) for name in names),
            *(SyscallProbe(MUNMAP, "munmap", name, address=0, values=unmapped) for name in names),
            *(SyscallProbe(CLOSE, "close", name, fd=0) for name in names),
        ),
    )


def _rm_decoders(device: str, version: DriverVersion | None) -> Iterator[IoctlDecoder]:
    rows = read_rows("rm.csv")
    names = {int(row["number"], 0): row["name"] for row in rows}
    for row in rows:
        if row["size"] and _fits(row, version):
            values = tuple(_values(row["values"]))
            for where in _wheres(row["where"]):
                yield IoctlDecoder(
                    f"nvidia.{row['kind']}",
                    device,
                    row["name"],
                    type=_TYPE,
                    number=int(row["number"], 0),
                    size=int(row["size"]),
                    where=where,
                    values=values,
                )
    for number, name in names.items():
        yield IoctlDecoder(IOCTL, device, name, type=_TYPE, number=number)
    yield IoctlDecoder(
        IOCTL, device, "NV_ESC_IOCTL_XFER_CMD", type=_TYPE, number=_XFER_CMD, wraps=Wrapped(number=0, size=4, pointer=8)
    )
    yield IoctlDecoder(IOCTL, device, OTHER)


def _uvm_decoders(device: str, version: DriverVersion | None) -> Iterator[IoctlDecoder]:
    known: dict[int, Mapping[str, str]] = {}
    for row in read_rows("uvm.csv"):
        number = int(row["number"], 0)
        if _fits(row, version):
            known[number] = row
        else:
            known.setdefault(number, {"name": row["name"], "kind": row["kind"], "values": ""})
    for number, found in known.items():
        values = tuple(_values(found["values"]))
        yield IoctlDecoder(f"nvidia.{found['kind']}", device, found["name"], command=number, values=values)
    yield IoctlDecoder(UVM_CALL, device, OTHER)


def _fits(row: Mapping[str, str], version: DriverVersion | None) -> bool:
    """Whether a row is the layout of a version; of one that is not known, only what all versions have is."""
    since, before = parse_bound(row["since"]), parse_bound(row["before"])
    if version is None:
        return since is None and before is None
    if version < CHECKED[0]:
        return False
    return (since is None or version >= since) and (before is None or version < before)


def parse_bound(text: str) -> DriverVersion | None:
    """Return a version such as ``590`` or ``550.40.53``; None for an empty text."""
    return parse_version(text) or (tuple(int(part) for part in text.split(".")) if text else None)


def _wheres(text: str) -> Sequence[Equals | None]:
    if not text:
        return (None,)
    offset, _, values = text.partition("=")
    numbers = _channels() if values == "CHANNELS" else [int(value, 0) for value in values.split("|")]
    return [Equals(int(offset), number) for number in numbers]


def _channels() -> list[int]:
    return [number for number, group in class_groups().items() if group == "channel"]


def _values(text: str) -> Iterator[Read]:
    for item in text.split():
        found = _VALUE.fullmatch(item)
        if found is None:
            raise ValueError(f"{item} is not NAME@OFFSET")
        when: Literal["entry", "return"] = "return" if found["when"] else "entry"
        offset, via = int(found["offset"]), int(found["via"]) if found["via"] else None
        if found["name"] == "gpu":
            yield from (Read(f"gpu{half}", "u64", offset + half * _UUID_BYTES // 2, when) for half in range(2))
        else:
            yield Read(found["name"], found["type"] or "u32", offset, when, via=via, nullable=via is not None)
