# SPDX-License-Identifier: Apache-2.0
"""Kinds of system calls on /dev/kfd. What a queue is given to run afterwards is no system call and is not seen."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, S64, U32, U64, Event, KindInfo, Role
from fencepath_amdgpu.kfd import (
    KFD_ALLOC,
    KFD_CLOCK,
    KFD_EVENT,
    KFD_FREE,
    KFD_IOCTL,
    KFD_MAP,
    KFD_QUEUE_CREATE,
    KFD_QUEUE_DESTROY,
    KFD_QUEUE_UPDATE,
    KFD_SVM,
    KFD_UNMAP,
    KFD_WAIT,
)

__all__ = [
    "KFD_EVENTS",
    "KfdAlloc",
    "KfdCall",
    "KfdClock",
    "KfdEvent",
    "KfdFree",
    "KfdIoctl",
    "KfdMap",
    "KfdQueueCreate",
    "KfdQueueDestroy",
    "KfdQueueUpdate",
    "KfdSvm",
    "KfdUnmap",
    "KfdWait",
]


class KfdCall(Event, frozen=True, kw_only=True):
    """What every call has.

    Attributes:
        label: the request, as index in the batch's ``labels``.
        fd: descriptor of /dev/kfd.
        status: 0, or a negative errno.
    """

    label: S32
    fd: S32
    status: S64


class KfdQueueCreate(KfdCall, frozen=True, kw_only=True, tag=KFD_QUEUE_CREATE):
    """A queue is made, that the program fills and starts without the kernel.

    Attributes:
        queue_id: its number in the process.
        gpu_id: the GPU, as in /sys/class/kfd/kfd/topology.
        queue_type: 0 compute, 1 copies, 2 compute by AQL packets, 3 copies over XGMI, 4 copies by engine.
        priority: 0 to 15.
        ring_bytes: of the ring.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    queue_id: U32
    gpu_id: U32
    queue_type: U32
    priority: U32
    ring_bytes: U64


class KfdQueueDestroy(KfdCall, frozen=True, kw_only=True, tag=KFD_QUEUE_DESTROY):
    """A queue is ended; what was in it does not run.

    Attributes:
        queue_id: its number in the process.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    queue_id: U32


class KfdQueueUpdate(KfdCall, frozen=True, kw_only=True, tag=KFD_QUEUE_UPDATE):
    """A queue gets another share or priority.

    Attributes:
        queue_id: its number in the process.
        percentage: share of the time, 0 takes it off the GPU.
        priority: 0 to 15.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    queue_id: U32
    percentage: U32
    priority: U32


class KfdAlloc(KfdCall, frozen=True, kw_only=True, tag=KFD_ALLOC):
    """Memory is allocated; ``amdgpu.bo.create`` is within.

    Attributes:
        address: for the GPU.
        size_bytes: as asked for.
        gpu_id: the GPU.
        memory_flags: KFD_IOC_ALLOC_MEM_FLAGS_*: bit 0 VRAM, 1 GTT, 2 memory of the program, 3 doorbells.
        handle: names it from then on.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    address: U64
    size_bytes: U64
    gpu_id: U32
    memory_flags: U32
    handle: U64


class KfdFree(KfdCall, frozen=True, kw_only=True, tag=KFD_FREE):
    """Memory is given back.

    Attributes:
        handle: of the memory.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    handle: U64


class KfdMap(KfdCall, frozen=True, kw_only=True, tag=KFD_MAP):
    """Memory is mapped on GPUs. The call returns when their page tables are written.

    Attributes:
        handle: of the memory.
        devices: GPUs asked for.
        done: GPUs it was done for.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    handle: U64
    devices: U32
    done: U32


class KfdUnmap(KfdCall, frozen=True, kw_only=True, tag=KFD_UNMAP):
    """Memory is taken from GPUs; attributes as of :class:`KfdMap`."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    handle: U64
    devices: U32
    done: U32


class KfdSvm(KfdCall, frozen=True, kw_only=True, tag=KFD_SVM):
    """Attributes of a shared range (hipMallocManaged) are set or read; setting one may move the range.

    Attributes:
        address: of the range.
        size_bytes: of the range.
        operation: 0 set, 1 read.
        attributes: how many.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    address: U64
    size_bytes: U64
    operation: U32
    attributes: U32


class KfdWait(KfdCall, frozen=True, kw_only=True, tag=KFD_WAIT):
    """A thread waits for events of the GPU. A runtime that polls memory instead makes no such call.

    Attributes:
        events: how many.
        wait_for_all: 1 for all of them, 0 for any.
        timeout_ms: 0 asks only, 4294967295 is for ever.
        outcome: 0 an event came, 1 the time was over, 2 failed.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT)

    events: U32
    wait_for_all: U32
    timeout_ms: U32
    outcome: U32


class KfdEvent(KfdCall, frozen=True, kw_only=True, tag=KFD_EVENT):
    """An event is made, ended, set or reset; the label says which.

    Attributes:
        event_id: its number in the process.
        event_type: where it is made: 0 signal, 3 hardware exception, 8 memory fault, others in kfd_ioctl.h.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    event_id: U32
    event_type: U32


class KfdClock(KfdCall, frozen=True, kw_only=True, tag=KFD_CLOCK):
    """The runtime reads the GPU's clock, which was at ``gpu_ticks`` between the begin and the end of the call.

    Attributes:
        gpu_id: the GPU.
        gpu_ticks: its clock.
        monotonic_raw_ns: the kernel's CLOCK_MONOTONIC_RAW then.
        boottime_ns: the kernel's CLOCK_BOOTTIME then.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    gpu_id: U32
    gpu_ticks: U64
    monotonic_raw_ns: U64
    boottime_ns: U64


class KfdIoctl(KfdCall, frozen=True, kw_only=True, tag=KFD_IOCTL):
    """Any other ioctl; the label says which.

    Attributes:
        command: the whole request number.
        gpu_id: the GPU, where the request names one and is known to this layer.
        events_fd: descriptor that SMI events can be read from, of AMDKFD_IOC_SMI_EVENTS.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    command: U32
    gpu_id: U32
    events_fd: U32


KFD_EVENTS: tuple[type[Event], ...] = (
    KfdQueueCreate, KfdQueueDestroy, KfdQueueUpdate, KfdAlloc, KfdFree, KfdMap, KfdUnmap, KfdSvm, KfdWait, KfdEvent,
    KfdClock, KfdIoctl,
)  # fmt: skip
"""All kinds of system calls on /dev/kfd, creations before ends."""
