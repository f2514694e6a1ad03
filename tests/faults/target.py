# SPDX-License-Identifier: Apache-2.0
"""The program ``steady`` as a target: it notes what it does in memory that outlives it."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from tests.faults.commandline import until

from fencepath.recording import Recording

__all__ = ["CODE", "LAUNCHES", "Programs", "Status", "Steady"]

LAUNCHES = 7
"""Of each request."""
CODE = 43
"""What it ends with."""

_FIELDS = ("pid", "requests", "launches", "waits", "stop", "traps", "done")
_SIGNALS = 32


class Programs(msgspec.Struct, frozen=True):
    """What the fixture ``programs`` compiles.

    Attributes:
        folder: what all lies in; ``libcuda.so.1`` too.
        libcuda: a libcuda of three functions.
        steady: the program.
        mirror: a program that prints everything that a process inherits.
    """

    folder: Path
    libcuda: Path
    steady: Path
    mirror: Path


class Status:
    """What a ``steady`` does, at every moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8 * (len(_FIELDS) + _SIGNALS)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def _get(self, name: str) -> int:
        value: int = struct.unpack_from("<Q", self._memory, 8 * _FIELDS.index(name))[0]
        return value

    @property
    def pid(self) -> int:
        """Its process; 0 until it works."""
        return self._get("pid")

    @property
    def requests(self) -> int:
        """Requests that it has answered."""
        return self._get("requests")

    @property
    def launches(self) -> int:
        """Launches that have returned."""
        return self._get("launches")

    @property
    def waits(self) -> int:
        """Waits that have returned."""
        return self._get("waits")

    @property
    def traps(self) -> int:
        """Functions that had a probe in them when it ended."""
        return self._get("traps")

    @property
    def done(self) -> bool:
        """Whether it came to its orderly end."""
        return bool(self._get("done"))

    def signals(self, number: int) -> int:
        """How often it got a signal."""
        value: int = struct.unpack_from("<Q", self._memory, 8 * (len(_FIELDS) + number))[0]
        return value

    def stop(self) -> None:
        """Ask it to end."""
        struct.pack_into("<Q", self._memory, 8 * _FIELDS.index("stop"), 1)

    def works(self) -> bool:
        """Whether it goes on: waits until it has answered one more request."""
        before = self.requests
        until(lambda: self.requests > before, "the target to go on")
        return True


class Steady:
    """A running ``steady`` that is not started by fencepath."""

    def __init__(self, programs: Programs, folder: Path, name: str = "steady", before: Sequence[str] = ()) -> None:
        self.status = Status(folder / f"{name}.status")
        self.status.path.chmod(0o666)
        words = [*before, str(programs.steady), str(self.status.path), str(programs.libcuda)]
        self._process = subprocess.Popen(words, start_new_session=True, stdout=sys.stderr)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        until(lambda: self.status.requests, "the target to begin")
        self.pid = self.status.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None and kind is not None:
            self._process.kill()
        self.status.stop()
        self._process.wait(30)

    def end(self) -> int:
        """Ask it to end and return its exit code."""
        self.status.stop()
        return self._process.wait(30)

    def kill(self, number: int) -> int:
        """Send it a signal and return what it ended with."""
        os.kill(self.pid, number)
        return self._process.wait(30)


def calls(recording: Recording, kind: str) -> int:
    """Return how many calls of a kind a recording has."""
    return sum(len(batch) for batch in recording.iter_records(kind)) if kind in recording.kinds else 0
