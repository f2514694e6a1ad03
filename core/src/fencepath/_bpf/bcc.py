# SPDX-License-Identifier: Apache-2.0
"""Find BCC's Python bindings, from any environment.

They come from the distribution (python3-bpfcc, python3-bcc), are pure Python over libbcc and so work in every
interpreter; ``bcc`` on PyPI is another project. Only its compiler is used: programs are loaded and attached by bpf(2),
so its limit of a thousand probes (BCC_PROBE_LIMIT) does not matter.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from fencepath.errors import MachineError

__all__ = ["DISTRIBUTION_FOLDERS", "bcc_version", "import_bcc", "import_from"]

DISTRIBUTION_FOLDERS = (
    "usr/lib/python3/dist-packages",
    "usr/local/lib/python3*/dist-packages",
    "usr/lib/python3*/site-packages",
    "usr/local/lib/python3*/site-packages",
)
"""Where, below the root, distributions put Python packages: Debian and Ubuntu, then Fedora, Arch, ``make install``."""

_MODULE = "_fencepath_bcc"
_REMEDY = "apt install python3-bpfcc"


@functools.cache
def import_bcc() -> ModuleType:
    """Import BCC's bindings and return them.

    They are looked for on ``sys.path`` (so PYTHONPATH counts) and then in the distribution's folders, and imported
    under a name of our own, so that neither ``sys.path`` nor an unrelated ``bcc`` is touched.

    Raises:
        MachineError: if they are not installed, or libbcc cannot be loaded.
    """
    return import_from([*sys.path, *_distribution_folders()])


def bcc_version() -> str:
    """Return what tells one BCC from another, without importing it; "" if there is none.

    Python's bindings and libbcc come from one source package, so the bindings' version and age stand for both.
    """
    for package in _packages([*sys.path, *_distribution_folders()]):
        version = package / "version.py"
        if (package / "libbcc.py").is_file() and version.is_file():
            return f"{package} {version.read_text()} {version.stat().st_mtime_ns}"
    return ""


def import_from(folders: Sequence[str]) -> ModuleType:
    """Import the bindings from the first of `folders` that has them. Errors are those of :func:`import_bcc`."""
    rejected: list[str] = []
    for package in _packages(folders):
        if not (package / "libbcc.py").is_file():
            rejected.append(str(package))
            continue
        return _execute(package)
    also = f" ({rejected[0]} is another project of that name)" if rejected else ""
    raise MachineError(f"the python bindings of bcc are not installed{also}", _REMEDY)


def _distribution_folders() -> Iterator[str]:
    for pattern in DISTRIBUTION_FOLDERS:
        yield from sorted(map(str, Path("/").glob(pattern)), reverse=True)


def _packages(folders: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        spec = PathFinder.find_spec("bcc", [folder])
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent


def _execute(package: Path) -> ModuleType:
    spec: ModuleSpec | None = importlib.util.spec_from_file_location(
        _MODULE, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise MachineError(f"{package} cannot be imported", _REMEDY)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    try:
        with warnings.catch_warnings():
            # BCC before 0.29 has escapes in its regular expressions of which newer Pythons complain when they compile them
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            spec.loader.exec_module(module)
    except (ImportError, OSError, AttributeError) as error:
        for name in [name for name in sys.modules if name.partition(".")[0] == _MODULE]:
            del sys.modules[name]
        raise MachineError(f"bcc in {package} cannot be loaded: {error}", _REMEDY) from error
    return module
