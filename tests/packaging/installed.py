# SPDX-License-Identifier: Apache-2.0
"""Wheels, and a virtual environment with them in which nothing of this checkout can be seen.

What fencepath depends on is linked into it from the environment of the tests: only distributions that the wheels declare, and
what those declare, so that a dependency that was forgotten is missing there. No network is used.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ROOT", "TEMPLATE", "Environment", "build", "metadata_of", "requirements_of"]

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "examples" / "plugin-template"


def build(source: Path, outdir: Path) -> Path:
    """Build the sdist of a project and from that its wheel; return the wheel."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(outdir), str(source)])
    (wheel,) = outdir.glob("*.whl")
    return wheel


def metadata_of(wheel: Path, name: str) -> str:
    """Text of a file of a wheel's dist-info."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}"))
        return archive.read(member).decode()


def requirements_of(wheel: Path, *extras: str) -> list[Requirement]:
    """What a wheel needs, with some of its extras."""
    lines = metadata_of(wheel, "METADATA").split("\n\n")[0].splitlines()
    declared = [
        Requirement(line.removeprefix("Requires-Dist: ")) for line in lines if line.startswith("Requires-Dist: ")
    ]
    return [each for each in declared if _applies(each, extras)]


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


class Environment:
    """A virtual environment.

    Attributes:
        python: its interpreter.
    """

    def __init__(self, folder: Path, wheels: Sequence[Path], requirements: Iterable[Requirement]) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        (self._packages,) = (folder / "lib").glob("python*/site-packages")
        own = {canonicalize_name(wheel.name.split("-")[0]) for wheel in wheels}
        for name in _closure(requirements, own):
            _link(importlib.metadata.distribution(name), self._packages)
        self.install(*wheels)

    def install(self, *wheels: Path) -> None:
        """Install wheels as they are."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet"]
        run([*pip, "--no-index", "--no-deps", "--no-compile", *map(str, wheels)])

    def run(self, *words: str, cwd: Path, environ: Mapping[str, str] | None = None, check: bool = True) -> str:
        """Run its Python; return what it wrote on standard output."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))
        }
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return run([str(self.python), *words], cwd=cwd, environ={**clean, "PATH": path, **(environ or {})}, check=check)

    def json(self, *words: str, cwd: Path) -> Any:
        """Run ``fencepath ... --json``."""
        return json.loads(self.run("-m", "fencepath", *words, "--json", cwd=cwd))


def run(
    words: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str] | None = None, check: bool = True
) -> str:
    """Run a command; if it fails, show all that it said."""
    done = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _closure(requirements: Iterable[Requirement], own: Iterable[str]) -> set[str]:
    """Names of all distributions that are needed, other than our own."""
    found: set[str] = set()
    ours = set(own)
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or name in ours:
            continue
        found.add(name)
        installed = importlib.metadata.distribution(name)
        assert requirement.specifier.contains(installed.version, prereleases=True), (
            f"{requirement}: {installed.version}"
        )
        declared = [Requirement(text) for text in installed.requires or ()]
        waiting += [each for each in declared if _applies(each, requirement.extras)]
    return found


def _link(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    """Link the modules and the metadata of a distribution."""
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    for top in sorted(tops):
        source, target = Path(str(distribution.locate_file(top))), packages / top
        if not top.endswith(".pth") and not target.is_symlink():
            target.symlink_to(source)
