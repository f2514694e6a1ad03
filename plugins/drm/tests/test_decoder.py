# SPDX-License-Identifier: Apache-2.0
"""Columns of records, names of requests, and fdinfo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fencepath.events import columns_of
from fencepath.plugin import AttributeValue
from fencepath.records import Records
from fencepath.syscalls import syscall_layout
from fencepath_drm.decoder import DrmDecoder
from fencepath_drm.events import JobQueue, VblankEvent
from fencepath_drm.fdinfo import Client, parse_fdinfo
from fencepath_drm.ioctls import ioctl_table
from fencepath_drm.layouts import LAYOUTS, QUEUE, VBLANK
from fencepath_drm.plugin import fencepath_span_attributes

TABLE = ioctl_table("launch")
FUNCTIONS = {kind: TABLE.recorded(kind) for kind in TABLE.kinds}


def records(kind: str, **fields: Any) -> Records:
    layout = LAYOUTS.get(kind) or syscall_layout(kind)
    made = np.zeros(1, layout.dtype)
    for name, value in fields.items():
        made[name] = value
    return made


def row(kind: str, name: str, device: str) -> int:
    """Number of a request's row among its kind's."""
    found = [
        row.function
        for row, entry in zip(TABLE.rows, TABLE.entries, strict=True)
        if row.kind == kind and row.name == name and getattr(entry, "device", "") == device
    ]
    return found[0]


def test_names_are_text() -> None:
    batch = DrmDecoder({}).decode(QUEUE.kind, records(QUEUE.kind, ring=b"gfx_0.0.0", dev=b"\xff\x00"))
    (event,) = batch.events(JobQueue)
    assert (event.ring_name, event.dev) == ("gfx_0.0.0", "�")


def test_precision_is_a_truth_value() -> None:
    for raw in (0, 1):
        batch = DrmDecoder({}).decode(VBLANK.kind, records(VBLANK.kind, high_precision=raw, vblank_ns=-1))
        (event,) = batch.events(VblankEvent)
        assert (event.high_precision, event.vblank_ns) == (bool(raw), -1)


@pytest.mark.parametrize(
    ("kind", "name", "device", "number", "label"),
    [
        ("drm.job.submit", "AMDGPU_CS", "drm-amdgpu", 0x44, "AMDGPU_CS"),
        ("drm.wait", "SYNCOBJ_WAIT", "drm", 0xC3, "SYNCOBJ_WAIT"),
        ("drm.ioctl", "other", "drm", 0x40, "ioctl 0x40"),
        ("drm.ioctl", "other", "drm-xe", 0x46, "ioctl 0x46"),
    ],
)
def test_requests_have_names(kind: str, name: str, device: str, number: int, label: str) -> None:
    command = 3 << 30 | 16 << 16 | 0x64 << 8 | number
    batch = DrmDecoder(FUNCTIONS).decode(kind, records(kind, function=row(kind, name, device), command=command))
    assert batch.labels[int(batch["label"][0])] == label


def test_what_is_waited_for() -> None:
    function = row("drm.wait", "SYNCOBJ_TIMELINE_WAIT", "drm")
    found = records("drm.wait", function=function, before=np.array([3, 17, 1, 0], np.uint64))
    batch = DrmDecoder(FUNCTIONS).decode("drm.wait", found)
    assert (batch["handle"][0], batch["point"][0], batch["count"][0]) == (3, 17, 1)


def test_a_recording_without_functions_is_read() -> None:
    batch = DrmDecoder({}).decode("drm.wait", records("drm.wait", function=3, command=0xC02064C3))
    assert batch["label"].dtype == columns_of_wait("label")
    assert batch.labels[int(batch["label"][0])] == "ioctl 0xc3"


def columns_of_wait(name: str) -> np.dtype[Any]:
    from fencepath_drm.events import Wait

    return columns_of(Wait)[name]


def test_spans_name_fence_and_ring() -> None:
    columns: dict[str, AttributeValue] = {
        "fence_context": 5,
        "fence_seqno": 7,
        "dev": "0000:03:00.0",
        "ring_name": "gfx",
        "tid": 3,
    }
    assert fencepath_span_attributes("drm.job.queue", columns) == {
        "drm.fence.context": 5,
        "drm.fence.seqno": 7,
        "drm.device": "0000:03:00.0",
        "drm.ring": "gfx",
    }


AMDGPU = """pos:\t0
flags:\t02100002
mnt_id:\t23
ino:\t480
drm-driver:\tamdgpu
drm-client-id:\t42
drm-pdev:\t0000:03:00.0
pasid:\t32771
drm-memory-vram:\t29668 KiB
drm-memory-gtt: \t2232 KiB
drm-total-vram:\t1 MiB
drm-shared-vram:\t0
drm-engine-gfx:\t1234567890 ns
drm-engine-compute:\t0 ns
drm-engine-capacity-compute:\t4
drm-maxfreq-gfx:\t2 GHz
"""


def test_fdinfo_of_a_device() -> None:
    assert parse_fdinfo(AMDGPU) == Client(
        driver="amdgpu",
        device="0000:03:00.0",
        client_id=42,
        engine_ns={"gfx": 1_234_567_890, "compute": 0},
        engines={"compute": 4},
        memory_bytes={
            "memory-vram": 29668 << 10,
            "memory-gtt": 2232 << 10,
            "total-vram": 1 << 20,
            "shared-vram": 0,
        },
    )


def test_fdinfo_of_the_mock_driver() -> None:
    text = "drm-driver:\tmockgpu\ndrm-client-id:\t9\ndrm-engine-ring0:\t5000 ns\n"
    assert parse_fdinfo(text) == Client(driver="mockgpu", client_id=9, engine_ns={"ring0": 5000})


@pytest.mark.parametrize("text", ["", "pos:\t0\n", "drm-client-id:\t3\n", "\xff\n:::\n"])
def test_fdinfo_of_anything_else(text: str) -> None:
    assert parse_fdinfo(text) is None


def test_fdinfo_that_is_not_understood_is_left_out() -> None:
    found = parse_fdinfo("drm-driver:\tx\ndrm-client-id:\tmany\ndrm-engine-a:\t-3 ns\ndrm-engine-b:\t4 parsecs\n")
    assert found == Client(driver="x")
