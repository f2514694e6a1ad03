# SPDX-License-Identifier: Apache-2.0
"""Programs in namespaces of their own, as in containers, and fencepath itself in one."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.faults.calling import Caller, Calls, Said, calls_of, said_in
from tests.faults.commandline import Done, ForkServer, fencepath

from fencepath import Analysis
from fencepath.recording import Recording
from fencepath.requests import Request, RequestState

pytestmark = pytest.mark.bpf

COUNTS = {"pid": 101, "mount": 103, "overlay": 107, "time": 109, "user": 113}
AHEAD_S = 1_000_003
"""What the clock of the time namespace is ahead."""

# What a container brings, each by itself. The libraries of the second and third can be reached in their mounts only.
SCRIPT = """
run() { "$PROGRAM" "$TRUTH" "$1" patient "$2" "$3" marked; }
export -f run
unshare --pid --fork --mount-proc bash -c 'run "$LIBRARY" pid 101' &
unshare --mount bash -c 'mount -t tmpfs none "$M" && cp "$LIBRARY" "$M/" && run "$M/libcuda.so.1" mount 103' &
unshare --mount bash -c 'mount -t tmpfs none "$O" && mkdir "$O"/{upper,work,merged} &&
    mount -t overlay none -o lowerdir="$LOWER",upperdir="$O/upper",workdir="$O/work" "$O/merged" &&
    run "$O/merged/libcuda.so.1" overlay 107' &
unshare --time --monotonic "$AHEAD_S" bash -c 'run "$LIBRARY" time 109' &
unshare --user --map-root-user bash -c 'run "$LIBRARY" user 113' &
wait
"""


class Namespaces(NamedTuple):
    """One recording of a program in each kind of namespace."""

    done: Done
    recording: Recording
    calls: Calls
    truth: dict[str, Said]
    requests: dict[str, Request]

    def process(self, label: str) -> dict[str, Any]:
        """The last that is known of the process with a label, which calls itself by another number in its namespace."""
        said = self.truth[label]
        facts = [fact.data for fact in self.recording.facts("process") if fact.data["name"] == "program"]
        return next(fact for fact in reversed(facts) if fact["namespace_pid"] == said.tgid)


@pytest.fixture(scope="module")
def namespaces(tmp_path_factory: pytest.TempPathFactory, caller: Caller) -> Namespaces:
    folder = tmp_path_factory.mktemp("namespaces")
    path, truth = folder / "all.fencepath", folder / "truth"
    places = {"M": folder / "mount", "O": folder / "overlay", "LOWER": caller.library.parent}
    for name in ("M", "O"):
        places[name].mkdir()
    environ = {name: str(place) for name, place in places.items()}
    environ |= {
        "PROGRAM": str(caller.program),
        "LIBRARY": str(caller.library),
        "TRUTH": str(truth),
        "AHEAD_S": str(AHEAD_S),
    }
    done = fencepath("record", "-o", path, "--layers", "cuda", "--", "bash", "-c", SCRIPT, environ=environ)
    recording, calls = calls_of(path)
    requests = {request.key: request for request in Analysis(recording).requests}
    return Namespaces(done, recording, calls, {said.label: said for said in said_in(truth)}, requests)


@pytest.mark.parametrize("label", COUNTS)
def test_every_call_is_recorded_under_the_number_that_the_host_knows(namespaces: Namespaces, label: str) -> None:
    assert namespaces.done.code == 0, namespaces.done.errors
    assert set(namespaces.truth) == set(COUNTS), namespaces.done.errors
    process = namespaces.process(label)
    assert sum(call.tgid == process["pid"] for call in namespaces.calls.all) == COUNTS[label]
    assert not [row for row in namespaces.recording.loss if row.count]


@pytest.mark.parametrize("label", COUNTS)
def test_marks_and_calls_have_the_host_s_time(namespaces: Namespaces, label: str) -> None:
    said, process = namespaces.truth[label], namespaces.process(label)
    ahead_ns = AHEAD_S * 10**9 if label == "time" else 0
    assert process["monotonic_offset_ns"] == ahead_ns
    calls = [call for call in namespaces.calls.all if call.tgid == process["pid"]]
    begin_ns, end_ns = said.begin_ns - ahead_ns, said.end_ns - ahead_ns
    assert begin_ns < calls[0].begin_ns < calls[-1].time_ns < end_ns
    request = namespaces.requests[label]
    assert request.state is RequestState.COMPLETE
    assert 0 < begin_ns - request.start_ns < 10**9
    assert 0 < request.end_ns - end_ns < 10**9


def test_a_file_that_an_overlay_shows_is_not_probed_twice(namespaces: Namespaces) -> None:
    """The overlay's lower layer is the folder of the library; the mount has a copy of it, which is another file."""
    libraries = {fact.data["pid"]: fact.data["path"] for fact in namespaces.recording.facts("library")}
    assert {libraries[namespaces.process(label)["pid"]].split("/")[-2] for label in ("mount", "overlay")} == {
        "mount",
        "merged",
    }
    assert len(namespaces.recording.facts("image")) == 2


def test_what_a_process_is_in_is_known(namespaces: Namespaces) -> None:
    own = {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "mnt", "time")}
    inside = {label: namespaces.process(label) for label in COUNTS}
    assert {label for label in COUNTS if inside[label]["pid_namespace"] != own["pid"]} == {"pid"}
    assert {label for label in COUNTS if inside[label]["time_namespace"] != own["time"]} == {"time"}
    elsewhere = {label for label in COUNTS if inside[label]["mount_namespace"] != own["mnt"]}
    assert elsewhere == {"pid", "mount", "overlay"}
    assert inside["pid"]["pid"] != inside["pid"]["namespace_pid"]


@pytest.mark.parametrize("kind", ["pid", "time"])
def test_fencepath_itself_inside_of_one_is_refused(kind: str, tmp_path: Path) -> None:
    flags = {"pid": ("--pid", "--fork"), "time": ("--time", "--monotonic", "1000")}[kind]
    path = tmp_path / "inside.fencepath"
    done = fencepath("record", "-o", path, "--", "touch", tmp_path / "ran", before=("unshare", *flags))
    assert done.code == 3
    (line,) = done.errors.splitlines()
    assert line.startswith(f"fencepath: fencepath runs in a {kind} namespace of its own")
    assert "run it on the host" in line
    assert not path.exists()
    assert not (tmp_path / "ran").exists()


def test_doctor_says_so_too() -> None:
    done = fencepath("doctor", "--json", before=("unshare", "--pid", "--fork"))
    assert done.code == 1
    assert '"name":"namespaces","verdict":"refuse"' in done.output


def test_fencepath_in_mount_and_time_namespaces_without_an_offset_records(tmp_path: Path, caller: Caller) -> None:
    truth, path = tmp_path / "truth", tmp_path / "inside.fencepath"
    words = caller.command(truth, "plain", "inside", "127")
    environ = {"LD_LIBRARY_PATH": str(caller.library.parent)}
    before = ("unshare", "--mount", "--time")
    done = fencepath("record", "-o", path, "--layers", "cuda", "--", *words, before=before, environ=environ)
    assert done.code == 0, done.errors
    assert calls_of(path)[1].counts(said_in(truth)) == {("inside", "cuMemAlloc_v2"): (127, 127)}


def test_recording_a_process_in_another_pid_namespace_by_its_host_number(
    tmp_path: Path, caller: Caller, commands: ForkServer
) -> None:
    """What `--pid` takes is the number that the host knows; the program's own may be somebody else's there."""
    path, truth = tmp_path / "one.fencepath", tmp_path / "truth"
    words = caller.command(truth, "patient", "one", "131", library=caller.library)
    script = f"unshare --pid --fork --kill-child {shlex.join(words)} & echo $!; wait"
    process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        pid = process.stdout.readline().strip()
        done = commands.run("record", "-o", path, "--layers", "cuda", "--pid", pid)
        assert process.wait(30) == 0
    assert done.code == 0, done.errors
    assert len(calls_of(path)[1].all) == 131
