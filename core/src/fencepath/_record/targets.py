# SPDX-License-Identifier: Apache-2.0
"""The set of processes and threads that are recorded, kept in maps that BPF programs read and write."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from fencepath._bpf.maps import Map
from fencepath.errors import UsageError

__all__ = ["Targets", "check_process", "descendants", "is_made_by", "process_exists", "threads_of"]


class Targets:
    """Target processes and threads, by their ids in the initial pid namespace.

    BPF programs of the layer ``process`` add what targets create and take away what ends.

    Args:
        tgids: map of processes; u32 keys and values.
        tids: map of their threads, likewise.
        recorder: a process that never becomes one; None for this one.
    """

    def __init__(self, tgids: Map, tids: Map, recorder: int | None = None) -> None:
        self._tgids = tgids
        self._tids = tids
        self._recorder = os.getpid() if recorder is None else recorder

    def add(self, pid: int) -> None:
        """Make a process and all its threads targets; again until no new thread appears.

        The process comes first: threads that it creates from then on are added by the BPF programs, so only those that were
        there before must be found, and a thread list that was complete once is complete for good.

        Raises:
            UsageError: there is no such process.
        """
        check_process(pid)
        if pid == self._recorder:
            return
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
    """Whether `pid` is a process (not a thread) that runs; one that has ended and was not reaped does not."""
    return not _why_not(pid)


def check_process(pid: int) -> None:
    """Do nothing if `pid` is a process that runs.

    Raises:
        UsageError: it is not; the message says what it is instead.
    """
    why = _why_not(pid)
    if why:
        raise UsageError(why)


def _why_not(pid: int) -> str:
    """Why `pid` is no running process, "" if it is one."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return f"there is no process {pid}; give the pid of a running one"
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    if fields.get("Tgid") != str(pid):
        return f"{pid} is a thread of process {fields.get('Tgid')}; give the pid of the process"
    # a leader that ended before its process's other threads is a zombie too
    if fields.get("State", "")[:1] in ("Z", "X") and len(threads_of(pid)) <= 1:
        return f"process {pid} has ended; give the pid of a running one"
    return ""


def threads_of(pid: int) -> list[int]:
    """Threads of a process now; none if it is gone."""
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def descendants(pid: int) -> Iterator[int]:
    """Yield `pid` and all processes it made, directly or not, that are there now; never this one."""
    if pid == os.getpid():
        return
    yield pid
    for tid in threads_of(pid):
        try:
            children = Path(f"/proc/{pid}/task/{tid}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))


def is_made_by(pid: int, ancestor: int) -> bool:
    """Whether `pid` is `ancestor` or was made by it, directly or not, and runs."""
    while pid not in (0, ancestor):
        try:
            # the name before it may hold spaces and parentheses
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == ancestor
