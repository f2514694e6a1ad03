# SPDX-License-Identifier: Apache-2.0
"""Programs that know what they did, and the command line, shared by the tests of faults."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from tests.faults.calling import Caller, Suite, build_caller, record_suite
from tests.faults.commandline import ForkServer
from tests.faults.target import Programs

SOURCES = Path(__file__).parent / "programs"
_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
# Every function begins with a push, as those of libcuda do.
_FRAMES = ("-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fcf-protection=none")


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """The programs of ``programs/``, compiled, in a folder that every user may look into (pytest's are private)."""
    with tempfile.TemporaryDirectory(prefix="fencepath-faults-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Programs(folder, folder / "libcuda.so.1", folder / "steady", folder / "mirror")
        include = f"-I{resources.files('fencepath') / 'include'}"
        shared = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
        _compile(SOURCES / "libcuda.c", made.libcuda, *_FRAMES, *shared)
        _compile(SOURCES / "steady.c", made.steady, include, "-ldl")
        _compile(SOURCES / "mirror.c", made.mirror)
        yield made


def _compile(source: Path, target: Path, *flags: str) -> None:
    subprocess.run(["cc", *_FLAGS, str(source), *flags, "-o", str(target)], check=True)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Iterator[ForkServer]:
    """The command line, loaded once; what it starts finds the libcuda of ``programs``, and so does the recorder before that."""
    server = ForkServer(tmp_path_factory.mktemp("commands"), {"LD_LIBRARY_PATH": str(programs.folder)})
    yield server
    server.close()


@pytest.fixture(scope="session")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    """The program of ``calls/`` and its library, compiled."""
    return build_caller(tmp_path_factory.mktemp("caller"))


@pytest.fixture(scope="session")
def knowing(tmp_path_factory: pytest.TempPathFactory, caller: Caller) -> Iterator[ForkServer]:
    """The command line, loaded once, with the caller's library on its LD_LIBRARY_PATH."""
    environ = {"LD_LIBRARY_PATH": str(caller.library.parent)}
    server = ForkServer(tmp_path_factory.mktemp("knowing"), environ)
    yield server
    server.close()


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory, caller: Caller, knowing: ForkServer) -> Suite:
    """The caller's mode suite, recorded."""
    return record_suite(tmp_path_factory.mktemp("suite"), caller, knowing)
