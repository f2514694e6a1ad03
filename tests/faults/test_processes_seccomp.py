# SPDX-License-Identifier: Apache-2.0
"""Programs with seccomp filters: they live as without a recording, and what is not recorded of them is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.faults.calling import Caller, Calls, Said, calls_of, said_in
from tests.faults.commandline import Done, ForkServer, fencepath

from fencepath import Analysis
from fencepath._bpf.attach import UprobeMethod
from fencepath._record.probe_loops import BODIES, LoopCode
from fencepath._record.return_probes import _comes_back, seccomp_ends_returns
from fencepath.recording import Recording
from fencepath.records import Flags

pytestmark = pytest.mark.bpf

COUNTS = {"kill_filter": 59, "errno_filter": 61, "strict": 67, "silent": 71, "heard": 73}
WARNING = "fencepath: marks are not recorded: prctl(0x46504d4b) was answered with errno 1 instead of EINVAL"

# A kernel from 6.11 on without the later mending cannot be had at will: what is found out about it is put in its place.
FILTERING = """
import sys
from fencepath._record import uprobes
uprobes.seccomp_ends_returns = lambda method: True
from fencepath.cli import main
sys.argv[0] = "fencepath"
main()
"""


class Filtered(NamedTuple):
    """The program's mode filters, recorded."""

    done: Done
    alone: Done
    recording: Recording
    calls: Calls
    truth: list[Said]

    def flags(self, label: str) -> list[int]:
        """Flags of the recorded calls of a label; strict does not know its number, so all of its calls are told by the rest."""
        known = {said.tgid for said in self.truth if said.label != "strict"}
        (said,) = (said for said in self.truth if said.label == label)
        if label == "strict":
            return [call.flags for call in self.calls.all if call.tgid not in known]
        return [call.flags for call in self.calls.of(said)]


@pytest.fixture(scope="module", params=["this kernel", "one that shows uretprobe(2) to filters"])
def filtered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, caller: Caller) -> Filtered:
    folder = tmp_path_factory.mktemp("filters")
    path, truth = folder / "filters.fencepath", folder / "truth"
    environ = {**os.environ, "LD_LIBRARY_PATH": str(caller.library.parent)}
    words = caller.command(folder / "alone", "filters")
    alone = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=60)
    start = ["-m", "fencepath"] if request.param == "this kernel" else ["-c", FILTERING]
    options = ["record", "-o", str(path), "--layers", "cuda", "--", *caller.command(truth, "filters")]
    ended = subprocess.run(
        [sys.executable, *start, *options], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    return Filtered(done, Done(alone.returncode, alone.stdout, alone.stderr), *calls_of(path), said_in(truth))


def returns_are_probed(filtered: Filtered) -> bool:
    layer = filtered.recording.manifest.layers["cuda"]
    return not any(missing.probe == "returns" for missing in layer.missing)


def test_no_filter_sees_a_probe(filtered: Filtered) -> None:
    """By signal, by errno, by the strict mode: the program's ends and output are its own."""
    assert (filtered.done.code, filtered.done.output) == (filtered.alone.code, filtered.alone.output)
    assert filtered.done.output == "child 0 0\nchild 0 0\nchild 8 0\nchild 0 0\nchild 0 0\n"
    assert filtered.done.code == 9


@pytest.mark.parametrize("label", COUNTS)
def test_every_call_of_a_filtered_program_is_recorded(filtered: Filtered, label: str) -> None:
    flags = filtered.flags(label)
    assert len(flags) == COUNTS[label]
    assert {bool(flag & Flags.ENTRY_ONLY) for flag in flags} == {not returns_are_probed(filtered)}
    assert not any(flag & Flags.OPEN for flag in flags)


def test_ends_of_calls_are_given_up_only_where_they_would_harm_and_that_is_said(
    filtered: Filtered, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["filtered"] == "this kernel":
        assert returns_are_probed(filtered) is not seccomp_ends_returns(UprobeMethod.MULTI)
    else:
        assert not returns_are_probed(filtered)
    said = (
        "fencepath: not recorded: cuda: this kernel lets seccomp filters refuse return probes" in filtered.done.errors
    )
    assert said is not returns_are_probed(filtered)


def test_marks_that_a_filter_answers_are_not_recorded_and_the_program_says_so_once(filtered: Filtered) -> None:
    assert filtered.done.errors.count(WARNING) == filtered.alone.errors.count(WARNING) == 1
    assert [request.key for request in Analysis(filtered.recording).requests] == ["heard"]


def test_the_trial_tells_a_function_that_does_not_come_back() -> None:
    with LoopCode({"good": BODIES["emulated"], "bad": bytes.fromhex("0f0b")}) as code:
        assert _comes_back(code, code.sites["good"].function)
        assert not _comes_back(code, code.sites["bad"].function)


def test_doctor_tells_that_a_process_has_a_filter(commands: ForkServer) -> None:
    script = (
        "import ctypes, struct, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
        "program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))\n"
        "assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        done = commands.run("doctor", "--pid", str(process.pid), "--json")
        process.communicate()
    checks = {check["name"]: check for check in msgspec.json.decode(done.output)["checks"]}
    check = checks[f"seccomp of {process.pid}"]
    assert check["verdict"] == "warn"
    assert "prctl(2)" in check["cost"]
    assert checks["return probes"]["verdict"] == ("degrade" if seccomp_ends_returns(UprobeMethod.MULTI) else "ok")
    assert done.code == 0


def test_a_filter_that_answers_prctl_of_a_python_program_is_told_once(tmp_path: Path) -> None:
    """The client in Python warns as the one in C does."""
    script = (
        "import ctypes, struct\n"
        "from fencepath import mark\n"
        "libc = ctypes.CDLL(None)\n"
        "filter = struct.pack('HBBI' * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 157, 6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000)\n"
        "code = ctypes.create_string_buffer(filter)\n"
        "program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(code)))\n"
        "assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0)\n"
        "for _ in range(3):\n"
        "    mark.request_end(mark.request_begin('python'))\n"
    )
    path = tmp_path / "python.fencepath"
    done = fencepath("record", "-o", path, "--layers", "mark", "--", sys.executable, "-W", "default", "-c", script)
    assert done.code == 0, done.errors
    assert done.errors.count("marks are not recorded") == 1
    assert fencepath("report", path).code == 1
