# SPDX-License-Identifier: Apache-2.0
"""Client of the mockgpu driver: jobs of known length and dependencies, waits, vblanks, and the driver's own account.

Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

__all__ = ["TRUTH", "Fence", "Gpu", "Job", "Point", "Submitted", "merge_sync_files", "truth", "wait_sync_file"]

TRUTH = Path("/sys/kernel/debug/mockgpu/truth")
"""The driver's own account."""
_HANG = 1
_SYNC_FILE = 1
_WAIT_ALL, _WAIT_FOR_SUBMIT = 1, 2
_VBLANK_RELATIVE, _VBLANK_EVENT = 1, 0x04000000
_NS = 1_000_000_000


class Point(NamedTuple):
    """A syncobj of one file, or a point of it if it is a timeline."""

    handle: int
    point: int = 0


class Fence(NamedTuple):
    """What names a fence of this boot."""

    context: int
    seqno: int


class Submitted(NamedTuple):
    """A job that was taken.

    Attributes:
        number: its line in the truth file.
        finished: its finished fence.
    """

    number: int
    finished: Fence


class Job(msgspec.Struct, frozen=True):
    """One job as the driver saw it. A time is 0 if that did not happen.

    Attributes:
        number: as in :class:`Submitted`.
        gpu: which device.
        ring: its name; equal on every device.
        pid: the thread that submitted it.
        id: the scheduler's number of it, 0 where the kernel has none.
        client: DRM client, 0 where the kernel does not say.
        entity: address of the scheduler entity.
        finished_address: address of the finished fence.
        finished: the finished fence.
        hardware: the driver's own fence; context 0 if it never ran.
        dependencies: fences that it had to wait for.
        asked_ns: duration that was asked for.
        push_ns: given to the scheduler.
        run_ns: given to the hardware.
        start_ns: the hardware began with it.
        done_ns: the hardware was done with it.
        timedout_ns: the scheduler's timeout came.
        cancelled_ns: it was given back without having run.
    """

    number: int
    gpu: int
    ring: str
    pid: int
    id: int
    client: int
    entity: int
    finished_address: int
    finished: Fence
    hardware: Fence
    dependencies: tuple[Fence, ...]
    asked_ns: int
    push_ns: int
    run_ns: int
    start_ns: int
    done_ns: int
    timedout_ns: int
    cancelled_ns: int


class Gpu:
    """One open file of one mock device.

    Args:
        number: which device.
        kind: ``render``, or ``card`` for vblanks.
    """

    def __init__(self, number: int = 0, kind: str = "render") -> None:
        self.fd = os.open(_node(number, kind), os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self.fd)

    def syncobj(self, *, signaled: bool = False) -> int:
        """Make a syncobj and return its handle."""
        return int(struct.unpack("II", _ioctl(self.fd, 0xBF, struct.pack("II", 0, signaled)))[0])

    def submit(
        self,
        ring: int,
        duration_ns: int,
        *,
        after: Sequence[Point] = (),
        out: Point | None = None,
        hangs: bool = False,
    ) -> Submitted:
        """Submit a job.

        Args:
            ring: number of the ring.
            duration_ns: how long the hardware takes.
            after: at most two syncobjs that must be signalled before.
            out: the syncobj that gets the job's finished fence.
            hangs: it never ends; the driver must have been loaded with timeout_ms.
        """
        handles = [point.handle for point in after] + [0] * (2 - len(after))
        points = [point.point for point in after] + [0] * (2 - len(after))
        to = out or Point(0)
        flags = _HANG if hangs else 0
        asked = struct.pack(
            "IIIIQQIIQQQQQ", ring, flags, *handles, *points, to.handle, 0, to.point, duration_ns, 0, 0, 0
        )
        *_, number, context, seqno = struct.unpack("IIIIQQIIQQQQQ", _ioctl(self.fd, 0x40, asked))
        return Submitted(number, Fence(context, seqno))

    def wait(self, point: Point, timeout_s: float = 30.0) -> None:
        """Wait as user space's drivers do, by the ioctl of DRM itself.

        Raises:
            OSError: with ETIME if it takes longer.
        """
        handle, value = ctypes.c_uint32(point.handle), ctypes.c_uint64(point.point)
        end_ns = time.monotonic_ns() + int(timeout_s * _NS)
        addresses = ctypes.addressof(handle), ctypes.addressof(value)
        if point.point:
            flags = _WAIT_ALL | _WAIT_FOR_SUBMIT
            _ioctl(self.fd, 0xCA, struct.pack("QQqIIII", *addresses, end_ns, 1, flags, 0, 0))
        else:
            _ioctl(self.fd, 0xC3, struct.pack("QqIIII", addresses[0], end_ns, 1, _WAIT_ALL, 0, 0))

    def fence_wait(self, handle: int, timeout_s: float = 30.0) -> None:
        """Wait in dma_fence_wait(), as drivers' own wait ioctls do."""
        _ioctl(self.fd, 0x41, struct.pack("IIQ", handle, 0, int(timeout_s * _NS)), write_only=True)

    def export_sync_file(self, handle: int) -> int:
        """Return a sync_file descriptor of the fence that a syncobj holds now."""
        return int(struct.unpack("IIiI", _ioctl(self.fd, 0xC1, struct.pack("IIiI", handle, _SYNC_FILE, -1, 0)))[2])

    def import_sync_file(self, fd: int, handle: int) -> None:
        """Put a sync_file's fence into a syncobj."""
        _ioctl(self.fd, 0xC2, struct.pack("IIiI", handle, _SYNC_FILE, fd, 0))

    def vblank(self, count: int = 1, *, event: bool = False) -> int:
        """Wait for vblanks, or ask for an event (read from the file); return the sequence number."""
        kind = _VBLANK_RELATIVE | (_VBLANK_EVENT if event else 0)
        return int(struct.unpack("IIqq", _ioctl(self.fd, 0x3A, struct.pack("IIqq", kind, count, 0, 0)))[1])


def wait_sync_file(fd: int, timeout_s: float = 30.0) -> bool:
    """Wait for a sync_file as a compositor does, by poll; return whether it was signalled."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def merge_sync_files(one: int, other: int) -> int:
    """Return a new sync_file descriptor that is signalled when both are."""
    asked = struct.pack("32siiII", b"merged", other, -1, 0, 0)
    buffer = bytearray(asked)
    fcntl.ioctl(one, 3 << 30 | len(buffer) << 16 | ord(">") << 8 | 3, buffer)
    return int(struct.unpack("32siiII", buffer)[2])


def truth(path: Path = TRUTH) -> list[Job]:
    """Return every job since the driver was loaded, by number."""
    return [_job(dict(word.split("=", 1) for word in line.split())) for line in path.read_text().splitlines()]


def _job(words: dict[str, str]) -> Job:
    times = {f"{name}_ns": int(words[name]) for name in ("push", "run", "start", "done", "timedout", "cancelled")}
    return Job(
        number=int(words["job"]),
        gpu=int(words["gpu"]),
        ring=words["ring"],
        pid=int(words["pid"]),
        id=int(words["id"]),
        client=int(words["client"]),
        entity=int(words["entity"], 16),
        finished_address=int(words["finished"], 16),
        finished=_fence(words["fence"]),
        hardware=_fence(words["hw"]),
        dependencies=tuple(_fence(text) for text in words["dep"].split(",") if text != "0:0"),
        asked_ns=int(words["dur"]),
        **times,
    )


def _fence(text: str) -> Fence:
    context, seqno = text.split(":")
    return Fence(int(context), int(seqno))


def _node(number: int, kind: str) -> Path:
    pattern = {"render": "renderD*", "card": "card[0-9]*"}[kind]
    for path in sorted(Path("/dev/dri").glob(pattern)):
        if (Path("/sys/class/drm") / path.name / "device").resolve().name == f"mockgpu.{number}":
            return path
    raise LookupError(f"mockgpu.{number} has no {kind} node: load mockgpu with gpus={number + 1}")


def _ioctl(fd: int, number: int, argument: bytes, *, write_only: bool = False) -> bytes:
    direction = 1 if write_only else 3
    buffer = bytearray(argument)
    fcntl.ioctl(fd, direction << 30 | len(buffer) << 16 | ord("d") << 8 | number, buffer)
    return bytes(buffer)
