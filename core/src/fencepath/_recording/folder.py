# SPDX-License-Identifier: Apache-2.0
"""The folder of a recording as its writer sees it: private, locked, and never followed out of.

The writer is often root and the folder often belongs to the user who will read it, so every name is opened relative to
a directory's descriptor, without following links, and files are only ever created new.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepath.errors import MachineError, UsageError

__all__ = ["AppendFile", "Folder", "Owner", "create_folder", "is_locked", "open_folder", "write_error"]

Owner = tuple[int, int]
"""User id and group id."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_RESERVE = ".reserve"
_RESERVE_BYTES = 256 * 1024
# A disk that is full, a quota, a file size limit, a device that fails.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AppendFile:
    """A file that grows by whole pieces: a piece that does not fit leaves nothing behind.

    Attributes:
        size_bytes: bytes written.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size_bytes = 0

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end.

        Raises:
            OSError: if the system refused; the file is as it was before.
        """
        view, at = memoryview(data), self.size_bytes
        try:
            while view:
                written = os.pwrite(self._fd, view, at)
                view, at = view[written:], at + written
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes = at

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Folder:
    """An open directory; everything made in it is private and belongs to `owner`."""

    def __init__(self, fd: int, owner: Owner | None) -> None:
        self._fd = fd
        self._owner = owner

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory, which also gives up its lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def names(self) -> list[str]:
        """Return the names in the folder, sorted."""
        return sorted(os.listdir(self._fd))  # noqa: PTH208 - by descriptor, which pathlib cannot

    def subfolder(self, name: str) -> Folder:
        """Return the folder `name` in this one, made if it is not there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._fd)
        fd = os.open(name, _DIRECTORY, dir_fd=self._fd)
        return Folder(_own(fd, self._owner, 0o700), self._owner)

    def new_file(self, name: str) -> AppendFile:
        """Create the file `name`, which must not exist."""
        return AppendFile(_own(os.open(name, _NEW_FILE, 0o600, dir_fd=self._fd), self._owner, 0o600))

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Give the file `name` the contents `data`: whoever opens it finds the old or the new.

        Args:
            name: of the file.
            data: all of it.
            durable: wait for the disk, so that this holds after a power failure too.
        """
        temporary = f".{name}.tmp"
        self.remove(temporary)
        fd = _own(os.open(temporary, _NEW_FILE, 0o600, dir_fd=self._fd), self._owner, 0o600)
        file = AppendFile(fd)
        try:
            file.append(data)
            if durable:
                os.fsync(fd)
        except OSError:
            self.remove(temporary)
            raise
        finally:
            file.close()
        os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        if durable:
            os.fsync(self._fd)

    def remove(self, name: str) -> None:
        """Remove the file `name` if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def remove_folder(self, name: str) -> None:
        """Remove the folder `name`; it is renamed first, so that nobody finds a part of it."""
        gone = f".dropped-{name}"
        os.rename(name, gone, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        shutil.rmtree(gone, ignore_errors=True, dir_fd=self._fd)

    def remove_leftovers(self) -> None:
        """Remove what a killed writer leaves: the reserve, half-written replacements, folders half removed."""
        for name in self.names():
            if name == _RESERVE or (name.startswith(".") and name.endswith(".tmp")):
                self.remove(name)
            elif name.startswith(".dropped-"):
                shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def clear(self) -> None:
        """Remove all that is in the folder, as far as that can be done."""
        for name in self.names():
            with contextlib.suppress(OSError):
                self.remove(name)
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def reserve(self) -> None:
        """Set space aside, so that a full disk does not keep the account of what was lost from being written."""
        fd = _own(os.open(_RESERVE, _NEW_FILE, 0o600, dir_fd=self._fd), self._owner, 0o600)
        try:
            os.posix_fallocate(fd, 0, _RESERVE_BYTES)
        finally:
            os.close(fd)

    def release_reserve(self) -> None:
        """Give the space back."""
        self.remove(_RESERVE)


def create_folder(path: Path, owner: Owner | None) -> Folder:
    """Create and lock the folder of a new recording.

    Raises:
        UsageError: if there is something at `path` already, or nothing can be made there.
        MachineError: if the disk is full.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        fd = os.open(path, _DIRECTORY)
    except NotADirectoryError:
        raise UsageError(f"{path} exists and is not a folder; choose another name or remove it") from None
    except OSError as error:
        raise write_error(path, error) from error
    if not _lock(fd) or Folder(fd, owner).names():
        os.close(fd)
        raise UsageError(f"{path} exists and is not empty; choose another name or remove it")
    try:
        return Folder(_own(fd, owner, 0o700), owner)
    except OSError as error:
        raise write_error(path, error) from error


def open_folder(path: Path) -> Folder:
    """Open and lock the folder of an existing recording for repair; what is made in it belongs to the folder's owner.

    Raises:
        UsageError: if it is still being recorded, or may not be opened.
    """
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError as error:
        raise write_error(path, error) from error
    if not _lock(fd):
        os.close(fd)
        raise UsageError(f"{path} is still being recorded; stop the recorder first")
    status = os.fstat(fd)
    return Folder(fd, (status.st_uid, status.st_gid))


def is_locked(path: Path) -> bool:
    """Whether a recorder is writing to the recording at `path`."""
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError:
        return False
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def write_error(path: Path, error: OSError) -> UsageError | MachineError:
    """Return the error to raise where the system refused to write to the recording at `path`."""
    why = f"cannot write to {path}: {(error.strerror or str(error)).lower()}"
    if error.errno in _FULL:
        return MachineError(why, "free some space there, or bound the recording with --max-size")
    if error.errno == errno.EIO:
        return MachineError(why, "choose another disk")
    return UsageError(f"{why}; choose another place")


def _lock(fd: int) -> bool:
    """Take the lock that a writer holds for its life; the kernel gives it up when the process dies."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own(fd: int, owner: Owner | None, mode: int) -> int:
    """Set owner and mode whatever the umask is, and return `fd`, which is closed if that fails."""
    try:
        os.fchmod(fd, mode)
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.fchown(fd, *owner)
    except OSError:
        os.close(fd)
        raise
    return fd
