# SPDX-License-Identifier: Apache-2.0
"""What of looks at a process's maps is told, and how it is read back: against a plain account of what was where and when."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fencepath._libraries import MappedLibrary, parse_maps
from fencepath._record import mappings
from fencepath._record.mappings import CodeMappings
from fencepath.modules import NO_MODULE, Modules
from fencepath.recording import Fact, LossRow, Recording
from fencepath.testing.fixtures import write_recording

PID, CHILD = 41, 43


def lines(*places: tuple[int, int, int, str], inode: int = 7) -> tuple[MappedLibrary, ...]:
    """Mappings as (first page, pages, offset in pages, path); without a path they are memory."""
    text = "\n".join(
        f"{start * 4096:x}-{(start + pages) * 4096:x} r-xp {offset * 4096:08x} fe:01 {inode if path[:1] == '/' else 0} {path}"
        for start, pages, offset, path in places
    )
    return parse_maps(text, PID)


class Account:
    """Facts and losses of a :class:`CodeMappings`."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.loss: list[LossRow] = []
        self.mappings = CodeMappings(self._note, self._gap)

    def _note(self, name: str, data: Mapping[str, Any]) -> None:
        self.facts.append(Fact(name, dict(data)))

    def _gap(self, stage: str, from_ns: int, to_ns: int, kind: str, count: int) -> None:
        self.loss.append(LossRow(stage, kind, -1, from_ns, to_ns, count))

    def types(self) -> list[str]:
        return [fact.type for fact in self.facts]

    def read(self, folder: Path) -> Modules:
        return Modules(self.written(folder))

    def written(self, folder: Path) -> Recording:
        return write_recording(folder / "r", {}, facts=[(fact.type, fact.data) for fact in self.facts])


@pytest.fixture
def account() -> Account:
    return Account()


def at(modules: Modules, pid: int, time_ns: int, page: int) -> tuple[str, int] | None:
    """Name and offset in pages of what is at the middle of a page."""
    address = np.array([page * 4096 + 100], np.uint64)
    located = modules.locate(np.array([pid], np.uint32), np.array([time_ns], np.uint64), address)
    if located.module[0] == NO_MODULE:
        assert located.offset[0] == 0
        return None
    assert located.offset[0] % 4096 == 100
    return modules[int(located.module[0])].name, int(located.offset[0]) // 4096


def test_a_look_that_finds_nothing_new_tells_nothing(account: Account) -> None:
    there = lines((16, 4, 1, "/lib/liba.so"), (32, 2, 0, "[vdso]"))
    account.mappings.look(PID, there, 100, 101)
    assert account.types() == ["module", "mapping", "module", "mapping"]
    account.mappings.look(PID, there, 200, 201)
    assert len(account.facts) == 4


def test_what_is_there_at_the_first_look_was_there_before(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 1, "/lib/liba.so.2")), 100, 101)
    modules = account.read(tmp_path)
    assert at(modules, PID, 0, 17) == ("liba.so.2", 2)
    assert at(modules, PID, 10**18, 19) == ("liba.so.2", 4)
    assert at(modules, PID, 50, 15) is None
    assert at(modules, PID, 50, 20) is None
    assert at(modules, PID + 1, 50, 17) is None


def test_a_library_in_the_place_of_another(account: Account, tmp_path: Path) -> None:
    """It counts from when it was asked for; until then, though it was closed at some time before, the other one."""
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so")), 100, 101)
    account.mappings.look(PID, lines((16, 6, 0, "/lib/libb.so")), 200, 205)
    modules = account.read(tmp_path)
    assert at(modules, PID, 199, 17) == ("liba.so", 1)
    assert at(modules, PID, 200, 17) == ("libb.so", 1)
    assert at(modules, PID, 204, 21) == ("libb.so", 5)
    assert at(modules, PID, 199, 21) is None


def test_what_was_closed_is_there_no_more(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so"), (64, 1, 0, "/lib/libc.so")), 100, 101)
    account.mappings.look(PID, lines((64, 1, 0, "/lib/libc.so")), 200, 205)
    modules = account.read(tmp_path)
    assert at(modules, PID, 204, 17) == ("liba.so", 1)
    assert at(modules, PID, 205, 17) is None
    assert at(modules, PID, 205, 64) == ("libc.so", 0)


def test_memory_that_became_code_may_have_been_there_since_the_look_before(account: Account, tmp_path: Path) -> None:
    """Of neighbours that differ only in their rights one is told."""
    library = (64, 1, 0, "/lib/libc.so")
    account.mappings.look(PID, lines(library), 100, 101)
    account.mappings.look(PID, lines((16, 2, 0, ""), (18, 3, 0, ""), (22, 1, 0, "[anon:jit]"), library), 200, 205)
    assert account.types().count("mapping") == 3
    modules = account.read(tmp_path)
    assert at(modules, PID, 100, 17) is None
    assert at(modules, PID, 101, 20) == ("[anonymous]", 4)
    assert at(modules, PID, 101, 22) == ("[anon:jit]", 0)
    assert [module.kind for module in modules] == ["file", "anonymous", "anonymous"]


def test_an_exec_ends_everything(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so")), 100, 101)
    account.mappings.exec(PID, 150)
    account.mappings.look(PID, lines((16, 4, 0, "/lib/libb.so"), (32, 1, 0, "")), 150, 160)
    modules = account.read(tmp_path)
    assert at(modules, PID, 149, 17) == ("liba.so", 1)
    assert at(modules, PID, 150, 17) == ("libb.so", 1)
    assert at(modules, PID, 149, 32) is None
    assert at(modules, PID, 150, 32) == ("[anonymous]", 0)


def test_a_child_has_what_its_parent_had_and_goes_its_own_way(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so"), (24, 1, 0, "/lib/libx.so")), 100, 101)
    account.mappings.fork(CHILD, PID, 150)
    account.mappings.look(PID, lines((16, 4, 0, "/lib/libb.so"), (24, 1, 0, "/lib/libx.so")), 200, 201)
    account.mappings.look(CHILD, lines((16, 4, 0, "/lib/liba.so"), (24, 1, 0, "/lib/libc.so")), 300, 301)
    assert account.types() == [
        *("module", "mapping", "module", "mapping", "mappings_copied"),
        *("unmapped", "module", "mapping", "unmapped", "module", "mapping"),
    ]
    modules = account.read(tmp_path)
    assert at(modules, CHILD, 149, 17) is None
    assert at(modules, CHILD, 150, 17) == ("liba.so", 1)
    assert at(modules, CHILD, 999, 17) == ("liba.so", 1)
    assert at(modules, CHILD, 299, 24) == ("libx.so", 0)
    assert at(modules, CHILD, 300, 24) == ("libc.so", 0)
    assert at(modules, PID, 999, 17) == ("libb.so", 1)
    assert at(modules, PID, 999, 24) == ("libx.so", 0)


def test_a_number_that_is_given_out_again_is_another_process(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so")), 100, 101)
    account.mappings.look(CHILD, lines((16, 4, 0, "/lib/libb.so")), 100, 101)
    account.mappings.fork(CHILD, PID, 200)
    modules = account.read(tmp_path)
    assert at(modules, CHILD, 199, 17) == ("libb.so", 1)
    assert at(modules, CHILD, 200, 17) == ("liba.so", 1)


def test_a_chain_of_forks_of_any_length(account: Account, tmp_path: Path) -> None:
    account.mappings.look(1, lines((16, 4, 0, "/lib/liba.so")), 100, 101)
    for number in range(2, 3001):
        account.mappings.fork(number, number - 1, 100 + number)
    account.mappings.exec(1500, 9000)
    modules = account.read(tmp_path)
    assert at(modules, 3000, 3100, 17) == ("liba.so", 1)
    assert at(modules, 3000, 3099, 17) is None
    assert at(modules, 1500, 8999, 17) == ("liba.so", 1)
    assert at(modules, 1500, 9000, 17) is None


def test_a_replaced_file_is_another_module(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so")), 100, 101)
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so (deleted)"), (64, 4, 0, "/lib/liba.so")), 200, 201)
    account.mappings.look(CHILD, lines((64, 4, 0, "/lib/liba.so"), inode=8), 300, 301)
    modules = account.read(tmp_path)
    assert [module.path for module in modules] == ["/lib/liba.so", "/lib/liba.so"]
    # the file of the other one is gone: that, and not that there was none, is what is said of its build-id
    assert [module.build_id for module in modules] == [None, None]


def test_more_mappings_than_are_told(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "LIMIT_OF_PROCESS", 1000)
    many = [(16 + 2 * number, 1, 0, f"/jit/{number}") for number in range(10_007)]
    account.mappings.look(PID, lines(*many), 100, 101)
    account.mappings.look(PID, lines(*many), 200, 201)
    assert account.types().count("mapping") == 1000
    assert account.loss == [LossRow("mappings_left_out", "", -1, 0, 101, 9007)]
    found = account.mappings.find(PID, (16 + 2 * 5000) * 4096)
    assert found is not None
    assert found.module == -1
    modules = account.read(tmp_path)
    assert at(modules, PID, 150, 16 + 2 * 999) == ("999", 0)
    assert at(modules, PID, 150, 16 + 2 * 1000) is None


def test_the_process_that_was_not_looked_at_for_longest_is_due(account: Account) -> None:
    for pid, time_ns in ((1, 10), (2, 5), (3, 20)):
        account.mappings.look(pid, lines((16, 4, 0, "/lib/liba.so")), 0, time_ns)
    assert account.mappings.due(10_000_000_004) == ()
    assert account.mappings.due(10_000_000_005) == (2,)
    account.mappings.drop(2)
    assert account.mappings.due(10_000_000_010) == (1,)
    assert account.mappings.looked_ns(2) == 0


def test_paths_with_any_bytes(account: Account, tmp_path: Path) -> None:
    text = b"10000-20000 r-xp 00000000 fe:01 9 /tmp/\xff\x85 \xe2\x80\xa8x.so\n".decode("utf-8", "surrogateescape")
    account.mappings.look(PID, parse_maps(text, PID), 100, 101)
    modules = account.read(tmp_path)
    assert at(modules, PID, 100, 17) == ("\\xff\\x85 \u2028x.so", 1)


def test_facts_that_are_damaged_are_passed_over(account: Account, tmp_path: Path) -> None:
    account.mappings.look(PID, lines((16, 4, 0, "/lib/liba.so"), (32, 4, 0, "/lib/libb.so")), 100, 101)
    account.facts.insert(2, Fact("mapping", {"pid": "x"}))
    account.facts.insert(2, Fact("module", {"module": -5, "kind": "file", "path": "/x"}))
    account.facts.insert(2, Fact("module", {"module": 1 << 40, "kind": "file", "path": "/x"}))
    account.facts = [fact for fact in account.facts if fact.data.get("path") != "/lib/liba.so"]
    modules = account.read(tmp_path)
    assert at(modules, PID, 100, 17) is None
    assert at(modules, PID, 100, 33) == ("libb.so", 1)


def test_a_recording_without_mappings_knows_no_module(account: Account, tmp_path: Path) -> None:
    modules = account.read(tmp_path)
    assert len(modules) == 0
    assert at(modules, PID, 100, 17) is None
    assert modules.names(modules.locate(*(np.zeros(2, np.uint64) for _ in range(3)))) == [None, None]


def test_random_lives_are_read_back_as_they_were(tmp_path: Path) -> None:
    """Places, times and processes at random, with a look after each change, against a table of every page at every time."""
    chance = random.Random(10007)
    account = Account()
    pids, pages, steps = (1, 2, 3, 4), range(16, 48), 400
    there: dict[int, dict[int, str]] = {pid: {} for pid in pids}
    truth: list[dict[int, dict[int, str]]] = [{pid: {} for pid in pids}]
    for step in range(1, steps):
        pid = chance.choice(pids)
        change = chance.random()
        if change < 0.1:
            there[pid] = {}
            account.mappings.exec(pid, step)
        elif change < 0.2:
            parent = chance.choice([other for other in pids if other != pid])
            there[pid] = dict(there[parent])
            account.mappings.fork(pid, parent, step)
        elif change < 0.4 and there[pid]:
            start = chance.choice([*there[pid]])
            for page in range(start, start + 4):
                there[pid].pop(page, None)
        else:
            start, name = chance.choice(pages), f"/lib/{step}.so"
            there[pid] |= dict.fromkeys(range(start, start + chance.randrange(1, 6)), name)
        found = [(page, 1, page, path) for page, path in sorted(there[pid].items())]
        account.mappings.look(pid, lines(*found, (99, 1, 0, "[vdso]")), step, step)
        truth.append({pid: dict(places) for pid, places in there.items()})
    modules = account.read(tmp_path)
    rows = [(pid, step, page) for step in range(1, steps) for pid in pids for page in pages]
    columns = np.array(rows, np.int64).T
    located = modules.locate(columns[0].astype(np.uint32), columns[1], columns[2].astype(np.uint64) * np.uint64(4096))
    paths = [modules[index].path if index >= 0 else "" for index in located.module.tolist()]
    first_look = {pid: next((s for s, seen in enumerate(truth) if seen[pid]), steps) for pid in pids}
    for (pid, step, page), path, offset in zip(rows, paths, located.offset.tolist(), strict=True):
        if step > first_look[pid]:
            expected = truth[step][pid].get(page, "")
            assert path == expected, (pid, step, page)
            assert offset == (page * 4096 if expected else 0)
