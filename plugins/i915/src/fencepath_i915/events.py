# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``i915``."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, S64, U16, U32, U64, Category, Event, Key, KindInfo, Role
from fencepath_i915.kinds import (
    ADD,
    BIND,
    CLFLUSH,
    CONTEXT_CREATE,
    CONTEXT_FREE,
    EVICT,
    EXECUTE,
    FAULT,
    GUC_CONTEXT,
    GUC_SUBMIT,
    OBJECT_CREATE,
    OBJECT_DESTROY,
    PREAD,
    PWRITE,
    QUEUE,
    RETIRE,
    RUN,
    SHRINK,
    SUBMIT,
    UNBIND,
    VM_CREATE,
    VM_RELEASE,
    WAIT,
)

__all__ = [
    "EVENTS",
    "Add",
    "Bind",
    "Clflush",
    "ContextCreate",
    "ContextFree",
    "Evict",
    "Execute",
    "Fault",
    "GucContext",
    "GucSubmit",
    "ObjectCreate",
    "ObjectDestroy",
    "Pread",
    "Pwrite",
    "Queue",
    "Retire",
    "Run",
    "Shrink",
    "Submit",
    "Unbind",
    "VmCreate",
    "VmRelease",
    "Wait",
]


FENCE = Key("fence", "fence")


class _Request(Event, frozen=True, kw_only=True):
    """A request is named by its fence: i915 has a scheduler of its own, and this fence is the only one.

    Attributes:
        context: fence context of the request's timeline.
        seqno: number in it.
        device: minor number of the card: 0 for /dev/dri/card0.
        engine_class: 0 render, 1 copy, 2 video, 3 video enhancement, 4 other, 5 compute.
        engine_instance: which of them.
    """

    context: U64
    seqno: U32
    device: U32
    engine_class: U16
    engine_instance: U16


class _Tailed(_Request, frozen=True, kw_only=True):
    """Attributes of a request that is on its ring.

    Attributes:
        tail: of the ring behind it, 0 where the kernel does not say.
    """

    tail: U32


class Queue(_Request, frozen=True, kw_only=True, tag=QUEUE):
    """A thread is about to queue a request, in the ioctl DRM_I915_GEM_EXECBUFFER2.

    Attributes:
        request_flags: of the ioctl.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT, keys=(FENCE,))

    request_flags: U32


class Add(_Tailed, frozen=True, kw_only=True, tag=ADD):
    """A thread has committed a request: it runs once what it depends on is done."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT, keys=(FENCE,))


class Retire(_Tailed, frozen=True, kw_only=True, tag=RETIRE):
    """The driver takes notice that a request is done, which may be long after it was. Its thread is any."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, keys=(FENCE,))


class Wait(_Request, frozen=True, kw_only=True, tag=WAIT):
    """A thread waits for a request, from begin to end. One that never ends is not recorded here.

    Attributes:
        wait_flags: I915_WAIT_* bits of the driver.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, category=Category.FENCE_WAIT, keys=(FENCE,))

    wait_flags: U32


class Submit(_Tailed, frozen=True, kw_only=True, tag=SUBMIT):
    """What a request depends on is done: it goes to the engine's queue. Only in kernels with low-level tracepoints."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE,))


class Execute(_Tailed, frozen=True, kw_only=True, tag=EXECUTE):
    """A request gets its place in the engine's order. Only in kernels with low-level tracepoints."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE,))


class GucSubmit(_Tailed, frozen=True, kw_only=True, tag=GUC_SUBMIT):
    """A request is handed to the GPU's own scheduler, the GuC. Only in kernels with low-level tracepoints."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE,))


class Run(_Request, frozen=True, kw_only=True, tag=RUN):
    """A request is on the hardware, from in to out; one that is preempted has several. Only with low-level tracepoints.

    Attributes:
        port: of the engine's submission ports.
        priority: at that time.
        completed: 1 if it was done when it went out, 0 if it was preempted.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(FENCE,))

    port: U32
    priority: S32
    completed: U32


class GucContext(Event, frozen=True, kw_only=True, tag=GUC_CONTEXT):
    """Something happens to a context at the GuC. Only with low-level tracepoints; every context of the machine.

    Attributes:
        action: ``register``, ``sched_enable``, ``ban``, ``reset``, ...: the event's name behind ``intel_context_``.
        guc_id: number of the context at the GuC.
        pin_count: how often it is pinned.
        sched_state: bits of the driver.
        guc_priority: as the GuC has it.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, category=Category.DRIVER)

    action: str
    guc_id: U32
    pin_count: S32
    sched_state: U32
    guc_priority: U32


class ObjectCreate(Event, frozen=True, kw_only=True, tag=OBJECT_CREATE):
    """A thread makes a memory object.

    Attributes:
        object: a number that stands for it in this recording; a later one may get the same.
        size_bytes: of the object.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    object: U64
    size_bytes: U64


class ObjectDestroy(Event, frozen=True, kw_only=True, tag=OBJECT_DESTROY):
    """The last user of an object lets go of it; with TASK the event's thread is a target's.

    Attributes:
        object: a number that stands for it in this recording.
        size_bytes: of the object, 0 if its creation was not seen.
        owner_tgid: process that made it, 0 if that was not seen.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    object: U64
    size_bytes: U64
    owner_tgid: U32


class _Range(Event, frozen=True, kw_only=True):
    """Attributes of a part of an object.

    Attributes:
        object: a number that stands for it in this recording.
        offset_bytes: where the part begins.
        size_bytes: of the part.
    """

    object: U64
    offset_bytes: U64
    size_bytes: U64


class Pread(_Range, frozen=True, kw_only=True, tag=PREAD):
    """A thread begins to copy from an object, in the ioctl DRM_I915_GEM_PREAD."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER)


class Pwrite(_Range, frozen=True, kw_only=True, tag=PWRITE):
    """A thread begins to copy into an object, in the ioctl DRM_I915_GEM_PWRITE."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.TRANSFER)


class Clflush(Event, frozen=True, kw_only=True, tag=CLFLUSH):
    """The CPU's caches are written back for an object, by a thread of a target or by a worker for it.

    Attributes:
        object: a number that stands for it in this recording.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    object: U64


class Fault(Event, frozen=True, kw_only=True, tag=FAULT):
    """A thread touches a page of a mapped object that is not there for the CPU yet.

    Attributes:
        object: a number that stands for it in this recording.
        page: number of the page in the object.
        through_gtt: 1 if it is mapped through the GPU's window.
        is_write: 1 if the thread writes.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY, category=Category.PAGE_FAULT)

    object: U64
    page: U64
    through_gtt: U32
    is_write: U32


class _Vma(Event, frozen=True, kw_only=True):
    """Attributes of an object in an address space of the GPU.

    Attributes:
        object: a number that stands for it in this recording.
        vm: address of the address space in the kernel.
        address: for the GPU.
        size_bytes: of the range.
        bind_flags: PIN_* bits of the driver; 0 where it is unbound.
        owner_tgid: process that made the object, 0 if that was not seen.
    """

    object: U64
    vm: U64
    address: U64
    size_bytes: U64
    bind_flags: U32
    owner_tgid: U32


class Bind(_Vma, frozen=True, kw_only=True, tag=BIND):
    """An object gets an address for the GPU; with TASK a thread of a target does it, else a worker or another process."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class Unbind(_Vma, frozen=True, kw_only=True, tag=UNBIND):
    """An object loses its address for the GPU: it ends, or room is made for another; TASK as in :class:`Bind`."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)


class Evict(Event, frozen=True, kw_only=True, tag=EVICT):
    """Room is made in an address space, by a target or in one that a target made.

    Attributes:
        action: ``evict`` for a size, ``evict_node`` at a place, ``evict_vm`` of everything.
        device: minor number of the card.
        vm: address of the address space in the kernel.
        address: place for the GPU, of ``evict_node``.
        size_bytes: wanted, 0 for everything.
        alignment_bytes: of ``evict``.
        color: cache level of ``evict_node``, all bits set for any.
        evict_flags: PIN_* bits of the driver.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    action: str
    device: U32
    vm: U64
    address: U64
    size_bytes: U64
    alignment_bytes: U64
    color: U64
    evict_flags: U32


class Shrink(Event, frozen=True, kw_only=True, tag=SHRINK):
    """The machine is short of memory and the driver is asked to give some back: every such request of the machine.

    From the begin of the reclaim to its end where the kernel says them, else an instant. With TASK a thread of a target
    has to do it, before it gets the memory it asked for.

    Attributes:
        device: minor number of the card.
        target_pages: wanted, of all calls.
        freed_pages: given back; -1 if the kernel does not say.
        calls: how often the driver was asked.
        shrink_flags: I915_SHRINK_* bits of the driver, of the last call.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    device: S32
    target_pages: U64
    freed_pages: S64
    calls: U32
    shrink_flags: U32


class _Vm(Event, frozen=True, kw_only=True):
    """Attributes of an address space of the GPU.

    Attributes:
        vm: a number that stands for it in this recording.
        device: minor number of the card.
    """

    vm: U64
    device: U32


class VmCreate(_Vm, frozen=True, kw_only=True, tag=VM_CREATE):
    """A thread makes an address space for the GPU."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)


class VmRelease(_Vm, frozen=True, kw_only=True, tag=VM_RELEASE):
    """An address space of the GPU ends, in a thread of whoever had it last or in a worker."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)


class ContextCreate(_Vm, frozen=True, kw_only=True, tag=CONTEXT_CREATE):
    """A thread makes a context, in which requests are made.

    Attributes:
        context_pointer: a number that stands for it in this recording. Requests carry the number of a fence context instead.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    context_pointer: U64


class ContextFree(_Vm, frozen=True, kw_only=True, tag=CONTEXT_FREE):
    """A context ends; attributes as of :class:`ContextCreate`."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    context_pointer: U64


EVENTS: tuple[type[Event], ...] = (
    VmCreate, ContextCreate, ContextFree, VmRelease, Queue, Add, Submit, Execute, GucSubmit, Run, Retire, Wait, GucContext,
    ObjectCreate, ObjectDestroy, Pread, Pwrite, Clflush, Fault, Bind, Unbind, Evict, Shrink,
)  # fmt: skip
"""All kinds, creations before ends."""
