# SPDX-License-Identifier: Apache-2.0
"""Compile and load: no kernel headers, no output, and the compiler's and verifier's words in the error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.bpf_workbench import KINDS, PROGRAMS, open_files

from fencepath._bpf import bcc
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.errors import LoadError, MachineError

NOTHING = "int nothing(void *ctx) { return 0; }\n"


@pytest.mark.bpf
def test_the_test_programs_compile_without_a_warning_or_output(capfd: pytest.CaptureFixture[str]) -> None:
    with Shared(KINDS) as shared, BpfObject(PROGRAMS, defines=shared.defines()) as compiled:
        assert compiled.warnings == ""
        assert compiled.load("on_prctl", ProgramType.TRACEPOINT) == compiled.load("on_prctl", ProgramType.TRACEPOINT)
    assert capfd.readouterr() == ("", "")


@pytest.mark.bpf
def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "/somewhere")
    folder, files = Path.cwd(), open_files()
    with BpfObject(NOTHING) as compiled:
        compiled.load("nothing", ProgramType.TRACEPOINT)
    compiled.close()
    assert os.environ["BCC_KERNEL_SOURCE"] == "/somewhere"
    assert Path.cwd() == folder
    assert open_files() == files


@pytest.mark.bpf
def test_generated_headers_and_folders_can_be_included(tmp_path: Path) -> None:
    (tmp_path / "other.h").write_text("#define OTHER 2\n")
    source = '#include "made.h"\n#include "other.h"\nint nothing(void *ctx) { return MADE + OTHER + GIVEN - 6; }\n'
    with BpfObject(source, headers={"made.h": "#define MADE 1\n"}, include_dirs=[tmp_path], defines={"GIVEN": 3}) as it:
        assert it.load("nothing", ProgramType.TRACEPOINT) >= 0


@pytest.mark.bpf
def test_what_clang_says_is_in_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "broken.c"
    source.write_text("int broken(void *ctx) {\n    return undeclared;\n}\n")
    with pytest.raises(LoadError, match="use of undeclared identifier 'undeclared'") as raised:
        BpfObject(source)
    assert raised.value.program == ""
    assert f"{source}:2:12: error" in raised.value.log
    assert capfd.readouterr() == ("", "")


@pytest.mark.bpf
def test_what_llvm_says_before_it_ends_the_process_is_not_lost() -> None:
    text = """
    int too_much(void *ctx) {
        char text[600] = {};
        bpf_probe_read_kernel(text, sizeof(text), ctx);
        return text[599];
    }
    """
    command = [sys.executable, "-c", f"from fencepath._bpf.compiler import BpfObject; BpfObject({text!r})"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "ended fencepath. It said:" in done.stderr
    assert "BPF stack limit" in done.stderr


def test_what_the_verifier_says_is_in_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    source = """
    BPF_HASH(numbers, u32, u64);
    int unchecked(void *ctx) { u32 key = 0; u64 *value = numbers.lookup(&key); return *value; }
    """
    with BpfObject(source) as compiled:
        with pytest.raises(LoadError, match="map_value_or_null") as raised:
            compiled.load("unchecked", ProgramType.TRACEPOINT)
        assert raised.value.program == "unchecked"
        assert "call bpf_map_lookup_elem" in raised.value.log
        with pytest.raises(LoadError, match="no such function in the source"):
            compiled.load("missing", ProgramType.TRACEPOINT)
    assert capfd.readouterr() == ("", "")


@pytest.mark.bpf
def test_a_record_that_no_ring_takes_does_not_compile() -> None:
    source = """
    #include "fencepath.h"
    struct huge { struct fp_header h; u8 payload[8320]; };
    int record(void *ctx) { struct huge *room = FP_RESERVE(struct huge, 0); if (room) fp_discard(room); return 0; }
    """
    with Shared({"test.huge": 0}) as shared, pytest.raises(LoadError, match="no ring takes a record of this size"):
        BpfObject(source, defines=shared.defines())


def test_missing_bindings_are_named_with_their_package(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"not installed.*apt install python3-bpfcc") as raised:
        bcc.import_from([str(tmp_path)])
    assert raised.value.remedy == "apt install python3-bpfcc"


def test_the_other_project_of_that_name_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").write_text("raise AssertionError('imported')\n")
    with pytest.raises(MachineError, match="another project"):
        bcc.import_from([str(tmp_path)])


def test_bindings_without_their_library_are_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("_fencepath_bcc")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "bcc").mkdir()
    (tmp_path / "bcc" / "__init__.py").write_text("from . import libbcc\n")
    (tmp_path / "bcc" / "libbcc.py").write_text("import ctypes\nctypes.CDLL('libbcc-missing.so.0')\n")
    with pytest.raises(MachineError, match="cannot be loaded: libbcc-missing"):
        bcc.import_from([str(tmp_path)])
