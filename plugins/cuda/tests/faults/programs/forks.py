# SPDX-License-Identifier: Apache-2.0
"""A process that forks after it has started CUDA: children that end, that become another program, and that use it.

Prints a JSON object for each child, with what it is and what its calls returned, since no device keeps the truth of calls
of a process that has none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from plugins.cuda.tests.faults.programs.library import Library

__all__ = ["CHILDREN"]

CHILDREN = ("ends", "uses", "becomes", "uses and becomes", "spawned")
_SHAPE = (7, 5, 3, 64, 1, 1, 0)


class Process:
    """The one that starts CUDA.

    Attributes:
        cuda: its driver.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.cuda = Library(path)
        self.cuda.call("cuInit", 0)
        self.cuda.make("cuCtxCreate_v4", 0, 0, 0)
        self.stream, self.event = self.cuda.make("cuStreamCreate", 1), self.cuda.make("cuEventCreate", 0)
        library = self.cuda.make("cuLibraryLoadData", b"kernel:30000", 0, 0, 0, 0, 0, 0)
        self.kernel = self.cuda.make("cuLibraryGetKernel", library, b"kernel")

    def work(self) -> list[int]:
        """Launch, record and wait, and return the results."""
        return [
            self.cuda.call("cuLaunchKernel", self.kernel, *_SHAPE, self.stream, 0, 0),
            self.cuda.call("cuEventRecord", self.event, self.stream),
            self.cuda.call("cuStreamSynchronize", self.stream),
            self.cuda.call("cuEventSynchronize", self.event),
            self.cuda.call("cuStreamDestroy_v2", self.cuda.make("cuStreamCreate", 0)),
        ]

    def use(self) -> list[int]:
        """What a child tries with what it inherited."""
        return [
            self.cuda.call("cuLaunchKernel", self.kernel, *_SHAPE, self.stream, 0, 0),
            self.cuda.call("cuEventRecord", self.event, self.stream),
            self.cuda.call("cuCtxSynchronize"),
            self.cuda.call("cuInit", 0),
        ]

    def command(self) -> list[str]:
        """What a child becomes: a program that starts CUDA itself."""
        return [sys.executable, "-m", __spec__.name, self.path, "once"]

    def become(self) -> NoReturn:
        """Become it."""
        os.execv(sys.executable, self.command())

    def use_and_become(self) -> NoReturn:
        """Both."""
        self.use()
        self.become()


def child(what: str, act: Callable[[], list[int]]) -> None:
    """Fork, say who the child is and what its calls returned, and wait for its end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        results = json.loads(file.read() or b"[]")
    say(child=what, pid=pid, results=results, status=os.waitpid(pid, 0)[1])


def say(**what: Any) -> None:
    """Print."""
    print(json.dumps(what), flush=True)


def main(path: str, *once: str) -> None:
    """Work, and work on beside the children."""
    process = Process(path)
    if once:
        process.work()
        return
    say(parent=os.getpid())
    assert not any(process.work())
    child("ends", list)
    child("uses", process.use)
    assert not any(process.work())
    child("becomes", process.become)
    child("uses and becomes", process.use_and_become)
    pid = os.posix_spawn(sys.executable, process.command(), os.environ)
    say(child="spawned", pid=pid, results=[], status=os.waitpid(pid, 0)[1])
    assert not any(process.work())


if __name__ == "__main__":
    main(*sys.argv[1:])
