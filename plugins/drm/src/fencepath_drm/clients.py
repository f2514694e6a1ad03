# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of the open DRM devices of the recorded processes, read while they run."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fencepath_drm.fdinfo import Client, parse_fdinfo

__all__ = ["FACT", "MAJOR", "ClientWatch", "Key", "Reading", "drm_files", "readings"]

FACT = "client"
"""Name of the facts; they are read under ``drm.client``."""
MAJOR = 226
"""Of DRM devices (Documentation/admin-guide/devices.txt)."""

_LOOK_NS = 20_000_000
"""A look begins with no further process after that time: records wait in the rings meanwhile."""

# looked at by its name first: stat of a file on a network can take for ever
_NODE = re.compile(r"^/dev/|/(?:card|renderD)\d+")

Key = tuple[str, int, int]


class Reading(Client, frozen=True, kw_only=True):
    """A client, as an open file of a process said at a time.

    Attributes:
        pid: the process.
        fd: its file descriptor.
        time_ns: when it was read, CLOCK_MONOTONIC.
    """

    pid: int
    fd: int
    time_ns: int

    @property
    def key(self) -> Key:
        """What is one client: files that were duplicated or inherited are. Where the driver gives no id, each descriptor is taken as one."""
        return (self.device, self.client_id, -1) if self.client_id else (self.device, -self.pid, self.fd)


def readings(facts: Sequence[Mapping[str, Any]]) -> dict[Key, list[Reading]]:
    """Read the facts: the readings of each client, by time. One that makes no sense is left out."""
    found: dict[Key, list[Reading]] = {}
    for fact in facts:
        try:
            reading = msgspec.convert(fact, Reading)
        except msgspec.ValidationError:
            continue
        found.setdefault(reading.key, []).append(reading)
    return {key: sorted(several, key=lambda one: one.time_ns) for key, several in found.items()}


class ClientWatch:
    """Implements :class:`fencepath.plugin.ProcessWatch`: keeps the first and the last reading of each client.

    Args:
        root: where procfs is.
        clock: CLOCK_MONOTONIC in ns.
        major: of the devices that are looked at.
    """

    def __init__(
        self, root: Path = Path("/proc"), clock: Callable[[], int] = time.monotonic_ns, major: int = MAJOR
    ) -> None:
        self._root = root
        self._clock = clock
        self._major = major
        self._holders: dict[Key, int] = {}
        self._last: dict[Key, Reading] = {}
        self._looked_at = 0

    def look(self, pids: Sequence[int]) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the first reading of clients that are new, and the last of those that are gone.

        Where there are too many processes for one look, the next one goes on with the rest.
        """
        found: dict[Key, Reading] = {}
        later: set[int] = set()
        until_ns = self._clock() + _LOOK_NS
        for pid in sorted(pids, key=lambda pid: (pid <= self._looked_at, pid)):
            if self._clock() > until_ns:
                later.add(pid)
                continue
            self._looked_at = pid
            for reading in self._read(pid):
                found.setdefault(reading.key, reading)
        gone = [key for key, pid in self._holders.items() if key not in found and pid not in later]
        kept = [self._last.pop(key) for key in gone if key in self._last]
        for key in gone:
            del self._holders[key]
        for key, reading in found.items():
            if key in self._holders:
                self._last[key] = reading
            else:
                kept.append(reading)
            self._holders[key] = reading.pid
        return [_fact(reading) for reading in kept]

    def end(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the last reading of all others."""
        last, self._last = self._last, {}
        return [_fact(reading) for reading in last.values()]

    def _read(self, pid: int) -> Iterator[Reading]:
        for fd in drm_files(self._root / str(pid), self._major):
            try:
                text = (self._root / str(pid) / "fdinfo" / str(fd)).read_text(errors="replace")
            except OSError:
                continue
            client = parse_fdinfo(text)
            if client is not None:
                yield Reading(pid=pid, fd=fd, time_ns=self._clock(), **msgspec.structs.asdict(client))


def _fact(reading: Reading) -> tuple[str, Mapping[str, Any]]:
    return FACT, msgspec.to_builtins(reading)


def drm_files(process: Path, major: int = MAJOR) -> list[int]:
    """The descriptors of a process, by its folder of procfs, that are DRM devices; none if it is gone or may not be looked at."""
    try:
        folder = os.open(process / "fd", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if _is_device(folder, entry.name, major))
    except OSError:
        return []
    finally:
        os.close(folder)


def _is_device(folder: int, name: str, major: int) -> bool:
    try:
        if not _NODE.search(os.readlink(name, dir_fd=folder)):
            return False
        status = os.stat(name, dir_fd=folder)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == major
