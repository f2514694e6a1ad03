# SPDX-License-Identifier: Apache-2.0
"""Names of the layer's kinds."""

from __future__ import annotations

__all__ = [
    "ALLOC",
    "CLOSE",
    "CONTROL",
    "DRIVER_FAULT",
    "DRIVER_IOCTL",
    "DRIVER_MMAP",
    "DUP",
    "ERROR",
    "FREE",
    "IOCTL",
    "ISR",
    "ISR_THREAD",
    "LOG",
    "MAP",
    "MEMORY_ALLOC",
    "MMAP",
    "MUNMAP",
    "OS_EVENT",
    "POLL",
    "RECORDED_CALLS",
    "SXID",
    "UNMAP",
    "UVM_CALL",
    "UVM_MIGRATION",
    "UVM_RANGE",
    "UVM_SERVICE",
    "VERSION",
    "XID",
]

ALLOC, MEMORY_ALLOC, FREE, DUP = "nvidia.alloc", "nvidia.memory.alloc", "nvidia.free", "nvidia.dup"
CONTROL, MAP, UNMAP, OS_EVENT = "nvidia.control", "nvidia.map", "nvidia.unmap", "nvidia.os_event"
VERSION, IOCTL = "nvidia.version", "nvidia.ioctl"
UVM_RANGE, UVM_CALL = "nvidia.uvm.range", "nvidia.uvm.call"
MMAP, MUNMAP, CLOSE, POLL = "nvidia.mmap", "nvidia.munmap", "nvidia.close", "nvidia.poll"
XID, SXID, LOG, ERROR = "nvidia.xid", "nvidia.sxid", "nvidia.log", "nvidia.error"
ISR, ISR_THREAD = "nvidia.isr", "nvidia.isr_thread"
DRIVER_IOCTL, DRIVER_MMAP, DRIVER_FAULT = "nvidia.driver.ioctl", "nvidia.driver.mmap", "nvidia.driver.fault"
UVM_SERVICE, UVM_MIGRATION = "nvidia.uvm.service", "nvidia.uvm.migration"

RECORDED_CALLS = (
    ALLOC,
    MEMORY_ALLOC,
    FREE,
    DUP,
    CONTROL,
    MAP,
    UNMAP,
    OS_EVENT,
    VERSION,
    IOCTL,
    UVM_RANGE,
    UVM_CALL,
    MMAP,
    MUNMAP,
    CLOSE,
    POLL,
)
"""System calls: events of a thread of a process that uses the driver."""
