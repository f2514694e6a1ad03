# SPDX-License-Identifier: Apache-2.0
"""Where a recording is read from: its folder, or a zip file of it."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Protocol

from fencepath.errors import NotARecordingError, UsageError

__all__ = ["FolderTree", "Tree", "ZipTree", "open_tree"]


class Tree(Protocol):
    """Files by path inside the recording."""

    def files(self, folder: str = "") -> list[str]:
        """Return the names of the plain files in `folder`, sorted; none if there is no such folder."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in `folder`, sorted; none if there is no such folder."""
        ...

    def read(self, file: str) -> bytes:
        """Return all of a file.

        Raises:
            OSError: if it is not there or cannot be read.
        """
        ...

    def size_bytes(self, file: str) -> int:
        """Return the size of a file; -1 if it is not there."""
        ...


class FolderTree:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self, folder: str = "") -> list[str]:
        """See :class:`Tree`."""
        return self._names(folder, want_folders=False)

    def folders(self, folder: str) -> list[str]:
        """See :class:`Tree`."""
        return self._names(folder, want_folders=True)

    def read(self, file: str) -> bytes:
        """See :class:`Tree`. Read, not mapped: a mapped file that shrinks kills its reader."""
        return (self._root / file).read_bytes()

    def size_bytes(self, file: str) -> int:
        """See :class:`Tree`."""
        try:
            return (self._root / file).stat().st_size
        except OSError:
            return -1

    def _names(self, folder: str, *, want_folders: bool) -> list[str]:
        try:
            entries = list((self._root / folder).iterdir())
        except OSError:
            return []
        return sorted(entry.name for entry in entries if (entry.is_dir() if want_folders else entry.is_file()))


class ZipTree:
    """A zip file of a recording's folder, with or without that folder's own name in front."""

    def __init__(self, file: Path) -> None:
        self._zip = zipfile.ZipFile(file)
        names = self._zip.namelist()
        manifests = sorted((name for name in names if name.split("/")[-1] == "manifest.json"), key=len)
        self._prefix = manifests[0].removesuffix("manifest.json") if manifests else ""
        self._names = [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def files(self, folder: str = "") -> list[str]:
        """See :class:`Tree`."""
        return sorted(name for name in self._below(folder) if name and "/" not in name)

    def folders(self, folder: str) -> list[str]:
        """See :class:`Tree`."""
        return sorted({name.split("/")[0] for name in self._below(folder) if "/" in name})

    def read(self, file: str) -> bytes:
        """See :class:`Tree`."""
        try:
            return self._zip.read(self._prefix + file)
        except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise OSError(f"{file} cannot be read from the zip file: {error}") from error

    def size_bytes(self, file: str) -> int:
        """See :class:`Tree`."""
        try:
            return self._zip.getinfo(self._prefix + file).file_size
        except KeyError:
            return -1

    def _below(self, folder: str) -> list[str]:
        start = folder + "/" if folder else ""
        return [name.removeprefix(start) for name in self._names if name.startswith(start)]


def open_tree(path: Path) -> Tree:
    """Return the tree at `path`.

    Raises:
        NotARecordingError: if there is neither a folder nor a zip file.
        UsageError: if it may not be read.
    """
    try:
        if path.is_dir():
            next(path.iterdir(), None)
            return FolderTree(path)
        if path.is_file():
            return ZipTree(path)
    except PermissionError as error:
        raise UsageError(f"{path} may not be read by this user; run as its owner") from error
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise NotARecordingError(f"{path} is not a fencepath recording; name the folder that record made") from error
    raise NotARecordingError(f"there is no recording at {path}; name the folder that record made")
