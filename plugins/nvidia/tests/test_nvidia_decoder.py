# SPDX-License-Identifier: Apache-2.0
"""What columns and labels say of records made by hand."""

from __future__ import annotations

import struct
import uuid

import pytest
from plugins.nvidia.tests.calls import CTL, TABLE, TASK, UVM_DEVICE, Calls, command_of, row_of

from fencepath.events import Batch
from fencepath.records import Flags
from fencepath_nvidia.decoder import NOT_KNOWN, NvidiaDecoder
from fencepath_nvidia.events import Alloc, Control, Ioctl, MemoryAlloc, Mmap, Poll, UvmCall, UvmRange, Version
from fencepath_nvidia.kinds import ALLOC, CONTROL, IOCTL, MEMORY_ALLOC, MMAP, POLL, UVM_CALL, UVM_RANGE, VERSION

ALLOC_ROW = row_of("NV_ESC_RM_ALLOC", "object_class", kind=ALLOC)
DEVICE_ROW = row_of("NV_ESC_RM_ALLOC", "device_id")
CHANNEL_ROW = row_of("NV_ESC_RM_ALLOC", "engine")
MEMORY_ROW = row_of("NV_ESC_RM_ALLOC", "size_bytes")


def decode(calls: Calls, kind: str) -> Batch:
    functions = {each: TABLE.recorded(each) for each in TABLE.kinds}
    return NvidiaDecoder(functions).decode(kind, calls.records(kind))


def labels(batch: Batch) -> list[str]:
    return [batch.labels[label] for label in batch["label"].tolist()]


def test_objects_by_class() -> None:
    calls = Calls()
    head = {"client": 0xC1D0, "parent": 0xC1D0, "object": 0x5C}
    calls.add(ALLOC_ROW, 1000, {**head, "object_class": 0x2080})
    calls.add(DEVICE_ROW, 1001, {**head, "object_class": 0x80, "device_id": 3})
    calls.add(CHANNEL_ROW, 1002, {**head, "object_class": 0xC86F, "engine": 9})
    calls.add(ALLOC_ROW, 1003, {**head, "object_class": 0xBEEF, "rm_status": 0x22})
    batch = decode(calls, ALLOC)
    assert labels(batch) == ["NV20_SUBDEVICE_0", "NV01_DEVICE_0", "HOPPER_CHANNEL_GPFIFO_A", "class 0xbeef"]
    events = list(batch.events(Alloc))
    assert [(e.device_id, e.engine, e.rm_status) for e in events] == [
        (-1, -1, 0),
        (3, -1, 0),
        (-1, 9, 0),
        (-1, -1, 0x22),
    ]
    assert {(e.client, e.parent, e.object, e.fd, e.device) for e in events} == {(0xC1D0, 0xC1D0, 0x5C, 5, CTL)}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 0x51),
        ({"status": -25}, NOT_KNOWN),
        ({"flags": TASK | int(Flags.OPEN)}, NOT_KNOWN),
        ({"flags": TASK | int(Flags.READ_FAULT)}, NOT_KNOWN),
    ],
)
def test_status_is_the_drivers_only_if_it_wrote_it(fields: dict[str, int], status: int) -> None:
    calls = Calls()
    calls.add(MEMORY_ROW, 1000, {"object_class": 0x40, "size_bytes": 2 << 20, "rm_status": 0x51}, **fields)
    (event,) = decode(calls, MEMORY_ALLOC).events(MemoryAlloc)
    assert (event.rm_status, event.size_bytes, event.object_class) == (status, 2 << 20, 0x40)


def test_size_by_the_last_byte_that_may_be_used() -> None:
    calls = Calls()
    pinned = row_of("NV_ESC_RM_ALLOC_MEMORY", "limit")
    calls.add(pinned, 1000, {"object_class": 0x71, "limit": 4095})
    calls.add(pinned, 1001, {"object_class": 0x71, "limit": (1 << 64) - 1})
    calls.add(row_of("NV_ESC_RM_VID_HEAP_CONTROL", "size_bytes"), 1002, {"size_bytes": 65536})
    batch = decode(calls, MEMORY_ALLOC)
    assert batch["size_bytes"].tolist() == [4096, 0, 65536]
    names = ["NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", "NV_ESC_RM_VID_HEAP_CONTROL"]
    assert labels(batch) == names


def test_commands_by_name_or_by_class_category_and_number() -> None:
    calls = Calls()
    row = row_of("NV_ESC_RM_CONTROL", "control")
    for time_ns, control in enumerate((0x20800102, 0x2080A3B7), 1000):
        calls.add(row, time_ns, {"client": 1, "object": 2, "control": control, "params_bytes": 24})
    batch = decode(calls, CONTROL)
    assert labels(batch) == ["NV2080_CTRL_CMD_GPU_GET_INFO_V2", "class 0x2080 category 0x23 command 0xb7"]
    assert [event.control for event in batch.events(Control)] == [0x20800102, 0x2080A3B7]


def test_requests_without_a_name_are_called_by_number() -> None:
    calls = Calls()
    calls.add(row_of("NV_ESC_REGISTER_FD", "value"), 1000, {"value": 7}, command=command_of(201, 4))
    calls.add(row_of("NV_ESC_CARD_INFO"), 1001, command=command_of(200, 72))
    calls.add(row_of("other", kind=IOCTL), 1002, command=command_of(0x5F, 16))
    calls.add(row_of("other", kind=IOCTL), 1003, command=0x6D00)
    # a row of a table that is newer than the manifest's
    calls.add(row_of("NV_ESC_CARD_INFO"), 1004, command=command_of(0x33, 8), function=60000)
    batch = decode(calls, IOCTL)
    assert labels(batch) == [
        "NV_ESC_REGISTER_FD",
        "NV_ESC_CARD_INFO",
        "ioctl type 0x46 number 0x5f",
        "ioctl type 0x6d number 0x00",
        "ioctl type 0x46 number 0x33",
    ]
    events = list(batch.events(Ioctl))
    assert [event.value for event in events] == [7, 0, 0, 0, 0]
    assert {event.rm_status for event in events} == {NOT_KNOWN}


def test_requests_to_uvm() -> None:
    gpu = uuid.UUID("a8c8a6f4-1111-2222-3333-444455556666")
    low, high = struct.unpack("<QQ", gpu.bytes)
    cpu_low, cpu_high = struct.unpack("<QQ", bytes.fromhex("a65e0f4ed7d47ba25047412c142a7773"))
    calls = Calls()
    migrate = row_of("UVM_MIGRATE")
    range_ = {"address": 0x7F0000000000, "length_bytes": 2 << 20}
    calls.add(migrate, 1000, {**range_, "gpu0": low, "gpu1": high}, device=UVM_DEVICE, command=51)
    calls.add(migrate, 1001, {**range_, "gpu0": cpu_low, "gpu1": cpu_high, "rm_status": 0x1F}, command=51)
    calls.add(row_of("UVM_FREE"), 1002, range_, command=34)
    external = {**range_, "client": 0xC1D0, "object": 0x77}
    calls.add(row_of("UVM_MAP_EXTERNAL_ALLOCATION"), 1003, external, command=33)
    batch = decode(calls, UVM_RANGE)
    events = list(batch.events(UvmRange))
    assert [event.gpu for event in events] == [f"GPU-{gpu}", "CPU", "", ""]
    assert [event.rm_status for event in events] == [0, 0x1F, 0, 0]
    assert {(event.address, event.length_bytes) for event in events} == {(0x7F0000000000, 2 << 20)}
    assert (events[3].client, events[3].object) == (0xC1D0, 0x77)

    calls.add(row_of("other", kind=UVM_CALL), 1004, command=9999)
    calls.add(row_of("UVM_INITIALIZE"), 1005, command=0x30000001)
    batch = decode(calls, UVM_CALL)
    assert labels(batch) == ["uvm ioctl 9999", "UVM_INITIALIZE"]
    assert [(event.command, event.rm_status) for event in batch.events(UvmCall)] == [(9999, -1), (0x30000001, 0)]


def test_version_that_a_library_asks_for() -> None:
    calls = Calls()
    row = row_of("NV_ESC_CHECK_VERSION_STR", "text0")
    for text, recognised in ((b"580.159.04", 1), (b"550.54.14\0rubbish", 0), (b"\xff" * 16, 1)):
        low, high = struct.unpack("<QQ", text.ljust(16, b"\0")[:16])
        calls.add(row, 1000, {"text0": low, "text1": high, "recognised": recognised})
    events = list(decode(calls, VERSION).events(Version))
    assert [event.version for event in events] == ["580.159.04", "550.54.14", "�" * 16]
    assert [event.recognised for event in events] == [True, False, True]


def test_times_that_a_poll_waits() -> None:
    calls = Calls()
    poll, ppoll = row_of("poll"), row_of("ppoll")
    garbage = 0xDEAD << 32
    for timeout in (250, garbage | 0xFFFFFFFF, 0):
        calls.add(poll, 1000, {"count": 3, "timeout_ms": timeout, "events": 1, "revents": 0x43}, status=1)
    calls.add(ppoll, 1001, {"timeout_at": 0x7FFC, "timeout_s": 2, "timeout_ns": 5})
    calls.add(ppoll, 1002, {"timeout_at": 0x7FFC})
    calls.add(ppoll, 1003, {"timeout_at": 0})
    events = list(decode(calls, POLL).events(Poll))
    assert [event.timeout_ns for event in events] == [250_000_000, -1, 0, 2_000_000_005, 0, -1]
    assert (events[0].count, events[0].events, events[0].revents, events[0].status) == (3, 1, 0x43, 1)


def test_addresses_of_mappings() -> None:
    calls = Calls()
    row = row_of("mmap")
    for status in (0x7F1234560000, -12):
        calls.add(row, 1000, {"length_bytes": 4096, "protection": 3, "offset": 8192}, status=status)
    events = list(decode(calls, MMAP).events(Mmap))
    assert [event.address for event in events] == [0x7F1234560000, 0]
    assert [event.status for event in events] == [0x7F1234560000, -12]
    assert {(event.length_bytes, event.protection, event.offset) for event in events} == {(4096, 3, 8192)}


def test_recording_of_a_table_without_some_values() -> None:
    """What the manifest does not have is absent, and never 0 where 0 means something."""
    calls = Calls()
    calls.add(DEVICE_ROW, 1000, {"client": 1, "object_class": 0x80})
    recorded = ["NV_ESC_RM_ALLOC client ", *["x  "] * 200]
    calls.rows[ALLOC][0] = {**calls.rows[ALLOC][0], "function": 0}
    (event,) = NvidiaDecoder({ALLOC: recorded}).decode(ALLOC, calls.records(ALLOC)).events(Alloc)
    assert (event.client, event.object_class, event.device_id, event.rm_status) == (1, 0, -1, -1)
