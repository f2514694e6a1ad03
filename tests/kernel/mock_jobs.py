# SPDX-License-Identifier: Apache-2.0
"""Processes that keep two mock GPUs busy and wait in every way there is: ``python -m tests.kernel.mock_jobs LOG``.

Each process leaves a file LOG.PID with a line of JSON for each wait: what was waited for and how. What the jobs were the
driver itself knows.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from tests.kernel.mockgpu_client import Gpu, Point, Submitted, merge_sync_files, wait_sync_file

__all__ = ["COUNTS", "DOOMED", "FRAMES", "HUNG", "TOTAL", "Waited", "read_log"]

COUNTS = (179, 197, 199, 211, 223)
"""Jobs of each process."""
TOTAL = sum(COUNTS)
DOOMED = 7
"""Jobs of the process that is killed."""
HUNG = 2
"""Jobs of which the first never ends by itself."""

FRAMES = 5
"""Frames that are asked for."""

US, MS = 1_000, 1_000_000
Way = Literal["fence", "syncobj", "timeline", "poll", "merged"]
WAYS: tuple[Way, ...] = ("fence", "syncobj", "poll", "timeline", "merged")


class Waited(msgspec.Struct, frozen=True):
    """A wait.

    Attributes:
        way: of waiting.
        number: the job, as in the driver's own account.
        other: another one that was waited for too, -1 if there was none.
        tid: who waited.
        begin_ns: before the call.
        end_ns: after it.
    """

    way: Way
    number: int
    tid: int
    begin_ns: int
    end_ns: int
    other: int = -1


def read_log(path: Path) -> list[Waited]:
    """Return what all processes wrote."""
    files = path.parent.glob(f"{path.name}.*")
    return [msgspec.json.decode(line, type=Waited) for file in files for line in file.read_bytes().splitlines()]


class Worker:
    """One process: jobs on every ring in turn, each third after two others, each fifth after one of the other GPU."""

    def __init__(self, gpus: tuple[Gpu, Gpu], count: int) -> None:
        self._gpus = gpus
        self._count = count
        self._outs: tuple[list[Point], list[Point]] = ([], [])
        self._numbers: dict[tuple[int, int], int] = {}
        self._timelines = tuple(gpu.syncobj() for gpu in gpus)

    def run(self) -> Iterator[Waited]:
        """Submit all, and wait for every seventh, and for the last of each GPU."""
        for index in range(self._count):
            number = index % 2
            submitted, out = self._submit(index, number)
            if index % 7 == 6 or index >= self._count - 2:
                yield self._wait(number, submitted, out, self._way(index))

    @staticmethod
    def _way(index: int) -> Way:
        return WAYS[index // 7 % len(WAYS) if index % 7 == 6 else index % 2]

    def _submit(self, index: int, number: int) -> tuple[Submitted, Point]:
        gpu, outs = self._gpus[number], self._outs[number]
        after = [outs[-1], outs[-2]] if index % 3 == 2 and len(outs) > 2 else []
        if index % 5 == 4 and self._outs[1 - number]:
            after = [*after[:1], self._import(number)]
        out = Point(gpu.syncobj())
        if self._way(index) == "timeline":
            out = Point(self._timelines[number], index + 1)
        submitted = gpu.submit(index // 2 % 2, (100 + index % 11 * 50) * US, after=after, out=out)
        if not out.point:
            outs.append(out)
            self._numbers[number, out.handle] = submitted.number
        return submitted, out

    def _import(self, number: int) -> Point:
        """The newest fence of the other GPU, as a syncobj of this one."""
        fd = self._gpus[1 - number].export_sync_file(self._outs[1 - number][-1].handle)
        mine = self._gpus[number].syncobj()
        self._gpus[number].import_sync_file(fd, mine)
        os.close(fd)
        return Point(mine)

    def _wait(self, number: int, submitted: Submitted, out: Point, way: Way) -> Waited:
        gpu, begin_ns, other = self._gpus[number], time.monotonic_ns(), -1
        if way == "fence":
            gpu.fence_wait(out.handle)
        elif way == "poll":
            fd = gpu.export_sync_file(out.handle)
            begin_ns = time.monotonic_ns()
            assert wait_sync_file(fd)
            os.close(fd)
        elif way == "merged":
            before = self._outs[number][-2]
            parts = [gpu.export_sync_file(point.handle) for point in (out, before)]
            fd, other = merge_sync_files(*parts), self._numbers[number, before.handle]
            begin_ns = time.monotonic_ns()
            assert wait_sync_file(fd)
            for each in (fd, *parts):
                os.close(each)
        else:
            gpu.wait(out)
        return Waited(way, submitted.number, threading.get_native_id(), begin_ns, time.monotonic_ns(), other)


def work(count: int, log: Path) -> None:
    with Gpu(0) as first, Gpu(1) as second:
        waits = list(Worker((first, second), count).run())
    write(log, waits)


def write(log: Path, waits: list[Waited]) -> None:
    lines = b"".join(msgspec.json.encode(wait) + b"\n" for wait in waits)
    log.with_name(f"{log.name}.{os.getpid()}").write_bytes(lines)


def be_killed() -> None:
    """Submit more than can run before the kernel gives up waiting for them, and die."""
    with Gpu(1) as gpu:
        for _ in range(DOOMED):
            gpu.submit(0, 300 * MS)
        os.kill(os.getpid(), signal.SIGKILL)


def hang(log: Path) -> None:
    """A job that never ends, and one behind it."""
    with Gpu(0) as gpu:
        outs = [Point(gpu.syncobj()) for _ in range(HUNG)]
        jobs = [gpu.submit(1, MS, out=out, hangs=not index) for index, out in enumerate(outs)]
        begin_ns = time.monotonic_ns()
        gpu.wait(outs[-1])
        write(log, [Waited("syncobj", jobs[-1].number, threading.get_native_id(), begin_ns, time.monotonic_ns())])


def see_frames() -> None:
    """Ask to be told of frames, and read that they were there."""
    with Gpu(0, "card") as card:
        for _ in range(FRAMES):
            card.vblank(1, event=True)
            assert os.read(card.fd, 64)


def fork(work: object, *arguments: object) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        assert callable(work)
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def main() -> int:
    log = Path(sys.argv[1])
    children = [fork(work, count, log) for count in COUNTS]
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    os.waitpid(fork(be_killed), 0)
    time.sleep(1.5)  # the kernel gives a dead process's jobs a second
    hang(log)
    see_frames()
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
