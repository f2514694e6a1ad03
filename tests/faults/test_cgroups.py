# SPDX-License-Identifier: Apache-2.0
"""Who is in a cgroup, a container or a pod is recorded, whenever and however it came there, and nobody else."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.faults.calling import Caller, Calls, Said, calls_of, said_in
from tests.faults.commandline import Done, ForkServer, fencepath, until

from fencepath._record.cgroups import _version_one, find_cgroup, find_container, find_pod, unified_mount
from fencepath.errors import MachineError, UsageError
from fencepath.recording import Recording, open_recording

pytestmark = pytest.mark.bpf

CONTAINER = "0123456789ab" + "cdef" * 13
OTHER = "0123456789ab" + "0" * 52
POD = "01234567-89ab-cdef-0123-456789abcdef"
INSIDE = {"before": 101, "later": 103, "forked": 107, "moved": 109, "namespaced": 113}
OUTSIDE = 127


@pytest.fixture(scope="module")
def mount() -> Iterator[Path]:
    """Where cgroup2 is mounted; here for the time being, on a machine that has none."""
    try:
        yield unified_mount()
        return
    except MachineError:
        place = Path("/sys/fs/cgroup")
    subprocess.run(["mount", "-t", "cgroup2", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def tree(mount: Path) -> Iterator[Path]:
    """A cgroup of our own, with those of a container runtime and of a kubelet in it."""
    root = mount / f"fencepath-test-{os.getpid()}"
    pod = root / f"kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice"
    for folder in (root / "a/sub", root / f"docker-{CONTAINER}.scope/inner", pod / f"cri-containerd-{OTHER}.scope"):
        folder.mkdir(parents=True)
    yield root
    remove(root)


def remove(root: Path) -> None:
    """Remove a cgroup and all below it, when they are empty."""
    folders = sorted((Path(name) for name, _, _ in os.walk(root)), reverse=True)
    for folder in folders:
        until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), f"{folder} to be empty")  # type: ignore[misc]  # bound at once
        folder.rmdir()


class TestFind:
    @pytest.mark.parametrize("spelling", ["{folder}", "{folder}/", "{path}", "{bare}"])
    def test_by_path(self, tree: Path, mount: Path, spelling: str) -> None:
        path = f"/{tree.relative_to(mount)}/a"
        found = find_cgroup(spelling.format(folder=tree / "a", path=path, bare=path[1:]))
        assert (found.folder, found.id, found.name) == (tree / "a", (tree / "a").stat().st_ino, path)
        assert found.exists()

    def test_the_root(self, mount: Path) -> None:
        assert find_cgroup(str(mount)).name == "/"
        assert os.getpid() in find_cgroup("/").processes()

    def test_none(self, tree: Path, mount: Path) -> None:
        with pytest.raises(UsageError, match=f"there is no cgroup .*; there is .*/{tree.name}/a"):
            find_cgroup(f"/{tree.name}/aa")
        with pytest.raises(UsageError, match=f"look below {mount}"):
            find_cgroup("/no/thing/like/this/anywhere")

    def test_a_folder_that_is_no_cgroup(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="there is no cgroup"):
            find_cgroup(str(tmp_path))

    @pytest.mark.parametrize("digits", [13, 20, 64])
    def test_container(self, tree: Path, digits: int) -> None:
        assert find_container(CONTAINER[:digits]).folder == tree / f"docker-{CONTAINER}.scope"

    def test_two_containers_that_begin_alike(self, tree: Path) -> None:
        with pytest.raises(UsageError, match=r"could be .*docker-.*; name one by --cgroup PATH"):
            find_container(CONTAINER[:12])

    @pytest.mark.parametrize("text", ["", "web", CONTAINER[:11], CONTAINER.upper(), CONTAINER + "0"])
    def test_no_container_id(self, text: str) -> None:
        with pytest.raises(UsageError, match="is no container id"):
            find_container(text)

    def test_no_such_container(self, mount: Path) -> None:
        with pytest.raises(UsageError, match="there is no container ffffffffffff here"):
            find_container("f" * 12)

    def test_pod(self, tree: Path) -> None:
        """All containers of it are below."""
        assert find_pod(POD).folder.name == f"kubepods-pod{POD.replace('-', '_')}.slice"

    def test_pod_of_the_other_driver(self, tree: Path) -> None:
        uid = POD.replace("0", "f")
        folder = tree / f"pod{uid}"
        folder.mkdir()
        try:
            assert find_pod(uid).folder == folder
        finally:
            folder.rmdir()

    @pytest.mark.parametrize("text", ["", "my-pod", POD.replace("-", "_"), POD[:-1]])
    def test_no_pod_uid(self, text: str) -> None:
        with pytest.raises(UsageError, match="kubectl get pod NAME"):
            find_pod(text)

    def test_one_that_is_gone(self, tree: Path) -> None:
        folder = tree / "short"
        folder.mkdir()
        found = find_cgroup(str(folder))
        folder.rmdir()
        assert (found.exists(), found.processes()) == (False, [])
        folder.mkdir()
        assert not found.exists()
        folder.rmdir()

    def test_a_container_that_only_version_1_knows(self, tmp_path: Path) -> None:
        for pid, text in {"7": "0::/\n", "8": f"9:memory:/docker/{CONTAINER}\n0::/\n"}.items():
            (tmp_path / pid).mkdir()
            (tmp_path / pid / "cgroup").write_text(text)
        assert _version_one(CONTAINER, tmp_path) == f"9:memory:/docker/{CONTAINER}"
        assert _version_one(OTHER, tmp_path) == ""


class Inside(NamedTuple):
    """A recording of a cgroup."""

    done: Done
    recording: Recording
    calls: Calls
    truth: dict[str, Said]


def joining(folder: Path, words: Sequence[str], before: str = "exec") -> list[str]:
    """What moves a shell into a cgroup and then starts words."""
    return ["sh", "-c", f"echo $$ > {folder}/cgroup.procs; {before} {shlex.join(words)}"]


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory, caller: Caller, commands: ForkServer, mount: Path) -> Inside:
    """A recording that ends when its cgroup is removed."""
    folder = tmp_path_factory.mktemp("cgroup")
    path, truth = folder / "c.fencepath", folder / "truth"
    root = mount / f"fencepath-recorded-{os.getpid()}"
    (root / "sub").mkdir(parents=True)

    def words(label: str) -> list[str]:
        count = INSIDE.get(label, OUTSIDE)
        return caller.command(truth, "patient", label, str(count), library=caller.library)

    with contextlib.ExitStack() as started:

        def start(argv: list[str]) -> subprocess.Popen[bytes]:
            return started.enter_context(subprocess.Popen(argv))

        start(joining(root, words("before")))
        moved, outside = start(words("moved")), start(words("outside"))
        until(
            lambda: str(os.getpid()) not in (root / "cgroup.procs").read_text() and (root / "cgroup.procs").read_text(),
            "it to join",
        )
        running = commands.start("record", "-o", path, "--layers", "cuda", "--cgroup", root)
        until(lambda: "recording to" in running.errors or running.ended, "the recording to begin", 60)
        (root / "sub/cgroup.procs").write_text(str(moved.pid))
        start(joining(root / "sub", words("later")))
        start(joining(root, words("forked"), "sh -c 'exec \"$@\"; :' sh"))
        start(joining(root / "sub", words("namespaced"), "exec unshare --pid --fork --mount-proc"))
        assert outside.wait(60) == 0
    remove(root)
    recording, calls = calls_of(path) if running.wait().code == 0 else (None, None)
    assert recording is not None, running.errors
    assert calls is not None
    return Inside(running.wait(), recording, calls, {said.label: said for said in said_in(truth)})


@pytest.mark.parametrize("label", INSIDE)
def test_members_are_recorded_exactly(inside: Inside, label: str) -> None:
    begin_ns, end_ns = inside.truth[label].begin_ns, inside.truth[label].end_ns
    tgids = {call.tgid for call in inside.calls.all if begin_ns < call.begin_ns < end_ns}
    counts = [sum(call.tgid == tgid for call in inside.calls.all) for tgid in tgids]
    assert INSIDE[label] in counts


def test_nobody_else_is_recorded(inside: Inside) -> None:
    assert len(inside.calls.all) == sum(INSIDE.values())
    assert inside.truth["outside"].calls == OUTSIDE
    assert inside.truth["outside"].tgid not in {call.tgid for call in inside.calls.all}


def test_the_recording_says_what_it_is_of(inside: Inside) -> None:
    (target,) = inside.recording.manifest.targets
    assert target == f"cgroup /fencepath-recorded-{os.getpid()}"
    cgroups = {fact.data["cgroup"] for fact in inside.recording.facts("process") if fact.data["name"] == "program"}
    assert {name for name in cgroups if name.endswith("/sub")}


@pytest.mark.parametrize(("option", "value"), [("--container", CONTAINER[:20]), ("--pod", POD)])
def test_containers_and_pods(
    tmp_path: Path, caller: Caller, commands: ForkServer, tree: Path, option: str, value: str
) -> None:
    """A program in namespaces of its own, in a cgroup below that of the container or pod."""
    path, truth = tmp_path / "c.fencepath", tmp_path / "truth"
    found = find_container(value).folder if option == "--container" else find_pod(value).folder
    member = next(folder for folder in found.iterdir() if folder.is_dir())
    running = commands.start("record", "-o", path, "--layers", "cuda", option, value)
    until(lambda: "recording to" in running.errors or running.ended, "the recording to begin", 60)
    words = caller.command(truth, "patient", "in", "131", library=caller.library)
    script = "exec unshare --pid --fork --mount-proc --uts --ipc"
    assert subprocess.run(joining(member, words, script), check=False, timeout=60).returncode == 0
    time.sleep(0.1)
    running.kill(2)
    done = running.wait()
    assert done.code == 0, done.errors
    recording, calls = calls_of(path)
    assert len(calls.all) == 131
    assert recording.manifest.targets == (f"{option[2:]} {value}",)
    assert not [row for row in recording.loss if row.count]


def test_from_a_container_with_the_host_s_pids(tmp_path: Path, caller: Caller, tree: Path, mount: Path) -> None:
    """It has a cgroup namespace of its own, whose part of the hierarchy is mounted, and the host's is mounted elsewhere."""
    path, truth = tmp_path / "c.fencepath", tmp_path / "truth"
    for name in ("part", "whole"):
        (tmp_path / name).mkdir()
    member = tree / f"docker-{CONTAINER}.scope/inner"
    words = joining(member, caller.command(truth, "patient", "in", "137", library=caller.library))
    script = f"""
        echo $$ > {tree}/a/cgroup.procs
        exec unshare --mount --cgroup --uts --ipc --net sh -ec '
            mount -t cgroup2 none {tmp_path}/part; mount --bind {mount} {tmp_path}/whole; umount -l {mount}; exec "$@"' sh "$@"
        """
    with subprocess.Popen(words) as process:
        options = ("--layers", "cuda", "--duration", "5s", "--container", CONTAINER[:20])
        done = fencepath("record", "-o", path, *options, before=("sh", "-c", script, "sh"))
        assert done.code == 0, done.errors
        process.kill()
    assert len(calls_of(path)[1].all) == 137


def test_a_recorder_in_the_cgroup_does_not_record_itself(tmp_path: Path, tree: Path) -> None:
    path = tmp_path / "self.fencepath"
    before = ("sh", "-c", f'echo $$ > {tree}/a/cgroup.procs; exec "$@"', "sh")
    done = fencepath(
        "record", "-o", path, "--layers", "host", "--duration", "1s", "--cgroup", tree / "a", before=before
    )
    assert done.code == 0, done.errors
    recording = open_recording(path)
    assert [kind for kind in recording.kinds if any(len(batch) for batch in recording.iter_records(kind))] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--cgroup", "/none/such"), 2, "there is no cgroup /none/such"),
        (("--container", "web"), 2, "'web' is no container id; give at least 12 of its hexadecimal digits"),
        (("--pod", "web"), 2, "'web' is no pod UID; kubectl get pod NAME"),
        (("--cgroup", "/", "--pid", "1"), 2, "name what to record: one of"),
    ],
)
def test_wrong_use(
    tmp_path: Path, commands: ForkServer, mount: Path, words: Sequence[str], code: int, said: str
) -> None:
    done = commands.run("record", "-o", tmp_path / "w.fencepath", *words)
    assert (done.code, len(done.errors.splitlines())) == (code, 1)
    assert said in done.errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("", "cgroup2 is not mounted; mount -t cgroup2 none /sys/fs/cgroup"),
        (
            "mount -t cgroup -o none,name=fencepath none /mnt;",
            "cgroups of version 1 only, which bpf programs do not see",
        ),
    ],
)
def test_machines_without_cgroup2(tmp_path: Path, left: str, said: str) -> None:
    gone = "for place in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/self/mounts | tac); do umount -l $place; done"
    before = ("unshare", "-m", "sh", "-c", f'{gone}; {left} exec "$@"', "sh")
    done = fencepath("record", "-o", tmp_path / "n.fencepath", "--duration", "1s", "--cgroup", "/", before=before)
    assert done.code == 3, done.errors
    assert said in done.errors
