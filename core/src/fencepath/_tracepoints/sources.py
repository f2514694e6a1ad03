# SPDX-License-Identifier: Apache-2.0
"""Where `format` files are read from: the running kernel, or a folder saved from another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fencepath._tracepoints.format import TracepointFormat, parse_format
from fencepath.errors import MachineError

__all__ = ["TRACEFS_PATHS", "LiveTracepoints", "SavedTracepoints", "TracepointSource"]

TRACEFS_PATHS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
"""Where tracefs is mounted; the second only through debugfs."""


class TracepointSource(Protocol):
    """What declarations are resolved against."""

    def format(self, group: str, event: str) -> TracepointFormat | None:
        """Return the event's format, or None if the kernel has no such event."""
        ...

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        ...

    def events(self, group: str) -> tuple[str, ...]:
        """Return the names of a group's events, sorted; empty if the group is absent."""
        ...


class _Folder:
    """Formats below one folder, each parsed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parsed: dict[tuple[str, str], TracepointFormat | None] = {}

    @property
    def root(self) -> Path:
        """The folder that holds the groups."""
        return self._root

    def _path(self, group: str, event: str) -> Path:
        raise NotImplementedError

    def _event_names(self, folder: Path) -> Iterator[str]:
        raise NotImplementedError

    def format(self, group: str, event: str) -> TracepointFormat | None:
        """Return the event's format, or None if there is no such event."""
        key = (group, event)
        if key not in self._parsed:
            try:
                text = self._path(group, event).read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                # Not kept: the event appears when its module is loaded.
                return None
            self._parsed[key] = parse_format(text, group)
        return self._parsed[key]

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups, sorted."""
        return tuple(sorted(path.name for path in self._root.iterdir() if path.is_dir()))

    def events(self, group: str) -> tuple[str, ...]:
        """Return the names of a group's events, sorted; empty if the group is absent."""
        folder = self._root / group
        return tuple(sorted(self._event_names(folder))) if folder.is_dir() else ()


class LiveTracepoints(_Folder):
    """The events of the running kernel, from tracefs."""

    def __init__(self, tracefs: Path | None = None) -> None:
        """Open tracefs.

        Args:
            tracefs: the mount point; by default the first of :data:`TRACEFS_PATHS` that holds events.

        Raises:
            MachineError: if tracefs is not mounted or may not be read.
        """
        super().__init__(_find_tracefs() if tracefs is None else tracefs / "events")

    def _path(self, group: str, event: str) -> Path:
        return self.root / group / event / "format"

    def _event_names(self, folder: Path) -> Iterator[str]:
        return (path.name for path in folder.iterdir() if path.is_dir())


class SavedTracepoints(_Folder):
    """Formats saved as ``FOLDER/<group>/<event>.format``."""

    def _path(self, group: str, event: str) -> Path:
        return self.root / group / f"{event}.format"

    def _event_names(self, folder: Path) -> Iterator[str]:
        return (path.stem for path in folder.glob("*.format"))


def _find_tracefs() -> Path:
    refused = False
    for mount in TRACEFS_PATHS:
        try:
            if next((mount / "events").iterdir(), None) is not None:
                return mount / "events"
        except PermissionError:
            refused = True
        except OSError:
            continue
    if refused:
        raise MachineError("tracefs may not be read", "run as root")
    raise MachineError("tracefs is not mounted", f"run: mount -t tracefs tracefs {TRACEFS_PATHS[0]}")
