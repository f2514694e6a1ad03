# SPDX-License-Identifier: Apache-2.0
"""System calls on /dev/kfd: what ROCm's runtime asks amdkfd for.

Numbers and offsets are those of include/uapi/linux/kfd_ioctl.h; the parts used are the same in all versions of the
interface from 1.3 to 1.23 (kernels 5.10 to 7.3). Sizes of the structures grow, so that only type and number are matched.
"""

from __future__ import annotations

from fencepath.syscalls import Argument, DeviceClass, IoctlDecoder, Read, SyscallTable

__all__ = [
    "DEVICE",
    "KFD_ALLOC",
    "KFD_CLOCK",
    "KFD_EVENT",
    "KFD_FREE",
    "KFD_IOCTL",
    "KFD_MAP",
    "KFD_QUEUE_CREATE",
    "KFD_QUEUE_DESTROY",
    "KFD_QUEUE_UPDATE",
    "KFD_SVM",
    "KFD_UNMAP",
    "KFD_WAIT",
    "TABLE",
]

KFD_QUEUE_CREATE, KFD_QUEUE_DESTROY = "amdgpu.kfd.queue.create", "amdgpu.kfd.queue.destroy"
KFD_QUEUE_UPDATE = "amdgpu.kfd.queue.update"
KFD_ALLOC, KFD_FREE = "amdgpu.kfd.memory.alloc", "amdgpu.kfd.memory.free"
KFD_MAP, KFD_UNMAP = "amdgpu.kfd.memory.map", "amdgpu.kfd.memory.unmap"
KFD_SVM, KFD_WAIT, KFD_EVENT = "amdgpu.kfd.svm", "amdgpu.kfd.wait", "amdgpu.kfd.event"
KFD_CLOCK, KFD_IOCTL = "amdgpu.kfd.clock", "amdgpu.kfd.ioctl"

DEVICE = DeviceClass(name="kfd", drivers=("kfd",))
"""Its major number is handed out when the module is loaded."""

_TYPE = ord("K")
"""AMDKFD_IOCTL_BASE."""


def _ioctl(kind: str, name: str, number: int, *values: Read | Argument) -> IoctlDecoder:
    return IoctlDecoder(kind=kind, device=DEVICE.name, name=name, type=_TYPE, number=number, values=values)


_HANDLE = Read("handle", "u64", 0)
_DEVICES = (Read("devices", "u32", 16), Read("done", "u32", 20, when="return"))

TABLE = SyscallTable(
    devices=(DEVICE,),
    ioctls=(
        _ioctl(
            KFD_QUEUE_CREATE,
            "AMDKFD_IOC_CREATE_QUEUE",
            0x02,
            Read("ring_bytes", "u32", 32),
            Read("gpu_id", "u32", 36),
            Read("queue_type", "u32", 40),
            Read("priority", "u32", 48),
            Read("queue_id", "u32", 52, when="return"),
        ),
        _ioctl(KFD_QUEUE_DESTROY, "AMDKFD_IOC_DESTROY_QUEUE", 0x03, Read("queue_id", "u32", 0)),
        _ioctl(
            KFD_QUEUE_UPDATE,
            "AMDKFD_IOC_UPDATE_QUEUE",
            0x07,
            Read("queue_id", "u32", 8),
            Read("percentage", "u32", 16),
            Read("priority", "u32", 20),
        ),
        _ioctl(
            KFD_ALLOC,
            "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU",
            0x16,
            Read("address", "u64", 0),
            Read("size_bytes", "u64", 8),
            Read("gpu_id", "u32", 32),
            Read("memory_flags", "u32", 36),
            Read("handle", "u64", 16, when="return"),
        ),
        _ioctl(KFD_FREE, "AMDKFD_IOC_FREE_MEMORY_OF_GPU", 0x17, _HANDLE),
        _ioctl(KFD_MAP, "AMDKFD_IOC_MAP_MEMORY_TO_GPU", 0x18, _HANDLE, *_DEVICES),
        _ioctl(KFD_UNMAP, "AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", 0x19, _HANDLE, *_DEVICES),
        _ioctl(
            KFD_SVM,
            "AMDKFD_IOC_SVM",
            0x20,
            Read("address", "u64", 0),
            Read("size_bytes", "u64", 8),
            Read("operation", "u32", 16),
            Read("attributes", "u32", 20),
        ),
        _ioctl(
            KFD_WAIT,
            "AMDKFD_IOC_WAIT_EVENTS",
            0x0C,
            Read("events", "u32", 8),
            Read("wait_for_all", "u32", 12),
            Read("timeout_ms", "u32", 16),
            Read("outcome", "u32", 20, when="return"),
        ),
        _ioctl(
            KFD_EVENT,
            "AMDKFD_IOC_CREATE_EVENT",
            0x08,
            Read("event_type", "u32", 12),
            Read("event_id", "u32", 24, when="return"),
        ),
        _ioctl(KFD_EVENT, "AMDKFD_IOC_DESTROY_EVENT", 0x09, Read("event_id", "u32", 0)),
        _ioctl(KFD_EVENT, "AMDKFD_IOC_SET_EVENT", 0x0A, Read("event_id", "u32", 0)),
        _ioctl(KFD_EVENT, "AMDKFD_IOC_RESET_EVENT", 0x0B, Read("event_id", "u32", 0)),
        _ioctl(
            KFD_CLOCK,
            "AMDKFD_IOC_GET_CLOCK_COUNTERS",
            0x05,
            Read("gpu_id", "u32", 32),
            Read("gpu_ticks", "u64", 0, when="return"),
            Read("monotonic_raw_ns", "u64", 8, when="return"),
            Read("boottime_ns", "u64", 16, when="return"),
        ),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_ACQUIRE_VM", 0x15, Read("gpu_id", "u32", 4)),
        _ioctl(
            KFD_IOCTL, "AMDKFD_IOC_SMI_EVENTS", 0x1F, Read("gpu_id", "u32", 0), Read("events_fd", "u32", 4, when="return")
        ),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_SET_XNACK_MODE", 0x21),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_AVAILABLE_MEMORY", 0x23),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_EXPORT_DMABUF", 0x24),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_IMPORT_DMABUF", 0x1D),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_RUNTIME_ENABLE", 0x25),
        _ioctl(KFD_IOCTL, "AMDKFD_IOC_DBG_TRAP", 0x26),
        # whatever else there is
        IoctlDecoder(kind=KFD_IOCTL, device=DEVICE.name, name="ioctl of /dev/kfd"),
    ),
)  # fmt: skip
