# SPDX-License-Identifier: Apache-2.0
"""Functions of the kernel, probed by fentry and by kprobes: what is taken, whose calls, and what is still open at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.core.live import LiveLayers, live_layers, until
from tests.core.planted import alternative, hooks

from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.kernel_functions import FORCE_VARIABLE, attach_function, functions_refused
from fencepath._kernel_functions.program import function_programs
from fencepath.errors import FencepathError
from fencepath.events import S32, S64, U64, Batch, Event, KindInfo, Role
from fencepath.kernel_functions import (
    FunctionRecord,
    FunctionValue,
    KernelFunction,
    ResolvedFunctions,
    decode_functions,
)
from fencepath.plugin import FunctionProbe
from fencepath.records import Flags, Records
from fencepath.system import System

pytestmark = [pytest.mark.kernel, pytest.mark.bpf]

_EMPTY = "int empty(struct pt_regs *ctx) { return 0; }"
CUT = FunctionRecord(
    kind="planted.truncate",
    # the first calls the second
    functions=(KernelFunction(("no_such_name", "vfs_truncate")), KernelFunction(("do_truncate",), within=0)),
    values=(
        FunctionValue(name="file", type="u64", argument=0, members=("path.dentry", "dentry.d_inode"), identity=True),
        FunctionValue(name="inode", type="u64", argument=0, members=("path.dentry", "dentry.d_inode", "inode.i_ino")),
        FunctionValue(name="length", type="s64", argument=1),
    ),
    result="s32",
)
READ = FunctionRecord(
    kind="planted.read",
    functions=(KernelFunction(("anon_pipe_read", "pipe_read")), KernelFunction(("eventfd_read",))),
    result="s64",
)


class Truncate(Event, frozen=True, kw_only=True, tag="planted.truncate"):
    """A file is cut."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)
    label: S32
    result: S64
    file: U64
    inode: U64
    length: S64


class Read(Event, frozen=True, kw_only=True, tag="planted.read"):
    """A pipe is read."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)
    label: S32
    result: S64


class Decoder:
    def decode(self, kind: str, records: Records) -> Batch:
        return decode_functions(kind, records, ("first", "second"))


class Seen:
    """What is recorded from now on of this process, which is a target.

    Attributes:
        live: the attached programs.
        loaded: those of functions.
    """

    def __init__(self, live: LiveLayers) -> None:
        self.live = live
        (self.loaded,) = (loaded for loaded in live.loaded if loaded.planned.functions)
        live.targets.add(os.getpid())
        self._lost = Counter(live.lost())
        self._begin_ns = time.monotonic_ns()

    def batch(self, kind: str) -> Batch:
        found = self.live.batch(kind)
        return found.take(found["begin_ns"] >= self._begin_ns)

    def lost(self, kind: str) -> dict[str, int]:
        """By stage."""
        more = Counter(self.live.lost())
        more.subtract(self._lost)
        return {stage: count for (of, stage), count in more.items() if of == kind and count}

    def skipped(self) -> int:
        """How often the kernel skipped a program, whoever called."""
        return sum(count for (_, stage), count in self.live.lost().items() if stage == "RECURSION")

    def open(self) -> dict[str, Records]:
        return dict(self.loaded.calls.open_calls(time.monotonic_ns()))


@pytest.fixture(scope="module", params=["fentry", "kprobe"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Force one way to attach."""
    functions_refused.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORCE_VARIABLE, request.param)
        yield request.param
    functions_refused.cache_clear()


@pytest.fixture(scope="module")
def attached(way: str) -> Iterator[LiveLayers]:
    """One set of programs for all tests; each looks at what comes after its begin."""
    assert functions_refused() == ""
    probes = tuple(FunctionProbe(record=record) for record in (CUT, READ))
    way_to_both = alternative(probes=probes, gives=(CUT.kind, READ.kind))
    layer = hooks(kinds=(Truncate, Read), alternatives=(way_to_both,), decoder=Decoder())
    with live_layers({"planted": layer}) as layers:
        assert layers.plan.missing == []
        yield layers


@pytest.fixture
def seen(attached: LiveLayers) -> Seen:
    return Seen(attached)


def refused(act: Callable[[], None]) -> bool:
    try:
        act()
    except OSError:
        return True
    return False


def test_calls_with_what_they_were_given_and_returned(seen: Seen, tmp_path: Path) -> None:
    """And the call inside each one is part of it."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.write_bytes(bytes(8192))
    begin_ns = time.monotonic_ns()
    for path, length in ((first, 5000), (second, 300), (first, 1)):
        os.truncate(path, length)
    assert refused(lambda: os.truncate(first, -1)), "the system call refuses that itself"
    assert refused(lambda: os.truncate(tmp_path, 0))
    end_ns = time.monotonic_ns()
    batch = seen.batch(CUT.kind)
    assert batch["length"].tolist()[:3] == [5000, 300, 1]
    assert batch["result"].tolist()[:3] == [0, 0, 0]
    assert set(batch["result"].tolist()[3:]) <= {-21}  # EISDIR, by some kernels before the function
    assert {batch.labels[label] for label in batch["label"].tolist()} == {"first"}
    inodes = [path.stat().st_ino for path in (first, second, first)]
    assert batch["inode"].tolist()[:3] == inodes
    same = batch["file"].tolist()
    assert same[0] == same[2] != same[1]
    assert not {number >> 47 for number in same} & {0x1FFFF}, "an address of the kernel"
    assert (
        (batch["begin_ns"] >= begin_ns) & (batch["begin_ns"] < batch["time_ns"]) & (batch["time_ns"] <= end_ns)
    ).all()
    assert set(batch["tgid"].tolist()) == {os.getpid()}
    assert set(batch["flags"].tolist()) == {int(Flags.TASK)}
    assert seen.lost(CUT.kind) == {}


def test_calls_of_others_leave_nothing(seen: Seen, tmp_path: Path) -> None:
    """This process is no target for a while."""
    path, pid = tmp_path / "file", os.getpid().to_bytes(4, "little")
    path.write_bytes(bytes(100))
    assert seen.live.shared.tgids.delete(pid)
    os.truncate(path, 7)
    seen.live.targets.add(os.getpid())
    os.truncate(path, 3)
    assert seen.batch(CUT.kind)["length"].tolist() == [3]
    assert seen.lost(CUT.kind) == {}


def test_a_call_that_has_not_returned_is_open(seen: Seen) -> None:
    here, there = os.pipe()
    reader = threading.Thread(target=os.read, args=(here, 1), daemon=True)
    reader.start()
    until(lambda: READ.kind in seen.open())
    found = seen.open()[READ.kind]
    assert found["reserved"].tolist() == [0]
    assert found["tid"].tolist() == [reader.native_id]
    assert found["flags"].tolist() == [int(Flags.TASK | Flags.OPEN)]
    assert (found["begin_ns"] <= found["time_ns"]).all()
    os.write(there, b"x")
    reader.join()
    until(lambda: len(seen.batch(READ.kind)) > 0)
    record = seen.live.records(READ.kind)[-1]
    assert (record["tid"], record["begin_ns"], record["result"]) == (reader.native_id, found["begin_ns"][0], 1)
    assert READ.kind not in seen.open()
    os.close(here)
    os.close(there)


def test_threads_are_told_apart(way: str, seen: Seen, tmp_path: Path) -> None:
    calls, threads = 200, 4

    def cut(number: int) -> None:
        path = tmp_path / str(number)
        path.write_bytes(bytes(4096))
        for length in range(calls):
            os.truncate(path, 1000 * number + length)

    workers = [threading.Thread(target=cut, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    batch = seen.batch(CUT.kind)
    for number, worker in enumerate(workers):
        mine = batch["tid"] == worker.native_id
        assert set(batch["length"][mine].tolist()) <= {1000 * number + length for length in range(calls)}
        assert len(np.unique(batch["length"][mine])) == int(mine.sum())
    # a program by fentry that is preempted is skipped for other threads of its CPU, and that is counted
    missing = calls * threads - len(batch)
    assert 0 <= missing <= (seen.skipped() if way == "fentry" else 0)


def test_returns_that_are_missed_hide_no_other_call(way: str, seen: Seen) -> None:
    """Of kprobes the kernel follows so many threads to the return and no more. What it did not follow is never said to be open."""
    threads = 40
    here, there = os.pipe()
    counter = os.eventfd(threads, os.EFD_SEMAPHORE)
    begun = threading.Barrier(threads + 1)

    def read() -> None:
        begun.wait()
        os.read(here, 1)
        os.eventfd_read(counter)

    workers = [threading.Thread(target=read, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    begun.wait()
    until(lambda: sum(map(len, seen.open().values())) == threads, 20)
    os.write(there, b"x" * threads)
    for worker in workers:
        worker.join(10)
    mine = {worker.native_id or 0 for worker in workers}
    batch = seen.batch(READ.kind)
    batch = batch.take(np.isin(batch["tid"], list(mine)))
    of = [batch["tid"][batch["label"] == number].tolist() for number in (0, 1)]
    assert sorted(of[1]) == sorted(mine)
    left = {kind: (records, sure) for kind, records, sure in seen.loaded.open_calls(time.monotonic_ns())}
    if way == "fentry":
        assert (len(of[0]), left) == (threads, {})
    else:
        records, sure = left[READ.kind]
        assert len(of[0]) + len(records) == threads
        assert set(records["tid"].tolist()) <= mine
        assert not sure
        if os.environ["FENCEPATH_VM_UPROBES"] == "multi":  # a kernel that is new enough to count them
            assert seen.loaded.skipped()[READ.kind] >= len(records) > 0
    assert seen.lost(READ.kind) == {}
    assert set(seen.live.records(READ.kind)["reserved"].tolist()) == {0}


def test_a_function_that_is_not_there(way: str) -> None:
    resolved = CUT.resolve(System.here().symbols)
    assert isinstance(resolved, ResolvedFunctions)
    program = function_programs(resolved)[0].begin
    with BpfObject(_EMPTY) as compiled, pytest.raises(FencepathError, match="no_function_of_this_name"):
        attach_function(
            program, "no_function_of_this_name", "", lambda _, *how: compiled.load("empty", *how), in_task=True
        )


@pytest.mark.parametrize(
    ("capabilities", "works"), [(("bpf", "perfmon"), True), (("bpf",), False), (("perfmon",), False)]
)
def test_what_it_needs_of_root_s_powers(way: str, capabilities: Sequence[str], works: bool) -> None:
    """As SECURITY.md says: CAP_BPF and CAP_PERFMON; for perf events CAP_SYS_ADMIN too, where Debian's kernels are told to ask for it."""
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    more = ("sys_admin",) if works and way == "kprobe" and paranoid > 2 else ()
    held = "".join(f",+{name}" for name in (*capabilities, *more))
    script = "from fencepath._bpf.kernel_functions import functions_refused; print(functions_refused() or 'works')"
    words = ["setpriv", f"--inh-caps=-all{held}", f"--bounding-set=-all{held}", sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (done.stdout == "works\n") == works, done.stdout
