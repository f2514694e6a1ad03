# SPDX-License-Identifier: Apache-2.0
"""The set of processes and threads that are recorded, kept in maps that BPF programs read and write."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from fencepath._bpf.maps import Map
from fencepath.errors import UsageError

__all__ = ["Targets", "descendants", "process_exists"]


class Targets:
    """Target processes and threads, by their ids in the initial pid namespace.

    BPF programs of the layer ``process`` add what targets create and take away what ends.

    Args:
        tgids: map of processes; u32 keys and values.
        tids: map of their threads, likewise.
    """

    def __init__(self, tgids: Map, tids: Map) -> None:
        self._tgids = tgids
        self._tids = tids

    def add(self, pid: int) -> None:
        """Make a process and all its threads targets; again until no new thread appears.

        The process comes first: threads that it creates from then on are added by the BPF programs, so only those that were
        there before must be found, and a thread list that was complete once is complete for good.

        Raises:
            UsageError: there is no such process.
        """
        if not process_exists(pid):
            raise UsageError(f"there is no process {pid}; give the pid of a running one")
        self._tgids.update(_key(pid), _key(0))
        known: set[int] = set()
        while True:
            found = set(threads_of(pid)) - known
            if not found:
                return
            for tid in found:
                self._tids.update(_key(tid), _key(pid))
            known |= found

    def processes(self) -> list[int]:
        """Target processes now."""
        return [struct.unpack("<I", key)[0] for key in self._tgids.keys()]  # noqa: SIM118 - a Map is no dict


def _key(number: int) -> bytes:
    return struct.pack("<I", number)


def process_exists(pid: int) -> bool:
    """Whether `pid` is a process (not a thread) that has not been reaped."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    return f"\nTgid:\t{pid}\n" in text


def threads_of(pid: int) -> list[int]:
    """Threads of a process now; none if it is gone."""
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def descendants(pid: int) -> Iterator[int]:
    """Yield `pid` and all processes it made, directly or not, that are there now."""
    yield pid
    for tid in threads_of(pid):
        try:
            children = Path(f"/proc/{pid}/task/{tid}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))
