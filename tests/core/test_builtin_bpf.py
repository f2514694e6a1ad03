# SPDX-License-Identifier: Apache-2.0
"""Core's own layers on this kernel: life of processes, sets of targets, and marks."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core.live import LiveLayers, live_layers, until

from fencepath import mark
from fencepath._builtin.events import MARK_MEMBERS, MARK_POINT, MARK_TEXT
from fencepath._builtin.marks import Op
from fencepath.records import Flags, Records

pytestmark = pytest.mark.bpf

OPTION, VERSION, MARK_BYTES = 0x46504D4B, 1, 64
THREAD_FLAG = 0x10000
POINTED = (Op.REQUEST_BEGIN, Op.STEP_MEMBERS, Op.ATTRIBUTE)
"""Ops that point to more bytes."""
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
FORK, EXEC, EXIT = "process.fork", "process.exec", "process.exit"

_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def live() -> Iterator[LiveLayers]:
    with live_layers() as layers:
        yield layers


@pytest.fixture(scope="module")
def marked() -> Iterator[LiveLayers]:
    """For marks of this process, which no other test of this module sends."""
    with live_layers() as layers:
        layers.targets.add(os.getpid())
        yield layers


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("tree") / "tree"
    source = Path(__file__).parent / "bpf" / "tree.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", program, source], check=True)
    return program


class Tree:
    """A run of the program, which was a target from before it did anything.

    Attributes:
        pid: its process.
        said: (what, tid, pid of the process or of its parent).
    """

    def __init__(self, program: Path, live: LiveLayers, *words: str) -> None:
        process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = process.pid
        # its own exec is over
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        live.targets.add(process.pid)
        output, _ = process.communicate("\n")
        assert process.returncode == 0
        self.said = [(what, int(tid), int(of)) for what, tid, of in (line.split() for line in output.splitlines())]

    def made(self, *names: str) -> list[tuple[int, int]]:
        """(creator's process, child) of what was made."""
        return [(of, tid) for what, tid, of in self.said if what in names]


def made_by(forks: Records, *, threads: bool) -> list[tuple[int, int]]:
    chosen = forks[((forks["clone_flags"] & THREAD_FLAG) != 0) == threads]
    return list(zip(chosen["tgid"].tolist(), chosen["child_tid"].tolist(), strict=True))


def keys(live: LiveLayers) -> tuple[set[int], set[int]]:
    """Target processes and threads now."""
    maps = live.shared.tgids, live.shared.tids
    tgids, tids = ({struct.unpack("I", key)[0] for key in found.keys()} for found in maps)  # noqa: SIM118 - a Map is no dict
    return tgids, tids


def test_a_tree_of_processes_threads_and_execs_is_counted_exactly(live: LiveLayers, workload: Path) -> None:
    tree = Tree(workload, live)
    forks, execs, exits = (live.records(kind) for kind in (FORK, EXEC, EXIT))
    assert Counter(made_by(forks, threads=False)) == Counter(tree.made("process"))
    assert Counter(made_by(forks, threads=True)) == Counter(tree.made("thread", "exec_thread"))
    (leader,) = tree.made("exec")
    (other,) = tree.made("exec_thread")
    rows = zip(*(execs[name].tolist() for name in ("tgid", "tid", "old_tid")), strict=True)
    assert Counter(rows) == Counter([(leader[0], leader[0], leader[1]), (other[0], other[0], other[1])])
    # every thread ends once; that which became another program ends as its process's leader, who had ended before
    ended = [tid for _, tid in tree.made("process", "thread")] + [other[0], tree.pid]
    assert Counter(exits["tid"].tolist()) == Counter(ended)
    for records in (forks, execs, exits):
        assert (records["flags"] == Flags.TASK).all()
    assert not live.lost()


def test_who_ends_leaves_the_sets(live: LiveLayers, workload: Path) -> None:
    formats = Path("/sys/kernel/tracing/events/sched/sched_process_exit/format")
    tree = Tree(workload, live)
    tgids, tids = keys(live)
    assert tids == set()
    # a kernel that does not say which thread was the last keeps the processes until their numbers are used again
    expected = set() if "group_dead" in formats.read_text() else {tree.pid, *(tid for _, tid in tree.made("process"))}
    assert tgids == expected


def test_threads_of_a_target_are_targets_and_others_are_not(live: LiveLayers) -> None:
    before, after = threading.Event(), threading.Event()
    old = threading.Thread(target=before.wait)
    old.start()
    live.targets.add(os.getpid())
    new = threading.Thread(target=after.wait)
    new.start()
    assert {old.native_id, new.native_id, os.getpid()} <= keys(live)[1]
    assert keys(live)[0] == {os.getpid()}
    for event, thread in ((before, old), (after, new)):
        event.set()
        thread.join()
    until(lambda: not {old.native_id, new.native_id} & keys(live)[1])
    assert keys(live)[0] == {os.getpid()}


def test_a_child_is_a_target_before_its_first_instruction(live: LiveLayers, workload: Path) -> None:
    tree = Tree(workload, live, "marks", "101")
    marks = live.records(MARK_POINT)
    assert marks["tgid"].tolist() == [tid for _, tid in tree.made("process")]
    assert marks["request"].tolist() == list(range(101))


def test_the_recorder_is_never_a_target() -> None:
    with live_layers(self_tgid=os.getpid()) as live:
        live.targets.add(os.getpid())
        send(mark_bytes(op=Op.TOKEN))
        subprocess.run(["true"], check=True)
        assert not any(len(live.records(kind)) for kind in live.plan.layouts)


def test_with_all_processes_the_sets_do_not_matter() -> None:
    with live_layers(all_processes=True) as live:
        process = subprocess.run(["sh", "-c", "(true)"], check=True)
        assert process.returncode == 0
        assert os.getpid() in live.records(FORK)["tgid"]
        assert len(live.records(EXIT)) >= 2
        assert keys(live) == (set(), set())


def test_a_number_that_is_handed_out_again_is_nobodys(live: LiveLayers) -> None:
    if not LAST_PID.exists():
        pytest.skip("needs a kernel with CONFIG_CHECKPOINT_RESTORE, whose next pid can be chosen")
    for _ in range(50):
        pid = int(LAST_PID.read_text()) + 50
        live.shared.tgids.update(struct.pack("I", pid), bytes(4))
        live.shared.tids.update(struct.pack("I", pid), bytes(4))
        LAST_PID.write_text(str(pid - 1))
        process = subprocess.Popen(["true"])
        process.wait()
        if process.pid == pid:
            break
    else:
        pytest.fail("the kernel did not hand out the number that was asked for")
    assert pid not in keys(live)[0] | keys(live)[1]
    assert not len(live.records(EXEC))


def test_a_full_set_is_counted(live: LiveLayers) -> None:
    live.shared.tgids.update(struct.pack("I", os.getpid()), bytes(4))
    count = live.shared.tids.max_entries
    for number in range(1 << 24, (1 << 24) + count):
        live.shared.tids.update(struct.pack("I", number), bytes(4))
    subprocess.run(["true"], check=True)
    assert live.lost()[FORK, "MAP_FULL"] == 1
    assert len(live.records(FORK)) == 1


# Marks


def mark_bytes(
    op: int = 0,
    *,
    flags: int = 0,
    value: int = 0,
    request: int = 0,
    step: int = 0,
    phase: int = 0,
    length: int = 0,
    pointer: int = 0,
) -> bytes:
    """A struct fencepath_mark_v1 with recognisable trace ids."""
    head = struct.pack("HHIQQ16s8s", op, flags, value, request, step, bytes(range(16)), b"spanspan")
    return head + struct.pack("BBHIQ", 1, phase, length, 0, pointer)


def send(data: bytes | int, option: int = OPTION, version: int = VERSION, size: int = MARK_BYTES) -> None:
    """The system call of a mark; `data` may be an address."""
    buffer = ctypes.create_string_buffer(data, len(data)) if isinstance(data, bytes) else None
    address = data if isinstance(data, int) else ctypes.addressof(buffer) if buffer else 0
    arguments = (ctypes.c_ulong(version), ctypes.c_ulong(address), ctypes.c_ulong(size), ctypes.c_ulong(0))
    assert _libc.prctl(ctypes.c_int(option), *arguments) == -1


def sent(live: LiveLayers, kind: str, action: Callable[[], object]) -> Records:
    """Records of a kind that an action made; it may make none of another kind."""
    kinds = (MARK_POINT, MARK_TEXT, MARK_MEMBERS)
    before = {name: len(live.records(name)) for name in kinds}
    begin = time.monotonic_ns()
    action()
    end = time.monotonic_ns()
    new = {name: live.records(name)[before[name] :] for name in kinds}
    assert not [name for name in kinds if name != kind and len(new[name])]
    found = new[kind]
    assert ((found["time_ns"] >= begin) & (found["time_ns"] <= end)).all()
    assert (found["tgid"] == os.getpid()).all()
    assert (found["tid"] == threading.get_native_id()).all()
    assert ((found["flags"] & int(Flags.TASK)) != 0).all()
    return found


@pytest.mark.parametrize("op", [0, *(op for op in Op if op not in POINTED), 14, 65535])
def test_an_op_without_text_is_recorded_as_it_is(marked: LiveLayers, op: int) -> None:
    data = mark_bytes(op, flags=3, value=1 << 31, request=(1 << 64) - 5, step=77, phase=2, length=9, pointer=11)
    (record,) = sent(marked, MARK_POINT, lambda: send(data))
    assert record.tobytes()[24:] == data
    assert record["flags"] == Flags.TASK


@pytest.mark.parametrize("op", [Op.REQUEST_BEGIN, Op.ATTRIBUTE])
@pytest.mark.parametrize("length", [0, 1, 254, 255, 256, 300, 65535])
def test_text_up_to_255_bytes(marked: LiveLayers, op: int, length: int) -> None:
    kept = min(length, 255)
    text = bytes(1 + number % 255 for number in range(length))
    buffer = ctypes.create_string_buffer(text, length + 1)
    data = mark_bytes(op, request=5, length=length, pointer=ctypes.addressof(buffer))
    (record,) = sent(marked, MARK_TEXT, lambda: send(data))
    assert record["len"] == kept
    assert bytes(record["text"]) == text[:kept] + bytes(256 - kept)
    assert (record["op"], record["request"], bytes(record["span_id"])) == (op, 5, b"spanspan")
    assert record["flags"] == Flags.TASK | (Flags.TRUNCATED if length > kept else 0)


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1 << 28])
def test_members_up_to_512(marked: LiveLayers, count: int) -> None:
    kept = min(count, 512)
    members = np.random.default_rng(count).bytes(16 * kept)
    buffer = ctypes.create_string_buffer(members, len(members) + 16)
    data = mark_bytes(Op.STEP_MEMBERS, value=count, step=3, pointer=ctypes.addressof(buffer))
    (record,) = sent(marked, MARK_MEMBERS, lambda: send(data))
    assert record["value"] == kept
    assert bytes(record["members"]) == members + bytes(16 * (512 - kept))
    assert record["flags"] == Flags.TASK | (Flags.TRUNCATED if count > kept else 0)


def test_what_cannot_be_read_is_flagged_and_counted(marked: LiveLayers) -> None:
    faults = Flags.TASK | Flags.READ_FAULT
    before = dict(marked.lost())
    (point,) = sent(marked, MARK_POINT, lambda: send(8))
    assert point["flags"] == faults
    assert point.tobytes()[24:] == bytes(64)
    (text,) = sent(marked, MARK_TEXT, lambda: send(mark_bytes(Op.ATTRIBUTE, request=9, length=5, pointer=8)))
    assert (text["flags"], text["request"], bytes(text["text"])) == (faults, 9, bytes(256))
    (members,) = sent(marked, MARK_MEMBERS, lambda: send(mark_bytes(Op.STEP_MEMBERS, value=5, step=9, pointer=8)))
    assert (members["flags"], members["step"], bytes(members["members"])) == (faults, 9, bytes(8192))
    after = marked.lost()
    for kind in (MARK_POINT, MARK_TEXT, MARK_MEMBERS):
        assert after[kind, "READ_FAULT"] == before.get((kind, "READ_FAULT"), 0) + 1


def test_a_larger_mark_is_read_as_far_as_it_is_known(marked: LiveLayers) -> None:
    data = mark_bytes(Op.TOKEN, value=3)
    (record,) = sent(marked, MARK_POINT, lambda: send(data + bytes(16), size=80))
    assert record.tobytes()[24:] == data


@pytest.mark.parametrize(
    "wrong", [{"option": OPTION + 1}, {"version": 2}, {"version": VERSION + (1 << 32)}, {"size": 63}]
)
def test_other_calls_are_no_marks(marked: LiveLayers, wrong: dict[str, int]) -> None:
    assert not len(sent(marked, MARK_POINT, lambda: send(mark_bytes(Op.TOKEN), **wrong)))


def test_marks_of_the_python_client_are_decoded(marked: LiveLayers) -> None:
    def client() -> None:
        with mark.request("req-ü", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
            mark.attribute("model", "small")

    sent_before = len(marked.records(MARK_TEXT))
    client()
    batch = marked.batch(MARK_TEXT)
    names = ("op", "text", "trace_id", "span_id", "request")
    rows = list(zip(*(batch[name].tolist()[sent_before:] for name in names), strict=True))
    number = mark.request_id_hash("req-ü")
    assert rows == [
        (Op.REQUEST_BEGIN, "req-ü", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", number),
        (Op.ATTRIBUTE, "model=small", "", "", number),
    ]
    assert marked.records(MARK_POINT)["op"][-1] == Op.REQUEST_END
