# SPDX-License-Identifier: Apache-2.0
"""What a machine, or whoever asks, lacks: one line that says what to do, the right exit code, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.faults.commandline import Done, ForkServer, fencepath, record, until
from tests.faults.target import CODE, LAUNCHES, Programs, Status, Steady, calls

from fencepath.recording import open_recording

NOBODY = 65534
LOOK = "+dac_read_search"
BCC = "/usr/lib/python3/dist-packages/bcc"
TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")


def one_line(done: Done, code: int, *parts: str) -> None:
    """It ended with `code`, and with one line on standard error that has all parts."""
    lines = done.errors.splitlines()
    assert done.code == code, done.errors
    assert len(lines) == 1, done.errors
    assert lines[0].startswith("fencepath: ")
    for part in parts:
        assert part in lines[0]
    assert done.output == ""


def as_root(*commands: str) -> Sequence[str]:
    """What runs shell commands in a mount namespace of its own and then what follows."""
    return ("unshare", "-m", "sh", "-c", "; ".join([*commands, 'exec "$@"']), "sh")


def never_runs(path: Path) -> tuple[str, ...]:
    """A command that leaves a file if it is run."""
    return ("touch", str(path))


WRONG_USE = {
    "nothing to record": ((), "one of --pid PID, --cgroup PATH, --container ID, --pod UID or -- COMMAND"),
    "two things to record": (("--pid", "1", "--", "true"), "name what to record: one of --pid PID,"),
    "an empty command": (("--", ""), "no command was given"),
    "an unknown layer": (("--layers", "cuda,vulcan", "--", "true"), "no layer vulcan; there are amdgpu, cuda,"),
    "an unknown detail": (("--detail", "most", "--", "true"), "unknown detail 'most'; use sync, launch or full"),
    "a bad duration": (("--duration", "soon", "--", "true"), "cannot read the duration 'soon'; write 500ms, 30s"),
    "a negative duration": (("--duration", "-5s", "--", "true"), "cannot read the duration '-5s'"),
    "a bad time to keep": (("--keep", "1 week", "--", "true"), "cannot read the duration '1 week'"),
    "a bad size": (("--max-size", "2 GB", "--", "true"), "cannot read the size '2 GB'; write 500MiB or 2GiB"),
    "a dead pid": (("--pid", "4194303"), "there is no process 4194303; give the pid of a running one"),
    "pid 0": (("--pid", "0"), "there is no process 0; give the pid of a running one"),
    "a negative pid": (("--pid", "-1"), "there is no process -1; give the pid of a running one"),
}


@pytest.mark.bpf
@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use(commands: ForkServer, tmp_path: Path, case: str) -> None:
    options, message = WRONG_USE[case]
    path = tmp_path / "wrong.fencepath"
    one_line(commands.run("record", "-o", path, *options), 2, message)
    assert not path.exists()


@pytest.mark.parametrize(
    "words", [("record", "--detial", "full", "--", "true"), ("record", "--pid", "me"), ("recrod",)], ids=" ".join
)
def test_wrong_words_are_told_with_usage(commands: ForkServer, words: tuple[str, ...]) -> None:
    done = commands.run(*words)
    assert done.code == 2
    assert "Usage: " in done.errors
    assert "Traceback" not in done.errors


@pytest.mark.bpf
def test_pid_of_a_thread(commands: ForkServer, tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["python3", "-c", "import threading; threading.Thread(target=input).start(); input()"], stdin=subprocess.PIPE
    )
    tasks = Path(f"/proc/{process.pid}/task")
    try:
        until(lambda: len(list(tasks.iterdir())) == 2, "a second thread")
        thread = next(task.name for task in tasks.iterdir() if int(task.name) != process.pid)
        done = commands.run("record", "-o", tmp_path / "t.fencepath", "--pid", thread)
        one_line(done, 2, f"{thread} is a thread of process {process.pid}; give the pid of the process")
    finally:
        process.communicate(b"\n\n")


@pytest.mark.bpf
def test_pid_that_has_ended_but_was_not_reaped(commands: ForkServer, tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    done = commands.run("record", "-o", tmp_path / "z.fencepath", "--pid", str(process.pid))
    one_line(done, 2, f"process {process.pid} has ended; give the pid of a running one")
    done = commands.run("doctor", "--pid", str(process.pid))
    one_line(done, 2, f"process {process.pid} has ended; give the pid of a running one")
    process.wait()


@pytest.mark.bpf
def test_no_root(tmp_path: Path, programs: Programs) -> None:
    ran = programs.folder / "ran-without-root"
    done = fencepath(
        "record",
        "-o",
        "/tmp/none.fencepath",
        "--",
        *never_runs(ran),
        # the checkout may lie where others may not look
        before=("setpriv", "--reuid", str(NOBODY), "--clear-groups", "--inh-caps", LOOK, "--ambient-caps", LOOK),
    )
    one_line(done, 3, f"user {NOBODY} may not create bpf maps (no CAP_BPF)", "; run it with sudo, or with CAP_BPF")
    assert not ran.exists()


@pytest.mark.bpf
@pytest.mark.parametrize("action", ["record", "doctor"])
def test_no_bcc(tmp_path: Path, action: str) -> None:
    ran, path = tmp_path / "ran", tmp_path / "b.fencepath"
    hidden = as_root(f"mount -t tmpfs none {BCC}")
    if action == "doctor":
        done = fencepath("doctor", before=hidden)
        assert done.code == 1
        text = " ".join(done.output.split())
        assert "the python bindings of bcc are not installed you lose: " in text
        assert "to mend it: apt install python3-bpfcc" in text
        return
    done = fencepath("record", "-o", path, "--", *never_runs(ran), before=hidden)
    one_line(done, 3, "the python bindings of bcc are not installed; apt install python3-bpfcc")
    assert not ran.exists()
    assert not path.exists()


@pytest.mark.bpf
def test_bcc_without_its_library(tmp_path: Path) -> None:
    library = next(Path("/usr/lib").glob("*/libbcc.so.0"))
    hidden = as_root(f"mount --bind /dev/null {library}")
    done = fencepath("record", "-o", tmp_path / "b.fencepath", "--", *never_runs(tmp_path / "ran"), before=hidden)
    one_line(done, 3, "cannot be loaded", "apt install python3-bpfcc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bpf
def test_another_project_named_bcc(tmp_path: Path) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc/__init__.py").write_text("raise SystemExit('the wrong one was imported')\n")
    hidden = as_root(f"mount -t tmpfs none {BCC}")
    path = tmp_path / "b.fencepath"
    done = fencepath("record", "-o", path, "--", "true", before=hidden, environ={"PYTHONPATH": str(tmp_path)})
    one_line(done, 3, f"({tmp_path}/bcc is another project of that name)", "apt install python3-bpfcc")


@pytest.mark.bpf
def test_no_tracefs(tmp_path: Path) -> None:
    gone = as_root(*(f"umount {mount} 2>/dev/null" for mount in TRACEFS))
    done = fencepath("record", "-o", tmp_path / "t.fencepath", "--", *never_runs(tmp_path / "ran"), before=gone)
    one_line(done, 3, "tracefs is not mounted; run: mount -t tracefs tracefs /sys/kernel/tracing")
    assert list(tmp_path.iterdir()) == []


WITHOUT = {
    "of BPF": ("-sys_admin,-bpf", "may not create bpf maps", "run as root, or with CAP_BPF and CAP_PERFMON"),
    "of tracing": ("-sys_admin,-perfmon", "not permitted", "run as root, or with CAP_BPF and CAP_PERFMON"),
}


@pytest.mark.bpf
@pytest.mark.parametrize("case", WITHOUT)
def test_missing_capability(tmp_path: Path, case: str) -> None:
    dropped, *parts = WITHOUT[case]
    before = ("setpriv", "--bounding-set", dropped, "--inh-caps", dropped)
    done = fencepath("record", "-o", tmp_path / "c.fencepath", "--", *never_runs(tmp_path / "ran"), before=before)
    one_line(done, 3, *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bpf
def test_less_than_root_is_enough(tmp_path: Path, programs: Programs) -> None:
    """BPF and its tracing are what it takes; the file behind a mapping is found without the right to map_files."""
    status, path = Status(tmp_path / "status"), tmp_path / "less.fencepath"
    before = ("setpriv", "--bounding-set", "-sys_admin,-sys_ptrace,-sys_resource,-checkpoint_restore")
    command = (programs.steady, status.path, programs.libcuda, "53")
    done = fencepath(*record(path, layers="cuda"), "--", *command, before=before)
    assert done.code == CODE
    assert [line for line in done.said if "not permitted" in line or "cannot" in line] == []
    assert status.requests == 53
    recording = open_recording(path)
    assert 0 < calls(recording, "cuda.stream.synchronize") <= 53
    assert calls(recording, "cuda.launch") > 0


@pytest.mark.bpf
def test_a_user_that_cannot_be_taken_on(tmp_path: Path) -> None:
    environ = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    done = fencepath(
        *record(tmp_path / "u.fencepath"),
        "--",
        *never_runs(tmp_path / "ran"),
        before=("setpriv", "--bounding-set", "-setuid"),
        environ=environ,
    )
    assert done.code == 126
    assert done.said[-1].endswith(
        f"cannot become user {NOBODY}: operation not permitted; --as-root runs the command as root"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.bpf
def test_missing_symbols_and_libraries(tmp_path: Path, programs: Programs) -> None:
    """What is there is recorded in full, the rest is said, on standard error and in the recording.

    The library is stripped, so only its dynamic symbols tell what it has.
    """
    status, path, library = Status(tmp_path / "status"), tmp_path / "s.fencepath", tmp_path / "libcuda.so.1"
    subprocess.run(["strip", "-o", str(library), str(programs.libcuda)], check=True)
    command = (programs.steady, status.path, library, "31")
    done = fencepath(
        *record(path, "--exact", layers="cuda"), "--", *command, environ={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert done.code == CODE
    recording = open_recording(path)
    # known before the start by LD_LIBRARY_PATH: no call goes by without a probe
    assert calls(recording, "cuda.launch") == LAUNCHES * 31
    assert calls(recording, "cuda.stream.synchronize") == 31
    said = [line for line in done.said if "not recorded: cuda: " in line]
    assert len(said) == 1
    assert "not in its libraries: " in said[0]
    assert " more" in said[0]
    missing = recording.manifest.layers["cuda"].missing
    (why,) = (item.why for item in missing)
    names = why.removeprefix("not in its libraries: ").split(", ")
    shown = said[0].removeprefix("fencepath: not recorded: cuda: not in its libraries: ")
    assert shown == f"{', '.join(names[:3])} and {len(names) - 3} more"
    assert recording.manifest.layers["cuda"].attached[0].endswith("libcuda.so.1 (2 functions)")


@pytest.mark.bpf
def test_no_library(tmp_path: Path) -> None:
    """None is found; what has the name of one is a text."""
    path = tmp_path / "n.fencepath"
    (tmp_path / "libcuda.so.1").write_text("not a library\n")
    done = fencepath(*record(path, layers="cuda"), "--", "true", environ={"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.code == 0
    assert "fencepath: not recorded: cuda: no libcuda.so* was found, and no program with its functions" in done.errors
    layer = open_recording(path).manifest.layers["cuda"]
    assert layer.missing[0].why.startswith("no libcuda.so*")
    assert layer.attached == ()


@pytest.mark.bpf
def test_process_of_another_user(tmp_path: Path, commands: ForkServer, programs: Programs) -> None:
    before = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    path = tmp_path / "o.fencepath"
    with Steady(programs, programs.folder, "other", before) as target:
        done = commands.run(*record(path, "--duration", "500ms"), "--pid", str(target.pid))
        assert done.code == 0
        assert target.status.works()
        assert target.end() == CODE
    assert path.stat().st_uid == 0
    recording = open_recording(path)
    assert 0 < calls(recording, "mark.point") < target.status.requests


@pytest.mark.bpf
class TestPaths:
    def test_taken_by_a_recording(self, tmp_path: Path, commands: ForkServer) -> None:
        path, ran = tmp_path / "taken.fencepath", tmp_path / "ran"
        path.mkdir()
        (path / "manifest.json").write_text("mine")
        done = commands.run("record", "-o", path, "--", *never_runs(ran))
        one_line(done, 2, f"{path} exists and is not empty; choose another name or remove it")
        assert (path / "manifest.json").read_text() == "mine"
        assert not ran.exists()

    def test_taken_by_a_file(self, tmp_path: Path, commands: ForkServer) -> None:
        path, ran = tmp_path / "file", tmp_path / "ran"
        path.write_text("mine")
        one_line(commands.run("record", "-o", path, "--", *never_runs(ran)), 2, f"{path} exists and is not a folder")
        assert path.read_text() == "mine"
        assert not ran.exists()

    def test_parent_missing(self, tmp_path: Path, commands: ForkServer) -> None:
        path, ran = tmp_path / "none/at/all", tmp_path / "ran"
        done = commands.run("record", "-o", path, "--", *never_runs(ran))
        one_line(done, 2, f"cannot write to {path}: no such file or directory; choose another place")
        assert list(tmp_path.iterdir()) == []

    def test_not_writable(self, tmp_path: Path) -> None:
        """Root may write anywhere but on a file system that is mounted read-only."""
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        before = as_root(f"mount -t tmpfs -o ro none {mounted}")
        done = fencepath("record", "-o", mounted / "r", "--", *never_runs(tmp_path / "ran"), before=before)
        one_line(done, 2, f"cannot write to {mounted}/r: read-only file system; choose another place")
        assert not (tmp_path / "ran").exists()

    def test_no_room_at_the_start(self, tmp_path: Path) -> None:
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        before = as_root(f"mount -t tmpfs -o size=64k none {mounted}")
        done = fencepath("record", "-o", mounted / "r", "--", *never_runs(tmp_path / "ran"), before=before)
        one_line(done, 3, f"cannot write to {mounted}/r: no space left on device; free some space there")
        assert not (tmp_path / "ran").exists()

    def test_no_room_for_temporary_files(self, tmp_path: Path) -> None:
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        # room for what Python tries, none for the headers
        before = as_root(f"mount -t tmpfs -o size=8k none {mounted}", f"head -c 4096 /dev/zero > {mounted}/full")
        path = tmp_path / "t.fencepath"
        done = fencepath(
            "record", "-o", path, "--", *never_runs(tmp_path / "ran"), before=before, environ={"TMPDIR": str(mounted)}
        )
        one_line(done, 3, "bpf programs cannot be compiled: ", "set TMPDIR to another folder")
        assert not (tmp_path / "ran").exists()
        assert not path.exists()

    def test_an_empty_folder_is_taken_and_kept(self, tmp_path: Path, commands: ForkServer) -> None:
        path = tmp_path / "empty"
        path.mkdir()
        assert commands.run(*record(path), "--", "/no/such/command").code == 127
        assert list(path.iterdir()) == []
        assert commands.run(*record(path), "--", "true").code == 0
        assert open_recording(path).manifest.ended_realtime_ns
