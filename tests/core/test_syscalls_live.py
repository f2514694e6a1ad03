# SPDX-License-Identifier: Apache-2.0
"""System calls on this kernel: what is recorded is what the program did, told apart by the device."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from tests.core.syscall_session import Session, tracing

from fencepath._bpf.losses import Stage
from fencepath.records import Flags
from fencepath.syscalls import (
    ARRAY_FDS,
    FOUND,
    Argument,
    DeviceClass,
    Devices,
    Equals,
    IoctlDecoder,
    Read,
    SyscallProbe,
    SyscallTable,
    Wrapped,
    device_number,
    is_32_bit,
    syscall_layout,
)

pytestmark = pytest.mark.bpf

RANDOM = DeviceClass("random", ("mem",), minors=(8, 9))
ZERO = DeviceClass("zero", ("mem",), minors=(5, 5))
MEMORY = DeviceClass("memory", ("mem",))
RNDGETENTCNT = 0x80045200
ENTROPY = IoctlDecoder(
    "random.ioctl",
    "random",
    "RNDGETENTCNT",
    type=ord("R"),
    number=0,
    values=(Read("old", "u32", 0), Read("count", "u32", 0, when="return")),
)


@contextlib.contextmanager
def opened(path: str) -> Generator[int, None, None]:
    """Open a file without the ioctls that Python's own open makes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def start_target(session: Session, script: str) -> subprocess.Popen[bytes]:
    """Start a Python that waits for a line, make it a target, and let it go on."""
    command = [sys.executable, "-c", f"import os, signal, sys\nprint(flush=True)\nsys.stdin.readline()\n{script}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    session.target(process.pid)
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process


def ask_entropy(fd: int, before: int) -> int:
    """Return what RNDGETENTCNT writes over `before`."""
    buffer = bytearray(struct.pack("I", before))
    fcntl.ioctl(fd, RNDGETENTCNT, buffer)
    return int(struct.unpack("I", buffer)[0])


def test_ioctl_is_recorded_with_what_was_there_before_and_after() -> None:
    with tracing(SyscallTable([RANDOM], [ENTROPY])) as session, opened("/dev/urandom") as device:
        begin = time.monotonic_ns()
        counts = [ask_entropy(device, 1000 + i) for i in range(7)]
        end = time.monotonic_ns()
        records = session.records("random.ioctl")
    assert [int(r["before"][0]) for r in records] == [1000 + i for i in range(7)]
    assert [int(r["after"][0]) for r in records] == counts
    assert set(records["command"]) == {RNDGETENTCNT}
    assert set(records["status"]) == {0}
    assert set(records["fd"]) == {device}
    assert set(records["device"]) == {device_number(1, 9)}
    assert set(records["tgid"]) == {os.getpid()}
    assert set(records["flags"]) == {Flags.TASK}
    assert (records["argument"] != 0).all()
    times = np.stack([records["begin_ns"], records["time_ns"]], axis=1).ravel()
    assert begin < times[0]
    assert times[-1] < end
    assert (np.diff(times.astype(np.int64)) > 0).all()


@pytest.mark.parametrize("skipped", [None, *range(6)])
def test_of_copies_of_a_program_one_records_a_call(skipped: int | None) -> None:
    """Also if one of them is not run, neither of the three at the entry nor of those at the return."""
    with tracing(SyscallTable([RANDOM], [ENTROPY]), copies=3) as session, opened("/dev/urandom") as device:
        attached = session.tracer.attached
        if skipped is not None:
            session.skip(skipped)
        for i in range(5):
            ask_entropy(device, 1000 + i)
        records = session.records("random.ioctl")
        lost = session.lost("random.ioctl", Stage.OVERWRITTEN)
    assert attached == ("syscalls:sys_exit_ioctl",) * 3 + ("syscalls:sys_enter_ioctl",) * 3
    assert [int(r["before"][0]) for r in records] == [1000 + i for i in range(5)]
    assert lost == 0


def test_same_command_on_other_files_is_not_recorded() -> None:
    left, right = socket.socketpair()
    with tracing(SyscallTable([RANDOM], [ENTROPY])) as session, left, right, opened("/dev/zero") as zero:
        for fd in (zero, left.fileno()):
            with pytest.raises(OSError, match=r".*"):
                ask_entropy(fd, 0)
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            fcntl.ioctl(999_999, RNDGETENTCNT, bytearray(4))
        assert len(session.records("random.ioctl")) == 0


def test_descriptors_are_followed_however_they_came(tmp_path: Path) -> None:
    """Opened before the tracer, dup'ed, passed over a socket, and a number that another file had before."""
    with opened("/dev/urandom") as before, tracing(SyscallTable([RANDOM], [ENTROPY])) as session:
        copies = [os.dup(before), fcntl.fcntl(before, fcntl.F_DUPFD_CLOEXEC, 300)]
        left, right = socket.socketpair()
        with left, right:
            socket.send_fds(left, [b"x"], [before])
            copies += socket.recv_fds(right, 1, 1)[1]
        reused = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
        os.dup2(before, reused)
        copies.append(reused)
        for value, fd in enumerate([before, *copies]):
            ask_entropy(fd, value)
        for fd in copies:
            os.close(fd)
        records = session.records("random.ioctl")
    assert list(records["fd"]) == [before, *copies]
    assert [int(r["before"][0]) for r in records] == list(range(5))
    assert set(records["device"]) == {device_number(1, 9)}


def test_inherited_descriptor_of_a_child() -> None:
    with opened("/dev/urandom") as device, tracing(SyscallTable([RANDOM], [ENTROPY])) as session:
        os.set_inheritable(device, True)
        command = f"import fcntl; fcntl.ioctl({device}, 0x80045200, bytearray(b'abcd'))"
        process = start_target(session, command)
        process.communicate()
        (record,) = session.records("random.ioctl", process.pid)
    assert int(record["before"][0]) == int.from_bytes(b"abcd", "little")


def test_other_processes_are_not_recorded() -> None:
    script = "import fcntl; fcntl.ioctl(open('/dev/urandom'), 0x80045200, bytearray(4))"
    with tracing(SyscallTable([RANDOM], [ENTROPY])) as session:
        process = subprocess.Popen([sys.executable, "-c", script])
        process.wait()
        assert len(session.records("random.ioctl", process.pid)) == 0
        assert session.lost("random.ioctl", Stage.RECORDED) == 0


def test_whole_command_is_preferred_to_type_and_number_and_that_to_the_rest() -> None:
    rest = IoctlDecoder("random.ioctl", "random", "anything")
    exact = IoctlDecoder("random.ioctl", "random", "exact", command=0x30000001)
    with tracing(SyscallTable([RANDOM], [rest, ENTROPY, exact])) as session, opened("/dev/random") as device:
        for command in (0x30000001, RNDGETENTCNT, RNDGETENTCNT | 0x40000000, 0x1234):
            with contextlib.suppress(OSError):
                fcntl.ioctl(device, command, bytearray(8))
        records = session.records("random.ioctl")
    # In the table's order: 0 anything, 1 by type and number whatever the direction bits, 2 exact.
    assert list(records["function"]) == [2, 1, 1, 0]
    assert list(records["status"][[0, 3]]) == [-errno.EINVAL, -errno.EINVAL]


def test_two_plugins_share_one_attachment() -> None:
    other = IoctlDecoder("zero.ioctl", "zero", "any")
    table = SyscallTable([RANDOM, ZERO], [ENTROPY, other])
    with tracing(table) as session, opened("/dev/urandom") as one, opened("/dev/zero") as two:
        assert session.tracer.attached == ("syscalls:sys_exit_ioctl", "syscalls:sys_enter_ioctl")
        ask_entropy(one, 1)
        with contextlib.suppress(OSError):
            fcntl.ioctl(two, 77, 5)
        rows = [row for batch in session.shared.rings.drain() for row in batch.rows]
        kinds = [int.from_bytes(row[16:18].tobytes(), "little") for row in rows]
    assert kinds == [session.numbers["random.ioctl"], session.numbers["zero.ioctl"]]


def test_unreadable_argument_is_flagged_and_counted() -> None:
    with tracing(SyscallTable([RANDOM], [ENTROPY])) as session, opened("/dev/urandom") as device:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ioctl(device, ctypes.c_ulong(RNDGETENTCNT), ctypes.c_void_p(8)) == -1
        (record,) = session.records("random.ioctl")
        assert session.lost("random.ioctl", Stage.READ_FAULT) == 1
    assert record["flags"] == Flags.TASK | Flags.READ_FAULT
    assert record["status"] == -errno.EFAULT
    assert record["argument"] == 8
    assert int(record["before"][0]) == 0


def test_values_of_every_width_and_behind_a_pointer() -> None:
    values = (Read("a", "u8", 1), Read("b", "u16", 2), Read("c", "u64", 8), Read("d", "u32", 4, via=16))
    decoder = IoctlDecoder("random.ioctl", "random", "made", command=0x99, values=values)
    inner = ctypes.create_string_buffer(struct.pack("<II", 1, 0xDEADBEEF))
    outer = ctypes.create_string_buffer(struct.pack("<BBHIQQ", 1, 0xA5, 0x1234, 9, 1 << 60, ctypes.addressof(inner)))
    with tracing(SyscallTable([RANDOM], [decoder])) as session, opened("/dev/urandom") as device:
        ctypes.CDLL(None).ioctl(device, ctypes.c_ulong(0x99), outer)
        (record,) = session.records("random.ioctl")
    assert [int(v) for v in record["before"]] == [0xA5, 0x1234, 1 << 60, 0xDEADBEEF]


def refused(fd: int, command: int, memory: ctypes.Array[ctypes.c_char] | int) -> None:
    """An ioctl that the driver does not know."""
    argument = memory if isinstance(memory, int) else ctypes.addressof(memory)
    assert ctypes.CDLL(None).ioctl(fd, ctypes.c_ulong(command), ctypes.c_void_p(argument)) == -1


def structure(format_: str, *values: int) -> ctypes.Array[ctypes.c_char]:
    packed = struct.pack(format_, *values)
    return ctypes.create_string_buffer(packed, len(packed))


def command_of(number: int, size: int) -> int:
    """_IOWR('F', number, size)."""
    return 3 << 30 | size << 16 | 0x46 << 8 | number


def rows_of(kind: str, number: int, *names: str) -> list[IoctlDecoder]:
    """Decoders of one request: the first for all that is not told apart, the second by size, the others by a number."""
    value = Read("first", "u32", 0)
    return [
        IoctlDecoder(kind, "random", names[0], type=0x46, number=number, values=(value,)),
        IoctlDecoder(kind, "random", names[1], type=0x46, number=number, size=48, values=(value,)),
        *(
            IoctlDecoder(
                kind, "random", name, type=0x46, number=number, size=48, where=Equals(12, word), values=(value,)
            )
            for word, name in enumerate(names[2:], 0x40)
        ),
    ]


def test_requests_by_size_and_by_a_number_in_their_structure() -> None:
    table = SyscallTable([RANDOM], rows_of("random.ioctl", 0x2B, "any", "sized", "forty", "forty-one"))
    with tracing(table) as session, opened("/dev/urandom") as device:
        for size, number in ((48, 0x40), (48, 0x41), (48, 0x42), (40, 0x40)):
            refused(device, command_of(0x2B, size), structure("<IIII", 7 * number, 0, 0, number))
        refused(device, command_of(0x2B, 48), 8)
        records = session.records("random.ioctl")
    assert list(records["function"]) == [2, 3, 1, 0, 1]
    assert [int(r["before"][0]) for r in records] == [7 * 0x40, 7 * 0x41, 7 * 0x42, 7 * 0x40, 0]
    assert list(records["flags"]) == [Flags.TASK] * 4 + [Flags.TASK | Flags.READ_FAULT]


def test_request_that_another_one_carries() -> None:
    carrier = IoctlDecoder(
        "random.ioctl",
        "random",
        "carrier",
        type=0x46,
        number=211,
        wraps=Wrapped(number=0, size=4, pointer=8),
        values=(Read("number", "u32", 0),),
    )
    rest = IoctlDecoder("random.ioctl", "random", "rest")
    table = SyscallTable([RANDOM], [*rows_of("random.ioctl", 0x2B, "any", "sized", "forty"), carrier, rest])
    inner = structure("<IIII", 1234567, 0, 0, 0x40)
    at = ctypes.addressof(inner)
    carried = [(0x2B, 48), (0x2B, 20000), (0x77, 16), (211, 16), (0x12B, 48)]
    with tracing(table) as session, opened("/dev/urandom") as device:
        for number, size in carried:
            refused(device, command_of(211, 16), structure("<IIQ", number, size, at))
        refused(device, command_of(211, 16), 8)
        records = session.records("random.ioctl")
    # By size and the number in it, by number alone, unknown, carried by its own kind, no number, unreadable.
    assert list(records["function"]) == [2, 0, 4, 3, 3, 3]
    wrapper = command_of(211, 16)
    assert list(records["command"]) == [
        command_of(0x2B, 48),
        command_of(0x2B, 16383),
        command_of(0x77, 16),
        wrapper,
        wrapper,
        wrapper,
    ]
    assert list(records["argument"][:3]) == [at] * 3
    assert [int(r["before"][0]) for r in records] == [1234567, 1234567, 0, 211, 0x12B, 0]
    assert bool(records["flags"][5] & Flags.READ_FAULT)


def test_pointer_of_0_may_be_no_fault() -> None:
    values = (Read("size", "u64", 8, via=16, nullable=True), Read("own", "u32", 0))
    decoder = IoctlDecoder("random.ioctl", "random", "made", command=0x99, values=values)
    strict = IoctlDecoder("random.ioctl", "random", "strict", command=0x98, values=(Read("size", "u64", 8, via=16),))
    inner = structure("<QQ", 0, 4099)
    with tracing(SyscallTable([RANDOM], [decoder, strict])) as session, opened("/dev/urandom") as device:
        for command, pointer in ((0x99, ctypes.addressof(inner)), (0x99, 0), (0x99, 8), (0x98, 0)):
            refused(device, command, structure("<QQQ", 5, 0, pointer))
        records = session.records("random.ioctl")
    assert [int(r["before"][0]) for r in records] == [4099, 0, 0, 0]
    assert [bool(flags & Flags.READ_FAULT) for flags in records["flags"].tolist()] == [False, False, True, True]
    assert [int(r["before"][1]) for r in records[:3]] == [5, 5, 5]


class PollFd(ctypes.Structure):
    fd: int
    events: int
    revents: int
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


POLL_VALUES = (
    Argument("timeout_ms", 2),
    Read("events", "u16", 4, argument=FOUND),
    Read("revents", "u16", 6, argument=FOUND, when="return"),
)


def poll(*fds: int, timeout_ms: int = 0) -> int:
    array = (PollFd * len(fds))(*(PollFd(fd, select.POLLIN, 0) for fd in fds))
    return int(ctypes.CDLL(None).poll(array, ctypes.c_ulong(len(fds)), timeout_ms))


def test_polls_by_the_fds_of_their_array() -> None:
    table = SyscallTable(
        [RANDOM], probes=[SyscallProbe("random.poll", "poll", device="random", fds=0, values=POLL_VALUES)]
    )
    left, right = socket.socketpair()
    with tracing(table) as session, left, right, opened("/dev/urandom") as device:
        quiet = left.fileno()
        ready = [
            poll(device, timeout_ms=11),
            poll(-1, 999_999, quiet, device, device, timeout_ms=13),
            # no such device among them, or beyond what is looked at
            poll(quiet),
            poll(*[quiet] * ARRAY_FDS, device),
            poll(*[quiet] * (ARRAY_FDS - 1), device, timeout_ms=17),
        ]
        records = session.records("random.poll")
    assert set(records["fd"]) == {device}
    assert set(records["device"]) == {device_number(1, 9)}
    assert [int(r["before"][0]) for r in records] == [11, 13, 17]
    assert list(records["status"]) == [ready[0], ready[1], ready[4]]
    assert {int(r["before"][1]) for r in records} == {select.POLLIN}
    assert all(int(r["after"][0]) & select.POLLIN for r in records)


def test_polls_of_a_device_and_of_anything_else_are_two_kinds() -> None:
    own = SyscallProbe("random.poll", "poll", device="random", fds=0)
    rest = SyscallProbe("host.poll", "poll", values=(Argument("count", 1),))
    left, right = socket.socketpair()
    with tracing(SyscallTable([RANDOM], probes=[own, rest])) as session, left, right, opened("/dev/urandom") as device:
        poll(left.fileno(), device)
        poll(left.fileno())
        rows = [row for batch in session.shared.rings.drain() for row in batch.rows]
        kinds = [int.from_bytes(row[16:18].tobytes(), "little") for row in rows]
    assert kinds == [session.numbers["random.poll"], session.numbers["host.poll"]]


def test_mappings_of_a_device_are_followed_to_their_end() -> None:
    map_ = SyscallProbe("zero.map", "mmap", device="zero", fd=4, maps=True, values=(Argument("length", 1),))
    unmap = SyscallProbe(
        "zero.unmap", "munmap", device="zero", address=0, values=(Argument("address", 0), Argument("length", 1))
    )
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    private, read = 2, 1

    def mapped(fd: int, pages: int) -> int:
        return int(libc.mmap(None, ctypes.c_size_t(4096 * pages), read, private, fd, ctypes.c_long(0)))

    def unmapped(address: int, pages: int) -> int:
        return int(libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096 * pages)))

    with tracing(SyscallTable([ZERO], probes=[map_, unmap])) as session, opened("/dev/zero") as zero:
        file = os.memfd_create("other")
        os.ftruncate(file, 4096)
        one, two, other = mapped(zero, 3), mapped(zero, 5), mapped(file, 1)
        assert unmapped(other, 1) == 0
        assert unmapped(one + 1, 3) == -1
        assert unmapped(one, 3) == 0
        # what lies there now is no mapping of the device
        assert unmapped(one, 3) == 0
        assert unmapped(two, 5) == 0
        os.close(file)
        rows = [row.tobytes() for batch in session.shared.rings.drain() for row in batch.rows]
        found = np.frombuffer(b"".join(rows), dtype=syscall_layout("x").dtype)
    maps = found[found["kind"] == session.numbers["zero.map"]]
    unmaps = found[found["kind"] == session.numbers["zero.unmap"]]
    assert list(maps["status"]) == [one, two]
    assert [int(r["before"][0]) for r in maps] == [3 * 4096, 5 * 4096]
    assert [(int(r["before"][0]), int(r["before"][1])) for r in unmaps] == [(one, 3 * 4096), (two, 5 * 4096)]
    assert set(unmaps["device"]) == {device_number(1, 5)}
    assert set(unmaps["fd"]) == {-1}


def test_reads_and_writes_of_a_device_with_their_arguments() -> None:
    probes = [
        SyscallProbe("memory.read", "read", device="zero", fd=0, values=(Argument("size", 2),)),
        SyscallProbe(
            "memory.write",
            "write",
            device="memory",
            fd=0,
            values=(Argument("size", 2), Read("first", "u32", 0, argument=1)),
        ),
    ]
    with tracing(SyscallTable([MEMORY, ZERO], probes=probes)) as session:
        zero, null = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
        for size in (3, 17, 4099):
            os.read(zero, size)
            os.write(null, b"\x01\x02\x03\x04" + bytes(size))
        os.close(zero)
        os.close(null)
        rows = [row.tobytes() for batch in session.shared.rings.drain() for row in batch.rows]
        found = np.frombuffer(b"".join(rows), dtype=syscall_layout("x").dtype)
    reads = found[found["kind"] == session.numbers["memory.read"]]
    writes = found[found["kind"] == session.numbers["memory.write"]]
    assert list(reads["status"]) == [3, 17, 4099]
    assert [int(v[0]) for v in reads["before"]] == [3, 17, 4099]
    assert list(writes["status"]) == [7, 21, 4103]
    assert {int(v[1]) for v in writes["before"]} == {0x04030201}


def test_call_without_a_descriptor_and_with_the_most_arguments() -> None:
    probes = [
        SyscallProbe("host.prctl", "prctl", values=(Argument("option", 0), Read("first", "u64", 0, argument=2))),
        SyscallProbe("host.map", "mmap", values=(Argument("length", 1), Argument("offset", 5))),
        SyscallProbe("host.pid", "getppid"),
    ]
    libc = ctypes.CDLL(None)
    memory = ctypes.c_uint64(0xFEED)
    with tracing(SyscallTable(probes=probes)) as session:
        libc.prctl(
            ctypes.c_long(0x46504D4B), ctypes.c_long(1), ctypes.byref(memory), ctypes.c_long(8), ctypes.c_long(0)
        )
        os.getppid()
        file = os.memfd_create("map")
        os.ftruncate(file, 5 * 4096)
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(3 * 4096))
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096))
        os.close(file)
        rows = [row.tobytes() for batch in session.shared.rings.drain() for row in batch.rows]
        found = np.frombuffer(b"".join(rows), dtype=syscall_layout("x").dtype)
    (prctl,) = found[found["kind"] == session.numbers["host.prctl"]]
    assert (int(prctl["before"][0]), int(prctl["before"][1]), prctl["status"], prctl["fd"]) == (
        0x46504D4B,
        0xFEED,
        -errno.EINVAL,
        -1,
    )
    (parent,) = found[found["kind"] == session.numbers["host.pid"]]
    assert parent["status"] == os.getppid()
    mapped = found[(found["kind"] == session.numbers["host.map"]) & (found["before"][:, 1] == 3 * 4096)]
    assert [int(s) for s in mapped["status"]] == [address]


def test_call_that_has_not_returned_is_open() -> None:
    probe = SyscallProbe("host.poll", "poll", values=(Argument("count", 1),))
    left, right = socket.socketpair()
    tids: list[int] = []

    def wait() -> None:
        tids.append(threading.get_native_id())
        poll = select.poll()
        poll.register(right, select.POLLIN)
        poll.poll()

    with tracing(SyscallTable(probes=[probe])) as session, left, right:
        thread = threading.Thread(target=wait)
        thread.start()
        deadline = time.monotonic() + 5
        while not len(session.tracer.open_calls(0)) and time.monotonic() < deadline:
            time.sleep(0.01)
        now = time.monotonic_ns()
        (held,) = session.tracer.open_calls(now)
        left.send(b"x")
        thread.join()
        (done,) = session.records("host.poll", tids[0])
        assert len(session.tracer.open_calls(now)) == 0
    assert held["tid"] == tids[0]
    assert held["time_ns"] == now
    assert held["flags"] == Flags.OPEN | Flags.TASK
    assert held["begin_ns"] == done["begin_ns"]
    assert done["time_ns"] > now
    assert done["status"] == 1


def test_call_in_which_its_process_is_killed_returns() -> None:
    with tracing(SyscallTable(probes=[SyscallProbe("host.pause", "pause")])) as session:
        process = start_target(session, "signal.pause()")
        deadline = time.monotonic() + 5
        while not len(session.tracer.open_calls(0)) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        (record,) = session.records("host.pause", process.pid)
        assert len(session.tracer.open_calls(0)) == 0
    restart_if_no_handler = -514
    assert record["status"] == restart_if_no_handler


def test_call_that_never_returns_is_found_and_forgotten() -> None:
    with tracing(
        SyscallTable(probes=[SyscallProbe("host.exit", "exit_group", values=(Argument("code", 0),))])
    ) as session:
        process = start_target(session, "os._exit(37)")
        process.communicate()
        (held,) = session.tracer.open_calls(0)
        assert (held["tid"], int(held["before"][0])) == (process.pid, 37)
        assert session.tracer.forget(process.pid)
        assert not session.tracer.forget(process.pid)
        assert len(session.tracer.open_calls(0)) == 0


def test_process_of_32_bits_is_recognised_and_raises_no_events(tmp_path: Path) -> None:
    source = tmp_path / "pause.s"
    # read(0, stack, 1), getppid(), pause()
    source.write_text(
        ".globl _start\n_start:\n mov $3,%eax\n xor %ebx,%ebx\n mov %esp,%ecx\n mov $1,%edx\n int $0x80\n"
        " mov $64,%eax\n int $0x80\n mov $29,%eax\n int $0x80\n"
    )
    program = tmp_path / "pause"
    subprocess.run(["gcc", "-m32", "-nostdlib", "-static", "-o", program, source], check=True)
    probes = [SyscallProbe("host.parent", "getppid"), SyscallProbe("host.pause", "pause")]
    with tracing(SyscallTable(probes=probes)) as session:
        try:
            process = subprocess.Popen([program], stdin=subprocess.PIPE)
        except OSError as error:
            pytest.skip(f"this kernel runs no 32-bit programs ({error}); boot one with CONFIG_IA32_EMULATION")
        try:
            assert process.stdin is not None
            session.target(process.pid)
            process.stdin.write(b"x")
            process.stdin.flush()
            deadline = time.monotonic() + 5
            current = Path(f"/proc/{process.pid}/syscall")
            pause_of_i386 = "29 "
            while not current.read_text().startswith(pause_of_i386) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert current.read_text().startswith(pause_of_i386)
            assert is_32_bit(process.pid) is True
            assert len(session.records("host.parent", process.pid)) == 0
            assert len(session.tracer.open_calls(0)) == 0
        finally:
            process.kill()
            process.communicate()


def test_full_map_is_counted() -> None:
    probe = SyscallProbe("host.poll", "poll")
    pairs = [socket.socketpair() for _ in range(5)]

    def wait(end: socket.socket) -> None:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll()

    with tracing(SyscallTable(probes=[probe]), calls=2) as session:
        threads = [threading.Thread(target=wait, args=(pair[1],)) for pair in pairs]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 5
        while session.lost("host.poll", Stage.MAP_FULL) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert session.lost("host.poll", Stage.MAP_FULL) == 3
        for pair in pairs:
            pair[0].send(b"x")
        for thread in threads:
            thread.join()
        assert session.lost("host.poll", Stage.RECORDED) == 2
    for left, right in pairs:
        left.close()
        right.close()


def test_device_that_comes_later_is_seen_after_a_refresh(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "devices").write_text("Character devices:\n")
    late = DeviceClass("random", ("mem",), minors=(8, 9))
    with (
        tracing(SyscallTable([late], [ENTROPY]), devices=Devices(proc)) as session,
        opened("/dev/urandom") as device,
    ):
        assert session.tracer.refresh_devices() == ("random",)
        ask_entropy(device, 1)
        (proc / "devices").write_text("Character devices:\n  1 mem\n")
        assert session.tracer.refresh_devices() == ()
        ask_entropy(device, 2)
        (proc / "devices").write_text("Character devices:\n")
        session.tracer.refresh_devices()
        ask_entropy(device, 3)
        records = session.records("random.ioctl")
    assert [int(r["before"][0]) for r in records] == [2]
