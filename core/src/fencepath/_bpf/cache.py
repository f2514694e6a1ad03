# SPDX-License-Identifier: Apache-2.0
"""Keeps compiled programs, so that a recording with the same probes on the same machine starts without a compiler.

A program is loaded into the kernel with the rights of whoever records, so what is kept is only trusted in a folder that
nobody else can write: /var/cache/fencepath for root, else ~/.cache/fencepath of a user who may load programs. Whatever is
wrong with the folder or a file in it, sources are compiled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from fencepath._bpf.relocate import descriptors_of, relocate
from fencepath._version import __version__

__all__ = ["ProgramCache", "cache_folder", "is_descriptor"]

_FORMAT = 1
_MOST = 64
"""Sources of which the programs are kept; the ones used longest ago go first."""
_OFF = "FENCEPATH_PROGRAM_CACHE"


class _Entry(msgspec.Struct, frozen=True):
    """What is kept of one source.

    Attributes:
        descriptors: file descriptors of maps, by macro, with which it was compiled.
        programs: instructions by function.
        warnings: what the compiler said.
    """

    descriptors: dict[str, int]
    programs: dict[str, bytes]
    warnings: str


def is_descriptor(macro: str) -> bool:
    """Whether a macro is the file descriptor of a map, another in every process."""
    return macro.endswith("_FD")


def cache_folder() -> Path | None:
    """Where programs are kept; None if nothing is to be (``FENCEPATH_PROGRAM_CACHE=0``)."""
    if os.environ.get(_OFF) == "0":
        return None
    return Path("/var/cache/fencepath") if os.geteuid() == 0 else Path.home() / ".cache" / "fencepath"


class ProgramCache:
    """Programs of one source.

    Args:
        folder: where; None keeps nothing.
        parts: all that the result depends on but the file descriptors of maps: text, files, macros, compiler.
        descriptors: file descriptors of maps by macro, of this process.
    """

    def __init__(self, folder: Path | None, parts: Iterable[str], descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)
        digest = hashlib.blake2b(digest_size=20)
        machine = platform.uname()
        for part in (str(_FORMAT), __version__, machine.release, machine.version, machine.machine, *parts):
            digest.update(f"{len(part)}:".encode() + part.encode(errors="surrogateescape"))
        self._file = folder / f"{digest.hexdigest()}.bpf" if folder else None

    def get(self) -> tuple[dict[str, bytes], str] | None:
        """Return the programs by function, with this process's maps, and the compiler's warnings; None if not kept."""
        entry = self._read()
        if entry is None or entry.descriptors.keys() != self._descriptors.keys():
            return None
        moved = {old: self._descriptors[name] for name, old in entry.descriptors.items()}
        return {name: relocate(code, moved) for name, code in entry.programs.items()}, entry.warnings

    def put(self, programs: Mapping[str, bytes], warnings: str) -> bool:
        """Keep programs as far as possible.

        Returns:
            Whether they use no maps but those whose descriptors were given, so that nothing else is needed to load them.
        """
        known = set(self._descriptors.values())
        own = any(not descriptors_of(code) <= known for code in programs.values())
        if not own and self._file is not None and len(known) == len(self._descriptors):
            self._write(self._file, programs, warnings)
        return not own

    def _write(self, file: Path, programs: Mapping[str, bytes], warnings: str) -> None:
        content = msgspec.msgpack.encode(_Entry(self._descriptors, dict(programs), warnings))
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(file.parent, stat.S_ISDIR):
                return
            temporary = file.with_name(f".{file.name}.{os.getpid()}")
            temporary.write_bytes(_sum(content) + content)
            temporary.chmod(0o600)
            temporary.replace(file)
            kept = sorted(file.parent.glob("*.bpf"), key=lambda other: other.stat().st_mtime)
            for other in kept[:-_MOST]:
                other.unlink(missing_ok=True)
        except OSError:
            return

    def _read(self) -> _Entry | None:
        if self._file is None:
            return None
        try:
            if not _is_private(self._file.parent, stat.S_ISDIR) or not _is_private(self._file, stat.S_ISREG):
                return None
            content = self._file.read_bytes()
            if _sum(content[_SUM_BYTES:]) != content[:_SUM_BYTES]:
                return None
            os.utime(self._file)
            return msgspec.msgpack.decode(content[_SUM_BYTES:], type=_Entry)
        except (OSError, msgspec.DecodeError):
            return None


_SUM_BYTES = 20


def _sum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SUM_BYTES).digest()


def _is_private(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether a file or folder is of the right kind, this user's, and nobody else can write it; links are not followed."""
    status = path.lstat()
    return is_kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
