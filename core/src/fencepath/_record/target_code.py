# SPDX-License-Identifier: Apache-2.0
"""The code of the targets: what they have mapped, what of it has probes, and the names of functions in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fencepath._record.code_names import CodeNames
from fencepath._record.declared_code import LayerCode
from fencepath._record.handed_out import HandedOutFunctions
from fencepath._record.mappings import CodeMappings
from fencepath._record.plan import MissingSet
from fencepath._record.targets import process_exists
from fencepath._record.uprobes import UprobeAttacher
from fencepath.records import Records

__all__ = ["TargetCode"]


class TargetCode:
    """Looks at what targets have mapped, attaches, and keeps what addresses in records mean.

    Args:
        uprobes: attaches.
        codes: what layers say of addresses.
        note: called with a fact's type and data.
        gap: called with a stage of the loss table, begin and end of its window in ns of CLOCK_MONOTONIC, kind and count.
    """

    def __init__(
        self,
        uprobes: UprobeAttacher,
        codes: Iterable[LayerCode],
        note: Callable[[str, Mapping[str, Any]], None],
        gap: Callable[[str, int, int, str, int], None],
    ) -> None:
        codes = tuple(codes)
        self._uprobes = uprobes
        self._mappings = CodeMappings(note, gap)
        self._names = CodeNames(codes, self._mappings, note)
        self._handed_out = HandedOutFunctions(codes, self._mappings, uprobes, gap)
        self._ended: set[int] = set()
        self._ended_before: set[int] = set()

    def look(self, pid: int, since_ns: int) -> None:
        """Look at what a process has mapped: probes first, as it goes on without them.

        Args:
            pid: process.
            since_ns: CLOCK_MONOTONIC before which it has mapped no file that was not looked at.
        """
        now_ns = time.monotonic_ns()
        mapped = self._uprobes.attach_process(pid, since_ns)
        if mapped:
            self._mappings.look(pid, mapped, since_ns, now_ns)

    def fork(self, child: int, parent: int, time_ns: int) -> None:
        """Take note of a new process."""
        self._forget(child)
        self._mappings.fork(child, parent, time_ns)
        self.exit(child)

    def exec(self, pid: int, time_ns: int) -> None:
        """Take note that a process has become another program, and look at it."""
        self._forget(pid)
        self._mappings.exec(pid, time_ns)
        self.look(pid, time_ns)

    def exit(self, pid: int) -> None:
        """Take note that the first thread of a process has ended, and so it has if it has no other any more."""
        if not process_exists(pid):
            self._ended.add(pid)

    def take(self, kind: str, records: Records) -> None:
        """Collect the addresses in call records of a kind."""
        self._names.take(kind, records)
        self._handed_out.take(kind, records)

    def settle(self) -> None:
        """Attach functions that were handed out and have others named; called when all that was in the rings is followed.

        Before, the record of a mapping may still follow that of a call in it, and a process's last calls its end: what is
        known of it is kept for one round more.
        """
        self._handed_out.attach()
        self._names.ask()
        for pid in [*self._ended_before]:
            self._forget(pid)
        self._ended_before, self._ended = self._ended, set()

    def look_around(self, *, everywhere: bool = False) -> None:
        """Look at processes in which something may have been mapped unannounced: at one that is due, or at all."""
        for pid in self._mappings.processes if everywhere else self._mappings.due(time.monotonic_ns()):
            if process_exists(pid):
                self.look(pid, self._mappings.looked_ns(pid))
            else:
                self._forget(pid)

    def finish(self) -> None:
        """Look at everything once more and write the last names. Probes have been detached."""
        self.look_around(everywhere=True)
        self._names.finish()

    def close(self) -> None:
        """End the thread that looks for names."""
        self._names.close()

    def missing(self) -> Iterator[MissingSet]:
        """Yield what could not be named; to be asked at the end."""
        return self._names.missing()

    def _forget(self, pid: int) -> None:
        for ended in (self._ended, self._ended_before):
            ended.discard(pid)
        self._uprobes.forget(pid)
        self._mappings.drop(pid)
        self._names.forget(pid)
        self._handed_out.forget(pid)
