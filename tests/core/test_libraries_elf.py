# SPDX-License-Identifier: Apache-2.0
"""ELF files, against what binutils and the loader say of them."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.libraries_build import LIBRARY, build_library, compile_c

from fencepath._libraries import ElfImage, InstructionClass, NotElfError, SymbolTable, cheapest_offset
from fencepath.errors import MachineError

MAIN = "int cudaLaunchKernel(void) { return 7; }\nint main(void) { return cudaLaunchKernel() - 7; }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"))


def readelf_functions(path: Path) -> dict[str, set[int]]:
    """Defined functions and their addresses, as readelf prints them."""
    text = subprocess.run(["readelf", "-Ws", path], capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    for match in re.finditer(r"\d+: ([0-9a-f]{16}) +\S+ FUNC +\S+ +\S+ +(\d+) (\S+)", text):
        found.setdefault(match[3].split("@")[0], set()).add(int(match[1], 16))
    return found


def test_build_id_and_names_are_readelfs(library: Path) -> None:
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    expected = re.search(r"Build ID: ([0-9a-f]{40})", notes)
    with ElfImage(library) as image:
        assert expected is not None
        assert image.build_id == expected[1]
        assert image.soname == "libfp.so.1"
        assert not image.is_executable
        assert image.machine == "EM_X86_64"


def test_what_is_needed_is_readelfs() -> None:
    path = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
    printed = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    with ElfImage(path) as image:
        assert list(image.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", printed)


@pytest.mark.parametrize("file", ["libc.so.6", "libstdc++.so.6", "libm.so.6"])
def test_functions_of_system_libraries_are_readelfs(file: str) -> None:
    path = Path("/usr/lib/x86_64-linux-gnu", file)
    expected = readelf_functions(path)
    with ElfImage(path) as image:
        found: dict[str, set[int]] = {}
        for symbol in image.functions():
            found.setdefault(symbol.name, set()).add(symbol.address)
    assert len(expected) > 500
    assert found == expected


def test_offsets_lead_to_the_code_that_the_loader_maps(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    with ElfImage(library) as image:
        for name in ("begins_with_push", "begins_with_endbr", "endbr_then_sub"):
            symbol = image.find(name)
            assert symbol is not None
            address = ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value
            assert address is not None
            assert image.read_code(symbol.offset, 8) == ctypes.string_at(address, 8)


def test_local_functions_come_from_symtab_and_data_is_left_out(library: Path) -> None:
    with ElfImage(library) as image:
        assert image.find("local_function") is not None
        assert image.find("datum") is None
        assert image.find("dlopen") is None
        assert [symbol.name for symbol in image.defined(["nothing", "begins_with_push"])] == ["begins_with_push"]


def test_ifunc_is_named_and_never_given(library: Path) -> None:
    with ElfImage(library) as image:
        assert image.is_ifunc("chosen_at_load")
        assert image.find("chosen_at_load") is None
        assert not image.is_ifunc("begins_with_push")


def test_old_version_beside_an_ifunc_is_not_given_for_it() -> None:
    with ElfImage("/usr/lib/x86_64-linux-gnu/libc.so.6") as image:
        assert image.is_ifunc("memcpy")
        assert image.find("memcpy") is None
        assert image.find("memcpy", "GLIBC_2.2.5") is not None


def test_versions_are_told_apart(library: Path) -> None:
    with ElfImage(library) as image:
        old, new, default = image.find("call", "FP_1"), image.find("call", "FP_2"), image.find("call")
        assert old is not None
        assert new is not None
        assert default == new
        assert new.is_default
        assert not old.is_default
        assert old.offset == image.versions("old_call")[0].offset
        assert new.offset == image.versions("new_call")[0].offset
        assert image.find("call", "FP_3") is None


def test_stripped_library_keeps_its_exports(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    with ElfImage(stripped) as image, ElfImage(library) as whole:
        assert set(image.tables) == {".dynsym"}
        assert image.find("local_function") is None
        exported, same = image.find("begins_with_push"), whole.find("begins_with_push")
        assert exported is not None
        assert same is not None
        assert exported.offset == same.offset


@pytest.mark.parametrize(
    "flags", [("-fPIE", "-pie"), ("-fno-pie", "-no-pie"), ("-static",)], ids=["pie", "non-pie", "static"]
)
def test_executables_and_what_is_linked_into_them(tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = compile_c(tmp_path, "program", MAIN, *flags)
    with ElfImage(path) as image:
        assert image.is_executable
        (inside,) = image.defined(["cudaLaunchKernel", "cuLaunchKernel"])
        assert (inside.offset != inside.address) == ("-pie" not in flags)
        assert inside.address in readelf_functions(path)["cudaLaunchKernel"]
        disassembly = subprocess.run(
            ["objdump", "-d", path, "--disassemble=cudaLaunchKernel"], capture_output=True, text=True, check=True
        ).stdout
        first = re.search(r"^ +[0-9a-f]+:\t((?:[0-9a-f]{2} )+)", disassembly, re.M)
        assert first is not None
        code = bytes.fromhex(first[1])
        assert image.read_code(inside.offset, len(code)) == code


def test_probe_moves_past_endbr_only_to_something_cheaper(library: Path) -> None:
    with ElfImage(library) as image:

        def point(name: str) -> tuple[int, InstructionClass, bool]:
            symbol = image.find(name)
            assert symbol is not None
            chosen = cheapest_offset(image, symbol)
            return chosen.offset - symbol.offset, chosen.instruction, chosen.moved

        assert point("begins_with_push") == (0, InstructionClass.EMULATED, False)
        assert point("begins_with_endbr") == (4, InstructionClass.EMULATED, True)
        assert point("endbr_then_sub") == (0, InstructionClass.STEPPED, False)
        # The push behind it is another function's.
        assert point("only_endbr") == (0, InstructionClass.STEPPED, False)


def test_arm64_is_refused_unless_forced(library: Path, tmp_path: Path) -> None:
    other = bytearray(library.read_bytes())
    other[18:20] = (183).to_bytes(2, "little")
    path = tmp_path / "arm64.so"
    path.write_bytes(other)
    with ElfImage(path) as image:
        symbol = image.find("begins_with_endbr")
        assert symbol is not None
        with pytest.raises(MachineError, match="refused on aarch64"):
            cheapest_offset(image, symbol)
        assert cheapest_offset(image, symbol, force=True).offset == symbol.offset


def test_equal_build_id_of_a_moved_file_is_another_identity(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first = compile_c(folders[0], "l.so", LIBRARY.split("int old_call")[0], "-shared", "-fPIC", "-Wl,--build-id=0x1234")
    second = compile_c(
        folders[1],
        "l.so",
        "char pad[9999] = {1};" + LIBRARY.split("int old_call")[0],
        "-shared",
        "-fPIC",
        "-Wl,--build-id=0x1234",
    )
    copy = Path(shutil.copy(first, tmp_path / "copy.so"))
    with ElfImage(first) as a, ElfImage(second) as b, ElfImage(copy) as c:
        assert a.build_id == b.build_id == "1234"
        assert a.identity != b.identity
        assert a.identity == c.identity


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x01\x01\x01" + bytes(60), b"\x7fELF\x02\x01\x01" + bytes(20)]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(NotElfError):
        ElfImage(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_files_raise_nothing_else(
    library: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(library.read_bytes())
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    cut = data.draw(st.integers(0, len(content)), label="cut")
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.one_of(st.integers(0, 1024), st.integers(0, len(content) - 1)))
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content[:cut] if data.draw(st.booleans()) else content)
    try:
        with ElfImage(path) as image:
            _ = (image.soname, image.needed, image.search_path, image.is_executable, image.identity)
            for symbol in image.functions():
                image.read_code(symbol.offset, 19)
            image.find("call", "FP_1")
    except NotElfError:
        pass


def test_a_million_symbols_are_indexed_without_reading_the_file_whole() -> None:
    count = 1_000_003
    names = b"\0" + b"".join(b"_ZN2at6native%07d\0" % i for i in range(count))
    table = np.zeros(
        count, [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
    )
    table["name"] = 1 + np.arange(count) * len(b"_ZN2at6native0000000\0")
    table["info"], table["section"], table["value"] = 0x12, 5, 0x1000 + np.arange(count) * 16
    symbols = SymbolTable(table.tobytes(), names, ((0x1000, 0x1000 + 16 * count, 0x500),))
    assert len(symbols) == count
    (last,) = symbols.named(f"_ZN2at6native{count - 1:07d}")
    assert last.offset == 0x1500 + 16 * (count - 1)
    assert symbols.named("_ZN2at") == ()
