# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``nvidia`` and the layouts of records that are no system calls."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, S64, U16, U32, U64, Category, Event, KindInfo, Role
from fencepath.records import HEADER, Field, RecordLayout
from fencepath_nvidia.function_events import FUNCTION_EVENTS
from fencepath_nvidia.kinds import (
    ALLOC,
    CLOSE,
    CONTROL,
    DUP,
    ERROR,
    FREE,
    IOCTL,
    LOG,
    MAP,
    MEMORY_ALLOC,
    MMAP,
    MUNMAP,
    OS_EVENT,
    POLL,
    SXID,
    UNMAP,
    UVM_CALL,
    UVM_RANGE,
    VERSION,
    XID,
)

__all__ = [
    "EVENTS",
    "LOG_LAYOUT",
    "Alloc",
    "Close",
    "Control",
    "DriverCall",
    "Dup",
    "Error",
    "Free",
    "Ioctl",
    "Log",
    "Map",
    "MemoryAlloc",
    "Mmap",
    "Munmap",
    "OsEvent",
    "Poll",
    "Sxid",
    "Unmap",
    "UvmCall",
    "UvmRange",
    "Version",
    "Xid",
]

_LIFE = KindInfo(role=Role.LIFE, category=Category.DRIVER, keep=True)
_MEMORY = KindInfo(role=Role.MEMORY)
_CALL = KindInfo(role=Role.CALL, category=Category.DRIVER)

# 512 bytes with the header
LOG_LAYOUT = RecordLayout(LOG, (*HEADER, Field("text", "char[488]")))


class DriverCall(Event, frozen=True, kw_only=True):
    """What every system call on a device file of the driver has.

    Attributes:
        label: the request, as index in the batch's ``labels``.
        fd: descriptor of the device file, -1 if the call names none.
        device: ``major << 20 | minor`` of the device file.
        status: what the system call returned: an address or a count, or a negative errno.
    """

    label: S32
    fd: S32
    device: U32
    status: S64


class Request(DriverCall, frozen=True, kw_only=True):
    """An ioctl with the driver's own status.

    Attributes:
        rm_status: NV_STATUS that the driver wrote into the structure: 0 is good; -1 if it is not known (the ioctl failed, has
            not returned, could not be read, or this version's layout is not known).
    """

    rm_status: S64


class Alloc(Request, frozen=True, kw_only=True, tag=ALLOC):
    """An object of the driver was made: a client, a device, a channel, an event. Labelled with its class.

    Attributes:
        client: handle of the client that it belongs to; 0 where the object is a client.
        parent: handle of the object that it lies under.
        object: its handle, the client's own.
        object_class: class number.
        device_id: of a device (class 0x80): which GPU, counted by the driver; else -1.
        engine: of a channel: NV2080_ENGINE_TYPE (1 graphics and compute, 9 and up copies); else -1.
    """

    info: ClassVar[KindInfo] = _LIFE

    client: U32
    parent: U32
    object: U32
    object_class: U32
    device_id: S64
    engine: S64


class MemoryAlloc(Request, frozen=True, kw_only=True, tag=MEMORY_ALLOC):
    """Memory was allocated by the driver, or the program's own was pinned. Labelled with its class.

    Attributes:
        client: handle of the client that it belongs to.
        parent: handle of the device it is of.
        object: its handle.
        object_class: 0x3e system memory, 0x40 and 0x3f the GPU's, 0x71 the program's own; 0 where the request has no class.
        size_bytes: as asked for.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, category=Category.MEMORY, keep=True)

    client: U32
    parent: U32
    object: U32
    object_class: U32
    size_bytes: U64


class Free(Request, frozen=True, kw_only=True, tag=FREE):
    """An object was given up, and all that lies under it.

    Attributes:
        client: handle of the client that it belongs to.
        parent: handle of the object that it lies under.
        object: its handle; the client's own gives everything up.
    """

    info: ClassVar[KindInfo] = _LIFE

    client: U32
    parent: U32
    object: U32


class Dup(Request, frozen=True, kw_only=True, tag=DUP):
    """An object of another client was taken over: both have it then.

    Attributes:
        client: handle of the client that takes it.
        parent: handle of the object that it comes to lie under.
        object: its handle there.
        source_client: handle of the other client.
        source_object: its handle there.
    """

    info: ClassVar[KindInfo] = _LIFE

    client: U32
    parent: U32
    object: U32
    source_client: U32
    source_object: U32


class Control(Request, frozen=True, kw_only=True, tag=CONTROL):
    """A command to an object (NV_ESC_RM_CONTROL). Labelled with its name, or its class, category and number.

    Attributes:
        client: handle of the client.
        object: handle of the object.
        control: command: class in bits 31 to 16, category in 13 to 8, number in 7 to 0.
        params_bytes: size of its parameters.
    """

    info: ClassVar[KindInfo] = _CALL

    client: U32
    object: U32
    control: U32
    params_bytes: U32


class Map(Request, frozen=True, kw_only=True, tag=MAP):
    """Memory was given an address, of the process (NV_ESC_RM_MAP_MEMORY) or of the GPU (_DMA).

    Attributes:
        client: handle of the client.
        device_handle: handle of the device.
        memory: handle of the memory.
        address: the address.
        length_bytes: how much.
    """

    info: ClassVar[KindInfo] = _MEMORY

    client: U32
    device_handle: U32
    memory: U32
    address: U64
    length_bytes: U64


class Unmap(Request, frozen=True, kw_only=True, tag=UNMAP):
    """An address of memory was given up; attributes as of :class:`Map`."""

    info: ClassVar[KindInfo] = _MEMORY

    client: U32
    device_handle: U32
    memory: U32
    address: U64


class OsEvent(Request, frozen=True, kw_only=True, tag=OS_EVENT):
    """A device file was made, or is no more, one that a poll waits on for events of a client.

    Attributes:
        client: handle of the client.
        device_handle: handle of the device.
        event_fd: the file, to be polled.
    """

    info: ClassVar[KindInfo] = _LIFE

    client: U32
    device_handle: U32
    event_fd: S32


class Version(DriverCall, frozen=True, kw_only=True, tag=VERSION):
    """A library asked the driver whether it is of its version.

    Attributes:
        version: of the library, its first 16 characters.
        recognised: whether the driver agreed.
    """

    info: ClassVar[KindInfo] = _LIFE

    version: str
    recognised: bool


class Ioctl(Request, frozen=True, kw_only=True, tag=IOCTL):
    """Any other request; one without a name is called by type and number.

    Attributes:
        command: the whole command; of one that came in NV_ESC_IOCTL_XFER_CMD with its own number and size.
        value: NV_ESC_REGISTER_FD: the control file; NV_ESC_RM_VID_HEAP_CONTROL: the function; else 0.
    """

    info: ClassVar[KindInfo] = _CALL

    command: U32
    value: U32


class UvmRange(Request, frozen=True, kw_only=True, tag=UVM_RANGE):
    """A request to nvidia-uvm about a range of addresses: made, mapped, migrated, given up, told where to be.

    Attributes:
        address: begin of the range; 0 where the request names a group of ranges.
        length_bytes: its length; 0 where the request has none.
        gpu: UUID of the GPU that it is about, or ``CPU``; "" if none is named.
        client: of UVM_MAP_EXTERNAL_ALLOCATION: handle of the client of the memory.
        object: of UVM_MAP_EXTERNAL_ALLOCATION: handle of the memory.
    """

    info: ClassVar[KindInfo] = _MEMORY

    address: U64
    length_bytes: U64
    gpu: str
    client: U32
    object: U32


class UvmCall(Request, frozen=True, kw_only=True, tag=UVM_CALL):
    """Any other request to nvidia-uvm; one without a name is called by its number.

    Attributes:
        command: the number.
        gpu: UUID of the GPU that it is about; "" if none is named.
        client: handle of the client, 0 if none is named.
        object: handle of the address space or channel, 0 if none is named.
    """

    info: ClassVar[KindInfo] = _CALL

    command: U32
    gpu: str
    client: U32
    object: U32


class Mmap(DriverCall, frozen=True, kw_only=True, tag=MMAP):
    """A device file was mapped. On nvidia-uvm that makes a range, such as managed memory.

    Attributes:
        address: where, 0 if it failed.
        length_bytes: how much.
        protection: PROT_*: 1 read, 2 write.
        offset: in the file, bytes.
    """

    info: ClassVar[KindInfo] = _MEMORY

    address: U64
    length_bytes: U64
    protection: U32
    offset: U64


class Munmap(DriverCall, frozen=True, kw_only=True, tag=MUNMAP):
    """A mapping of a device file ended that the recording saw being made; ``fd`` is -1.

    Attributes:
        address: where.
        length_bytes: how much.
    """

    info: ClassVar[KindInfo] = _MEMORY

    address: U64
    length_bytes: U64


class Close(DriverCall, frozen=True, kw_only=True, tag=CLOSE):
    """A descriptor of a device file was closed; the file lives on as long as others are."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.DRIVER)


class Poll(DriverCall, frozen=True, kw_only=True, tag=POLL):
    """A thread waits for an event of the driver; ``fd`` and ``device`` are the first such file among those it waits for.

    Attributes:
        count: files it waits for; 0 for ppoll, of which it is not recorded.
        timeout_ns: longest time, ns; -1 for ever.
        events: asked for, of the first of the driver's files.
        revents: come, of the same file.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT)

    count: U32
    timeout_ns: S64
    events: U16
    revents: U16


class Xid(Event, frozen=True, kw_only=True, tag=XID):
    """The driver's tracepoint for an error of a GPU. Whose fault it is it does not say.

    Attributes:
        dev: PCI address of the GPU.
        code: Xid.
        message: the driver's text.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR, keep=True)

    dev: str
    code: U32
    message: str


class Sxid(Event, frozen=True, kw_only=True, tag=SXID):
    """The driver's tracepoint for an error of an NVSwitch; attributes as of :class:`Xid`."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR, keep=True)

    dev: str
    code: U32
    message: str


class Log(Event, frozen=True, kw_only=True, tag=LOG):
    """A line of the kernel's log by the driver. Lines of others are not recorded.

    Attributes:
        text: its first 487 bytes.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR, keep=True)

    text: str


class Error(Event, frozen=True, kw_only=True, tag=ERROR):
    """An error of a GPU or a switch, from the tracepoint, the log or both, counted once.

    Attributes:
        code: Xid or SXid; 0 for one without a number.
        of_switch: whether it is of an NVSwitch.
        gpu: PCI address without function: ``0000:01:00``.
        gpu_instance: of a MIG instance, -1 if none is named.
        pid: process that made the failing channel, as the driver names it; 0 if none is named.
        program: its name; "" if none is named.
        message: the driver's text.
        by_tracepoint: the tracepoint said so.
        by_log: the log said so.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR, derived=True)

    code: U32
    of_switch: bool
    gpu: str
    gpu_instance: S32
    pid: U32
    program: str
    message: str
    by_tracepoint: bool
    by_log: bool


EVENTS: tuple[type[Event], ...] = (
    Alloc,
    MemoryAlloc,
    Dup,
    Free,
    Control,
    Map,
    Unmap,
    OsEvent,
    Version,
    Ioctl,
    UvmRange,
    UvmCall,
    Mmap,
    Munmap,
    Close,
    Poll,
    Xid,
    Sxid,
    Log,
    Error,
    *FUNCTION_EVENTS,
)
