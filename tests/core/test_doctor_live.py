# SPDX-License-Identifier: Apache-2.0
"""What doctor sees on this machine and of processes that are made for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from fencepath._doctor import capture, examine, judge, load_state, look, processes, save_state
from fencepath._doctor.processes import capture_process
from fencepath._doctor.state import MachineState
from fencepath._doctor.trials import HELPERS, try_all
from fencepath.cli.application import app
from fencepath.errors import UsageError
from fencepath.plugin import Check

pytestmark = pytest.mark.bpf


@pytest.fixture(scope="module")
def examined() -> tuple[MachineState, list[tuple[str, Check]]]:
    return examine()


@contextmanager
def python(script: str, *argv: str) -> Generator[int]:
    """A Python process that has run a script."""
    words = [sys.executable, "-c", f"{script}\nprint('ready', flush=True)\nimport sys; sys.stdin.read()", *argv]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate()


def test_everything_that_programs_call_is_tried() -> None:
    folder = Path(capture.__file__).parents[1]
    text = "".join(path.read_text() for path in [*folder.rglob("*.h"), *folder.rglob("*.c")])
    called = {f"bpf_{name}" for name in re.findall(r"\bbpf_([a-z_]+)\(", text)}
    # of the compiler's, and two that go with one that is tried
    called -= {"bpf_pseudo_fd", "bpf_ringbuf_submit", "bpf_ringbuf_discard"}
    # where it is not there functions are had by kprobes: _bpf/kernel_functions.py tries both
    called -= {"bpf_get_func_ret"}
    assert called <= set(HELPERS)


def test_what_works_here_is_found_to_work() -> None:
    """The suite of BPF tests records on this machine: then all of it must load."""
    assert {name: trial for name, trial in try_all().items() if not trial.works} == {}


def test_trials_leave_nothing_open() -> None:
    try_all()
    before = sorted(Path("/proc/self/fd").iterdir())
    try_all()
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_capabilities_are_the_kernel_s() -> None:
    """The kernel's header has the names too."""
    mask = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    header = Path("/usr/include/linux/capability.h").read_text()
    names = {name: int(bit) for name, bit in re.findall(r"^#define (CAP_\w+)\s+(\d+)$", header, re.MULTILINE)}
    assert len(names) > 35
    assert {name for name, bit in names.items() if int(mask, 16) >> bit & 1} == set(capture.capabilities())


def test_this_machine_is_not_blocked(examined: tuple[MachineState, list[tuple[str, Check]]]) -> None:
    state, checks = examined
    assert [check for _, check in checks if check.verdict == "refuse"] == []
    assert state.kernel == os.uname().release
    assert state.bcc.version
    assert int(state.bcc.llvm.split(".")[0]) >= 10
    assert state.costs is not None
    assert 0 < state.costs.emulated_ns < state.costs.stepped_ns
    assert state.functions is not None
    assert state.functions[0] >= state.functions[1] > 0


def test_formats_that_layers_asked_for_are_captured(examined: tuple[MachineState, list[tuple[str, Check]]]) -> None:
    formats = examined[0].tracepoints.formats
    assert formats["sched:sched_switch"] == Path("/sys/kernel/tracing/events/sched/sched_switch/format").read_text()
    assert formats["syscalls:sys_enter_prctl"].startswith("name: sys_enter_prctl\n")


def test_a_saved_state_is_judged_the_same(
    tmp_path: Path, examined: tuple[MachineState, list[tuple[str, Check]]]
) -> None:
    state, checks = examined
    save_state(state, tmp_path / "here.json")
    assert [("core", check) for check in judge(load_state(tmp_path / "here.json"))] == [
        pair for pair in checks if pair[0] == "core"
    ]


def test_command_line(tmp_path: Path) -> None:
    saved = tmp_path / "here.json"
    done = CliRunner().invoke(app, ["doctor", "--json", "--save", str(saved)])
    assert done.exit_code == 0, done.output
    printed = msgspec.json.decode(done.stdout)
    assert printed["schema"] == "fencepath.doctor/1"
    assert printed["machine"]["kernel"] == os.uname().release
    assert {"layer", "name", "verdict", "evidence", "cost", "remedy"} == set(printed["checks"][0])
    again = CliRunner().invoke(app, ["doctor", "--json", "--state", str(saved)])
    assert again.exit_code == 0
    core = [check for check in printed["checks"] if check["layer"] == "core" and not check["name"].startswith("cost")]
    assert [check for check in msgspec.json.decode(again.stdout)["checks"] if check in core] == core


def test_command_line_of_a_machine_that_blocks() -> None:
    machine = Path(__file__).parent / "machines/lockdown-confidentiality.json"
    done = CliRunner().invoke(app, ["doctor", "--state", str(machine)], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert "blocked" in done.stdout
    assert "to mend it: boot without lockdown=confidentiality" in done.stdout


@pytest.mark.parametrize("words", [("--pid", "1"), ("--save", "x")])
def test_a_state_and_this_machine_cannot_both_be_judged(tmp_path: Path, words: Sequence[str]) -> None:
    done = CliRunner().invoke(app, ["doctor", "--state", str(tmp_path / "s.json"), *words])
    assert isinstance(done.exception, UsageError)


class TestProcesses:
    def test_a_plain_one(self) -> None:
        with python("") as pid:
            state = capture_process(pid)
        assert (state.pid, state.uid, state.seccomp, state.io_urings, state.bits) == (pid, os.getuid(), 0, 0, 64)
        assert state.namespaces == ()
        assert state.maps.works
        assert not state.shadow_stack

    def test_io_uring(self) -> None:
        setup = (
            "import ctypes\n"
            "assert ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)) > 0\n"
            "assert ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)) > 0\n"
        )
        with python(setup) as pid:
            assert capture_process(pid).io_urings == 2

    def test_one_that_switches_stacks(self, tmp_path: Path) -> None:
        library = tmp_path / "_greenlet.cpython-311-x86_64-linux-gnu.so"
        subprocess.run(["cc", "-shared", "-xc", "/dev/null", "-o", str(library)], check=True)
        with python("import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(library)) as pid:
            assert capture_process(pid).switches_stacks == (library.name,)

    def test_namespaces(self) -> None:
        words = ["unshare", "--uts", "--ipc", "--net", "sh", "-c", "echo ready; read line"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            state = capture_process(process.pid)
            process.communicate(b"\n")
        assert state.namespaces == ("ipc", "net")

    @pytest.mark.parametrize(("name", "bits"), [("native", 64), ("older", 32), ("script", None)])
    def test_class_of_the_program(self, tmp_path: Path, name: str, bits: int | None) -> None:
        """Only the first bytes of /proc/PID/exe are read."""
        image = bytearray(Path(sys.executable).resolve().read_bytes()[:64])
        if name == "older":
            image[4] = 1
        (tmp_path / "exe").write_bytes(b"#!/bin/sh" if name == "script" else image)
        assert processes._bits(tmp_path) == bits

    def test_linked_in_functions(self, tmp_path: Path) -> None:
        """A program with a layer's function linked into it, and no library."""
        source, program = tmp_path / "p.c", tmp_path / "program"
        source.write_text("int cuStreamSynchronize(void *s) { return s != 0; }\nint main() { return getchar() < 0; }\n")
        subprocess.run(["cc", "-w", str(source), "-o", str(program)], check=True)
        with subprocess.Popen([str(program)], stdin=subprocess.PIPE) as process:
            state, checks = examine(process.pid)
            process.communicate(b"\n")
        (library,) = state.libraries
        assert (library.layer, library.linked_in, library.found) == ("cuda", True, 1)
        assert any(check.verdict == "warn" and check.name == f"cuda in {program}" for _, check in checks)


def test_record_looks_at_little() -> None:
    """Nothing is compiled and no plugin asked."""
    state = look(os.getpid())
    assert state.process is not None
    assert (state.bcc.version, state.libraries, state.costs) == ("", (), None)
