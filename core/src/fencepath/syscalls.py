# SPDX-License-Identifier: Apache-2.0
"""System calls by the device they go to: what a plugin declares, and the records that come of it.

A plugin declares device classes, ioctls of them (:class:`IoctlDecoder`) and other system calls (:class:`SyscallProbe`)
as data. Core attaches once to each system call that anybody wants, whatever number of plugins wants it, and tells calls
apart by the character device behind their fd. That is read from the kernel's own table at the time of the call, so that
no open, dup, fork or passed descriptor has to be followed. Every record has entry and return (:func:`syscall_layout`).

A request of a driver can be several, told apart by a number in its structure (:class:`Equals`) or by its size, or carry
another one (:class:`Wrapped`). A call that names no fd is told by the fds of an array (poll) or by the address of a mapping
of the device (munmap).

System calls of 32-bit programs raise no such events; :func:`is_32_bit` tells which processes they would come from.
"""

from __future__ import annotations

from fencepath._syscalls.declare import (
    ARRAY_FDS,
    FOUND,
    SLOTS,
    Argument,
    Equals,
    IoctlDecoder,
    Read,
    SyscallProbe,
    Wrapped,
)
from fencepath._syscalls.decode import decode_syscalls
from fencepath._syscalls.devices import ANY_MINOR, DeviceClass, Devices, device_number, open_devices
from fencepath._syscalls.table import Row, SyscallTable, syscall_layout
from fencepath._syscalls.tracer import SyscallTracer, is_32_bit

__all__ = [
    "ANY_MINOR",
    "ARRAY_FDS",
    "FOUND",
    "SLOTS",
    "Argument",
    "DeviceClass",
    "Devices",
    "Equals",
    "IoctlDecoder",
    "Read",
    "Row",
    "SyscallProbe",
    "SyscallTable",
    "SyscallTracer",
    "Wrapped",
    "decode_syscalls",
    "device_number",
    "is_32_bit",
    "open_devices",
    "syscall_layout",
]
