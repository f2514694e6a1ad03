# SPDX-License-Identifier: Apache-2.0
"""What a process has mapped executable, from /proc/PID/maps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fencepath.errors import MachineError, UsageError

__all__ = ["MappedLibrary", "executable_mappings", "first_of_each", "mapped_libraries", "parse_maps"]

_LINE = re.compile(
    r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<mode>[-rwxps]{4}) (?P<offset>[0-9a-f]+) "
    r"(?P<major>[0-9a-f]+):(?P<minor>[0-9a-f]+) (?P<inode>\d+)(?:\s+(?P<path>.*))?$"
)
_DELETED = " (deleted)"


class MappedLibrary(msgspec.Struct, frozen=True):
    """One executable mapping in one process: of a file, or of memory alone (:attr:`is_file`).

    The path is only a name, and of the process's own mount namespace: the file behind it may have been replaced or be
    another one here. :attr:`open_path` leads to the mapped file itself.

    Attributes:
        pid: process, in the reader's pid namespace.
        path_text: as /proc/PID/maps says, without `` (deleted)``; for showing only. Of memory alone ``""`` or what the
            kernel calls it, such as ``[vdso]``.
        open_path: ``/proc/PID/map_files/START-END``; valid as long as the mapping is, and what a probe is attached to.
        device: major and minor of the file system.
        inode: on it; 0 of memory alone. With overlay or btrfs, `device` can differ from what stat says.
        start: first address.
        end: first address behind.
        offset: of `start` in the file, bytes.
        deleted: the file was unlinked or replaced after it was mapped.
        build_id: hex, or None if it was not read (:meth:`ImageCache.identify` does) or the file has none.
    """

    pid: int
    path_text: str
    open_path: str
    device: tuple[int, int]
    inode: int
    start: int
    end: int
    offset: int
    deleted: bool
    build_id: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether a file is behind it; one that is only in memory (memfd_create) counts as one."""
        return self.inode != 0

    @property
    def name(self) -> str:
        """Last part of the path; of a file that is only in memory, its name (memfd_create)."""
        return self.path_text.rsplit("/", 1)[-1].removeprefix("memfd:")

    @property
    def shown(self) -> str:
        """The path for messages and facts, which cannot hold the bytes that a path may have."""
        return self.path_text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

    @property
    def identity(self) -> tuple[int, int, int]:
        """What is equal for mappings of one file: major, minor, inode."""
        return (*self.device, self.inode)

    def file_offset(self, address: int) -> int:
        """Return the file offset behind `address` of the process.

        Raises:
            ValueError: if the address is not in this mapping.
        """
        if not self.start <= address < self.end:
            raise ValueError(f"{address:#x} is not in {self.start:#x}-{self.end:#x}")
        return address - self.start + self.offset

    def open(self) -> int:
        """Open the mapped file for reading and return the descriptor, which the caller closes.

        By map_files, which reaches unlinked files and any mount. Only where the kernel refuses that (it asks for
        CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), by the process's root, if the inode is still the same.

        Raises:
            MachineError: if neither leads to the mapped file.
        """
        try:
            return os.open(self.open_path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            return self._open_by_root()
        except OSError as error:
            raise MachineError(f"cannot open {self.shown} of process {self.pid}: {error.strerror}") from error

    def _open_by_root(self) -> int:
        path = f"/proc/{self.pid}/root{self.path_text}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MachineError(
                f"cannot open {self.shown} of process {self.pid}: {error.strerror}", "run as root"
            ) from error
        status = os.fstat(fd)
        if status.st_ino != self.inode:
            os.close(fd)
            raise MachineError(f"{self.shown} is no longer the file that process {self.pid} has mapped", "run as root")
        return fd


def parse_maps(text: str, pid: int) -> tuple[MappedLibrary, ...]:
    """Return the executable mappings in the text of a maps file, in address order."""
    return tuple(mapping for line in text.split("\n") if (mapping := _parse_line(line, pid)) is not None)


def executable_mappings(pid: int) -> tuple[MappedLibrary, ...]:
    """Return everything that process `pid` has mapped executable, in address order; nothing of one that has ended.

    Raises:
        UsageError: if there is no such process.
        MachineError: if its maps may not be read.
    """
    try:
        # A path may hold any bytes but NUL and newline (which the kernel writes as \012).
        text = Path(f"/proc/{pid}/maps").read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise UsageError(f"there is no process {pid}; give the pid of a running one") from error
    except PermissionError as error:
        raise MachineError(f"the maps of process {pid} may not be read", "run as root") from error
    return parse_maps(text, pid)


def mapped_libraries(pid: int, *, once: bool = True) -> tuple[MappedLibrary, ...]:
    """Return the files that process `pid` has mapped executable, the executable itself among them.

    Args:
        pid: process, in the pid namespace of /proc.
        once: only the first executable mapping of each file. A file may have more than one
            (a split segment); its file offsets are the same whichever is used to open it.

    Raises:
        UsageError: if there is no such process.
        MachineError: if its maps may not be read.
    """
    found = tuple(mapping for mapping in executable_mappings(pid) if mapping.is_file)
    return first_of_each(found) if once else found


def first_of_each(mappings: Iterable[MappedLibrary]) -> tuple[MappedLibrary, ...]:
    """Return the first mapping of each file; those of memory alone are left out."""
    first: dict[tuple[int, int, int], MappedLibrary] = {}
    for mapping in mappings:
        if mapping.is_file:
            first.setdefault(mapping.identity, mapping)
    return tuple(first.values())


def _parse_line(line: str, pid: int) -> MappedLibrary | None:
    # most of the thousands of lines that a large process has are not executable
    if line[line.find(" ") + 3 : line.find(" ") + 4] != "x":
        return None
    match = _LINE.match(line)
    if match is None:
        return None
    path = re.sub(r"\\012", "\n", match["path"] or "")
    # a file in no mount that can be seen has no path
    inode = int(match["inode"]) if path else 0
    deleted = inode != 0 and path.endswith(_DELETED)
    start, end = int(match["start"], 16), int(match["end"], 16)
    return MappedLibrary(
        pid=pid,
        path_text=path.removesuffix(_DELETED) if deleted else path,
        # without the zeros in front that maps has at low addresses: those of programs that are not position independent
        open_path=f"/proc/{pid}/map_files/{start:x}-{end:x}",
        device=(int(match["major"], 16), int(match["minor"], 16)),
        inode=inode,
        start=start,
        end=end,
        offset=int(match["offset"], 16),
        deleted=deleted,
    )
