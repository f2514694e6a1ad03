# SPDX-License-Identifier: Apache-2.0
"""Libraries of a command that was not started yet, in the order of ld.so(8)."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.libraries_build import build_library, compile_c

from fencepath._libraries import find_known, interpreter_of
from fencepath._libraries.ldcache import cached_libraries, parse_cache
from fencepath.errors import UsageError

ENVIRON = {"PATH": os.environ["PATH"]}
MAIN = "int begins_with_push(void);\nint main(void) { return begins_with_push(); }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("search"))


def place(library: Path, folder: Path, name: str = "libfp.so.1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(library, folder / name))


def link(folder: Path, library: Path, *flags: str) -> str:
    folder.mkdir(exist_ok=True)
    return str(compile_c(folder, "program", MAIN, str(library), *flags))


def found(command: str, environ: dict[str, str] | None = None, **more: tuple[str, ...]) -> list[tuple[str, str]]:
    libraries = find_known(["libfp.so*"], command=command, environ=ENVIRON | (environ or {}), **more)
    return [(library.path, library.found_by) for library in libraries]


def test_cache_is_what_ldconfig_prints() -> None:
    printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    expected = re.findall(r"^\t(\S+) \(libc6,x86-64\) => (\S+)$", printed, re.M)
    assert len(expected) > 10
    assert list(cached_libraries()) == expected


@pytest.mark.parametrize(
    "data", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + struct.pack("<II4s4I", 9, 0, b"", 0, 0, 0, 0)]
)
def test_cut_cache_gives_what_is_there(data: bytes) -> None:
    assert list(parse_cache(data, 0x0303)) == []


def test_runpath_library_is_found_as_needed(library: Path, tmp_path: Path) -> None:
    inside = place(library, tmp_path / "lib")
    program = link(tmp_path, library, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib")
    assert found(program) == [(str(inside), "needed")]
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert str(inside) in loaded


@pytest.mark.parametrize(("tags", "first"), [("--enable-new-dtags", "environment"), ("--disable-new-dtags", "own")])
def test_runpath_comes_after_the_environment_and_rpath_before(
    library: Path, tmp_path: Path, tags: str, first: str
) -> None:
    own, environment = place(library, tmp_path / "own"), place(library, tmp_path / "environment")
    program = link(tmp_path, library, f"-Wl,{tags},-rpath,$ORIGIN/own")
    variables = {"LD_LIBRARY_PATH": str(environment.parent)}
    paths = [path for path, _ in found(program, variables)]
    assert sorted(paths) == sorted([str(own), str(environment)])
    assert Path(paths[0]).parent.name == first
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env=variables).stdout
    assert paths[0] in loaded


def test_library_that_is_only_opened_later_is_found_by_the_environment(library: Path, tmp_path: Path) -> None:
    inside = place(library, tmp_path / "later")
    assert found("/bin/true", {"LD_LIBRARY_PATH": f"/nowhere:{inside.parent}"}) == [(str(inside), "environment")]


def test_links_and_linker_scripts_count_once_and_not_at_all(library: Path, tmp_path: Path) -> None:
    inside = place(library, tmp_path, "libfp.so.1.0")
    (tmp_path / "libfp.so.1").symlink_to(inside)
    (tmp_path / "libfp.so").write_text("/* GNU ld script */\nINPUT(libfp.so.1)\n")
    (tmp_path / "libfp.so.2").symlink_to(tmp_path / "gone")
    assert found("/bin/true", {"LD_LIBRARY_PATH": str(tmp_path)}) == [(str(inside), "environment")]


def test_wheels_of_the_commands_python(library: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    inside = place(library, site / "nvidia/cuda_runtime/lib")
    script = tmp_path / "serve"
    script.write_text(f"#!{tmp_path}/venv/bin/python3\n")
    script.chmod(0o755)
    for command in (str(script), str(tmp_path / "venv/bin/python")):
        assert found(command, site_globs=("nvidia/*/lib",)) == [(str(inside), "site")]
    assert found("/bin/true", site_globs=("nvidia/*/lib",)) == []


def test_pythonpath_comes_first(library: Path, tmp_path: Path) -> None:
    inside = place(library, tmp_path / "nvidia/cuda_runtime/lib")
    assert found(sys.executable, {"PYTHONPATH": str(tmp_path)}, site_globs=("nvidia/*/lib",)) == [(str(inside), "site")]


def test_interpreters(tmp_path: Path) -> None:
    script = tmp_path / "run"
    for line in ("#!/usr/bin/env sh", "#! /usr/bin/env -S sh -e", "#!/bin/sh -e"):
        script.write_text(line + "\n")
        script.chmod(0o755)
        assert interpreter_of(str(script), ENVIRON).name == "sh"
    with pytest.raises(UsageError, match="no command"):
        interpreter_of("no-such-command-here", ENVIRON)
    script.write_text(f"#!{script}\n")
    assert interpreter_of(str(script), ENVIRON) == script
