# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of what is recorded and of the recorder at random moments: nothing is lost but the moment itself."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.faults.commandline import ForkServer, processes_with, record, until
from tests.faults.target import CODE, Programs, Status, Steady

from fencepath.recording import Recording, open_recording

pytestmark = pytest.mark.bpf

MOMENTS = 50
AT_ONCE = 4
SEED = 20011
KILLER = Path(__file__).parent / "programs" / "killer.py"
RUNNING_S = 3.5
# What is recorded is written once a second; the rest is for a machine that does other things too.
WRITTEN_S = 2.5


def calls_by_process(recording: Recording, kind: str) -> dict[int, int]:
    """Calls by process; each counts once, though a call that was open when it was written comes again when it ends."""
    records = recording.records(kind)
    keys = np.stack([records[name].astype(np.uint64) for name in ("tgid", "tid", "begin_ns", "function")], axis=1)
    processes, counts = np.unique(np.unique(keys, axis=0)[:, 0], return_counts=True)
    return dict(zip(processes.tolist(), counts.tolist(), strict=True))


def answered(recording: Recording, pid: int) -> int:
    """Requests of a process whose end is recorded."""
    if "mark.point" not in recording.kinds:
        return 0
    return sum(int((batch["tgid"] == pid).sum()) for batch in recording.iter_records("mark.point"))


def test_targets_killed(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """Of each of 50 processes every call that returned is there, and at most the one in which it was killed besides."""
    statuses = [Status(tmp_path / f"{number}.status") for number in range(MOMENTS)]
    path = tmp_path / "killed.fencepath"
    command = (sys.executable, KILLER, str(SEED), str(MOMENTS), tmp_path, programs.steady, programs.libcuda)
    done = commands.run(*record(path, "--exact", layers="cuda"), "--", *command)
    assert done.code == 0, done.errors
    recording = open_recording(path)
    assert recording.verify() == []
    # some were dead before anybody could look whether they had mapped another libcuda
    assert {row.stage for row in recording.loss} <= {"ended_unseen"}
    assert sum(row.count for row in recording.loss) == 0
    worked = [status for status in statuses if status.pid]
    assert len(worked) > MOMENTS / 2
    launches, waits = calls_by_process(recording, "cuda.launch"), calls_by_process(recording, "cuda.stream.synchronize")
    for status in worked:
        assert status.launches <= launches.get(status.pid, 0) <= status.launches + 1
        assert status.waits <= waits.get(status.pid, 0) <= status.waits + 1
    assert set(launches) <= {status.pid for status in worked}


def test_command_killed(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """The command itself: its code is 128 + 9, and the recording is whole."""
    status, path = Status(tmp_path / "status"), tmp_path / "c.fencepath"
    run = commands.start(*record(path), "--", programs.steady, status.path, programs.libcuda)
    until(lambda: status.requests > 3, "the target to begin")
    os.kill(status.pid, signal.SIGKILL)
    assert run.wait().code == 128 + signal.SIGKILL
    recording = open_recording(path)
    assert not recording.cut
    assert status.requests <= answered(recording, status.pid) <= status.requests + 1


class Killed:
    """A recorder and the moment of its death.

    Args:
        path: of the recording.
        after_s: seconds from its start, or from when it says that it records.
        running: whether from the latter.
        target: what it records by --pid; None to let it start a target of its own.
    """

    def __init__(self, path: Path, after_s: float, *, running: bool, target: Status | None) -> None:
        self.path = path
        self.own = target is None
        self.status = target or Status(path.with_suffix(".status"))
        self._after_s = after_s
        self._running = running
        self._counted: list[tuple[float, int]] = []

    def start(self, commands: ForkServer, programs: Programs, layer: str) -> None:
        """Start the recorder."""
        # not the file that the other recorders attach to: their probes would be taken for left behind
        library = self.path.with_suffix("") / "libcuda.so.1"
        library.parent.mkdir()
        shutil.copy(programs.libcuda, library)
        what = ("--", programs.steady, self.status.path, library) if self.own else ("--pid", str(self.status.pid))
        self._run = commands.start(*record(self.path, layers=layer), *what)
        self._since_s = None if self._running else time.monotonic()

    def is_over(self) -> bool:
        """Kill the recorder if it is time; whether it was."""
        now_s = time.monotonic()
        if "recording to" in self._run.errors:
            self._counted.append((now_s, self.status.requests))
            self._since_s = self._since_s or now_s
        if self._since_s is None or now_s < self._since_s + self._after_s:
            assert not self._run.ended, self._run.errors
            return False
        self._run.kill()
        assert self._run.wait().code == -signal.SIGKILL
        return True

    def check_target(self) -> None:
        """The target goes on without probes; a command that was not started yet never is."""
        if not self.own:
            self.status.works()
        elif self.status.pid or self._has_started():
            until(lambda: self.status.pid, "the target to begin")
            self.status.works()
            self.status.stop()
            until(lambda: self.status.done, "the target to end")
            assert self.status.traps == 0
        if self.own:
            until(lambda: not processes_with(str(self.status.path)), "the target to be gone")

    def _has_started(self) -> bool:
        """Whether the held process has become the command, or will not any more."""
        pids = processes_with(str(self.status.path))
        until(lambda: not any(pid in processes_with("launcher.py\0") for pid in pids), "the held process to end")
        return bool(processes_with(str(self.status.path)))

    def check_recording(self, commands: ForkServer) -> str:
        """It is read up to its break, and repair makes it whole; return what was found."""
        if not (self.path / "manifest.json").exists():
            return "nothing"
        first = commands.run("report", "--json", self.path)
        requests = len(json.loads(first.output)["requests"])
        assert first.code == (0 if requests else 1), first.errors
        assert "recorder was ended from outside" in first.said[0]
        before = answered(open_recording(self.path), self.status.pid)
        assert self._least() <= before <= self.status.requests + 1
        assert commands.run("repair", self.path).code == 0
        whole = open_recording(self.path)
        assert not whole.cut
        assert whole.verify() == []
        assert answered(whole, self.status.pid) == before
        return "requests" if requests else "no requests"

    def _least(self) -> int:
        """Requests that were recorded so long before the end that they must have been written."""
        if not self._counted:
            return 0
        end_s = self._counted[-1][0] - WRITTEN_S
        early = [count for time_s, count in self._counted if time_s <= end_s]
        first = 0 if self.own else self._counted[0][1]
        return max(early[-1] - first, 0) if early else 0


def moments(folder: Path, ready_s: float, target: Status) -> Iterator[tuple[Killed, str]]:
    """Yield recorders with the layer each records; every other one dies while it starts."""
    random_moment = random.Random(SEED)
    for number in range(MOMENTS):
        running = number % 2 == 1
        after_s = random_moment.uniform(0.0, RUNNING_S if running else ready_s)
        one = Killed(
            folder / f"{number}.fencepath", after_s, running=running, target=target if number % 4 > 1 else None
        )
        yield one, "cuda" if number % 7 == 0 else "process"


def kill_all(every: Sequence[tuple[Killed, str]], commands: ForkServer, programs: Programs) -> None:
    """Run the recorders, some at once."""
    waiting, running = list(every), list[Killed]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            one, layer = waiting.pop(0)
            one.start(commands, programs, layer)
            running.append(one)
        for one in [one for one in running if one.is_over()]:
            running.remove(one)
            one.check_target()
        time.sleep(0.01)


def test_recorder_killed(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    with Steady(programs, tmp_path) as target:
        begin_s = time.monotonic()
        whole = commands.start(*record(tmp_path / "whole", "--duration", "0", layers="cuda"), "--pid", str(target.pid))
        until(lambda: "recording to" in whole.errors or whole.ended, "the recorder to begin")
        ready_s = time.monotonic() - begin_s
        assert whole.wait().code == 0
        every = list(moments(tmp_path, ready_s, target.status))
        kill_all(every, commands, programs)
        assert target.end() == CODE
        assert target.status.traps == 0
    found = [one.check_recording(commands) for one, _ in every]
    # else the moments were not spread over what there is to be hit
    assert {"nothing", "no requests", "requests"} == set(found)
    assert processes_with(str(tmp_path)) == []
