# SPDX-License-Identifier: Apache-2.0
"""Libraries that a command will probably load, found before it is started.

Only for a command that is started here, in this mount namespace: for a process in a container use what it has mapped.
Nothing is executed and nothing is sure: a program may load any file. What is missed here is found when it is mapped.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fencepath._libraries.elf import ElfImage, NotElfError
from fencepath._libraries.ldcache import cached_libraries
from fencepath._libraries.pythons import site_folders
from fencepath.errors import UsageError

__all__ = ["FoundLibrary", "find_known", "interpreter_of"]

_NEEDED_LIMIT = 256
_SHEBANG_DEPTH = 4


class FoundLibrary(msgspec.Struct, frozen=True):
    """A library file on this machine.

    Attributes:
        path: with every link resolved.
        name: the name it was found by, such as ``libcuda.so.1``.
        build_id: hex, or None.
        found_by: ``needed``, ``environment`` (LD_LIBRARY_PATH), ``rpath``, ``loader`` (its cache and default folders)
            or ``site`` (a folder in the site-packages of the command's Python).
    """

    path: str
    name: str
    build_id: str | None
    found_by: str


def find_known(
    patterns: Sequence[str],
    *,
    command: str,
    environ: Mapping[str, str],
    site_globs: Sequence[str] = (),
) -> tuple[FoundLibrary, ...]:
    """Return the files named like one of `patterns` that `command` may load, each file once, likeliest first.

    Args:
        patterns: shell patterns of file names, such as ``libcuda.so*``.
        command: what will be started: a path, or a name looked up in the PATH of `environ`. A script counts as its
            interpreter.
        environ: the environment it will be started with.
        site_globs: folders inside site-packages, such as ``nvidia/*/lib``; looked at if the command is a Python.

    Raises:
        UsageError: if there is no such command.
    """
    executable = interpreter_of(command, environ)
    found: dict[tuple[int, int], FoundLibrary] = {}
    for path, how in _candidates(executable, patterns, environ, site_globs):
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) in found:
                continue
            with ElfImage(path) as image:
                if image.machine == _MACHINES.get(platform.machine(), "EM_X86_64"):
                    library = FoundLibrary(os.path.realpath(path), path.name, image.build_id, how)
                    found[status.st_dev, status.st_ino] = library
        except (OSError, NotElfError):
            # A linker script (libc.so), a dangling link, a file that went away: not a library that can be loaded.
            continue
    return tuple(found.values())


_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def interpreter_of(command: str, environ: Mapping[str, str]) -> Path:
    """Return the ELF file that starts when `command` is run: the command itself, or its script's interpreter.

    Raises:
        UsageError: if there is no such command.
    """
    path = _which(command, environ)
    for _ in range(_SHEBANG_DEPTH):
        with path.open("rb") as file:
            words = file.readline(512).split()
        if not words or not words[0].startswith(b"#!"):
            break
        path = _which(_shebang_command([word.decode("utf-8", "surrogateescape") for word in words]), environ)
    return path


def _which(command: str, environ: Mapping[str, str]) -> Path:
    resolved = shutil.which(command, path=environ.get("PATH", os.defpath))
    if resolved is None:
        raise UsageError(f"there is no command {command}; give a path or a name in PATH")
    return Path(resolved)


def _shebang_command(words: list[str]) -> str:
    words[0] = words[0][2:]
    words = [word for word in words if word]
    if Path(words[0]).name != "env":
        return words[0]
    # env -S and NAME=VALUE may come before the command.
    return next((word for word in words[1:] if not word.startswith("-") and "=" not in word), words[0])


def _candidates(
    executable: Path, patterns: Sequence[str], environ: Mapping[str, str], site_globs: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    cached = cached_libraries()
    inherited = [Path(text) for text in environ.get("LD_LIBRARY_PATH", "").split(":") if text]
    yield from _named(_needed(executable, inherited, dict(reversed(cached))), patterns, "needed")
    for folder in inherited:
        yield from _in_folder(folder, patterns, "environment")
    for folder in _own_folders(executable):
        yield from _in_folder(folder, patterns, "rpath")
    for folder in site_folders(executable, environ):
        for pattern in site_globs:
            for inside in sorted(folder.glob(pattern)):
                yield from _in_folder(inside, patterns, "site")
    yield from _named((Path(path) for _, path in cached), patterns, "loader")
    for folder in _default_folders():
        yield from _in_folder(folder, patterns, "loader")


def _named(paths: Iterable[Path], patterns: Sequence[str], how: str) -> Iterator[tuple[Path, str]]:
    return ((path, how) for path in paths if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns))


def _in_folder(folder: Path, patterns: Sequence[str], how: str) -> Iterator[tuple[Path, str]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return iter(())
    return _named(paths, patterns, how)


def _default_folders() -> tuple[Path, ...]:
    multiarch = f"{platform.machine()}-linux-gnu"
    return tuple(
        Path(text)
        for text in (f"/lib/{multiarch}", f"/usr/lib/{multiarch}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    )


def _own_folders(path: Path) -> list[Path]:
    try:
        with ElfImage(path) as image:
            folders = [text for group in image.search_path for text in group]
    except (OSError, NotElfError):
        return []
    origin = str(path.resolve().parent)
    return [Path(text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for text in folders]


def _needed(executable: Path, inherited: Sequence[Path], cached: Mapping[str, str]) -> Iterator[Path]:
    """Yield the libraries that the loader would map at start, in its breadth-first order."""
    seen: set[str] = set()
    queue = [executable]
    while queue and len(seen) < _NEEDED_LIMIT:
        path = queue.pop(0)
        try:
            with ElfImage(path) as image:
                names = [name for name in image.needed if name not in seen]
                folders = _search_order(image, path, inherited)
        except (OSError, NotElfError):
            continue
        for name in names:
            seen.add(name)
            if (found := _locate(name, folders, cached)) is not None:
                queue.append(found)
                yield found


def _search_order(image: ElfImage, path: Path, inherited: Sequence[Path]) -> list[Path]:
    # RPATH comes before LD_LIBRARY_PATH, RUNPATH after it (ld.so(8)). RPATHs of the files that load this one are not
    # followed.
    own = _own_folders(path)
    return [*own, *inherited] if image.search_path[0] else [*inherited, *own]


def _locate(name: str, folders: Sequence[Path], cached: Mapping[str, str]) -> Path | None:
    if "/" in name:
        return Path(name)
    places = [folder / name for folder in folders]
    if name in cached:
        places.append(Path(cached[name]))
    places.extend(folder / name for folder in _default_folders())
    return next((place for place in places if place.is_file()), None)
