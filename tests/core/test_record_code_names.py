# SPDX-License-Identifier: Apache-2.0
"""Addresses out of records to names: what is collected, what is looked up, and what is said not to be."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.core.code_workbench import SHARED, compile_to

from fencepath._libraries import executable_mappings
from fencepath._record import code_names
from fencepath._record.code_names import CodeNames
from fencepath._record.declared_code import AddressColumn, LayerCode
from fencepath._record.mappings import CodeMappings
from fencepath.calls import Arg, CallTable, Function, Out, Read
from fencepath.modules import CodeAddresses, CodeUse, Registration
from fencepath.records import Flags, Records

TABLE = CallTable(
    "demo",
    ("libdemo.so",),
    [
        Function("demo_launch", "demo.launch", (Arg("stub", 0), Arg("times", 1))),
        Function("demo_launch_by", "demo.launch", (Arg("times", 0), Arg("stub", 2)), (Read(1, 8, 1, 2),)),
        Function("demo_ask", "demo.launch", (Arg("times", 0),), out=(Out("other", 1), Out("stub", 2))),
        Function("demo_sync", "demo.launch", (Arg("times", 0),)),
        Function("demo_narrow", "demo.launch", (Arg("stub", 0, "u64", 0, 32),)),
        Function("demo_else", "demo.else", (Arg("stub", 0),)),
    ],
)
USE = CodeUse(
    addresses=(CodeAddresses("demo.launch", ("stub",)),),
    registrations=(Registration("give_register", address=1, name=3),),
)
ME = os.getpid()


def records(*rows: tuple[str, int, int], flags: int = Flags.TASK, tgid: int = ME) -> Records:
    """Records as (function, where the address is, address)."""
    layout = next(layout for layout in TABLE.layouts() if layout.kind == "demo.launch")
    made = np.zeros(len(rows), layout.dtype)
    made["flags"], made["tgid"] = flags, tgid
    made["args"], made["out"] = 0xDEAD, 0xBEEF
    for at, (function, place, address) in enumerate(rows):
        made["function"][at] = TABLE.index(function)
        made["out" if function == "demo_ask" else "args"][at, place] = address
    return made


class TestAddresses:
    column = AddressColumn(TABLE, "demo.launch", "stub")

    def test_they_are_where_each_function_has_them(self) -> None:
        found = self.column.addresses(
            records(("demo_launch", 0, 11), ("demo_launch_by", 2, 13), ("demo_ask", 1, 17), ("demo_launch", 0, 11))
        )
        assert found == {(ME, 11), (ME, 13), (ME, 17)}

    def test_functions_without_one_have_none(self) -> None:
        assert (
            self.column.addresses(records(("demo_sync", 0, 11), ("demo_narrow", 0, 13), ("demo_launch", 0, 0))) == set()
        )

    def test_what_a_call_that_has_not_returned_would_hand_out_is_none(self) -> None:
        made = records(("demo_ask", 1, 17), ("demo_launch", 0, 11), flags=Flags.TASK | Flags.OPEN)
        assert self.column.addresses(made) == {(ME, 11)}

    def test_an_index_beyond_the_table_is_passed_over(self) -> None:
        made = records(("demo_launch", 0, 11))
        made["function"] = 99
        assert self.column.addresses(made) == set()

    def test_processes_are_told_apart(self) -> None:
        made = np.concatenate([records(("demo_launch", 0, 11), tgid=tgid) for tgid in (5, 7)])
        assert self.column.addresses(made) == {(5, 11), (7, 11)}


class Naming:
    """A :class:`CodeNames` for this process."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, Mapping[str, Any]]] = []
        self.mappings = CodeMappings(self._note, lambda *row: None)
        self.names = CodeNames([LayerCode(TABLE, USE)], self.mappings, self._note)

    def _note(self, name: str, data: Mapping[str, Any]) -> None:
        self.facts.append((name, data))

    def look(self) -> None:
        now_ns = time.monotonic_ns()
        self.mappings.look(ME, executable_mappings(ME), now_ns, now_ns)

    def launch(self, *addresses: int) -> None:
        self.names.take("demo.launch", records(*(("demo_launch", 0, address) for address in addresses)))

    def found(self) -> dict[str, str]:
        return {data["name"]: data["how"] for name, data in self.facts if name == "code_name"}

    def why(self) -> list[str]:
        return [missing.why for missing in self.names.missing()]


@pytest.fixture
def naming() -> Iterator[Naming]:
    made = Naming()
    yield made
    made.names.close()


@pytest.fixture(scope="module")
def libc() -> list[int]:
    """Addresses of functions of this process's libc that no other name has."""
    library = ctypes.CDLL("libc.so.6")
    found = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("qsort", "getenv", "strtok"))
    return [address for address in found if address is not None]


def test_each_place_is_looked_up_once(naming: Naming, libc: list[int]) -> None:
    naming.look()
    for _ in range(3):
        naming.launch(*libc, libc[0])
        naming.names.ask()
    naming.names.finish()
    assert naming.found() == {"qsort": "symbol", "getenv": "symbol", "strtok": "symbol"}
    assert len([name for name, _ in naming.facts if name == "code_name"]) == 3
    assert naming.why() == []


def test_an_address_whose_mapping_is_seen_a_little_later(naming: Naming, libc: list[int]) -> None:
    naming.launch(libc[0])
    naming.names.ask()
    naming.look()
    naming.names.finish()
    assert naming.found() == {"qsort": "symbol"}
    assert naming.why() == []


def test_what_is_in_no_file_is_said_to_have_no_name(naming: Naming) -> None:
    naming.look()
    (vdso,) = (mapping for mapping in executable_mappings(ME) if mapping.path_text == "[vdso]")
    naming.launch(vdso.start + 64, 0x1000)
    naming.names.finish()
    assert naming.found() == {}
    assert naming.why() == [
        "2 addresses of functions were not looked up, as they are in no file, it was gone, there were too many, or time ran out"
    ]


def test_more_addresses_than_are_kept(naming: Naming, libc: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_names, "LIMIT", 2)
    naming.look()
    naming.launch(libc[0])
    naming.launch(libc[1])
    naming.launch(libc[2])
    naming.launch(libc[2])
    naming.names.finish()
    assert len(naming.found()) == 2
    assert naming.why() == ["more than 2 addresses of functions: the later ones have no names"]


def test_more_files_than_are_opened(naming: Naming, libc: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_names, "FILES_LIMIT", 0)
    naming.look()
    naming.launch(*libc)
    naming.names.finish()
    assert naming.found() == {}
    assert naming.why()[0].startswith("3 addresses of functions were not looked up")


def test_a_file_that_went_away_after_it_was_opened(naming: Naming, tmp_path: Path) -> None:
    compile_to(tmp_path / "libgiving.so", "giving.c", *SHARED)
    path = compile_to(tmp_path / "libkernels.so", "kernels.c", *SHARED, "-lgiving", "-s")
    library = ctypes.CDLL(str(path))
    address = ctypes.cast(library.shown_kernel, ctypes.c_void_p).value
    assert address is not None
    naming.look()
    path.unlink()
    naming.launch(address)
    naming.names.finish()
    assert naming.found() == {"shown_kernel": "symbol"}


def test_a_file_of_a_process_that_has_ended(naming: Naming, libc: list[int], tmp_path: Path) -> None:
    """It is opened by its path, if what is there is the same file."""
    path = compile_to(tmp_path / "libgiving.so", "giving.c", *SHARED)
    (real,) = (mapping for mapping in executable_mappings(ME) if libc[0] in range(mapping.start, mapping.end))
    status = path.stat()
    mine = (os.major(status.st_dev), os.minor(status.st_dev))
    there, gone = real.start, real.start + (1 << 30)
    ended = msgspec.structs.replace(real, pid=1 << 22, open_path="/proc/4194304/map_files/0-1")
    other = {"start": gone, "end": gone + 4096, "offset": 0, "path_text": str(path), "device": mine}
    replaced = msgspec.structs.replace(ended, **other, inode=status.st_ino + 1)
    naming.mappings.look(ME, (ended, replaced), 1, 2)
    naming.launch(libc[0], gone + 16)
    assert there <= libc[0] < gone
    naming.names.finish()
    assert naming.found() == {"qsort": "symbol"}
    assert naming.why()[0].startswith("1 addresses of functions were not looked up")


def test_a_program_that_another_one_became(naming: Naming, libc: list[int]) -> None:
    """Its addresses are others, though they may be the same numbers."""
    naming.look()
    naming.launch(libc[0])
    naming.names.ask()
    naming.names.forget(ME)
    naming.mappings.exec(ME, time.monotonic_ns())
    naming.launch(libc[0])
    naming.look()
    naming.names.finish()
    assert naming.found() == {"qsort": "symbol"}
    assert naming.why() == []


def test_leaving_without_an_end_waits_for_nothing(naming: Naming, libc: list[int]) -> None:
    naming.look()
    naming.launch(*libc)
    naming.names.ask()
    naming.names.close()
    naming.names.close()
