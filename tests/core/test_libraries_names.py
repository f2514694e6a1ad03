# SPDX-License-Identifier: Apache-2.0
"""Names of functions at offsets: from symbol tables, and from the calls by which programs register them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepath._libraries import ElfImage, FoundName, NotElfError, Registering, find_names
from fencepath._libraries.registrations import registered_names
from fencepath._libraries.x86 import decode

SOURCES = Path(__file__).parent / "code"
REGISTERING = (Registering("give_register", 1, 3),)
STUBS = {
    "shown_kernel": "shown_kernel",
    "_Z12hidden_firstPfi": "_Z12hidden_firstPfi",
    "_Z13hidden_secondv": "__nv_static_7__file__Z13hidden_secondv",
}
"""What each stub is registered as."""
NAMELESS = ("never_registered", "registered_twice")

LINKED = {
    "by stub": (),
    "by pointer": ("-fno-plt",),
    "with endbr64": ("-fcf-protection=full",),
    "at O0": ("-O0",),
    "at O3": ("-O3",),
    "for size": ("-Os",),
    "with vectors": ("-O2", "-march=haswell"),
}


def always() -> bool:
    return True


def compiled(folder: Path, flags: Sequence[str], *sources: str) -> Path:
    path = folder / "libkernels.so"
    words = ["cc", "-O2", "-shared", "-fPIC", "-o", path, *flags, *(str(SOURCES / source) for source in sources)]
    subprocess.run([str(word) for word in words], check=True)
    return path


def stripped(path: Path) -> Path:
    target = path.with_suffix(".stripped.so")
    subprocess.run(["strip", "-o", target, path], check=True)
    return target


def offsets_of(path: Path, names: Sequence[str]) -> dict[str, int]:
    with ElfImage(path) as image:
        found = {symbol.name: symbol.offset for symbol in image.defined(names)}
    assert set(found) == set(names)
    return found


@pytest.mark.parametrize("flags", LINKED.values(), ids=LINKED.keys())
def test_a_registered_name_is_found_without_symbols(flags: Sequence[str], tmp_path: Path) -> None:
    """At O0 arguments go through memory, and nothing is found rather than something wrong."""
    path = compiled(tmp_path, flags, "kernels.c")
    offsets = offsets_of(path, [*STUBS, *NAMELESS])
    with ElfImage(stripped(path)) as image:
        found = registered_names(image, "give_register", 1, 3, list(offsets.values()), always)
    expected = {offsets[stub]: (name, True) for stub, name in STUBS.items()}
    if flags == ("-O0",):
        assert set(found.items()) <= set(expected.items())
    else:
        assert found == expected


def test_a_registering_function_that_is_linked_in(tmp_path: Path) -> None:
    """With its symbol the call is known; without, it is only like one, and so is that of another function like it."""
    path = compiled(tmp_path, ("-fvisibility=hidden",), "kernels.c", "giving.c")
    offsets = offsets_of(path, [*STUBS, *NAMELESS])
    with ElfImage(path) as image:
        found = registered_names(image, "give_register", 1, 3, list(offsets.values()), always)
    assert found == {offsets[stub]: (name, True) for stub, name in STUBS.items()}
    with ElfImage(stripped(path)) as image:
        found = registered_names(image, "give_register", 1, 3, list(offsets.values()), always)
    likewise = {"never_registered": "not_a_name", **STUBS}
    assert found == {offsets[stub]: (name, False) for stub, name in likewise.items()}


def test_symbols_come_first_and_say_where_a_name_is_from(tmp_path: Path) -> None:
    path = compiled(tmp_path, (), "kernels.c")
    offsets = offsets_of(path, [*STUBS, *NAMELESS])
    with ElfImage(path) as image:
        found = find_names(image, list(offsets.values()), REGISTERING, always)
    assert found == {offset: FoundName(name, "symbol") for name, offset in offsets.items()}
    with ElfImage(stripped(path)) as image:
        found = find_names(image, list(offsets.values()), REGISTERING, always)
        assert find_names(image, list(offsets.values()), (), always) == {
            offsets["shown_kernel"]: FoundName("shown_kernel", "symbol")
        }
    assert {name: found[offset] for name, offset in offsets.items() if offset in found} == {
        "shown_kernel": FoundName("shown_kernel", "symbol"),
        "_Z12hidden_firstPfi": FoundName("_Z12hidden_firstPfi", "registration"),
        "_Z13hidden_secondv": FoundName("__nv_static_7__file__Z13hidden_secondv", "registration"),
    }


def test_nothing_is_looked_through_once_time_is_up(tmp_path: Path) -> None:
    path = compiled(tmp_path, (), "kernels.c")
    offsets = offsets_of(path, list(STUBS))
    with ElfImage(stripped(path)) as image:
        assert registered_names(image, "give_register", 1, 3, list(offsets.values()), lambda: False) == {}


def test_a_symbol_holds_the_addresses_up_to_its_end(tmp_path: Path) -> None:
    path = compiled(tmp_path, (), "kernels.c")
    with ElfImage(path) as image:
        table = image.tables[".symtab"]
        symbol = image.find("run_kernels")
        assert symbol is not None
        assert symbol.size > 20
        for within in (0, 1, symbol.size - 1):
            assert table.at(symbol.offset + within) == symbol
        assert table.at(symbol.offset + symbol.size) != symbol
        assert table.at(0) is None
        first = min(found.offset for found in table.functions())
        assert table.at(first - 1) is None


def test_lengths_of_instructions_are_objdumps() -> None:
    """Of those that are known here; a wrong length would lead into the middle of another instruction."""
    path = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
    text = subprocess.run(["objdump", "-d", "-w", path], capture_output=True, text=True, check=True).stdout
    known = total = 0
    for line in text.splitlines():
        match = re.match(r" +[0-9a-f]+:\t((?:[0-9a-f]{2} )+)", line)
        if match is None:
            continue
        code = bytes.fromhex(match[1])
        found = decode(code + bytes(8), 0)
        total += 1
        if found is not None:
            known += 1
            assert found.length == len(code), line
    assert known > 0.6 * total > 100_000


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_files_raise_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged_names"
    if not folder.exists():
        folder.mkdir()
        stripped(compiled(folder, (), "kernels.c"))
    offsets = offsets_of(folder / "libkernels.so", list(STUBS))
    content = bytearray((folder / "libkernels.stripped.so").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(64, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.so"
    path.write_bytes(content)
    try:
        with ElfImage(path) as image:
            for name in find_names(image, list(offsets.values()), REGISTERING, always).values():
                assert name.name
    except NotElfError:
        pass
