# SPDX-License-Identifier: Apache-2.0
"""A command does, says and ends the same with fencepath as without."""

from __future__ import annotations

import os
import pty
import pwd
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.faults.commandline import ForkServer, fencepath, record, until
from tests.faults.target import Programs

from fencepath._record.command import HeldCommand, Identity, NotStarted
from fencepath.recording import open_recording

RECORD = (sys.executable, "-m", "fencepath", "record", "--layers", "process")
OTHER = pwd.getpwnam("games")
NOT_ENDING = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    output: bytes
    errors: bytes


def own(lines: bytes) -> bytes:
    """Standard error without what fencepath says."""
    return b"".join(line for line in lines.splitlines(keepends=True) if not line.startswith(b"fencepath: "))


def run(
    script: str, prefix: Sequence[str | Path], *, data: bytes = b"", environ: Mapping[str, str] | None = None
) -> Outcome:
    """Run a shell script in which $WITH stands before the command that is looked at."""
    variables = {**os.environ, **(environ or {}), "WITH": shlex.join(map(str, prefix))}
    done = subprocess.run(
        ["sh", "-c", script],
        input=data,
        env=variables,
        capture_output=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    return Outcome(done.returncode, done.stdout, own(done.stderr))


def differences(before: bytes, after: bytes) -> list[str]:
    """Lines that are in one output only. Pipes are new in every run, and $WITH differs by intent."""
    told = [
        [
            re.sub(r"pipe:\[\d+\]", "a pipe", line)
            for line in text.decode(errors="replace").splitlines()
            if "WITH=" not in line
        ]
        for text in (before, after)
    ]
    assert len(told[0]) > 100
    return [f"- {line}" for line in told[0] if line not in told[1]] + [
        f"+ {line}" for line in told[1] if line not in told[0]
    ]


SETTINGS = {
    "as it comes": "$WITH {mirror} one 'two  words' ''; exit $?",
    # files beyond the standard ones, limits, mask, niceness, ignored signals, an environment that Python would change
    "with everything changed": (
        "trap '' HUP INT QUIT USR2 CHLD; ulimit -n 200; ulimit -c 0; ulimit -s 4096; umask 0137; cd /usr/lib;"
        "exec 7</etc/passwd 9>/dev/null 4>&1; read -r line <&7;"
        "nice -n 3 chrt --batch 0 env -i A=1 'B=x y' EMPTY= PATH=/usr/bin:/bin LC_ALL=C PYTHONPATH=/nowhere LD_BIND_NOW=1 $WITH {mirror};"
        "exit $?"
    ),
    "without standard input and error": "$WITH {mirror} <&- 2>&-; exit $?",
}


@pytest.mark.bpf
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_command_inherits(programs: Programs, tmp_path: Path, setting: str) -> None:
    """Arguments, environment, folder, umask, files, signals, limits, ids, capabilities, namespaces, input, exit code."""
    script = SETTINGS[setting].format(mirror=programs.mirror)
    before = run(script, (), data=b"first\nlast")
    after = run(script, (*RECORD, "-o", tmp_path / "r", "--"), data=b"first\nlast")
    assert differences(before.output, after.output) == []
    assert (after.code, after.errors) == (before.code, before.errors) == (7, b"")
    lines = after.output.decode().splitlines()
    assert ("input first\\x0alast" in lines) == ("<&-" not in script)
    assert not open_recording(tmp_path / "r").cut


@pytest.mark.bpf
def test_blocked_signals_are_inherited(programs: Programs, tmp_path: Path) -> None:
    """What is blocked stays so, and nothing else is."""
    outputs: list[bytes] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN + 3})
    try:
        for prefix in ((), (*RECORD, "-o", str(tmp_path / "r"), "--")):
            words = [*prefix, str(programs.mirror)]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            assert done.returncode == 7
            outputs.append(done.stdout)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert differences(outputs[0], outputs[1]) == []
    assert b"signal 15 default blocked 1" in outputs[1]


def in_terminal(words: Sequence[str | Path], keys: bytes = b"") -> tuple[int, str]:
    """Run a command in a terminal; return its exit code and what was shown."""
    pid, keyboard = pty.fork()
    if pid == 0:
        # Python ignores them; that somebody else did so before Python started is the one thing that cannot be known
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execvp(str(words[0]), [str(word) for word in words])
    os.write(keyboard, keys)
    shown = b""
    while True:
        assert select.select([keyboard], [], [], 60)[0], shown
        try:
            data = os.read(keyboard, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(keyboard)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


TALKER = """
import os, sys, time
for i in range(53):
    print("out", i, flush=i % 3 == 0)
    os.write(2, b"err %d\\n" % i)
print(sys.stdin.readline().strip(), os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size())
sys.exit(23)
"""


@pytest.mark.bpf
def test_terminal(programs: Programs, tmp_path: Path) -> None:
    """The terminal shows the same in the same order, and is the command's own, between what fencepath says."""
    for number, words in enumerate([(sys.executable, "-c", TALKER), ("sh", "-c", f"stty -a; {programs.mirror}")]):
        # the first process of a session would differ from its children, so a shell is that
        code, shown = in_terminal(("sh", "-c", f"{shlex.join(map(str, words))}; exit $?"), b"typed\n\x04")
        path = tmp_path / f"{number}.fencepath"
        with_it = shlex.join(map(str, (*RECORD, "-o", path, "--", *words)))
        code_with, shown_with = in_terminal(("sh", "-c", f"{with_it}; exit $?"), b"typed\n\x04")
        assert code_with == code
        lines = shown_with.splitlines()
        said = [line for line in lines if line.startswith("fencepath: ")]
        assert len(said) == 2
        kept = [line for line in lines if line not in said]
        if number == 0:
            assert kept == shown.splitlines()
            assert lines.index(said[1]) == len(lines) - 1
        else:
            assert [line for line in kept if line not in shown.splitlines()] == []
            assert "controlling terminal 1" in kept
            assert any(line.startswith("foreground 1 ") for line in kept)


PROGRAMS = {
    "a pipeline": "printf 'b\\na\\nc\\n' | $WITH sh -c 'sort | tee /dev/stderr | head -n 2; exit 3' | tr a-z A-Z; echo $?",
    "in a pipeline that ends early": "$WITH sh -c 'while :; do echo y; done' | head -n 3; echo $?",
    "a Python program": "$WITH python3 -c 'import sys; sys.stdout.write(1 * str(53)); sys.exit(str(59))'; echo $?",
    "a background job": "$WITH sh -c 'kill -INT $$; echo still here' & wait $!; echo $?",
    # past a file that may not be run, to one that has no first line
    "found in PATH": "PATH={folder}/bad:{folder}:$PATH; $WITH plain one two; echo $?",
}


@pytest.mark.bpf
@pytest.mark.parametrize("case", PROGRAMS)
def test_programs(tmp_path: Path, case: str) -> None:
    (tmp_path / "plain").write_text('echo "$0 has $*"; exit 9\n')
    (tmp_path / "plain").chmod(0o755)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/plain").write_text("exit 1\n")
    script = PROGRAMS[case].format(folder=tmp_path)
    before = run(script, ())
    after = run(script, (*RECORD, "-o", tmp_path / "r", "--"))
    assert after == before
    assert before.output
    assert not open_recording(tmp_path / "r").cut


def nobody_else() -> Identity:
    return Identity(uid=None, gid=None, name="", environ=dict(os.environ))


def outcomes(commands: Sequence[Sequence[str]]) -> list[int | NotStarted]:
    """What commands end with when they are held and let go, some at once."""
    found: list[int | NotStarted] = []
    for first in range(0, len(commands), 16):
        held = [HeldCommand(command, nobody_else()) for command in commands[first : first + 16]]
        found += [one.release() or one.wait() for one in held]
    return found


def test_every_exit_code_is_passed_on() -> None:
    assert outcomes([("sh", "-c", f"exit {code}") for code in range(256)]) == list(range(256))


def test_every_signal_is_passed_on() -> None:
    ending = [number for number in range(1, 32) if signal.Signals(number).name not in NOT_ENDING]
    assert len(ending) == 23
    killed = [("sh", "-c", f"ulimit -c 0; kill -{number} $$") for number in ending]
    assert outcomes(killed) == [128 + number for number in ending]


@pytest.mark.bpf
def test_codes_through_the_command_line(commands: ForkServer, tmp_path: Path) -> None:
    """The code is the command's own also where it is one of fencepath's; only a command that never ran is told about."""
    cases = {"exit 3": 3, "exit 126": 126, "exit 127": 127, "kill -15 $$": 143}
    runs = {
        code: commands.start(*record(tmp_path / str(code)), "--", "sh", "-c", command)
        for command, code in cases.items()
    }
    for code, one in runs.items():
        done = one.wait()
        assert done.code == code
        assert len(done.said) == 2
        assert "events in" in done.said[1]
        assert not open_recording(tmp_path / str(code)).cut


NO_COMMAND = "no such command; give a path or a name in PATH"
NOT_STARTED = {
    "no-such-command": NotStarted(127, f"cannot run no-such-command: {NO_COMMAND}"),
    "/no/such/command": NotStarted(127, f"cannot run /no/such/command: {NO_COMMAND}"),
    "/etc/passwd/inside": NotStarted(127, f"cannot run /etc/passwd/inside: {NO_COMMAND}"),
    "/etc/passwd": NotStarted(126, "cannot run /etc/passwd: permission denied"),
    "/etc": NotStarted(126, "cannot run /etc: permission denied"),
}


def test_commands_that_cannot_be_started() -> None:
    """As from a shell: 127 if there is none, 126 if it may not be run."""
    assert outcomes([(name,) for name in NOT_STARTED]) == list(NOT_STARTED.values())


@pytest.mark.bpf
@pytest.mark.parametrize("name", ["no-such-command", "/etc/passwd"])
def test_no_recording_of_nothing_is_left(commands: ForkServer, tmp_path: Path, name: str) -> None:
    done = commands.run(*record(tmp_path / "r"), "--", name)
    assert done.code == NOT_STARTED[name].code
    assert done.said[-1] == f"fencepath: {NOT_STARTED[name].why}"
    assert list(tmp_path.iterdir()) == []


SUDO = {"SUDO_UID": str(OTHER.pw_uid), "SUDO_GID": str(OTHER.pw_gid), "SUDO_USER": OTHER.pw_name}


@pytest.mark.bpf
def test_sudo_runs_the_command_as_its_caller(programs: Programs, tmp_path: Path) -> None:
    """As that user with its groups, HOME, USER, LOGNAME and SHELL; the recording is that user's."""
    path = tmp_path / "r"
    tmp_path.chmod(0o755)
    done = fencepath(*record(path), "--", programs.mirror, environ=SUDO)
    assert done.code == 7
    assert done.said[0] == "fencepath: the environment from before sudo cannot be read; the command gets sudo's"
    lines = done.output.splitlines()
    ids = "\\x09".join([str(OTHER.pw_uid)] * 4)
    groups = sorted(os.getgrouplist(OTHER.pw_name, OTHER.pw_gid))
    assert f"status Uid:\\x09{ids}\\x0a" in lines
    assert f"status Groups:\\x09{' '.join(map(str, groups))} \\x0a" in lines
    assert "status CapEff:\\x090000000000000000\\x0a" in lines
    for name, value in (
        ("HOME", OTHER.pw_dir),
        ("USER", OTHER.pw_name),
        ("LOGNAME", OTHER.pw_name),
        ("SHELL", OTHER.pw_shell),
    ):
        assert f"variable {name}={value}" in lines
    owners = {(entry.stat().st_uid, entry.stat().st_gid) for entry in (path, *path.rglob("*"))}
    assert owners == {(OTHER.pw_uid, OTHER.pw_gid)}
    assert {entry.stat().st_mode & 0o777 for entry in path.rglob("*") if entry.is_file()} == {0o600}
    assert {entry.stat().st_mode & 0o777 for entry in (path, *path.rglob("*")) if entry.is_dir()} == {0o700}


@pytest.mark.bpf
def test_as_root_stays_root(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "r"
    done = fencepath(*record(path, "--as-root"), "--", programs.mirror, environ=SUDO)
    assert done.code == 7
    assert "status Uid:\\x090\\x090\\x090\\x090\\x0a" in done.output.splitlines()
    assert f"variable HOME={os.environ['HOME']}" in done.output.splitlines()
    assert path.stat().st_uid == 0
    assert len(done.said) == 2


@pytest.mark.bpf
def test_environment_from_before_sudo(programs: Programs, tmp_path: Path) -> None:
    """A root process named sudo that cleans the environment, as sudo does, stands for it."""
    inner = shlex.join(map(str, (*RECORD, "-o", tmp_path / "r", "--", programs.mirror)))
    code = (
        "import ctypes, os, subprocess, sys; ctypes.CDLL(None).prctl(15, b'sudo', 0, 0, 0);"
        f"sys.exit(subprocess.run({inner!r}, shell=True, env={{**{SUDO!r}, 'PATH': os.environ['PATH'], 'HOME': '/root'}}).returncode)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "MINE": "kept", "HOME": "/elsewhere"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 7, done.stderr
    assert "variable MINE=kept" in done.stdout
    assert f"variable HOME={OTHER.pw_dir}" in done.stdout
    assert "SUDO_UID" not in done.stdout
    assert "from before sudo" not in done.stderr


@pytest.mark.bpf
def test_nobody_reads_what_fencepath_says(tmp_path: Path) -> None:
    """Standard error that nobody reads any more does not keep the command from running."""
    ran = tmp_path / "ran"
    words = (*RECORD, "-o", tmp_path / "r", "--", "sh", "-c", f"sleep 0.2; echo done > {ran}; exit 5")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [str(word) for word in words], stdin=subprocess.DEVNULL, stderr=write, check=False, timeout=60
    )
    os.close(write)
    assert done.returncode == 5
    until(ran.exists, "the command to run")
    assert not open_recording(tmp_path / "r").cut


@pytest.mark.bpf
def test_no_standard_files_at_all(tmp_path: Path) -> None:
    """With 0 to 2 closed no file of the recording gets one of these numbers and is written into."""
    path = tmp_path / "r"
    result = tmp_path / "result"
    inner = shlex.join(map(str, (*RECORD, "-o", path, "--", "sh", "-c", f"ls -l /proc/self/fd > {result}; exit 11")))
    done = subprocess.run(["sh", "-c", f"exec {inner} <&- >&- 2>&-"], check=False, timeout=60)
    assert done.returncode == 11
    recording = open_recording(path)
    assert recording.verify() == []
    assert not recording.cut
