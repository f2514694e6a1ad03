# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``amdgpu``: what its tracepoints say. Those of system calls on /dev/kfd are in ``kfd_events``."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U32, U64, Category, Event, Key, KindInfo, Role
from fencepath_amdgpu.kinds import (
    BO_CREATE,
    BO_MOVE,
    CLEANER,
    CS,
    FLUSH,
    GRAB_ID,
    INTERRUPT,
    ISOLATION,
    KFD_EVICT,
    KFD_EVICTED,
    KFD_RESIDENT,
    MAP,
    PASID_ALLOCATE,
    PASID_FREE,
    PIPE_SYNC,
    RUN,
    UNMAP,
    USERQ_CREATE,
    USERQ_DESTROY,
    USERQ_SIGNAL,
    USERQ_STATE,
    USERQ_WAIT,
)

__all__ = [
    "EVENTS",
    "BoCreate",
    "BoMove",
    "Cleaner",
    "Flush",
    "GrabId",
    "Interrupt",
    "Isolation",
    "KfdEvict",
    "KfdEvicted",
    "KfdResident",
    "Map",
    "PasidAllocate",
    "PasidFree",
    "PipeSync",
    "Run",
    "Submission",
    "Unmap",
    "UserqCreate",
    "UserqDestroy",
    "UserqSignal",
    "UserqState",
    "UserqWait",
]


FENCE = Key("fence", "fence")
DEPENDENCY = Key("dependency", "fence")


class _Job(Event, frozen=True, kw_only=True):
    """A job of the kernel's scheduler is named by its finished fence.

    Attributes:
        fence_context: context of the finished fence. Before 6.17 the kernel gives its low 32 bits.
        fence_seqno: number in it, likewise.
    """

    fence_context: U64
    fence_seqno: U64


class Submission(_Job, frozen=True, kw_only=True, tag=CS):
    """A thread hands a job to the scheduler, in the ioctl DRM_AMDGPU_CS. One for each job of a gang.

    Attributes:
        ring: name of the hardware ring. Two GPUs have rings of one name.
        ibs: indirect buffers in the job.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT, keys=(FENCE,))

    ring: str
    ibs: U32


class Run(_Job, frozen=True, kw_only=True, tag=RUN):
    """The scheduler writes a job to its ring. The GPU starts it then, or after what is on the ring already.

    The event's thread is the scheduler's, so it is no key.

    Attributes:
        ring: name of the hardware ring.
        ibs: indirect buffers in the job.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(FENCE,))

    ring: str
    ibs: U32


class Flush(_Job, frozen=True, kw_only=True, tag=FLUSH):
    """A job begins with a flush of the GPU's translations for its address space.

    Attributes:
        page_directory: its address for the GPU.
        vmid: hardware address space.
        hub: which of the GPU's memory hubs; 0 where the kernel does not say.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, keys=(FENCE,))

    page_directory: U64
    vmid: U32
    hub: U32


class PipeSync(_Job, frozen=True, kw_only=True, tag=PIPE_SYNC):
    """A job begins with a wait of the ring's pipeline for earlier work on it.

    Attributes:
        dependency_context: context of the fence of that work.
        dependency_seqno: number in it, its low 32 bits before 6.17.
    """

    info: ClassVar[KindInfo] = KindInfo(
        role=Role.QUEUE,
        category=Category.DEPENDENCY,
        keys=(
            FENCE,
            DEPENDENCY,
        ),
    )

    dependency_context: U64
    dependency_seqno: U64


class BoCreate(Event, frozen=True, kw_only=True, tag=BO_CREATE):
    """A thread makes a buffer object, by DRM or by /dev/kfd.

    Attributes:
        bo: a number that stands for it in this recording; a later one may get the same.
        size_bytes: whole pages.
        placement: where it is at first: ``vram``, ``gtt``, ``system``, ...
        preferred_domains: AMDGPU_GEM_DOMAIN_* bits (include/uapi/drm/amdgpu_drm.h).
        allowed_domains: likewise.
        create_flags: AMDGPU_GEM_CREATE_* bits.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    bo: U64
    size_bytes: U64
    placement: str
    preferred_domains: U32
    allowed_domains: U32
    create_flags: U32


class BoMove(Event, frozen=True, kw_only=True, tag=BO_MOVE):
    """A buffer object goes from one memory to another. An instant: the copy is a job of the kernel's own.

    Recorded if a target does it, or has made or mapped the buffer. With TASK the event's thread is the target's that does
    it; else `tgid` is a process that is none, such as one whose own buffers push this one out.

    Attributes:
        bo: a number that stands for it in this recording.
        size_bytes: of the buffer.
        source: ``vram``, ``gtt``, ``system``, ...; ``none`` where it had no memory before.
        target: likewise; ``none`` if it has none any more, which is its end. Kernels before 6.9 do not say when a buffer
            gets its first memory and when it ends, unless they have the change from later.
        owner_tgid: process that made or first mapped it, 0 if that was not seen.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER)

    bo: U64
    size_bytes: U64
    source: str
    target: str
    owner_tgid: U32


class _Mapping(Event, frozen=True, kw_only=True):
    """A range of the GPU's addresses.

    Attributes:
        bo: a number that stands for the buffer object in this recording, 0 if there is none.
        address: first address for the GPU.
        size_bytes: of the range.
        offset_bytes: in the buffer.
        mapping_flags: AMDGPU_PTE_* bits of the driver.
    """

    bo: U64
    address: U64
    size_bytes: U64
    offset_bytes: U64
    mapping_flags: U64


class Map(_Mapping, frozen=True, kw_only=True, tag=MAP):
    """A thread maps a buffer into the GPU's address space; page tables follow later."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class Unmap(_Mapping, frozen=True, kw_only=True, tag=UNMAP):
    """A thread takes a mapping away."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class PasidAllocate(Event, frozen=True, kw_only=True, tag=PASID_ALLOCATE):
    """A process opens the GPU and gets a number for its address space, by which interrupts name it.

    Attributes:
        pasid: the number, handed out again after it was freed.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    pasid: U32


class PasidFree(Event, frozen=True, kw_only=True, tag=PASID_FREE):
    """The number of an address space is given back, by whoever closed the GPU last.

    Attributes:
        pasid: the number.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    pasid: U32


class GrabId(Event, frozen=True, kw_only=True, tag=GRAB_ID):
    """A job that is about to run gets one of the hardware's address spaces, of which there are few.

    The event's thread is the scheduler's. Left out if the pasid is known to be of another process than the targets.

    Attributes:
        pasid: address space; allocated before the recording it may be any process'.
        vmid: hardware address space.
        hub: which of the GPU's memory hubs.
        needs_flush: the job will flush translations.
        page_directory: its address for the GPU.
        ring: name of the hardware ring.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    pasid: U32
    vmid: U32
    hub: U32
    needs_flush: U32
    page_directory: U64
    ring: str


class Interrupt(Event, frozen=True, kw_only=True, tag=INTERRUPT):
    """The driver takes an entry from the GPU's interrupt ring. Its time on the GPU is ``gpu_ticks``.

    Left out if the pasid is known to be of another process than the targets.

    Attributes:
        ring: of interrupts, if the GPU has several.
        client: SOC15_IH_CLIENTID_*; numbers mean other blocks on other generations.
        source: what of the client.
        client_ring: ring of the client that raised it, as its number.
        vmid: hardware address space it is for.
        vmid_source: which of the memory hubs.
        pasid: address space it is for, 0 if none.
        gpu_ticks: the GPU's clock when it was raised (:mod:`fencepath_amdgpu.clock`).
        gpu_ticks_source: 1 if that is the global clock.
        data0: first of four words, whose meaning is the client's.
        data1: second.
        data2: third.
        data3: fourth.
        page_fault: the client is the memory hub or the translation cache of GFX9 and later, and the source a fault.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)

    ring: U32
    client: U32
    source: U32
    client_ring: U32
    vmid: U32
    vmid_source: U32
    pasid: U32
    gpu_ticks: U64
    gpu_ticks_source: U32
    data0: U32
    data1: U32
    data2: U32
    data3: U32
    page_fault: bool


class Isolation(Event, frozen=True, kw_only=True, tag=ISOLATION):
    """The GPU goes from one owner to another where processes may not share it. Every one of the machine.

    Attributes:
        previous: a number that stands for the owner until now.
        next: owner from now on.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DEPENDENCY)

    previous: U64
    next: U64


class Cleaner(Event, frozen=True, kw_only=True, tag=CLEANER):
    """A shader that wipes registers and local memory is put before a job. Every one of the machine.

    Attributes:
        ring: name of the hardware ring.
        seqno: number of the ring's fence.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DEPENDENCY)

    ring: str
    seqno: U64


class _Userq(Event, frozen=True, kw_only=True):
    """A queue that the program fills by itself; a doorbell starts what is in it, and no event says so.

    Attributes:
        doorbell: index of its doorbell, which names it.
        queue_type: AMDGPU_HW_IP_* (0 graphics, 1 compute, 2 copies).
    """

    doorbell: U64
    queue_type: S32


class UserqCreate(_Userq, frozen=True, kw_only=True, tag=USERQ_CREATE):
    """A thread makes a user queue, from the begin to the end of the driver's part.

    Attributes:
        queue: a number that stands for it in this recording.
        state: 0 unmapped, 1 mapped, 2 preempted, 3 hung, 4 invalid address.
        partition: of the GPU's compute partitions.
        result: 0, or a negative errno.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.DRIVER, keep=True)

    queue: U64
    state: S32
    partition: U32
    result: S32


class UserqDestroy(_Userq, frozen=True, kw_only=True, tag=USERQ_DESTROY):
    """A thread ends a user queue; attributes as of :class:`UserqCreate`."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, category=Category.DRIVER, keep=True)

    queue: U64
    state: S32
    partition: U32
    result: S32


class UserqState(_Userq, frozen=True, kw_only=True, tag=USERQ_STATE):
    """The driver takes a user queue from the hardware or puts it back: eviction, preemption, restoring.

    Attributes:
        client_id: of the DRM client, as ``drm-client-id`` in fdinfo.
        from_state: as ``state`` of :class:`UserqCreate`.
        to_state: likewise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DRIVER)

    client_id: U64
    from_state: U32
    to_state: U32


class UserqSignal(_Userq, frozen=True, kw_only=True, tag=USERQ_SIGNAL):
    """A thread asks for a fence behind what is in a user queue now: DRM_AMDGPU_USERQ_SIGNAL.

    Attributes:
        fence_context: context of that fence.
        fence_seqno: number in it.
        client_id: of the DRM client.
        device: PCI address of the GPU.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT, keys=(FENCE,))

    fence_context: U64
    fence_seqno: U64
    client_id: U64
    device: str


class UserqWait(_Userq, frozen=True, kw_only=True, tag=USERQ_WAIT):
    """What is put into a user queue next has to wait for a fence: DRM_AMDGPU_USERQ_WAIT. The thread does not wait.

    Attributes:
        queue_context: fence context of the queue.
        dependency_context: context of the fence.
        dependency_seqno: number in it.
        client_id: of the DRM client.
        device: PCI address of the GPU.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DEPENDENCY, keys=(DEPENDENCY,))

    queue_context: U64
    dependency_context: U64
    dependency_seqno: U64
    client_id: U64
    device: str


class _Eviction(Event, frozen=True, kw_only=True):
    """A ROCm process' memory may be moved only while its queues are off the GPU; one fence on its context stands for it.

    Attributes:
        context: fence context, one for a process' memory on all its GPUs. Low 32 bits.
        seqno: of the fence. Low 32 bits.
        owner_tgid: process that the context was made by, 0 if that was not seen.
        timeline: command that the fence was made by: the process' at first, a kernel worker's after it was restored.
    """

    context: U32
    seqno: U32
    owner_tgid: U32
    timeline: str


class KfdEvict(_Eviction, frozen=True, kw_only=True, tag=KFD_EVICT):
    """Somebody wants memory that a ROCm process has: its queues will be taken off the GPU."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)


class KfdEvicted(_Eviction, frozen=True, kw_only=True, tag=KFD_EVICTED):
    """All queues of a ROCm process are off the GPU; its memory can be moved. Also at the end of the process."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)


class KfdResident(_Eviction, frozen=True, kw_only=True, tag=KFD_RESIDENT):
    """A new fence stands for the memory of a ROCm process: it just began, or its memory is back and its queues go on."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)


EVENTS: tuple[type[Event], ...] = (
    PasidAllocate, PasidFree, UserqCreate, UserqDestroy, Submission, Run, Flush, PipeSync, BoCreate, BoMove, Map, Unmap,
    GrabId, Interrupt, Isolation, Cleaner, UserqState, UserqSignal, UserqWait, KfdEvict, KfdEvicted, KfdResident,
)  # fmt: skip
"""All kinds that come from tracepoints, creations before ends."""
