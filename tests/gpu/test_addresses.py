# SPDX-License-Identifier: Apache-2.0
"""Every address that cuGetProcAddress hands out for a function of the table is a symbol that has a probe."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fencepath_cuda.functions import TABLE

VERSIONS: tuple[int, ...] = (
    2000,
    3020,
    4000,
    5000,
    5050,
    6000,
    6050,
    7000,
    8000,
    9000,
    10000,
    10010,
    11000,
    11010,
    11020,
    11030,
    11040,
    *(11050, 11060, 11070, 11080),
    *(12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090),
    13000,
)
FLAGS = {0: "default", 1: "legacy", 2: "per-thread default stream"}
_SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


def test_no_address_is_without_a_symbol() -> None:
    library = ctypes.CDLL("libcuda.so.1")
    path, base = _mapped("libcuda.so")
    symbols = _symbols(path)
    ask = library.cuGetProcAddress_v2
    probed = {symbol for function in TABLE.functions for symbol in function.symbols if symbol.startswith("cu")}
    unknown, unprobed, answered = [], set(), 0
    for name in sorted({_SUFFIX.sub("", symbol) for symbol in probed if not symbol.startswith("cuda")}):
        for version in VERSIONS:
            for flags in FLAGS:
                address, status = ctypes.c_void_p(), ctypes.c_int(-1)
                asked = name.encode(), ctypes.byref(address), version, ctypes.c_uint64(flags), ctypes.byref(status)
                if ask(*asked) == 0 and address.value:
                    answered += 1
                    found = symbols.get(address.value - base, set())
                    if not found:
                        unknown.append((name, version, flags, hex(address.value - base)))
                    elif not found & probed:
                        unprobed.add((name, *sorted(found)))
    print(f"{answered} addresses; of functions that take 32-bit device pointers, not probed: {sorted(unprobed)}")
    assert answered > 5000
    assert unknown == []


def _mapped(name: str) -> tuple[Path, int]:
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    path = Path(lines[0][-1])
    return path, min(int(line[0].split("-")[0], 16) for line in lines if line[-1] == str(path))


def _symbols(path: Path) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols():
            if symbol["st_value"]:
                found.setdefault(symbol["st_value"], set()).add(symbol.name)
    return found
