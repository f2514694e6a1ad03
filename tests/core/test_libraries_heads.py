# SPDX-License-Identifier: Apache-2.0
"""What a file says of itself, read without the rest, against what the whole of it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.libraries_build import build_library, compile_c

from fencepath._libraries import ElfImage, FileHead, executable_mappings, first_of_each, read_head


def head_of(path: Path) -> FileHead:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_head(fd)
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"))


def test_it_is_what_the_whole_file_says_for_everything_that_is_mapped_here() -> None:
    mapped = first_of_each(executable_mappings(os.getpid()))
    assert len(mapped) > 10
    for library in mapped:
        with ElfImage(library.open(), library.shown) as image:
            fd = library.open()
            assert read_head(fd) == FileHead(image.build_id or "", image.soname or "")
            os.close(fd)


def test_build_id_and_soname(library: Path, tmp_path: Path) -> None:
    with ElfImage(library) as image:
        assert head_of(library) == FileHead(image.build_id or "", "libfp.so.1")
    assert image.build_id
    bare = compile_c(tmp_path, "bare.so", "int x;", "-shared", "-fPIC", "-Wl,--build-id=none")
    assert head_of(bare) == FileHead("", "")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01\x01" + bytes(60)])
def test_other_files_say_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert head_of(tmp_path / "file") == FileHead("", "")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_files_raise_nothing(
    library: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, 1023))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged_head.so"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    head_of(path)
