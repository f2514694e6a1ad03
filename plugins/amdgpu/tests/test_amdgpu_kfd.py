# SPDX-License-Identifier: Apache-2.0
"""The table of system calls on /dev/kfd against the kernel's header, by a C compiler, and on real system calls."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._record.rows import RowSplitter
from fencepath._record.targets import Targets
from fencepath.events import Batch
from fencepath.records import Layouts
from fencepath.syscalls import DeviceClass, IoctlDecoder, Read, SyscallTable, SyscallTracer, syscall_layout
from fencepath_amdgpu.decoder import AmdgpuDecoder
from fencepath_amdgpu.kfd import DEVICE, KFD_ALLOC, KFD_CLOCK, KFD_IOCTL, KFD_QUEUE_CREATE, KFD_WAIT, TABLE

FIELDS = {
    "ring_bytes": "ring_size", "priority": "queue_priority", "percentage": "queue_percentage", "address": "va_addr",
    "size_bytes": "size", "memory_flags": "flags", "devices": "n_devices", "done": "n_success", "operation": "op",
    "attributes": "nattr", "events": "num_events", "timeout_ms": "timeout", "outcome": "wait_result",
    "gpu_ticks": "gpu_clock_counter", "monotonic_raw_ns": "cpu_clock_counter", "boottime_ns": "system_clock_counter",
    "events_fd": "anon_fd",
}  # fmt: skip
"""What the header calls a value that is called otherwise here."""

STRUCTS = {
    "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU": "alloc_memory_of_gpu", "AMDKFD_IOC_FREE_MEMORY_OF_GPU": "free_memory_of_gpu",
    "AMDKFD_IOC_MAP_MEMORY_TO_GPU": "map_memory_to_gpu", "AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU": "unmap_memory_from_gpu",
}  # fmt: skip
NEWER = {"AMDKFD_IOC_EXPORT_DMABUF", "AMDKFD_IOC_RUNTIME_ENABLE", "AMDKFD_IOC_DBG_TRAP"}
"""Requests that the header of Debian 12, of 6.1, does not have."""


def ioctls() -> list[IoctlDecoder]:
    return [entry for entry in TABLE.entries if isinstance(entry, IoctlDecoder) and entry.number is not None]


def field_of(entry: IoctlDecoder, read: Read) -> str:
    special = {("AMDKFD_IOC_SVM", "address"): "start_addr", ("AMDKFD_IOC_SMI_EVENTS", "gpu_id"): "gpuid"}
    return special.get((entry.name, read.name), FIELDS.get(read.name, read.name))


def test_numbers_and_offsets_are_those_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "drm").mkdir()
    # of DRM's header only the types and macros of ioctls are needed
    (tmp_path / "drm" / "drm.h").write_text("#include <linux/types.h>\n#include <sys/ioctl.h>\n")
    lines: list[str] = []
    wanted: list[str] = []
    for entry in ioctls():
        if entry.name in NEWER:
            continue
        lines.append(f'printf("{entry.name} %c %d\\n", _IOC_TYPE({entry.name}), _IOC_NR({entry.name}));')
        wanted.append(f"{entry.name} K {entry.number}")
        struct = STRUCTS.get(entry.name, entry.name.removeprefix("AMDKFD_IOC_").lower())
        for read in entry.values:
            assert isinstance(read, Read)
            type_, field = f"struct kfd_ioctl_{struct}_args", field_of(entry, read)
            bits = f"8 * sizeof((({type_} *)0)->{field})"
            lines.append(f'printf("  {read.name} %zu u%zu\\n", offsetof({type_}, {field}), {bits});')
            wanted.append(f"  {read.name} {read.offset} {read.type}")
    program = "#include <linux/kfd_ioctl.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
    (tmp_path / "kfd.c").write_text(program + "\n".join([*lines, "return 0; }", ""]))
    subprocess.run(["gcc", "-I.", "-o", "kfd", "kfd.c"], cwd=tmp_path, check=True)
    seen = subprocess.run([tmp_path / "kfd"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert seen == wanted


class CreateQueue(ctypes.Structure):
    _fields_ = (
        ("ring_base_address", ctypes.c_uint64), ("write_pointer_address", ctypes.c_uint64),
        ("read_pointer_address", ctypes.c_uint64), ("doorbell_offset", ctypes.c_uint64), ("ring_size", ctypes.c_uint32),
        ("gpu_id", ctypes.c_uint32), ("queue_type", ctypes.c_uint32), ("queue_percentage", ctypes.c_uint32),
        ("queue_priority", ctypes.c_uint32), ("queue_id", ctypes.c_uint32),
    )  # fmt: skip


class AllocMemory(ctypes.Structure):
    _fields_ = (
        ("va_addr", ctypes.c_uint64), ("size", ctypes.c_uint64), ("handle", ctypes.c_uint64),
        ("mmap_offset", ctypes.c_uint64), ("gpu_id", ctypes.c_uint32), ("flags", ctypes.c_uint32),
    )  # fmt: skip


class WaitEvents(ctypes.Structure):
    _fields_ = (
        ("events_ptr", ctypes.c_uint64), ("num_events", ctypes.c_uint32), ("wait_for_all", ctypes.c_uint32),
        ("timeout", ctypes.c_uint32), ("wait_result", ctypes.c_uint32),
    )  # fmt: skip


class Calls:
    """Records of this process' ioctls on /dev/null, which stands for /dev/kfd."""

    def __init__(self, shared: Shared, layouts: Layouts) -> None:
        self._shared = shared
        self._layouts = layouts
        self._splitter = RowSplitter(layouts)
        self._null = os.open("/dev/null", os.O_RDWR)

    def close(self) -> None:
        os.close(self._null)

    def make(self, number: int, argument: ctypes.Structure) -> None:
        """It is refused, after the kernel was asked."""
        command = 3 << 30 | ctypes.sizeof(argument) << 16 | ord("K") << 8 | number
        with pytest.raises(OSError, match="Inappropriate ioctl"):
            fcntl.ioctl(self._null, command, argument)

    def batches(self) -> dict[str, Batch]:
        found: dict[str, list[np.ndarray[tuple[int], np.dtype[np.void]]]] = {}
        for batch in self._shared.rings.drain():
            for kind, records in self._splitter.split(batch):
                found.setdefault(kind, []).append(records.copy())
        decoder = AmdgpuDecoder({kind: TABLE.recorded(kind) for kind in TABLE.kinds})
        return {kind: decoder.decode(kind, np.concatenate(parts)) for kind, parts in found.items()}


@pytest.fixture
def calls() -> Iterator[Calls]:
    table = SyscallTable(
        devices=(DeviceClass(name=DEVICE.name, major=1, minors=(3, 3)),),
        ioctls=[entry for entry in TABLE.entries if isinstance(entry, IoctlDecoder)],
    )
    numbers = {kind: number for number, kind in enumerate(table.kinds, 1)}
    layouts = Layouts({kind: syscall_layout(kind) for kind in table.kinds}, numbers)
    with Shared(numbers, rings=Rings(4 << 20), self_tgid=1) as shared, SyscallTracer(table, shared, numbers):
        Targets(shared.tgids, shared.tids, recorder=0).add(os.getpid())
        made = Calls(shared, layouts)
        yield made
        made.close()


@pytest.mark.bpf
def test_what_a_program_passes_is_recorded(calls: Calls) -> None:
    calls.make(0x02, CreateQueue(ring_size=65536, gpu_id=0x51AB, queue_type=2, queue_priority=7, queue_id=9))
    calls.make(0x16, AllocMemory(va_addr=1 << 46, size=1 << 33, handle=0xAB, gpu_id=0x51AB, flags=1))
    calls.make(0x0C, WaitEvents(num_events=2, wait_for_all=1, timeout=1000, wait_result=2))
    calls.make(0x7F, WaitEvents())
    found = calls.batches()
    assert set(found) == {KFD_QUEUE_CREATE, KFD_ALLOC, KFD_WAIT, KFD_IOCTL}
    wanted = {
        KFD_QUEUE_CREATE: {"ring_bytes": 65536, "gpu_id": 0x51AB, "queue_type": 2, "priority": 7, "queue_id": 9},
        KFD_ALLOC: {"address": 1 << 46, "size_bytes": 1 << 33, "handle": 0xAB, "gpu_id": 0x51AB, "memory_flags": 1},
        KFD_WAIT: {"events": 2, "wait_for_all": 1, "timeout_ms": 1000, "outcome": 2},
        KFD_IOCTL: {"command": 3 << 30 | 24 << 16 | 0x4B7F},
    }
    for kind, values in wanted.items():
        batch = found[kind]
        assert {name: batch[name].tolist() for name in values} == {name: [value] for name, value in values.items()}
        assert batch["status"].tolist() == [-25]
        assert (batch["begin_ns"] < batch["time_ns"]).all()
    assert KFD_CLOCK not in found
