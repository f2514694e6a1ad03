# SPDX-License-Identifier: Apache-2.0
"""What each feature needs of root's powers, as SECURITY.md says: with that it works, with one less it says what is missing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.faults.commandline import TIMEOUT_S, Done, record, until
from tests.faults.target import CODE, Programs, Status, Steady, calls

from fencepath._record.cgroups import unified_mount
from fencepath.recording import open_recording

pytestmark = pytest.mark.bpf

NOBODY = 65534
ROOT = Path(__file__).parents[2]
SECURITY = ROOT / "SECURITY.md"
BASE = frozenset({"CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"})
NEEDS = {
    "a COMMAND, or a process of one's own": BASE,
    "a process of another user, a cgroup, a container, a pod": BASE | {"CAP_SYS_PTRACE"},
    "uprobes by perf events (where uprobe_multi is refused)": BASE | {"CAP_SYS_ADMIN"},
}
SAID = {
    "CAP_BPF": "may not create bpf maps (no CAP_BPF); run it with sudo, or with CAP_BPF",
    "CAP_PERFMON": "is not permitted to trace (no CAP_PERFMON); run it with sudo, or with CAP_PERFMON",
    "CAP_DAC_READ_SEARCH": "tracefs may not be read; run as root",
}


@pytest.fixture
def folder(programs: Programs) -> Iterator[Path]:
    """Where nobody may write."""
    made = programs.folder / f"capabilities-{os.getpid()}"
    made.mkdir()
    os.chown(made, NOBODY, NOBODY)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def status_of(folder: Path) -> Status:
    status = Status(folder / "status")
    os.chown(status.path, NOBODY, NOBODY)
    return status


def run_with(capabilities: frozenset[str], *argv: str | Path, environ: Sequence[str] = ()) -> Done:
    """Run the command line as nobody with these capabilities alone."""
    held = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in sorted(capabilities))
    words = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    words += [f"--{name}=-all{held}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
    words += ["env", "PYTHONDONTWRITEBYTECODE=1", *environ, sys.executable, "-m", "fencepath", *map(str, argv)]
    script = "; ".join([*_opened([ROOT, Path(sys.prefix), Path(sys.base_prefix)]), f"exec {shlex.join(words)}"])
    done = subprocess.run(
        ["unshare", "-m", "sh", "-e", "-c", script], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _opened(paths: Sequence[Path]) -> Iterator[str]:
    """Commands that make folders, which may lie in somebody's home, reachable by everybody in this mount namespace."""
    closed: dict[Path, list[Path]] = {}
    for path in paths:
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 1:
                closed.setdefault(parent, []).append(path)
                break
    for number, (parent, inside) in enumerate(closed.items()):
        kept = f"/mnt/{number}"
        yield "mount -t tmpfs none /mnt" if number == 0 else ":"
        yield f"mkdir {kept} && mount --bind {parent} {kept} && mount -t tmpfs -o mode=755 none {parent}"
        for path in inside:
            yield f"mkdir -p {path} && mount --bind {kept}/{path.relative_to(parent)} {path}"


def test_security_md_says_the_same() -> None:
    rows = re.findall(
        r"^\| (?P<feature>[^|]+) \| (?P<needs>CAP_[^|]+) \| [^|]* \|$", SECURITY.read_text(), re.MULTILINE
    )
    assert {feature.strip(): frozenset(needs.strip().split(", ")) for feature, needs in rows} == NEEDS


def test_a_command_is_recorded(folder: Path, programs: Programs) -> None:
    status, path = status_of(folder), folder / "command.fencepath"
    command = (programs.steady, status.path, programs.libcuda, "53")
    known = (f"LD_LIBRARY_PATH={programs.folder}",)
    done = run_with(BASE, *record(path, layers="cuda,host"), "--", *command, environ=known)
    assert done.code == CODE, done.errors
    recording = open_recording(path)
    assert calls(recording, "cuda.stream.synchronize") == 53
    assert calls(recording, "host.switch") > 0
    assert path.stat().st_uid == NOBODY


@pytest.mark.parametrize("missing", sorted(BASE))
def test_one_less_is_told(folder: Path, missing: str) -> None:
    path, ran = folder / "less.fencepath", folder / "ran"
    done = run_with(BASE - {missing}, *record(path), "--", "touch", ran)
    assert done.code == 3, done.errors
    assert SAID[missing] in done.errors
    assert len(done.errors.splitlines()) == 1
    assert not path.exists()
    assert not ran.exists()


def test_a_process_of_another_user_is_recorded(folder: Path, programs: Programs) -> None:
    path = folder / "other.fencepath"
    with Steady(programs, folder, "other") as target:
        needs = NEEDS["a process of another user, a cgroup, a container, a pod"]
        done = run_with(needs, *record(path, "--duration", "1s", layers="cuda"), "--pid", str(target.pid))
        assert done.code == 0, done.errors
        assert target.end() == CODE
    assert calls(open_recording(path), "cuda.stream.synchronize") > 0


def test_without_the_right_to_look_at_other_users_processes_it_is_said(folder: Path, programs: Programs) -> None:
    path = folder / "blind.fencepath"
    with Steady(programs, folder, "blind") as target:
        done = run_with(BASE, *record(path, "--duration", "500ms", layers="cuda"), "--pid", str(target.pid))
        assert done.code == 0, done.errors
        assert f"libraries of {target.pid}: " in done.errors
        assert "add CAP_SYS_PTRACE" in done.errors
        assert target.end() == CODE
    recording = open_recording(path)
    assert any(check["name"] == f"libraries of {target.pid}" for check in recording.manifest.extra["checks"])


def test_uprobes_by_perf_events(folder: Path, programs: Programs) -> None:
    status, path = status_of(folder), folder / "perf.fencepath"
    command = (programs.steady, status.path, programs.libcuda, "31")
    forced = ("FENCEPATH_UPROBE_ATTACH=perf", f"LD_LIBRARY_PATH={programs.folder}")
    needs = NEEDS["uprobes by perf events (where uprobe_multi is refused)"]
    done = run_with(needs, *record(path, layers="cuda"), "--", *command, environ=forced)
    assert done.code == CODE, done.errors
    assert calls(open_recording(path), "cuda.stream.synchronize") == 31


def test_uprobes_by_perf_events_where_they_ask_for_more(folder: Path) -> None:
    """Only kernels in which CVE-2025-38466 is mended do; others record."""
    path = folder / "refused.fencepath"
    done = run_with(BASE, *record(path, layers="cuda"), "--", "true", environ=("FENCEPATH_UPROBE_ATTACH=perf",))
    assert done.code in (0, 3), done.errors
    if done.code:
        assert "CAP_SYS_ADMIN for uprobes by perf event" in done.errors
        assert not path.exists()


def test_doctor_tells_a_user_without_capabilities_what_to_do() -> None:
    done = run_with(frozenset(), "doctor")
    assert done.code == 1
    text = " ".join(done.output.split())
    assert "may not create bpf maps (no CAP_BPF)" in text
    assert "Traceback" not in done.errors


def test_a_cgroup_is_recorded(folder: Path, programs: Programs) -> None:
    """Of another user's processes that were there before."""
    path, group = folder / "cgroup.fencepath", unified_mount() / f"fencepath-capabilities-{os.getpid()}"
    group.mkdir()
    before = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    try:
        with Steady(programs, folder, "grouped", before) as target:
            needs = NEEDS["a process of another user, a cgroup, a container, a pod"]
            done = run_with(needs, *record(path, "--duration", "1s", layers="cuda"), "--cgroup", group)
            assert done.code == 0, done.errors
            assert target.end() == CODE
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the cgroup to be empty")
        group.rmdir()
    assert calls(open_recording(path), "cuda.stream.synchronize") > 0
