# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layer ``drm``.

A job is named by its finished fence: ``fence_context`` and ``fence_seqno``, unique for the boot. Events of kind
``drm.fence.*`` have the low 32 bits of both; the column ``fence`` names the same entity in all of them.
"""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import S32, S64, U32, U64, Category, Event, Key, KindInfo, Role

__all__ = [
    "EVENTS",
    "FENCE",
    "GPU",
    "RING",
    "FenceInit",
    "FencePart",
    "FenceSignaled",
    "FenceSleep",
    "FenceWait",
    "FenceWake",
    "Ioctl",
    "JobBlocked",
    "JobDependency",
    "JobDone",
    "JobExecute",
    "JobHold",
    "JobQueue",
    "JobRun",
    "JobSubmit",
    "VblankDelivered",
    "VblankEvent",
    "VblankQueued",
    "Wait",
]

FENCE = Key("fence", "fence")
DEPENDENCY = Key("dependency", "fence")
PART = Key("part", "fence")
GPU = Key("gpu", "gpu")
RING = Key("ring", "drm.ring")


class _Ioctl(Event, frozen=True, kw_only=True):
    """What every system call on a DRM device has.

    Attributes:
        label: the request, as index in the batch's ``labels``.
        fd: file descriptor.
        device: ``major << 20 | minor``.
        command: of the ioctl, as the program gave it.
        status: what the call returned, a negative errno if it failed.
    """

    label: S32
    fd: S32
    device: U32
    command: U32
    status: S64


class JobSubmit(_Ioctl, frozen=True, kw_only=True, tag="drm.job.submit"):
    """A thread hands work to a driver, by one of the requests that are known to do so."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT)


class Ioctl(_Ioctl, frozen=True, kw_only=True, tag="drm.ioctl"):
    """A thread asks a DRM driver for anything else. Of drivers that are not known, submissions are among these."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT)


class Wait(_Ioctl, frozen=True, kw_only=True, tag="drm.wait"):
    """A thread waits in a DRM driver: for a syncobj, a buffer, a fence or a vertical blank.

    Attributes:
        handle: the first syncobj that is waited for, 0 if the request has none.
        point: its point, if it is a timeline.
        count: how many syncobjs are waited for.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, category=Category.FENCE_WAIT)

    handle: U64
    point: U64
    count: U64


class JobQueue(Event, frozen=True, kw_only=True, tag="drm.job.queue"):
    """A thread gives a job to the scheduler of a ring.

    Attributes:
        fence_context: of the finished fence.
        fence_seqno: likewise.
        client_id: ``drm-client-id`` of the file that it came by, 0 if the kernel does not say (before 6.17).
        id: number that a ring gives its jobs, 0 if the kernel has none (6.17+).
        scheduler: a number that stands for the ring's scheduler in this recording, 0 if not known; tells rings of one name apart.
        job_count: jobs of this entity that wait.
        hw_job_count: jobs that the ring's hardware has; units of its own ("credits") from 6.8 on.
        dev: device, such as ``0000:03:00.0``; "" if not known.
        ring_name: the scheduler's name.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE, RING, GPU))

    fence_context: U64
    fence_seqno: U64
    client_id: U64
    id: U64
    scheduler: U64
    job_count: U32
    hw_job_count: S32
    dev: str
    ring_name: str


class JobRun(Event, frozen=True, kw_only=True, tag="drm.job.run"):
    """A job is handed to the ring's hardware, which may still be busy with those before it.

    Attributes:
        fence_context: of the finished fence.
        fence_seqno: likewise.
        job_count: jobs of its entity that wait.
        hw_job_count: jobs that the hardware has, this one included; units of its own from 6.8 on.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(FENCE,))

    fence_context: U64
    fence_seqno: U64
    job_count: U32
    hw_job_count: S32


class JobDone(Event, frozen=True, kw_only=True, tag="drm.job.done"):
    """The driver says that a job is done, also if it was reset. A job that was cancelled has none.

    Attributes:
        fence_context: of the finished fence.
        fence_seqno: likewise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, keys=(FENCE,))

    fence_context: U64
    fence_seqno: U64


class JobDependency(Event, frozen=True, kw_only=True, tag="drm.job.dependency"):
    """A job depends on a fence, which may be signalled already: this is no wait.

    Attributes:
        fence_context: of the job's finished fence; 0 if it could be one of several jobs.
        fence_seqno: likewise.
        dependency_context: of the fence that it depends on.
        dependency_seqno: likewise.
        candidates: how many jobs it may be about; more than 1 only before 6.17.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE, DEPENDENCY))

    fence_context: U64
    fence_seqno: U64
    dependency_context: U64
    dependency_seqno: U64
    candidates: U32


class JobBlocked(Event, frozen=True, kw_only=True, tag="drm.job.blocked"):
    """The scheduler finds that a dependency of a job is not signalled, and puts the job off.

    Attributes:
        fence_context: of the job's finished fence.
        fence_seqno: likewise.
        dependency_context: of the fence that it waits for. Of a job of the same scheduler that is its *scheduled* fence.
        dependency_seqno: likewise.
        pipelined: it is such a scheduled fence; ``dependency`` names that job's finished fence.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE, DEPENDENCY))

    fence_context: U64
    fence_seqno: U64
    dependency_context: U64
    dependency_seqno: U64
    pipelined: bool


class FenceInit(Event, frozen=True, kw_only=True, tag="drm.fence.init"):
    """A thread makes a fence: somebody will be able to wait for something.

    Attributes:
        context: low 32 bits.
        seqno: low 32 bits.
        driver: who made it: ``drm_sched``, a driver's name or a device's.
        timeline: name of its timeline, such as a ring's.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE,))

    context: U32
    seqno: U32
    driver: str
    timeline: str


class FenceSignaled(Event, frozen=True, kw_only=True, tag="drm.fence.signaled"):
    """A fence is signalled; who waits for it is woken right after this.

    Attributes:
        context: low 32 bits.
        seqno: low 32 bits.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, keys=(FENCE,))

    context: U32
    seqno: U32


class FenceWake(Event, frozen=True, kw_only=True, tag="drm.fence.wake"):
    """A callback of a fence, run by its signal, wakes a thread: the fence is what the thread waited for.

    Attributes:
        context: low 32 bits.
        seqno: low 32 bits.
        wakee_tid: who is woken.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL, keys=(FENCE,))

    context: U32
    seqno: U32
    wakee_tid: U32


class FencePart(Event, frozen=True, kw_only=True, tag="drm.fence.part"):
    """A fence stands for another: a point of a timeline for a job's, a merged fence for each of its members.

    A point of a timeline is signalled when its own fence and those of all earlier points are.

    Attributes:
        context: low 32 bits.
        seqno: low 32 bits; of a timeline's points the higher is the later one.
        part_context: of the fence that it stands for.
        part_seqno: likewise.
        prev_seqno: of a point the point before it, 0 if there is none; all ones if it comes after a fence that is no point of its
            timeline. 0 of a merged fence.
        is_point: whether it is a point of a timeline.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE, keys=(FENCE, PART))

    context: U32
    seqno: U32
    part_context: U64
    part_seqno: U64
    prev_seqno: U64
    is_point: bool


class FenceWait(Event, frozen=True, kw_only=True, tag="drm.fence.wait"):
    """A thread waits in the kernel for one fence, or finds it signalled.

    Attributes:
        context: low 32 bits.
        seqno: low 32 bits.
        driver: who made the fence, as far as the kernel still says.
        timeline: name of its timeline.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, category=Category.FENCE_WAIT, keys=(FENCE,))

    context: U32
    seqno: U32
    driver: str
    timeline: str


class VblankQueued(Event, frozen=True, kw_only=True, tag="drm.vblank.queued"):
    """A thread asks to be told of a frame.

    Attributes:
        file: a number that stands for the open file in this recording.
        crtc: index of the pipe.
        seq: frame that is asked for.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.QUEUE)

    file: U64
    crtc: S32
    seq: U32


class VblankEvent(Event, frozen=True, kw_only=True, tag="drm.vblank.event"):
    """The kernel handles a vertical blank.

    Attributes:
        vblank_ns: when the hardware was there, CLOCK_MONOTONIC.
        crtc: index of the pipe.
        seq: frame.
        high_precision: the hardware's time was read, and not merely the interrupt's.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)

    vblank_ns: S64
    crtc: S32
    seq: U32
    high_precision: bool


class VblankDelivered(Event, frozen=True, kw_only=True, tag="drm.vblank.delivered"):
    """Whoever asked is told of a frame, or of a page flip.

    Attributes:
        file: a number that stands for the open file in this recording.
        crtc: index of the pipe.
        seq: frame.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.SIGNAL)

    file: U64
    crtc: S32
    seq: U32


class JobExecute(Event, frozen=True, kw_only=True, tag="drm.job.execute"):
    """A job has its ring: from when it was handed over, or the job before it was done, until it is done itself.

    Attributes:
        label: the ring, as index in the batch's ``labels``.
        fence_context: of the finished fence.
        fence_seqno: likewise.
    """

    info: ClassVar[KindInfo] = KindInfo(role=Role.EXECUTE, keys=(FENCE, RING, GPU), derived=True)

    label: S32
    fence_context: U64
    fence_seqno: U64


class JobHold(Event, frozen=True, kw_only=True, tag="drm.job.hold"):
    """A queued job is held up by its dependencies: from when it was queued until the last of them was there."""

    info: ClassVar[KindInfo] = KindInfo(
        role=Role.QUEUE, category=Category.DEPENDENCY, keys=(FENCE, DEPENDENCY, RING, GPU), derived=True
    )


class FenceSleep(Event, frozen=True, kw_only=True, tag="drm.fence.sleep"):
    """A thread sleeps until the signal of a fence wakes it, wherever it waits: for a syncobj, a sync_file, in poll."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT, category=Category.FENCE_WAIT, keys=(FENCE,), derived=True)


EVENTS: tuple[type[Event], ...] = (
    JobSubmit,
    Ioctl,
    Wait,
    JobQueue,
    JobRun,
    JobDone,
    JobDependency,
    JobBlocked,
    FencePart,
    FenceInit,
    FenceSignaled,
    FenceWake,
    FenceWait,
    VblankQueued,
    VblankEvent,
    VblankDelivered,
    JobExecute,
    JobHold,
    FenceSleep,
)
"""In the order in which the tracker needs them: fences are known by their full names from jobs."""
