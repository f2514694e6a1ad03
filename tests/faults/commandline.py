# SPDX-License-Identifier: Apache-2.0
"""Ways to run fencepath's command line: as a user does, and many times over."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Done", "ForkServer", "Running", "fencepath", "processes_with", "record", "until"]

TIMEOUT_S = 120.0


class Done(NamedTuple):
    """A command line that has ended.

    Attributes:
        code: exit code; below 0 if a signal ended it.
        output: what it wrote to standard output.
        errors: what it wrote to standard error.
    """

    code: int
    output: str
    errors: str

    @property
    def said(self) -> list[str]:
        """Lines that fencepath itself wrote to standard error."""
        return [line for line in self.errors.splitlines() if line.startswith("fencepath: ")]


def fencepath(
    *argv: str | Path,
    before: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> Done:
    """Run the command line in a process of its own.

    Args:
        argv: arguments.
        before: what to start it by, such as ``("unshare", "-m")``.
        environ: variables to set besides those of this process.
        cwd: folder to run in.
        stdin: file descriptor.
    """
    words = [*before, sys.executable, "-m", "fencepath", *map(str, argv)]
    done = subprocess.run(
        words,
        env={**os.environ, **(environ or {})},
        cwd=cwd,
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def record(path: Path, *options: str, layers: str = "process") -> tuple[str | Path, ...]:
    """Return the arguments that record some layers to `path`; what is recorded comes after them."""
    return ("record", "--layers", layers, *options, "-o", path)


def until(condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Wait for a condition to hold; fail after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def processes_with(text: str) -> list[int]:
    """Return the processes that have `text` in their command line."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


class Running:
    """A command line that was started by a fork server, in a session of its own.

    Attributes:
        pid: its process.
        begun_s: when it was started, CLOCK_MONOTONIC in seconds.
    """

    def __init__(self, server: ForkServer, pid: int, folder: Path, number: int) -> None:
        self._server = server
        self._folder = folder
        self._number = number
        self.pid = pid
        self.begun_s = time.monotonic()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, if it still runs."""
        if not self.ended:
            os.kill(self.pid, number)

    def kill_group(self, number: int) -> None:
        """Send a signal to all processes of its group."""
        os.killpg(self.pid, number)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        self._server.read(0.0)
        return self.pid in self._server.ended

    @property
    def errors(self) -> str:
        """What it has written to standard error so far."""
        path = self._folder / f"{self._number}.err"
        return path.read_text() if path.exists() else ""

    def wait(self, timeout_s: float = TIMEOUT_S) -> Done:
        """Wait for its end."""
        end = time.monotonic() + timeout_s
        while self.pid not in self._server.ended:
            left = end - time.monotonic()
            assert left > 0, f"it does not end; it said: {self.errors}"
            self._server.read(left)
        code = os.waitstatus_to_exitcode(self._server.ended[self.pid])
        # One that was killed at once may not have made it.
        path = self._folder / f"{self._number}.out"
        return Done(code, path.read_text() if path.exists() else "", self.errors)


class ForkServer:
    """Runs ``fencepath`` in children of a process that has loaded it already: loading takes longer than most runs.

    What a child does from there on is what ``python -m fencepath`` does.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._count = 0
        self._pids: list[int] = []
        self._started: set[int] = set()
        self._data = b""
        self.ended: dict[int, int] = {}
        # Threads do not live through fork, and numpy's would be waited for.
        environ = {**os.environ, **(environ or {}), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            cwd=Path(__file__).parents[2],
        )

    def start(self, *argv: str | Path) -> Running:
        """Start a command line."""
        self._count += 1
        number = self._count
        request: dict[str, Any] = {
            "argv": [str(word) for word in argv],
            "stdout": str(self._folder / f"{number}.out"),
            "stderr": str(self._folder / f"{number}.err"),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        end = time.monotonic() + TIMEOUT_S
        while not self._pids:
            assert time.monotonic() < end, "the fork server does not answer"
            self.read(1.0)
        pid = self._pids.pop()
        self._started.add(pid)
        return Running(self, pid, self._folder, number)

    def run(self, *argv: str | Path) -> Done:
        """Run a command line to its end."""
        return self.start(*argv).wait()

    def read(self, timeout_s: float) -> None:
        """Take in what the server says, waiting for it for a while."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        if not select.select([fd], [], [], timeout_s)[0]:
            return
        data = os.read(fd, 65536)
        assert data, "the fork server has ended"
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "status" in answer:
                self.ended[answer["pid"]] = answer["status"]
            else:
                self._pids.append(answer["pid"])

    def close(self) -> None:
        """End the server, and what it started and a test that failed did not end."""
        self.read(0.0)
        for pid in self._started - self.ended.keys():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()
