# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``xe``."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, U16, U32, U64, Category, Event, Key, KindInfo, Role
from fencepath_xe.kinds import (
    BO_CREATE,
    BO_FAULT,
    BO_MOVE,
    BO_VALIDATE,
    FENCE_CREATE,
    FENCE_SIGNAL,
    JOB_CREATE,
    JOB_ERROR,
    JOB_EXEC,
    JOB_FREE,
    JOB_RUN,
    QUEUE_CREATE,
    QUEUE_DESTROY,
    QUEUE_ERROR,
    QUEUE_STATE,
    TLB_RECV,
    TLB_SEND,
    TLB_SIGNAL,
    TLB_TIMEOUT,
    VM_CREATE,
    VM_ERROR,
    VM_FREE,
    VM_REBIND,
    VM_UPDATE,
    VMA_BIND,
    VMA_EVICT,
    VMA_FAULT,
    VMA_UNBIND,
)

__all__ = [
    "EVENTS",
    "BoCreate",
    "BoFault",
    "BoMove",
    "BoValidate",
    "FenceCreate",
    "FenceSignal",
    "JobCreate",
    "JobError",
    "JobExec",
    "JobFree",
    "JobRun",
    "QueueCreate",
    "QueueDestroy",
    "QueueError",
    "QueueState",
    "TlbRecv",
    "TlbSend",
    "TlbSignal",
    "TlbTimeout",
    "VmCreate",
    "VmError",
    "VmFree",
    "VmRebind",
    "VmUpdate",
    "VmaBind",
    "VmaEvict",
    "VmaFault",
    "VmaUnbind",
]


FENCE = Key("fence", "fence")


class _OnDevice(Event, frozen=True, kw_only=True):
    """Attributes of everything.

    Attributes:
        device: PCI address of the GPU, empty before 6.11.
    """

    device: str


class _Job(_OnDevice, frozen=True, kw_only=True):
    """Attributes of a job.

    Attributes:
        fence_address: address of its fence in the kernel, that of the hardware unless its queue has several engines; 0 if none yet.
        batch_address: of its commands, for the GPU.
        seqno: of its fence, not that of the scheduler.
        lrc_seqno: of the ring it is on.
        guc_state: bits of the driver for the queue.
        job_flags: DRM_XE_* and the driver's bits.
        error: of its fence, 0 or a negative errno.
        gt: of the device, 0 before 6.16.
        guc_id: number of its queue at the GuC.
    """

    fence_address: U64
    batch_address: U64
    seqno: U32
    lrc_seqno: U32
    guc_state: U32
    job_flags: U32
    error: S32
    gt: U16
    guc_id: U16


class JobCreate(_Job, frozen=True, kw_only=True, tag=JOB_CREATE):
    """A thread makes a job."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE)


class JobExec(_Job, frozen=True, kw_only=True, tag=JOB_EXEC):
    """A thread hands a job to the scheduler, in the ioctls DRM_XE_EXEC and DRM_XE_VM_BIND."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT)


class JobRun(_Job, frozen=True, kw_only=True, tag=JOB_RUN):
    """The scheduler writes a job to its ring and tells the GuC. The GPU starts it then or later.

    The event's thread is the scheduler's, so it is no key.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE)


class JobFree(_Job, frozen=True, kw_only=True, tag=JOB_FREE):
    """A job ends for the driver, some time after it was done. There is no event for when it was."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE)


class JobError(_Job, frozen=True, kw_only=True, tag=JOB_ERROR):
    """A job failed.

    Attributes:
        action: ``timedout``, ``set_error`` or ``ban``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR)

    action: str


class _Fence(_OnDevice, frozen=True, kw_only=True):
    """Attributes of a fence of the hardware.

    Attributes:
        fence_address: a number that stands for it in this recording.
        fence_context: its context; the fence that user space waits for is the scheduler's and has another.
        fence_seqno: number in it.
    """

    fence_address: U64
    fence_context: U64
    fence_seqno: U32


class FenceCreate(_Fence, frozen=True, kw_only=True, tag=FENCE_CREATE):
    """A fence for a job on the hardware is made, where the job is or where it is handed over."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keys=(FENCE,))


class FenceSignal(_Fence, frozen=True, kw_only=True, tag=FENCE_SIGNAL):
    """The driver sees that the hardware is done with a job, in an interrupt or what follows one."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, keys=(FENCE,))


class _Queue(_OnDevice, frozen=True, kw_only=True):
    """Attributes of a queue.

    Attributes:
        engine_class: 0 render, 1 copy, 2 video, 3 video enhancement, 4 other, 5 compute.
        logical_mask: engines of the class that it may run on.
        guc_state: bits of the driver.
        queue_flags: likewise.
        guc_id: its number at the GuC, handed out again after its end.
        gt: of the device.
        width: engines that a job takes at once.
    """

    engine_class: U32
    logical_mask: U32
    guc_state: U32
    queue_flags: U32
    guc_id: U32
    gt: U16
    width: U16


class QueueCreate(_Queue, frozen=True, kw_only=True, tag=QUEUE_CREATE):
    """A thread makes a queue, in the ioctl DRM_XE_EXEC_QUEUE_CREATE or by making an address space.

    Attributes:
        action: ``create``, or ``create_multi_queue`` for one of a group.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    action: str


class QueueDestroy(_Queue, frozen=True, kw_only=True, tag=QUEUE_DESTROY):
    """A queue ends, in a worker or a thread of whoever had it last."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)


class QueueState(_Queue, frozen=True, kw_only=True, tag=QUEUE_STATE):
    """The driver or the GuC does something with a queue.

    Attributes:
        action: ``register``, ``scheduling_enable``, ``submit``, ``close``, ...: the event's name behind ``xe_exec_queue_``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DRIVER)

    action: str


class QueueError(_Queue, frozen=True, kw_only=True, tag=QUEUE_ERROR):
    """A queue failed, or the GuC with all queues on it.

    Attributes:
        action: ``reset`` (the GuC reset the engine under it), ``memory_cat_error``, ``kill``, ``cgp_context_error``,
            ``reach_max_job_count``, ``uncorrectable_error``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR)

    action: str


class _Bo(_OnDevice, frozen=True, kw_only=True):
    """Attributes of a buffer object.

    Attributes:
        size_bytes: of the buffer.
        vm: address of the address space that it belongs to, 0 if it can be shared.
        bo_flags: XE_BO_FLAG_* bits of the driver.
    """

    size_bytes: U64
    vm: U64
    bo_flags: U32


class BoCreate(_Bo, frozen=True, kw_only=True, tag=BO_CREATE):
    """A thread makes a buffer object. The event does not say its address."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class BoValidate(_Bo, frozen=True, kw_only=True, tag=BO_VALIDATE):
    """A thread sees to it that a buffer is where the GPU can use it, which may move it and others."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class BoFault(_Bo, frozen=True, kw_only=True, tag=BO_FAULT):
    """A thread touches a page of a mapped buffer that is not there for the CPU yet."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, category=Category.PAGE_FAULT)


class BoMove(_OnDevice, frozen=True, kw_only=True, tag=BO_MOVE):
    """A buffer object goes from one memory to another. An instant: the copy is a job of the kernel's own.

    With TASK the event's thread is the target's that does it; else `tgid` is a process that is none.

    Attributes:
        bo: a number that stands for it in this recording.
        size_bytes: of the buffer.
        source: ``System``, ``TT`` (system memory that the GPU can use), ``VRAM0``, ``VRAM1``, ``Stolen``.
        target: likewise.
        owner_tgid: target that was seen to move it first.
        lacks_source: 1 if there is nothing to copy: the buffer is new, or was given up.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER)

    bo: U64
    size_bytes: U64
    source: str
    target: str
    owner_tgid: U32
    lacks_source: U32


class _Vm(_OnDevice, frozen=True, kw_only=True):
    """Attributes of an address space.

    Attributes:
        vm: a number that stands for it in this recording.
        asid: its number for the GPU; 0 when it is made, and where there are no page faults.
        vm_flags: XE_VM_FLAG_* bits of the driver, 0 before 6.16.
    """

    vm: U64
    asid: U32
    vm_flags: U32


class VmCreate(_Vm, frozen=True, kw_only=True, tag=VM_CREATE):
    """A thread makes an address space for the GPU."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)


class VmFree(_Vm, frozen=True, kw_only=True, tag=VM_FREE):
    """An address space ends, mostly in a worker."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)


class VmRebind(_Vm, frozen=True, kw_only=True, tag=VM_REBIND):
    """A worker binds anew what was moved or invalidated, from begin to end; queues of the address space stand still."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class VmUpdate(_Vm, frozen=True, kw_only=True, tag=VM_UPDATE):
    """Something else happens to an address space.

    Attributes:
        action: ``cpu_bind`` (page tables are written by the CPU), ``restart``, ``rebind_worker_retry``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    action: str


class VmError(_Vm, frozen=True, kw_only=True, tag=VM_ERROR):
    """An address space cannot be used any more.

    Attributes:
        action: ``kill`` or ``ops_fail``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR)

    action: str


class _Vma(_OnDevice, frozen=True, kw_only=True):
    """Attributes of a range of an address space.

    Attributes:
        vma: a number that stands for it in this recording.
        vm: address of the address space, 0 before 6.16.
        address: first address for the GPU.
        size_bytes: of the range.
        user_address: of the program's memory that is mapped, 0 if it is a buffer's.
        asid: number of the address space for the GPU.
    """

    vma: U64
    vm: U64
    address: U64
    size_bytes: U64
    user_address: U64
    asid: U32


class VmaBind(_Vma, frozen=True, kw_only=True, tag=VMA_BIND):
    """A range is mapped.

    Attributes:
        action: ``bind``, ``pf_bind`` (after a fault), ``rebind_exec``, ``rebind_worker``, ``userptr_rebind_exec``,
            ``userptr_rebind_worker``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    action: str


class VmaUnbind(_Vma, frozen=True, kw_only=True, tag=VMA_UNBIND):
    """A range is taken away."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class VmaFault(_Vma, frozen=True, kw_only=True, tag=VMA_FAULT):
    """The GPU touched a range that is not mapped; a worker serves it.

    Attributes:
        action: ``pagefault``, or ``acc`` where it counted accesses.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, category=Category.PAGE_FAULT)

    action: str


class VmaEvict(_Vma, frozen=True, kw_only=True, tag=VMA_EVICT):
    """A range loses its memory or its mapping.

    Attributes:
        action: ``evict``, ``invalidate``, ``userptr_invalidate``, ``userptr_invalidate_complete``, ``flush``, ``fail``.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    action: str


class _Tlb(_OnDevice, frozen=True, kw_only=True):
    """Attributes of an invalidation of the GPU's translations. All of the machine, whoever they are for.

    Attributes:
        fence_address: a number that stands for it in this recording.
        seqno: number that the GuC answers with.
    """

    fence_address: U64
    seqno: S32


class TlbSend(_Tlb, frozen=True, kw_only=True, tag=TLB_SEND):
    """The GuC is asked to invalidate."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DEVICE_WAIT)


class TlbRecv(_Tlb, frozen=True, kw_only=True, tag=TLB_RECV):
    """The GuC's answer is there."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)


class TlbSignal(_Tlb, frozen=True, kw_only=True, tag=TLB_SIGNAL):
    """What waits for the invalidation goes on."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)


class TlbTimeout(_Tlb, frozen=True, kw_only=True, tag=TLB_TIMEOUT):
    """The GuC did not answer in time."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR)


EVENTS: tuple[type[Event], ...] = (
    VmCreate, QueueCreate, JobCreate, FenceCreate, JobExec, JobRun, FenceSignal, JobError, JobFree, QueueState, QueueError,
    QueueDestroy, BoCreate, BoMove, BoValidate, BoFault, VmRebind, VmUpdate, VmError, VmaBind, VmaUnbind, VmaFault, VmaEvict,
    VmFree, TlbSend, TlbRecv, TlbSignal, TlbTimeout,
)  # fmt: skip
"""All kinds, creations before ends."""
