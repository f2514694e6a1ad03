# SPDX-License-Identifier: Apache-2.0
"""Where a Python interpreter would import packages from, read from its files and not by running it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["site_folders"]

_PACKAGES = (
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib/python3/dist-packages",
    "lib64/python3*/site-packages",
)


def site_folders(executable: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders with packages of the Python `executable`, the first to be imported from first.

    Empty if the file is not named like a Python. The environment gives PYTHONPATH, PYTHONHOME and HOME.
    """
    names = (executable.name, executable.resolve().name)
    if not any(name.startswith("python") for name in names):
        return ()
    return tuple(dict.fromkeys(folder for folder in _folders(executable, environ) if folder.is_dir()))


def _folders(executable: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield from (Path(text) for text in environ.get("PYTHONPATH", "").split(":") if text)
    if home := environ.get("PYTHONHOME"):
        yield from _packages(Path(home.split(":")[0]))
        return
    # Not the link's target: a virtual environment's python is a link to the base interpreter.
    prefix = executable.absolute().parent.parent
    settings = _venv_settings(prefix / "pyvenv.cfg")
    yield from _packages(prefix)
    if settings is not None and settings.get("include-system-site-packages", "false").lower() != "true":
        return
    if user := environ.get("HOME"):
        yield from _packages(Path(user) / ".local")
    base = (
        Path(settings["home"]).parent
        if settings is not None and "home" in settings
        else Path(os.path.realpath(executable)).parent.parent
    )
    yield from _packages(base)
    yield from _packages(base / "local")


def _packages(prefix: Path) -> Iterator[Path]:
    for pattern in _PACKAGES:
        yield from sorted(prefix.glob(pattern), reverse=True)


def _venv_settings(path: Path) -> dict[str, str] | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
