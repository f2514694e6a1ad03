# SPDX-License-Identifier: Apache-2.0
"""Which numbers of a request are taken for which version of the driver."""

from __future__ import annotations

import pytest

from fencepath.syscalls import IoctlDecoder, Read, SyscallTable
from fencepath_nvidia.driver import DriverVersion
from fencepath_nvidia.requests import ioctl_table, mapping_table, wait_table

VERSIONS: tuple[DriverVersion | None, ...] = (
    None,
    (470, 256, 2),
    (515, 43, 4),
    (525, 60, 11),
    (535, 54, 3),
    (550, 40, 7),
    (550, 54, 14),
    (580, 159, 4),
    (590, 48, 1),
    (610, 1),
)


def decoders(version: DriverVersion | None, number: int, size: int | None, *, uvm: bool = False) -> list[IoctlDecoder]:
    return [
        entry
        for entry in ioctl_table(version).entries
        if isinstance(entry, IoctlDecoder)
        and entry.device == ("nvidia-uvm" if uvm else "nvidia")
        and (entry.command if uvm else entry.number) == number
        and entry.size == size
    ]


def offsets(entry: IoctlDecoder) -> dict[str, tuple[int, str, str, int | None]]:
    return {
        value.name: (value.offset, value.type, value.when, value.via)
        for value in entry.values
        if isinstance(value, Read)
    }


def status_offset(version: DriverVersion | None, number: int, size: int | None = None, *, uvm: bool = False) -> int:
    """Offset of the driver's status, -1 if it is not taken; all decoders of the request agree."""
    found = {offsets(entry).get("rm_status", (-1,))[0] for entry in decoders(version, number, size, uvm=uvm)}
    assert len(found) == 1, found
    return found.pop()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_a_table(version: DriverVersion | None) -> None:
    merged = SyscallTable.merged([ioctl_table(version), wait_table(), mapping_table()])
    assert merged.sources == {
        "ioctl": ("fd", 0),
        "poll": ("fds", 0),
        "ppoll": ("fds", 0),
        "mmap": ("fd", 4),
        "munmap": ("address", 0),
        "close": ("fd", 0),
    }
    # whatever is not known by layout is known by name
    for number in (0x29, 0x2A, 0x2B, 0x4E, 200, 210):
        (entry,) = decoders(version, number, None)
        assert (entry.kind, entry.values) == ("nvidia.ioctl", ())


# nvos.h of the tags 515.43.04, 525.60.11, 535.54.03 and 580.142 of NVIDIA/open-gpu-kernel-modules.
@pytest.mark.parametrize(
    ("version", "size", "offset"),
    [
        ((515, 43, 4), 32, 24),
        ((520, 61, 5), 40, 32),
        ((525, 60, 11), 32, 24),
        ((530, 41, 3), 40, 36),
        ((535, 54, 3), 32, 28),
        ((535, 54, 3), 48, 40),
        ((580, 159, 4), 32, 28),
        ((610, 1), 48, 40),
    ],
)
def test_status_of_an_allocation(version: DriverVersion, size: int, offset: int) -> None:
    assert status_offset(version, 0x2B, size) == offset


def test_layouts_that_the_version_does_not_have_are_not_looked_for() -> None:
    assert decoders((535, 54, 3), 0x2B, 40) == []
    assert decoders(None, 0x2B, 32) == []
    assert decoders((470, 256, 2), 0x2A, 32) == []


def test_what_is_the_same_everywhere_needs_no_version() -> None:
    assert status_offset(None, 0x2A, 32) == 28
    assert status_offset(None, 0x2B, 48) == 40
    assert status_offset(None, 51, uvm=True) == 72
    # moved in 590, in 550.40.53 and in 550
    assert status_offset(None, 34, uvm=True) == -1
    assert status_offset(None, 33, uvm=True) == -1
    assert status_offset(None, 42, uvm=True) == -1


@pytest.mark.parametrize(
    ("version", "number", "offset"),
    [
        ((580, 142), 34, 16),
        ((590, 44, 1), 34, 8),
        ((580, 142), 28, 24),
        ((590, 44, 1), 28, 8),
        ((550, 40, 7), 33, 1196),
        ((550, 40, 53), 33, 9260),
        ((545, 29, 6), 42, 32),
        ((550, 40, 7), 42, 36),
        ((545, 23, 6), 68, 1176),
        ((595, 45, 4), 68, 9240),
        ((560, 35, 3), 56, 52),
        ((565, 77), 56, 48),
        ((580, 159, 4), 0x30000001, 8),
    ],
)
def test_status_of_requests_to_uvm(version: DriverVersion, number: int, offset: int) -> None:
    assert status_offset(version, number, uvm=True) == offset


def test_memory_of_an_allocation_is_told_by_its_class() -> None:
    found = decoders((580, 159, 4), 0x2B, 48)
    memory = [entry for entry in found if entry.kind == "nvidia.memory.alloc"]
    assert sorted(entry.where.value for entry in memory if entry.where) == [0x3E, 0x3F, 0x40]
    assert {entry.where.offset for entry in memory if entry.where} == {12}
    # NV_MEMORY_ALLOCATION_PARAMS.size, behind pAllocParms
    assert all(offsets(entry)["size_bytes"] == (64, "u64", "entry", 16) for entry in memory)
    (device,) = (entry for entry in found if entry.where is not None and entry.where.value == 0x80)
    assert offsets(device)["device_id"] == (0, "u32", "entry", 16)
    (hopper,) = (entry for entry in found if entry.where is not None and entry.where.value == 0xC86F)
    assert offsets(hopper)["engine"] == (128, "u32", "entry", 16)


def test_mapping_for_the_gpu_by_size() -> None:
    (old,), (new,) = decoders((580, 159, 4), 0x57, 56), decoders((580, 159, 4), 0x57, 64)
    assert (offsets(old)["address"][0], offsets(new)["address"][0]) == (40, 48)
    assert offsets(new)["rm_status"] == (56, "u32", "return", None)


def test_what_carries_another_request() -> None:
    (carrier,) = decoders((580, 159, 4), 211, None)
    assert carrier.wraps is not None
    assert (carrier.wraps.number, carrier.wraps.size, carrier.wraps.pointer) == (0, 4, 8)
