# SPDX-License-Identifier: Apache-2.0
"""Plays clients of NVIDIA's driver on the stand-in, in phases of known numbers: ``python -m tests.kernel.nvidia_phases FOLDER WHAT``.

``alone`` is one process; ``pair`` two at once, then one that dies in a request, then the driver loaded anew and one more. Leaves in
FOLDER a file WHAT.PID.json for each process with what it did, and WHAT.truth with the stand-in's account before it was unloaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.kernel import nvidia_standin as standin
from tests.kernel.nvidia_standin import CTL, GPU, TRUTH, UVM_DEVICE, control, refused, request, work

__all__ = [
    "AGAIN",
    "ALLOCATIONS",
    "BURST",
    "DELAY_NS",
    "EARLY",
    "GARBAGE",
    "HALVES",
    "LINES",
    "MIB",
    "MOVED",
    "MOVED_TO",
    "NO_MEMORY",
    "PAIRED",
    "REUSED",
    "SERVICES",
    "TOUCHED",
    "UNKNOWN_CLASS",
    "WAITS",
    "Did",
    "Phase",
    "errors",
    "read",
]

ALLOCATIONS, NO_MEMORY, UNKNOWN_CLASS = 31, 5, 3
CONTROLS, UNKNOWN_CONTROLS = 17, 2
RANGES, UNKNOWN_UVM = 7, 2
MAPPED, MAPPED_UVM = (1, 2, 3, 5, 7), (11, 13)
"""Pages of each mapping."""
WAITS, EARLY, PAIRED, AGAIN = 53, 11, 29, 7
"""Waits that an interrupt ends, that find an event, of each of two processes, of the process after the driver was loaded anew."""
HALVES = 17
"""Waits that the thread of an interrupt ends."""
TOUCHED = (3, 5)
"""Pages that are touched, of the GPU's file and of nvidia-uvm's."""
SERVICES, MOVED, MOVED_TO = 5, 24, 3
"""Times that a thread of the kernel serves page faults of the GPU; pages that it moves each time, and where to."""
REUSED = 13
BURST = 10_007
DELAY_NS = 30_000_000
"""From the begin of a poll to the interrupt that ends it: in an emulated machine it took up to 7 ms until the thread slept, and before that
nothing wakes it."""
MIB = 1 << 20
PAGE = 4096
OTHER_UVM_MAJOR = 240


class Line(NamedTuple):
    """A line of the log, and the error that it tells of."""

    text: str
    code: int
    gpu: str
    pid: int = 0
    of_switch: bool = False


LINES = (
    Line("NVRM: Xid (0000:0b:00): 43, Ch 00000010, engmask 00000101", 43, "0000:0b:00"),
    Line("NVRM: Xid (PCI:0000:0c:00 GPU-I:05 GPU-CI:01): 94, pid=4242, name=a b, Contained", 94, "0000:0c:00", 4242),
    Line("NVRM: Xid (PCI:0000:0d:00): 62, pid='<unknown>', name=<unknown>, 0000(0000) 00000000", 62, "0000:0d:00"),
    Line(
        "NVRM: Xid (PCI:0000:0e:00): 45, pid=4243, name=x, Ch 00000001 caused by previous Xid 31",
        45,
        "0000:0e:00",
        4243,
    ),
    Line("NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.", 0, "0000:0f:00"),
    Line("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32", 12028, "0000:c1:00", of_switch=True),
)
"""As several versions write them."""
GARBAGE = (
    "NVRM: Xid",
    "NVRM: Xid (PCI:zz:00:00): 31, pid=1, name=x, y",
    "NVRM: Xid (PCI:0000:01:00): -5, pid=1",
    "NVRM: Xid (PCI:0000:01:00): 99999999999999999999, pid=1, name=x",
    "NVRM: Xid (PCI:0000:01:00): , pid=",
    "NVRM: loading NVIDIA UNIX stand-in",
    "NVRM: \x01\x02 \xff\xfe",
    "NVRM: " + "x" * 700,
)
"""Lines with the driver's mark that tell of no error."""
_OTHERS_LINE = "fencepath-test: Xid (PCI:0000:01:00): 31, pid=1, name=x, no line of the driver"


class Phase(msgspec.Struct, frozen=True):
    """A time, CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int


class Did(msgspec.Struct):
    """What a process did.

    Attributes:
        pid: who.
        phases: when.
        polls: calls of poll on the driver's files.
        closes: calls of close on them.
        mapped_bytes: mappings that were made and given up, in order.
        touched: of the last of these, where they began.
    """

    pid: int
    phases: dict[str, Phase] = {}
    polls: int = 0
    closes: int = 0
    mapped_bytes: list[int] = []
    touched: list[int] = []

    def during(self, name: str, act: Callable[[], None]) -> None:
        """Do something and note when."""
        begin_ns = time.monotonic_ns()
        act()
        self.phases[name] = Phase(begin_ns, time.monotonic_ns())


def read(folder: Path, what: str) -> list[Did]:
    """Return what the processes did, in order of their begin."""
    found = [msgspec.json.decode(path.read_bytes(), type=Did) for path in folder.glob(f"{what}.*.json")]
    return sorted(found, key=lambda did: min(phase.begin_ns for phase in did.phases.values()))


def errors(device: str, pid: int) -> list[tuple[str, int, str]]:
    """Errors that the driver raises: the line of the log, the code and the tracepoint's message.

    Args:
        device: PCI address with function.
        pid: process that is named.
    """
    gpu = device.rpartition(".")[0]
    return [
        (f"Xid (PCI:{gpu}): 13, pid={pid}, name=python3, Graphics Exception: ESR 0x50de48", 13, "Graphics Exception"),
        (f"Xid (PCI:{gpu}): 31, pid={pid}, name=python3, Ch 00000008, MMU Fault", 31, "Ch 00000008, MMU Fault"),
        # the same twice: two errors
        (f"Xid (PCI:{gpu}): 31, pid={pid}, name=python3, Ch 00000009, MMU Fault", 31, "Ch 00000009, MMU Fault"),
        (f"Xid (PCI:{gpu}): 79, GPU has fallen off the bus.", 79, "GPU has fallen off the bus."),
    ]


def requests(fd: int) -> None:
    """Every request that the stand-in knows, those that it refuses among them."""
    fd_version = bytearray(struct.pack("<II64s", 0, 0, b"580.159.04"))
    assert not refused(fd, request(0xD2, 72), fd_version)
    for number in range(ALLOCATIONS):
        assert standin.alloc(fd, 0x1000 + number, (0x3E, 0x40)[number % 2], (2 + 2 * (number % 5)) * MIB) == 0
    for number in range(NO_MEMORY):
        assert standin.alloc(fd, 0x2000 + number, 0x40, 2 << 30) == 0x51
    for number in range(UNKNOWN_CLASS):
        assert standin.alloc(fd, 0x3000 + number, 0xBAD) == 0x22
    for number in range(CONTROLS):
        assert control(fd, 0x20800100 + number, bytes(96)) == 0
    for _ in range(UNKNOWN_CONTROLS):
        assert control(fd, standin.UNKNOWN) == 0x56
    for number, size in (
        (0x27, 56),
        (0x34, 28),
        (0x4E, 56),
        (0x4F, 32),
        (0x57, 64),
        (0x58, 48),
        (0xCE, 16),
        (0xCF, 16),
    ):
        assert not refused(fd, request(number, size), bytearray(size))
    for number in range(ALLOCATIONS):
        standin.free(fd, 0x1000 + number)


def managed(fd: int) -> None:
    """Requests to nvidia-uvm."""
    assert not refused(fd, 0x30000001, bytearray(64))
    for command in (73, 42, 51, 34):
        for number in range(RANGES):
            assert not refused(
                fd, command, bytearray(struct.pack("<QQ", 0x7F44 << 32 | number << 25, 32 * MIB) + bytes(80))
            )
    for _ in range(UNKNOWN_UVM):
        assert refused(fd, 4242, bytearray(64)) == errno.EINVAL


def faults(fd: int) -> None:
    """Requests that make no sense, and memory that cannot be read."""
    for command, argument, code in (
        (request(0x77, 8), bytearray(8), errno.EINVAL),  # a number that nobody has
        (request(0x2A, 33), bytearray(33), errno.EINVAL),  # a size that no version has
        (request(0x29, 0), 0, errno.EINVAL),
        (ord("x") << 8 | 1, 0, errno.ENOTTY),  # another type
        (request(0x2A, 32), 8, errno.EFAULT),
        (request(0x2B, 48), 8, errno.EFAULT),
        (request(211, 16), 8, errno.EFAULT),
    ):
        assert refused(fd, command, argument) == code, hex(command)
    assert standin.carry(fd, 0x2A, bytearray(struct.pack("<IIIIQII", 1, 2, 0x20800101, 0, 0, 0, 0)), 32) == 0
    assert standin.carry(fd, 0x2A, 16, 32) == errno.EFAULT
    assert standin.carry(fd, 0x12A, bytearray(32), 32) == errno.EINVAL
    assert standin.carry(fd, 211, bytearray(16), 16) == errno.EINVAL


def reuse() -> int:
    """Numbers that are the device's, another file's, and the device's again; return the closes of the device's."""
    number = os.open(CTL, os.O_RDWR)
    for index in range(REUSED):
        os.close(number)
        assert os.open("/dev/null", os.O_RDWR) == number
        assert refused(number, request(0x2A, 32), bytearray(32)) == errno.ENOTTY
        os.close(number)
        assert os.open(CTL, os.O_RDWR) == number
        assert control(number, 0x20800200 + index) == 0
    os.close(number)
    return REUSED + 1


def wait(fd: int, count: int, did: Did) -> None:
    """Waits that an interrupt ends."""
    for _ in range(count):
        work(fd, DELAY_NS, at_poll=True)
        assert standin.poll(fd) == 1
        did.polls += 1


def find_at_once(fd: int, did: Did) -> None:
    """Waits whose event is there before they begin, and one that nothing ends."""
    for _ in range(EARLY):
        work(fd, 0, at_poll=False)
        time.sleep(0.05)
        assert standin.poll(fd) == 1
    assert standin.poll(fd, 20) == 0
    did.polls += EARLY + 1


def touch(fds: tuple[int, ...], did: Did) -> None:
    """Mappings whose pages are brought one by one."""
    for fd, pages in zip(fds, TOUCHED, strict=True):
        did.touched.append(standin.touch(fd, pages * PAGE))
        did.mapped_bytes.append(pages * PAGE)


def wait_for_threads(fd: int, did: Did) -> None:
    """Waits that the second half of an interrupt ends."""
    standin.THREADED.write_text("1")
    try:
        wait(fd, HALVES, did)
    finally:
        standin.THREADED.write_text("0")


def burst(fd: int) -> None:
    """Commands as fast as they go."""
    buffer = bytearray(struct.pack("<IIIIQII", 1, 2, 0x20800300, 0, 0, 0, 0))
    command = request(0x2A, 32)
    for _ in range(BURST):
        fcntl.ioctl(fd, command, buffer)


def fail(device: str) -> None:
    """The driver's errors, then lines that somebody writes to the log."""
    for line, code, message in errors(device, os.getpid()):
        standin.RAISE.write_text(f"{device} {code} {line}\n{message}")
    for text in (*(line.text for line in LINES), *GARBAGE, _OTHERS_LINE):
        Path("/dev/kmsg").write_bytes(f"<4>{text}\n".encode("latin-1"))


def alone(folder: Path) -> None:
    """All that one process does."""
    (device,) = (path.name for path in Path("/proc/driver/nvidia/gpus").iterdir())
    did = Did(os.getpid())
    ctl, gpu, uvm = (os.open(path, os.O_RDWR) for path in (CTL, GPU, UVM_DEVICE))
    did.during("requests", lambda: requests(ctl))
    did.during("managed", lambda: managed(uvm))
    for fd, pages in ((gpu, MAPPED), (uvm, MAPPED_UVM)):
        lengths = [count * PAGE for count in pages]
        standin.mapping(fd, lengths)
        did.mapped_bytes += lengths
    did.during("touched", lambda: touch((gpu, uvm), did))
    did.during("served", lambda: standin.serve_pages(ctl, SERVICES, MOVED, MOVED_TO))
    did.during("blocking", lambda: wait(gpu, WAITS, did))
    did.during("halves", lambda: wait_for_threads(gpu, did))
    did.during("early", lambda: find_at_once(gpu, did))
    did.during("faults", lambda: faults(ctl))
    did.during("errors", lambda: fail(device))
    did.closes += reuse()
    did.during("burst", lambda: burst(ctl))
    for fd in (ctl, gpu, uvm):
        os.close(fd)
    did.closes += 3
    finish(folder, "alone", did)


def one_of_two(folder: Path, count: int) -> None:
    """One of processes that wait."""
    did = Did(os.getpid())
    gpu, uvm = (os.open(path, os.O_RDWR) for path in (GPU, UVM_DEVICE))
    assert not refused(uvm, 0x30000001, bytearray(64))
    did.during("blocking", lambda: wait(gpu, count, did))
    os.close(gpu)
    os.close(uvm)
    did.closes += 2
    finish(folder, "pair", did)


def finish(folder: Path, what: str, did: Did) -> None:
    (folder / f"{what}.{did.pid}.json").write_bytes(msgspec.json.encode(did))


def hang(told: int) -> None:
    """A request that does not return."""
    gpu = os.open(GPU, os.O_RDWR)
    os.write(told, b"x")
    control(gpu, standin.NEVER)


def die_inside(folder: Path) -> None:
    """A process that is killed in a request."""
    here, there = os.pipe()
    begin_ns = time.monotonic_ns()
    child = fork(lambda: hang(there))
    os.read(here, 1)
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    finish(folder, "dead", Did(child, {"all": Phase(begin_ns, time.monotonic_ns())}))


def fork(act: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)


def good(children: list[int]) -> None:
    assert not [child for child in children if os.waitpid(child, 0)[1]]


def pair(folder: Path) -> None:
    """Two processes at once; one that dies; the driver loaded anew, where its thread ends the waits; one more process."""
    good([fork(lambda: one_of_two(folder, PAIRED)) for _ in range(2)])
    die_inside(folder)
    (folder / "pair.truth").write_bytes(TRUTH.read_bytes())
    assert not standin.remove("nvidia_xid"), "whoever records its tracepoint holds it"
    assert standin.remove("nvidia")
    standin.insert("nvidia", "threaded=1", f"uvm_major={OTHER_UVM_MAJOR}")
    time.sleep(2.5)  # devices are looked up once a second
    good([fork(lambda: one_of_two(folder, AGAIN))])


if __name__ == "__main__":
    {"alone": alone, "pair": pair}[sys.argv[2]](Path(sys.argv[1]))
