# SPDX-License-Identifier: Apache-2.0
"""Compiled programs are kept, moved to the maps of the process that reads them, and trusted only where they are safe."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepath._bpf import compiler
from fencepath._bpf.cache import ProgramCache, cache_folder, is_descriptor
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.maps import Map
from fencepath._bpf.sys import ProgramType

CONSTANT = struct.pack("<BBhi", 0xB7, 0, 0, 0)
EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)


def using(fd: int) -> bytes:
    return struct.pack("<BBhiBBhi", 0x18, 0x11, 0, fd, 0, 0, 0, 0) + CONSTANT + EXIT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "kept"
    made.mkdir(mode=0o700)
    return made


def cache(folder: Path | None, *parts: str, **descriptors: int) -> ProgramCache:
    return ProgramCache(folder, parts or ("text",), descriptors)


def test_programs_get_the_maps_of_the_reader(folder: Path) -> None:
    assert cache(folder, A_FD=7, B_FD=8).put({"one": using(8), "two": using(7)}, "mind this")
    kept = cache(folder, A_FD=20, B_FD=30).get()
    assert kept == ({"one": using(30), "two": using(20)}, "mind this")


def test_another_source_or_compiler_or_map_is_another_entry(folder: Path) -> None:
    cache(folder, "bcc 1", "text", A_FD=7).put({"one": using(7)}, "")
    assert cache(folder, "bcc 2", "text", A_FD=7).get() is None
    assert cache(folder, "bcc 1text", A_FD=7).get() is None
    assert cache(folder, "bcc 1", "text", B_FD=7).get() is None
    assert cache(folder, "bcc 1", "text", A_FD=9).get() == ({"one": using(9)}, "")


def test_programs_with_maps_of_their_own_are_not_kept(folder: Path) -> None:
    assert not cache(folder, A_FD=7).put({"one": using(7), "two": using(9)}, "")
    assert cache(folder, A_FD=7).get() is None


def test_what_others_could_write_is_not_trusted(folder: Path) -> None:
    cache(folder, A_FD=7).put({"one": using(7)}, "")
    (file,) = folder.glob("*.bpf")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o620)
    assert cache(folder, A_FD=7).get() is None
    file.chmod(0o600)
    folder.chmod(0o770)
    assert cache(folder, A_FD=7).get() is None
    folder.chmod(0o700)
    assert cache(folder, A_FD=7).get() is not None
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    assert cache(folder, A_FD=7).get() is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:40] + b"\0" + data[41:], lambda data: b""]
)
def test_what_is_damaged_is_compiled_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    cache(folder, A_FD=7).put({"one": using(7)}, "")
    (file,) = folder.glob("*.bpf")
    file.write_bytes(damage(file.read_bytes()))
    assert cache(folder, A_FD=7).get() is None


def test_the_oldest_go(folder: Path) -> None:
    for number in range(70):
        cache(folder, str(number)).put({"one": EXIT}, "")
        for file in folder.glob("*.bpf"):
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 10**9))
    assert len(list(folder.glob("*.bpf"))) == 64
    assert cache(folder, "69").get() is not None
    assert cache(folder, "0").get() is None


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cache(tmp_path / "file" / "kept").put({"one": EXIT}, "")
    assert cache(tmp_path / "file" / "kept").get() is None
    assert cache(None).put({"one": EXIT}, "")


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() is not None
    monkeypatch.setenv("FENCEPATH_PROGRAM_CACHE", "0")
    assert cache_folder() is None
    assert is_descriptor("FP_RING_64_FD")
    assert not is_descriptor("FP_KIND_CUDA_LAUNCH")


@pytest.mark.bpf
def test_a_kept_program_loads_without_a_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "int look(void *ctx) { u32 key = 0; bpf_map_lookup_elem((void *)bpf_pseudo_fd(1, SEEN_FD), &key); return 0; }"
    )
    monkeypatch.setattr(compiler, "cache_folder", lambda: folder)
    with Map.array("seen", 8, 1) as first, BpfObject(source, defines={"SEEN_FD": first.fd}) as compiled:
        compiled.load("look", ProgramType.TRACEPOINT)

    def never() -> None:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(compiler, "import_bcc", never)
    with Map.array("other", 8, 1), Map.array("seen", 8, 1) as second:
        kept = BpfObject(source, defines={"SEEN_FD": second.fd})
        kept.load("look", ProgramType.TRACEPOINT)
        kept.close()
