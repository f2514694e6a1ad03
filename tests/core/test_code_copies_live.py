# SPDX-License-Identifier: Apache-2.0
"""Functions of a layer wherever they are: in several copies of their library in one process, and linked into a program."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.core.code_workbench import SHARED, SOURCES, TABLE, Driven, compile_to, record

from fencepath.modules import Modules
from fencepath.recording import Recording

pytestmark = pytest.mark.bpf


def marks(recording: Recording) -> Counter[int]:
    calls = TABLE.decode("give.call", recording.records("give.call"), recording.manifest.functions["give"])
    return Counter(calls["mark"].tolist())


def test_every_copy_of_a_library_in_a_process_is_attached(tmp_path: Path) -> None:
    """A copy of the same bytes, one by another name of the same file, one with another build-id; each call once."""
    copies = [tmp_path / name / "libgiving.so" for name in ("a", "b", "c", "d")]
    for copy in copies:
        copy.parent.mkdir()
    compile_to(copies[0], "giving.c", *SHARED)
    shutil.copy(copies[0], copies[1])
    copies[2].hardlink_to(copies[0])
    compile_to(copies[3], "giving.c", *SHARED, "-DOTHER", "-Wl,--build-id=0xabcd")
    program = compile_to(tmp_path / "copies", "copies.c", "-ldl")
    # the loader gives one copy for both names of one file
    recording = record(tmp_path, Driven(program, *copies))
    assert marks(recording) == {1: 5, 2: 7, 3: 9, 4: 11}
    images = [fact.data for fact in recording.facts("image")]
    assert [os.path.relpath(image["path"], tmp_path) for image in images] == [
        f"{name}/libgiving.so" for name in ("a", "b", "d")
    ]
    assert images[0]["build_id"] == images[1]["build_id"] != images[2]["build_id"] == "abcd"
    modules = [module for module in Modules(recording) if module.name == "libgiving.so"]
    assert len(modules) == 3


def test_functions_that_are_linked_into_a_program(tmp_path: Path) -> None:
    """The manifest names the program among what is attached, and the callers are the program's own."""
    program = compile_to(tmp_path / "program", "copies.c", str(SOURCES / "giving.c"), "-DLINKED_IN", "-ldl")
    recording = record(tmp_path, Driven(program))
    assert marks(recording) == {100: 17}
    assert recording.manifest.layers["give"].attached == (f"{program} (4 functions)",)
    assert not recording.manifest.layers["give"].missing


def test_a_stripped_program_with_the_functions_in_it_is_said_to_have_none(tmp_path: Path) -> None:
    program = compile_to(tmp_path / "program", "copies.c", str(SOURCES / "giving.c"), "-DLINKED_IN", "-ldl", "-s")
    recording = record(tmp_path, Driven(program))
    assert marks(recording) == {}
    assert recording.manifest.layers["give"].attached == ()
    (missing,) = recording.manifest.layers["give"].missing
    assert missing.why == "no libgiving.so was found, and no program with its functions"
