# SPDX-License-Identifier: Apache-2.0
"""A tracer of system calls with its rings, for live tests: records stay in memory."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Generator

import numpy as np

from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath.records import Records
from fencepath.syscalls import Devices, SyscallTable, SyscallTracer, syscall_layout

__all__ = ["Session", "tracing"]


class Session:
    """A tracer with this process as its target.

    Args:
        table: what is traced.
        calls: most calls in progress at a time.
        devices: where device classes are looked up.
        all_processes: whether every process is a target.
        ring_bytes: of all rings.
        copies: how often each program is attached.
    """

    def __init__(
        self,
        table: SyscallTable,
        *,
        calls: int = 64,
        devices: Devices | None = None,
        all_processes: bool = False,
        ring_bytes: int = 4 << 20,
        copies: int | None = None,
    ) -> None:
        numbers = {kind: number for number, kind in enumerate(table.kinds, 5)}
        self.numbers = numbers
        self.shared = Shared(numbers, rings=Rings(ring_bytes), all_processes=all_processes, self_tgid=0)
        self.tracer = SyscallTracer(table, self.shared, numbers, calls=calls, devices=devices, copies=copies)
        self.target(os.getpid())

    def target(self, pid: int) -> None:
        """Make a process a target."""
        self.shared.tgids.update(struct.pack("I", pid), bytes(4))

    def skip(self, number: int) -> None:
        """Take one of the attached programs away, as the kernel does when it skips it."""
        self.tracer._links.pop(number).close()

    def records(self, kind: str, tid: int | None = None) -> Records:
        """Records of a kind by one thread, this one by default; all others that are in the rings are dropped."""
        rows = [row.tobytes() for batch in self.shared.rings.drain() for row in batch.rows]
        found = np.frombuffer(b"".join(row[:128] for row in rows), dtype=syscall_layout(kind).dtype)
        found = found[found["kind"] == self.numbers[kind]]
        own: Records = found[found["tid"] == (threading.get_native_id() if tid is None else tid)]
        return own

    def drained(self) -> dict[str, Records]:
        """Every record so far by kind, by time; whoever made it."""
        rows = [row.tobytes() for batch in self.shared.rings.drain() for row in batch.rows]
        found = np.frombuffer(b"".join(row[:128] for row in rows), dtype=syscall_layout("any").dtype)
        found = found[np.argsort(found["time_ns"], kind="stable")]
        return {kind: found[found["kind"] == number] for kind, number in self.numbers.items()}

    def lost(self, kind: str, stage: Stage) -> int:
        """How often a kind's events came to a stage."""
        return int(self.shared.losses.snapshot()[:, self.numbers[kind], stage].sum())


@contextlib.contextmanager
def tracing(
    table: SyscallTable,
    *,
    calls: int = 64,
    devices: Devices | None = None,
    all_processes: bool = False,
    ring_bytes: int = 4 << 20,
    copies: int | None = None,
) -> Generator[Session, None, None]:
    """Trace until the block ends; arguments as of :class:`Session`."""
    session = Session(
        table, calls=calls, devices=devices, all_processes=all_processes, ring_bytes=ring_bytes, copies=copies
    )
    try:
        yield session
    finally:
        session.tracer.close()
        session.shared.close()
