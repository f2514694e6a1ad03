# SPDX-License-Identifier: Apache-2.0
"""Declarations of system calls, device classes on made-up machines, and the kernel's type information."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from fencepath.syscalls import (
    ANY_MINOR,
    FOUND,
    Argument,
    DeviceClass,
    Devices,
    Equals,
    IoctlDecoder,
    Read,
    SyscallProbe,
    SyscallTable,
    Wrapped,
    device_number,
    is_32_bit,
    open_devices,
    syscall_layout,
)

NVIDIA, UVM = DeviceClass("nvidia", ("nvidia",), major=195), DeviceClass("nvidia-uvm", ("nvidia-uvm",))
CONTROL = IoctlDecoder(
    "nvidia.ioctl", "nvidia", "RM_CONTROL", type=0x46, number=0x2A, values=(Read("command", "u32", 8),)
)


def machine(tmp_path: Path, devices: str = "", misc: str = "", drivers: dict[str, str] | None = None) -> Devices:
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    proc.mkdir()
    (proc / "devices").write_text(f"Character devices:\n{devices}\nBlock devices:\n  9 nvidia-uvm\n")
    (proc / "misc").write_text(misc)
    for number, driver in (drivers or {}).items():
        device = sysfs / "dev/char" / number / "device"
        device.mkdir(parents=True)
        (sysfs / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(sysfs / "drivers" / driver)
    return Devices(proc, sysfs)


def test_layout_fills_its_ring_class() -> None:
    layout = syscall_layout("nvidia.ioctl")
    assert layout.size_bytes == 128
    assert layout.lasts
    assert layout.dtype.fields is not None
    assert {
        name: layout.dtype.fields[name][1] for name in ("function", "command", "argument", "status", "before", "after")
    } == {
        "function": 32,
        "command": 44,
        "argument": 48,
        "status": 56,
        "before": 64,
        "after": 96,
    }


def test_majors_are_fixed_or_found_by_the_drivers_name(tmp_path: Path) -> None:
    devices = machine(tmp_path, "  1 mem\n195 nvidia\n507 nvidia-uvm\n")
    assert devices.numbers(NVIDIA) == (device_number(195, ANY_MINOR),)
    assert devices.numbers(UVM) == (device_number(507, ANY_MINOR),)
    assert devices.numbers(DeviceClass("zero", ("mem",), minors=(5, 5))) == (device_number(1, 5),)


def test_class_without_its_module_has_no_numbers(tmp_path: Path) -> None:
    assert machine(tmp_path, "  1 mem\n").numbers(UVM) == ()


def test_misc_devices_are_found_by_name(tmp_path: Path) -> None:
    assert machine(tmp_path, misc=" 61 kfd_like\n232 kvm\n").numbers(DeviceClass("k", ("kvm",))) == (
        device_number(10, 232),
    )


def test_drivers_that_share_a_major_are_told_apart(tmp_path: Path) -> None:
    devices = machine(tmp_path, "226 drm\n", drivers={"226:0": "amdgpu", "226:128": "amdgpu", "226:129": "xe"})
    amdgpu = DeviceClass("drm-amdgpu", ("drm",), major=226, kernel_driver="amdgpu")
    assert devices.numbers(amdgpu) == (device_number(226, 0), device_number(226, 128))
    render = DeviceClass("r", major=226, kernel_driver="amdgpu", minors=(128, 191))
    assert devices.numbers(render) == (device_number(226, 128),)


def test_open_devices_are_the_character_devices() -> None:
    with Path("/dev/zero").open("rb") as zero, Path(__file__).open("rb") as file:
        found = open_devices(os.getpid())
        assert found[zero.fileno()] == ("/dev/zero", device_number(1, 5))
        assert file.fileno() not in found
    assert open_devices(0) == {}


def test_rows_are_numbered_within_their_kind() -> None:
    poll = SyscallProbe("host.poll", "poll", values=(Argument("count", 1),))
    alloc = IoctlDecoder(
        "nvidia.ioctl", "nvidia", "RM_ALLOC", type=0x46, number=0x2B, values=(Read("status", "u32", 20, when="return"),)
    )
    table = SyscallTable([NVIDIA], [CONTROL, alloc], [poll])
    assert [(row.kind, row.function, row.name, row.entry, row.returned) for row in table.rows] == [
        ("nvidia.ioctl", 0, "RM_CONTROL", ("command",), ()),
        ("nvidia.ioctl", 1, "RM_ALLOC", (), ("status",)),
        ("host.poll", 0, "poll", ("count",), ()),
    ]
    assert table.kinds == ("nvidia.ioctl", "host.poll")
    assert table.syscalls == {"ioctl": 0, "poll": None}


def test_rows_are_the_structs_of_the_header() -> None:
    table = SyscallTable([NVIDIA], [CONTROL])
    row = table.row_bytes(0, 9)
    assert len(row) == 16 + 8 * 8
    # kind, how, function; offsets of the number that selects, and of a wrapped request
    assert struct.unpack_from("<HHIHHHH", row) == (9, 0, 0, 0, 0, 0, 0)
    # how (memory), argument, size, flags, offset, via
    assert struct.unpack_from("<BBBBHH", row, 16) == (2, 2, 4, 0, 8, 0)
    assert not any(row[24:])
    ((key, value),) = table.matches
    assert struct.unpack("<HBBII", key) == (0, 1, 2, 0x462A, 0)
    assert value == bytes(4)


ALLOC = IoctlDecoder("nvidia.ioctl", "nvidia", "ALLOC", type=0x46, number=0x2B)


def test_requests_are_told_apart_by_size_and_by_a_number_in_the_structure() -> None:
    sized = IoctlDecoder("nvidia.ioctl", "nvidia", "ALLOC_48", type=0x46, number=0x2B, size=48)
    local = IoctlDecoder("a.b", "nvidia", "LOCAL", type=0x46, number=0x2B, size=48, where=Equals(12, 0x40))
    table = SyscallTable([NVIDIA], [ALLOC, sized, local])
    keys = {struct.unpack("<I", value)[0]: struct.unpack("<HBBII", key) for key, value in table.matches}
    assert keys == {0: (0, 1, 2, 0x462B, 0), 1: (0, 1, 3, 0x30462B, 0), 2: (0, 1, 4, 0x40, 1)}
    hows = [struct.unpack_from("<HHIHHHH", table.row_bytes(index, 5))[1:4:2] for index in range(3)]
    # how (selects), and where the number is; of the sized one alone
    assert hows == [(0, 0), (1, 12), (0, 0)]


def test_row_of_what_carries_another_request() -> None:
    carrier = IoctlDecoder("a.b", "nvidia", "XFER", type=0x46, number=0xD3, wraps=Wrapped(number=1, size=4, pointer=8))
    table = SyscallTable([NVIDIA], [carrier])
    assert struct.unpack_from("<HHIHHHH", table.row_bytes(0, 5)) == (5, 2, 0, 0, 1, 4, 8)


def test_what_tells_the_device_of_a_call() -> None:
    map_ = SyscallProbe("a.map", "mmap", device="nvidia", fd=4, maps=True)
    unmap = SyscallProbe("a.unmap", "munmap", device="nvidia", address=0)
    poll = SyscallProbe(
        "a.poll", "poll", device="nvidia", fds=0, values=(Read("events", "u16", 4, argument=FOUND, nullable=True),)
    )
    anybody = SyscallProbe("b.poll", "poll")
    table = SyscallTable([NVIDIA], [CONTROL], [map_, unmap, poll, anybody])
    assert table.sources == {"ioctl": ("fd", 0), "mmap": ("fd", 4), "munmap": ("address", 0), "poll": ("fds", 0)}
    assert table.syscalls == {"ioctl": 0, "mmap": 4, "munmap": None, "poll": None}
    assert [struct.unpack_from("<HH", table.row_bytes(index, 0))[1] for index in (1, 2, 3)] == [4, 8, 0]
    assert struct.unpack_from("<BBBBHH", table.row_bytes(3, 0), 16) == (2, 6, 2, 1, 4, 0)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([CONTROL, CONTROL], "asked for twice"),
        ([IoctlDecoder("a.b", "other", "X", type=1, number=2)], "no device class is called other"),
        ([IoctlDecoder("a.b", "", "X", type=1, number=2)], "means nothing without its device class"),
        ([IoctlDecoder("a.b", "nvidia", "X", type=1)], "give type and number"),
        ([IoctlDecoder("a.b", "nvidia", "X", type=1, number=1, command=3)], "give type and number"),
        (
            [IoctlDecoder("a.b", "nvidia", "X", values=tuple(Read(f"v{i}", "u8", i) for i in range(5)))],
            "more than 4 values",
        ),
        ([IoctlDecoder("a.b", "nvidia", "X", values=(Read("v", "s32", 0),))], "is not one of"),
        ([IoctlDecoder("a.b", "nvidia", "X", values=(Read("v", "u32", 1 << 16),))], "at most 65535"),
        ([IoctlDecoder("a.b", "nvidia", "X", values=(Argument("v", 6),))], "no argument 6"),
        ([IoctlDecoder("a.b", "nvidia", "X", values=(Read("v", "u32", 0, argument=6),))], "no argument 6"),
        ([IoctlDecoder("a.b", "nvidia", "X", size=8)], "a size goes with type and number"),
        ([IoctlDecoder("a.b", "nvidia", "X", type=1, number=1, size=1 << 14)], "at most 16383"),
        ([IoctlDecoder("a.b", "nvidia", "X", type=1, number=1, where=Equals(0, 1))], "is needed for all other numbers"),
        ([IoctlDecoder("a.b", "nvidia", "X", wraps=Wrapped(0, 4, 8))], "has type and number"),
        ([IoctlDecoder("a.b", "nvidia", "X", type=1, number=1, wraps=Wrapped(0, 4, 1 << 16))], "at most 65535"),
        (
            [
                ALLOC,
                IoctlDecoder("a.b", "nvidia", "X", type=0x46, number=0x2B, where=Equals(8, 1)),
                IoctlDecoder("a.b", "nvidia", "Y", type=0x46, number=0x2B, where=Equals(12, 1)),
            ],
            "look at another offset",
        ),
        (
            [
                IoctlDecoder("a.b", "nvidia", "W", type=1, number=1, wraps=Wrapped(0, 4, 8)),
                IoctlDecoder("a.b", "nvidia", "X", type=1, number=1, where=Equals(0, 1)),
            ],
            "cannot both carry",
        ),
    ],
)
def test_contradictions_are_refused(entries: list[IoctlDecoder], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SyscallTable([NVIDIA], entries)


@pytest.mark.parametrize(
    ("probes", "why"),
    [
        ([SyscallProbe("a.b", "read", device="nvidia")], "say which argument is the fd"),
        ([SyscallProbe("a.b", "ioctl")], "use an IoctlDecoder"),
        (
            [SyscallProbe("a.b", "read", fd=0), SyscallProbe("a.c", "read", device="nvidia", fd=1)],
            "is argument 0 elsewhere",
        ),
        ([SyscallProbe("a.b", "read"), SyscallProbe("a.c", "read")], "asked for twice"),
        ([SyscallProbe("a.b", "poll", device="nvidia", fd=0, fds=0)], "give one of fd, fds"),
        ([SyscallProbe("a.b", "mmap", maps=True)], "only a call on an fd of a device class"),
    ],
)
def test_contradictory_probes_are_refused(probes: list[SyscallProbe], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SyscallTable([NVIDIA], probes=probes)


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        SyscallTable([NVIDIA, NVIDIA])


def test_processes_of_32_bits_are_known(tmp_path: Path) -> None:
    assert is_32_bit(os.getpid()) is (sys.maxsize < 1 << 32)
    process = subprocess.Popen(["true"])
    process.wait()
    assert is_32_bit(process.pid) is None
