# SPDX-License-Identifier: Apache-2.0
"""Kinds of what happens inside the driver, from functions of it."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, S64, U32, U64, Category, Event, KindInfo, Role
from fencepath_nvidia.kinds import DRIVER_FAULT, DRIVER_IOCTL, DRIVER_MMAP, ISR, ISR_THREAD, UVM_MIGRATION, UVM_SERVICE

__all__ = [
    "FUNCTION_EVENTS",
    "DriverFault",
    "DriverIoctl",
    "DriverMmap",
    "Isr",
    "IsrThread",
    "UvmMigration",
    "UvmService",
]


class Function(Event, frozen=True, kw_only=True):
    """What every call of a function of the driver has.

    Attributes:
        label: the function, as index in the batch's ``labels``.
        result: what it returned.
    """

    label: S32
    result: S64


class Half(Function, frozen=True, kw_only=True):
    """What both halves of an interrupt have.

    Attributes:
        irq: its number, as in /proc/interrupts.
        gpu: a number that stands for the GPU in this recording.
    """

    irq: S32
    gpu: U64


class Isr(Half, frozen=True, kw_only=True, tag=ISR):
    """The first half of an interrupt, of any process's GPU work. `tgid` and `tid` name whoever was interrupted.

    Attributes:
        result: 0 if the interrupt was not the GPU's, 2 if a thread does the rest.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, category=Category.INTERRUPT)


class IsrThread(Half, frozen=True, kw_only=True, tag=ISR_THREAD):
    """The second half of an interrupt, in a thread of the kernel."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, category=Category.INTERRUPT)


class DriverIoctl(Function, frozen=True, kw_only=True, tag=DRIVER_IOCTL):
    """The driver's own part of a request, within the system call.

    Attributes:
        command: the whole command, of NV_ESC_IOCTL_XFER_CMD itself.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, category=Category.DRIVER)

    command: U32


class DriverMmap(Function, frozen=True, kw_only=True, tag=DRIVER_MMAP):
    """The driver's own part of a mapping, within the system call.

    Attributes:
        address: where.
        length_bytes: how much.
        offset: in the file, bytes.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    address: U64
    length_bytes: U64
    offset: U64


class DriverFault(Function, frozen=True, kw_only=True, tag=DRIVER_FAULT):
    """A thread touched memory of the driver that was not there: of nvidia-uvm, it was brought to the CPU first.

    Attributes:
        address: what was touched.
        area: begin of the mapping that it is in.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, category=Category.PAGE_FAULT)

    address: U64
    area: U64


class UvmService(Function, frozen=True, kw_only=True, tag=UVM_SERVICE):
    """A thread of the kernel serves page faults of a GPU, as many as there are; whose they are is not known.

    Attributes:
        gpu: a number that stands for the GPU in this recording; another one than in :class:`Isr`.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, category=Category.PAGE_FAULT)

    gpu: U64


class UvmMigration(Function, frozen=True, kw_only=True, tag=UVM_MIGRATION):
    """Pages of a block of managed memory are copied, by a thread that wants them or by one of the kernel; ``result`` is an NV_STATUS.

    Attributes:
        block: a number that stands for the block of 2 MiB in this recording.
        destination: number that nvidia-uvm gave the processor: 0 the CPU, from 1 on GPUs.
        first_page: first page in the block.
        pages: length of the region; pages in it that are there already are not copied.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER)

    block: U64
    destination: U32
    first_page: U32
    pages: U32


FUNCTION_EVENTS: tuple[type[Event], ...] = (
    Isr,
    IsrThread,
    DriverIoctl,
    DriverMmap,
    DriverFault,
    UvmService,
    UvmMigration,
)
