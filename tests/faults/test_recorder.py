# SPDX-License-Identifier: Apache-2.0
"""How a recording ends: by signals, by time, by a full disk; and two recorders at once."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.faults.commandline import ForkServer, processes_with, record, until
from tests.faults.target import CODE, LAUNCHES, Programs, Status, Steady, calls

from fencepath.recording import LossRow, open_recording

pytestmark = pytest.mark.bpf

CTRL_C = b"\x03"
STARTING = 5
SEED = 10007


class Terminal:
    """``fencepath`` as the foreground of a terminal, as a user has it."""

    def __init__(self, *argv: str | Path) -> None:
        self._keyboard, screen = pty.openpty()
        words = ["setsid", "--ctty", sys.executable, "-m", "fencepath", *map(str, argv)]
        self.process = subprocess.Popen(words, stdin=screen, stdout=screen, stderr=screen)
        os.close(screen)
        self._shown = b""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._keyboard, keys)

    def shown(self) -> str:
        """What has been shown so far."""
        while self._keyboard >= 0 and select.select([self._keyboard], [], [], 0.0)[0]:
            try:
                data = os.read(self._keyboard, 65536)
            except OSError:  # nobody has it open any more
                break
            if not data:
                break
            self._shown += data
        return self._shown.decode()

    def is_loading(self) -> bool:
        """Whether Python is past its own start, in which ctrl-C ends it with a traceback whatever a program does."""
        return "/msgspec/" in Path(f"/proc/{self.process.pid}/maps").read_text()

    def wait(self) -> int:
        """Wait for its end and return its exit code."""

        def over() -> bool:
            self.shown()
            return self.process.poll() is not None

        until(over, "fencepath to end", 60)
        self.shown()
        os.close(self._keyboard)
        self._keyboard = -1
        return self.process.wait()


def test_ctrl_c_before_the_command_starts(programs: Programs, tmp_path: Path) -> None:
    """At random moments while it is loaded, compiles and attaches: 130, one line at most, nothing run, nothing left."""
    moment = random.Random(SEED)
    for number in range(STARTING):
        folder = tmp_path / str(number)
        folder.mkdir()
        status = Status(folder / "status")
        terminal = Terminal(*record(folder / "r"), "--", programs.steady, status.path, programs.libcuda)
        until(terminal.is_loading, "python to start")
        time.sleep(moment.uniform(0.0, 0.9) if number else 0.0)
        terminal.type(CTRL_C)
        if status.pid:
            # the machine was faster than the moment: it is the command's
            status.stop()
            assert terminal.wait() == CODE
            continue
        code = terminal.wait()
        assert code in (130, -signal.SIGINT), terminal.shown()
        assert terminal.shown().replace("^C", "").strip() in (
            "",
            "fencepath: stopped before the recording began; nothing was recorded",
            f"fencepath: recording to {folder}/r\r\nfencepath: stopped before the recording began; nothing was recorded",
        )
        assert status.pid == 0
        assert sorted(path.name for path in folder.iterdir()) == ["status"]
    assert processes_with(str(tmp_path)) == []


def test_ctrl_c_while_the_command_runs(programs: Programs, tmp_path: Path) -> None:
    """Each ctrl-C reaches the command once, as from its terminal; what it does about it is its own affair."""
    status, path = Status(tmp_path / "status"), tmp_path / "r"
    terminal = Terminal(*record(path), "--", programs.steady, status.path, programs.libcuda)
    until(lambda: status.requests > 2, "the target to begin")
    for times in (1, 2):
        terminal.type(CTRL_C)
        until(lambda times=times: status.signals(signal.SIGINT) == times, "ctrl-C to reach the target")  # type: ignore[misc]
        status.works()
    # a signal that is sent to fencepath alone is handed on, also where it is in the foreground
    terminal.process.send_signal(signal.SIGINT)
    until(lambda: status.signals(signal.SIGINT) == 3, "SIGINT to be handed on")
    terminal.type(b"\x1c")
    until(lambda: status.signals(signal.SIGQUIT) == 1, "ctrl-\\ to reach the target")
    status.works()
    status.stop()
    assert terminal.wait() == CODE
    assert status.signals(signal.SIGINT) == 3
    assert status.signals(signal.SIGQUIT) == 1
    assert "Traceback" not in terminal.shown()
    recording = open_recording(path)
    assert not recording.cut
    assert calls(recording, "mark.point") == status.requests


def test_ctrl_c_ends_a_command_that_does_not_handle_it(tmp_path: Path) -> None:
    path = tmp_path / "r"
    terminal = Terminal(*record(path), "--", "sleep", "61.7")
    until(lambda: "recording to" in terminal.shown() and processes_with("sleep\x0061.7"), "the command to run")
    until(lambda: not processes_with("launcher.py\0"), "the command to be let go")
    terminal.type(CTRL_C)
    assert terminal.wait() == 128 + signal.SIGINT
    assert "events in" in terminal.shown()
    assert not open_recording(path).cut


HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)


def test_signals_are_handed_on(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """Each of those that are sent to fencepath alone reaches the command once; the recording goes on."""
    status, path = Status(tmp_path / "status"), tmp_path / "r"
    run = commands.start(*record(path), "--", programs.steady, status.path, programs.libcuda)
    until(lambda: status.requests > 2, "the target to begin")
    for number in HANDED_ON:
        run.kill(number)
        until(lambda number=number: status.signals(number), f"signal {number} to be handed on")  # type: ignore[misc]
    status.works()
    # to the whole group and by no terminal, it comes from the sender and from fencepath, which cannot tell
    run.kill_group(signal.SIGTERM)
    until(lambda: status.signals(signal.SIGTERM) > 1, "SIGTERM to reach the target")
    time.sleep(0.2)
    status.stop()
    assert run.wait().code == CODE
    assert [status.signals(number) for number in HANDED_ON[1:]] == [1] * 5
    assert status.signals(signal.SIGTERM) in (2, 3)
    recording = open_recording(path)
    assert not recording.cut
    assert calls(recording, "mark.point") == status.requests


def test_a_command_that_signals_its_own_group(commands: ForkServer, tmp_path: Path) -> None:
    """``kill 0`` in a script means the script's processes: it gets its signal once, and fencepath goes on."""
    script = "n=0; trap 'n=$((n+1))' TERM; kill -TERM 0; sleep 0.3; exit $n"
    done = commands.run(*record(tmp_path / "r"), "--", "sh", "-c", script)
    assert done.code == 1, done.errors
    assert not open_recording(tmp_path / "r").cut


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_signal_while_it_starts(
    commands: ForkServer, programs: Programs, tmp_path: Path, number: signal.Signals
) -> None:
    status = Status(tmp_path / "status")
    run = commands.start(*record(tmp_path / "r", layers="cuda"), "--", programs.steady, status.path, programs.libcuda)
    until((tmp_path / "r").exists, "the recorder to begin")
    run.kill(number)
    done = run.wait()
    assert done.code == 128 + number
    assert done.said[-1] == "fencepath: stopped before the recording began; nothing was recorded"
    assert status.pid == 0
    assert not (tmp_path / "r").exists()
    assert processes_with(str(status.path)) == []


def test_a_held_command_that_is_killed(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    status = Status(tmp_path / "status")
    run = commands.start(*record(tmp_path / "r", layers="cuda"), "--", programs.steady, status.path, programs.libcuda)
    until(lambda: processes_with(str(status.path)), "the command to be held")
    os.kill(processes_with(str(status.path))[0], signal.SIGKILL)
    done = run.wait()
    assert done.code == 128 + signal.SIGKILL
    assert "was ended before it was started; nothing was recorded" in done.said[-1]
    assert status.pid == 0
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=str)
def test_a_signal_ends_the_recording_of_a_process(
    commands: ForkServer, programs: Programs, tmp_path: Path, numbers: Sequence[signal.Signals]
) -> None:
    path = tmp_path / "r"
    with Steady(programs, tmp_path) as target:
        run = commands.start(*record(path), "--pid", str(target.pid))
        until(lambda: "recording to" in run.errors, "the recording to begin")
        before = target.status.requests
        until(lambda: target.status.requests > before + 20, "the target to work")
        recorded = target.status.requests - before
        for number in numbers:
            run.kill(number)
        done = run.wait()
        assert done.code == 0
        assert len(done.said) == 2
        assert target.status.works()
        assert target.end() == CODE
    assert sum(target.status.signals(number) for number in range(1, 32)) == 0
    recording = open_recording(path)
    assert not recording.cut
    assert calls(recording, "mark.point") >= recorded


def test_the_end_of_a_process_ends_its_recording(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """Also one that its parent never reaps."""
    path = tmp_path / "r"
    with Steady(programs, tmp_path) as target:
        run = commands.start(*record(path), "--pid", str(target.pid))
        until(lambda: "recording to" in run.errors, "the recording to begin")
        target.status.stop()
        os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)
        assert run.wait(20).code == 0
    assert not open_recording(path).cut


def test_duration(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """It ends the recording, not the command, whose code still is fencepath's."""
    status, path = Status(tmp_path / "status"), tmp_path / "r"
    run = commands.start(*record(path, "--duration", "400ms"), "--", programs.steady, status.path, programs.libcuda)
    until(lambda: "events in" in run.errors, "the recording to end")
    recorded = status.requests
    status.works()
    run.kill(signal.SIGTERM)
    until(lambda: status.signals(signal.SIGTERM) == 1, "SIGTERM to be handed on")
    assert not run.ended
    status.stop()
    assert run.wait().code == CODE
    recording = open_recording(path)
    assert not recording.cut
    assert 0 < calls(recording, "mark.point") <= recorded
    times = recording.records("mark.point")["time_ns"]
    assert 0.1e9 < times.max() - times.min() < 2e9


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Path]:
    """A file system of 2 MiB."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Take all that is left."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def disk_losses(path: Path) -> dict[str, LossRow]:
    return {row.kind: row for row in open_recording(path).loss if row.stage == "disk"}


def wait_until_written(path: Path, *kinds: str) -> None:
    """Wait until there is something of each kind on the disk."""
    until(lambda: all(any(path.glob(f"**/{kind}.arrows")) for kind in kinds), "something to be written")
    time.sleep(0.2)


def test_full_disk_under_a_command(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """Said at once; the command goes on and its code is passed on; what was written stays, what was not is counted."""
    of_each = {"mark.point": 1, "mark.text": 1, "cuda.launch": LAUNCHES, "cuda.stream.synchronize": 1}
    status = Status(tmp_path / "status")
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "r"
        run = commands.start(
            *record(path, "--exact", layers="cuda"), "--", programs.steady, status.path, programs.libcuda
        )
        wait_until_written(path, *of_each)
        fill(disk)
        before = status.requests
        until(lambda: "the recording ended before the command" in run.errors, "the full disk to be noticed")
        after = status.requests
        status.works()
        assert not run.ended
        status.stop()
        done = run.wait()
        assert done.code == CODE
        assert done.said[-1] == (
            f"fencepath: the recording ended before the command: cannot write to {path}: no space left on device; "
            "free some space there, or bound the recording with --max-size"
        )
        (disk / "filler").unlink()
        recording = open_recording(path)
        assert recording.verify() == []
        assert not recording.cut
        lost = disk_losses(path)
        for kind, times in of_each.items():
            written = calls(recording, kind)
            assert written > 0
            assert lost[kind].count > 0
            assert before * times <= written + lost[kind].count <= (after + 1) * times
        report = commands.run("report", "--json", path)
        assert report.code == 0
        assert report.errors == ""


def test_full_disk_with_a_process(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, Steady(programs, tmp_path) as target:
        path = disk / "r"
        run = commands.start(*record(path), "--pid", str(target.pid))
        wait_until_written(path, "mark.point")
        fill(disk)
        done = run.wait()
        assert done.code == 3
        assert done.said[-1].startswith(
            f"fencepath: cannot write to {path}: no space left on device; free some space there"
        )
        assert target.status.works()
        assert target.end() == CODE
        recording = open_recording(path)
        assert recording.verify() == []
        assert not recording.cut
        assert disk_losses(path)["mark.point"].count > 0
        assert calls(recording, "mark.point") > 0


def test_two_recorders_at_once(commands: ForkServer, programs: Programs, tmp_path: Path) -> None:
    """Each sees its own target whole, and nothing of the other; a third one on the first's target sees what that one sees."""
    statuses = [Status(tmp_path / f"{number}.status") for number in range(2)]
    paths = [tmp_path / f"{number}.fencepath" for number in range(3)]
    runs = [
        commands.start(*record(path, "--exact", layers="cuda"), "--", programs.steady, status.path, programs.libcuda)
        for path, status in zip(paths, statuses, strict=False)
    ]
    until(lambda: all(status.requests for status in statuses), "both targets to begin")
    third = commands.start(
        *record(paths[2], "--detail", "launch", "--exact", layers="cuda"), "--pid", str(statuses[0].pid)
    )
    until(lambda: "recording to" in third.errors, "the third recorder to begin")
    first = statuses[0].requests
    until(lambda: statuses[0].requests > first + 100, "the first target to work")
    third.kill(signal.SIGINT)
    assert third.wait().code == 0
    for status, run in zip(statuses, runs, strict=True):
        status.stop()
        assert run.wait().code == CODE
    recordings = [open_recording(path) for path in paths]
    for recording, status in zip(recordings, statuses, strict=False):
        assert not recording.cut
        assert recording.loss == []
        assert calls(recording, "cuda.launch") == LAUNCHES * status.requests
        assert calls(recording, "cuda.stream.synchronize") == status.requests
        assert set(recording.records("cuda.launch")["tgid"].tolist()) == {status.pid}
    seen = recordings[2].records("cuda.launch")["time_ns"]
    assert len(seen) > LAUNCHES * 100
    same = recordings[0].records("cuda.launch")["time_ns"]
    # the same returns, read within microseconds of each other; at either end the rest of the burst that it began or ended in
    inside = int(np.count_nonzero((same > seen.min() - 100_000) & (same < seen.max() + 100_000)))
    assert abs(inside - len(seen)) <= 2 * LAUNCHES
