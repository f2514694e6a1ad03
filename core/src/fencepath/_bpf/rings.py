# SPDX-License-Identifier: Apache-2.0
"""The rings between BPF programs and the recorder: one a record size class, shared by every BPF object.

A BPF ring buffer's memory is one page with the consumer's position, one with the producer's, and the data twice in a
row, so that a record that wraps is still contiguous. A record is a header of 8 bytes (u32 length with two flag bits,
u32 page offset) and its data, rounded up to 8 (kernel/bpf/ringbuf.c). All records of a ring are reserved at its
class's size, so header k is at a constant stride and numpy reads them all at once.

Programs submit without a wake-up, but for a few rare records in the smallest class. A wake-up costs the traced process an irq_work and the recorder a switch for each
batch it would have read anyway; asking for one only above a threshold costs every record a helper call that reads the
consumer's cache line. A recorder that looks every 20 to 50 ms needs neither: 64 MiB hold more than a second of
200,000 records/s.
"""

from __future__ import annotations

import mmap
import os
import platform
import select
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fencepath._bpf import sys as bpf
from fencepath._bpf.maps import create
from fencepath.errors import FencepathError, MachineError, UsageError
from fencepath.records import RING_CLASSES

__all__ = ["RingBatch", "Rings", "ring_sizes"]

_HEADER_BYTES = 8
_BUSY = np.uint32(1 << 31)
_DISCARDED = np.uint32(1 << 30)
_LEAST_RECORDS = 2

# Most records are calls and scheduler events of 64 and 128 bytes. Names of kernels (512) come by the ten thousand when a
# library is loaded, while the recorder is looking at it. The largest class is rare, but its ring has to hold some hundred.
_SHARES = {32: 2, 64: 4, 128: 4, 256: 2, 512: 2, 1024: 1, 8320: 2}
_DEFAULT_SHARE = 2

# Headers and data of a piece stay in the second-level cache between looking and copying.
_PIECE_BYTES = 256 << 10

_POLL_SECONDS = 0.02


class RingBatch(NamedTuple):
    """Records of one size class, in the order of their reservation, which is nearly that of time.

    Attributes:
        class_bytes: size at which they were reserved.
        rows: a copy, of shape (records, class_bytes).
    """

    class_bytes: int
    rows: npt.NDArray[np.uint8]


def ring_sizes(total_bytes: int, classes: Sequence[int] = RING_CLASSES) -> dict[int, int]:
    """Divide a total among size classes.

    Args:
        total_bytes: what the data of all rings may take together.
        classes: record sizes, in bytes.

    Returns:
        Bytes by class: powers of two, as the kernel wants them, whose sum is at most the total.

    Raises:
        UsageError: if a ring would not hold two records of its class.
    """
    shares = {size: _SHARES.get(size, _DEFAULT_SHARE) for size in classes}
    sizes: dict[int, int] = {}
    for size, share in shares.items():
        bound = total_bytes * share // sum(shares.values())
        sizes[size] = 1 << (bound.bit_length() - 1) if bound else 0
        if sizes[size] < max(mmap.PAGESIZE, _LEAST_RECORDS * (size + _HEADER_BYTES)):
            raise UsageError(f"{total_bytes} bytes are too few for rings of {len(classes)} classes; give more")
    return sizes


class Rings:
    """One ring a size class.

    Args:
        total_bytes: most bytes of all rings together.
        classes: record sizes, in bytes, multiples of 8.

    Attributes:
        sizes: bytes of each ring, by class.

    Raises:
        MachineError: if this is no x86-64 machine (reading the rings' memory relies on its memory order), or the
            kernel refuses the rings.
        UsageError: if the total is too small.
    """

    def __init__(self, total_bytes: int = 68 << 20, classes: Sequence[int] = RING_CLASSES) -> None:
        if platform.machine() != "x86_64":
            raise MachineError(f"recording is not supported on {platform.machine()}", "use an x86-64 machine")
        self.sizes = ring_sizes(total_bytes, classes)
        self._rings: list[_Ring] = []
        self._urgent = select.epoll()
        try:
            for class_bytes, size in self.sizes.items():
                self._rings.append(_Ring(class_bytes, size))
            # Edge-triggered: records without a wake-up lie in that ring too, and must not end the sleep.
            self._urgent.register(self._rings[0].fd, select.EPOLLIN | select.EPOLLET)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def defines(self) -> dict[str, int]:
        """Return the macros by which fencepath.h finds the rings: ``FP_RING_<class>_FD``."""
        return {f"FP_RING_{ring.class_bytes}_FD": ring.fd for ring in self._rings}

    def drain(self) -> list[RingBatch]:
        """Take out what is complete: of each ring the records before the first that is still being written.

        Returns at once, with the records that are there; a class without any has no batch.
        """
        batches: list[RingBatch] = []
        for ring in self._rings:
            rows = ring.drain()
            if len(rows):
                batches.append(RingBatch(ring.class_bytes, rows))
        return batches

    def pending_bytes(self) -> dict[int, int]:
        """Return, by class, the bytes between consumer and producer, records still being written included."""
        return {ring.class_bytes: ring.pending_bytes() for ring in self._rings}

    def wait(self, timeout_s: float, *, fill: float = 0.25) -> bool:
        """Sleep until a ring is filled so far, an urgent record is there, or the time is over.

        Looks every 20 ms, without a system call but its own sleep.

        Args:
            timeout_s: longest sleep, in seconds.
            fill: how full a ring must be to end the sleep, as a share of its size; 0: any record.

        Returns:
            Whether a ring is filled so far, or an urgent record is there.
        """
        end = time.monotonic() + timeout_s
        while not any(0 < ring.pending_bytes() >= fill * ring.size for ring in self._rings):
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._urgent.poll(min(left, _POLL_SECONDS)):
                return True
        return True

    def close(self) -> None:
        """Give the memory back. Programs that still run write into rings that nobody reads."""
        self._urgent.close()
        while self._rings:
            self._rings.pop().close()


class _Ring:
    """One BPF ring buffer, mapped."""

    def __init__(self, class_bytes: int, size: int) -> None:
        self.class_bytes = class_bytes
        self.size = size
        self.fd = create(bpf.MapType.RINGBUF, f"fp_ring_{class_bytes}", max_entries=size)
        page = mmap.PAGESIZE
        try:
            self._consumer_page = mmap.mmap(self.fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._data_pages = mmap.mmap(self.fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        except BaseException:
            os.close(self.fd)
            raise
        self._consumer = np.frombuffer(self._consumer_page, np.uint64, 1)
        self._producer = np.frombuffer(self._data_pages, np.uint64, 1)
        self._stride = class_bytes + _HEADER_BYTES
        self._data = np.frombuffer(self._data_pages, np.uint8, 2 * size, offset=page)

    def pending_bytes(self) -> int:
        return int(self._producer[0]) - int(self._consumer[0])

    def drain(self) -> npt.NDArray[np.uint8]:
        consumer = int(self._consumer[0])
        waiting = (int(self._producer[0]) - consumer) // self._stride
        rows = np.empty((waiting, self.class_bytes), np.uint8)
        kept = 0
        at_once = max(1, _PIECE_BYTES // self._stride)
        while waiting:
            taken, copied = self._take(consumer, min(waiting, at_once), rows[kept:])
            if not taken:
                break
            consumer += taken * self._stride
            waiting -= taken
            kept += copied
            # An aligned store of 8 bytes, after the loads of the copy: on x86-64 no processor sees it before them.
            self._consumer[0] = consumer
        return rows[:kept]

    def _take(self, position: int, count: int, rows: npt.NDArray[np.uint8]) -> tuple[int, int]:
        """Copy up to `count` records, those before the first busy one; return how many were passed and copied."""
        offset = position & (self.size - 1)
        # One look at each header, so that what follows agrees with itself while records are being finished.
        heads = np.ndarray((count,), np.uint32, self._data, offset, (self._stride,)).copy()
        taken, passed = count, None
        if not (heads == self.class_bytes).all():
            taken, passed = self._sort_out(heads)
        shape, strides = (taken, self.class_bytes), (self._stride, 1)
        records = np.ndarray(shape, np.uint8, self._data, offset + _HEADER_BYTES, strides)
        if passed is not None:
            records = records[passed]
        rows[: len(records)] = records
        return taken, len(records)

    def _sort_out(self, heads: npt.NDArray[np.uint32]) -> tuple[int, npt.NDArray[np.bool_] | None]:
        """Return how many records come before the first busy one, and which of them are not discarded (None: all)."""
        busy = heads >= _BUSY
        taken = int(busy.argmax()) if busy.any() else len(heads)
        discarded = (heads[:taken] & _DISCARDED) != 0
        lengths = heads[:taken] & ~_DISCARDED
        if (lengths != self.class_bytes).any():
            wrong = int(lengths[lengths != self.class_bytes][0])
            raise FencepathError(
                f"a record of {wrong} bytes is in the ring of {self.class_bytes}; reserve it with FP_RESERVE"
            )
        return taken, ~discarded if discarded.any() else None

    def close(self) -> None:
        del self._consumer, self._producer, self._data
        self._data_pages.close()
        self._consumer_page.close()
        os.close(self.fd)
