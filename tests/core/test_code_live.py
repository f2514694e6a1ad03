# SPDX-License-Identifier: Apache-2.0
"""Whose code calls, what functions at addresses are called, and functions that are handed out without a symbol, recorded live."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.core.code_workbench import TABLE, USE, Driven, asked, build, record

from fencepath._bpf.attach import FORCE_VARIABLE, UprobeMethod
from fencepath.calls import DecodedCalls
from fencepath.modules import CodeName, HandedOut, Modules
from fencepath.recording import Recording

pytestmark = pytest.mark.bpf


class Recorded:
    """A finished recording of the program, and what the program said."""

    def __init__(self, recording: Recording, driven: Driven) -> None:
        self.recording = recording
        self.modules = Modules(recording)
        self.pid = driven.pid
        (words,) = (line for line in driven.lines if line[0] == "hidden")
        self.hidden, self.rest, self.jumping = (int(word, 16) for word in words[1:])
        self.steps = [line[0] for line in driven.lines if line[0] != "hidden"]

    def calls(self, kind: str) -> DecodedCalls:
        functions = self.recording.manifest.functions["give"]
        return TABLE.decode(kind, self.recording.records(kind), functions)

    def callers(self) -> dict[int, Counter[str]]:
        """Names of the modules that called give_work, by the marks that they give."""
        calls = self.calls("give.call")
        located = self.modules.locate(calls.records["tgid"], calls.records["begin_ns"], calls["caller_ip"])
        found: dict[int, Counter[str]] = {}
        for mark, module in zip(calls["mark"].tolist(), located.module.tolist(), strict=True):
            found.setdefault(mark, Counter())[self.modules[module].name if module >= 0 else ""] += 1
        return found


@pytest.fixture(scope="module", params=list(UprobeMethod), ids=lambda method: method.value)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = build(tmp_path_factory.mktemp("code"))
    asked.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORCE_VARIABLE, request.param.value)
        driven = Driven(folder / "program", folder)
        return Recorded(record(folder, driven), driven)


def test_the_program_came_to_its_end(recorded: Recorded) -> None:
    assert recorded.steps == ["begin", "first", "second", "kernels", "handed_out", "worked", "again"]
    assert not recorded.recording.damage
    assert not [row for row in recorded.recording.loss if row.count]


def test_whose_code_calls(recorded: Recorded) -> None:
    """The program, code in no file, code in a file in memory, a library, another one in its place, a child, a later program."""
    assert recorded.callers() == {
        1: {"program": 7},
        2: {"[anonymous]": 13},
        3: {"memfd:code": 17},
        5: {"libfirst.so.1": 11},
        7: {"libsecond.so": 19},
        11: {"libsecond.so": 23},
        37: {"libfirst.so.1": 29},
        41: {"program": 3},
        43: {"program": 5},
        47: {"program": 7},
    }


def test_a_module_says_which_file_it_was(recorded: Recorded) -> None:
    (first,) = [module for module in recorded.modules if module.name == "libfirst.so.1"]
    folder = recorded.recording.path.parent
    assert first.path == str(folder / "libfirst.so")
    assert first.kind == "file"
    notes = subprocess.run(["readelf", "-n", first.path], capture_output=True, text=True, check=True).stdout
    assert first.build_id
    assert f"Build ID: {first.build_id}" in notes
    kinds = {module.name: module.kind for module in recorded.modules}
    assert (kinds["[vdso]"], kinds["[anonymous]"], kinds["memfd:code"]) == ("kernel", "anonymous", "memory")


def test_offsets_are_those_of_the_callers_instructions(recorded: Recorded) -> None:
    """Before each return address stands a call: five bytes, of which the first is E8, or up to six that begin with FF."""
    calls = recorded.calls("give.call")
    located = recorded.modules.locate(calls.records["tgid"], calls.records["begin_ns"], calls["caller_ip"])
    for index, offset in {*zip(located.module.tolist(), located.offset.tolist(), strict=True)}:
        if recorded.modules[index].kind == "file":
            code = Path(recorded.modules[index].path).read_bytes()[offset - 6 : offset]
            assert code[1] == 0xE8 or 0xFF in code[:5]


def test_names_of_functions_in_a_stripped_library_that_is_gone(recorded: Recorded) -> None:
    launches = recorded.calls("give.launch")
    located = recorded.modules.locate(launches.records["tgid"], launches.records["begin_ns"], launches["stub"])
    names = dict(zip(launches["times"].tolist(), recorded.modules.names(located), strict=True))
    assert names == {
        2: CodeName("shown_kernel", "symbol"),
        3: CodeName("_Z12hidden_firstPfi", "registration"),
        5: CodeName("__nv_static_7__file__Z13hidden_secondv", "registration"),
        7: None,
        11: None,
    }
    assert not (recorded.recording.path.parent / "libkernels.so").exists()
    assert not [missing for missing in recorded.recording.manifest.layers["give"].missing if missing.probe == "names"]


def test_a_function_that_is_handed_out_without_a_symbol_is_recorded(recorded: Recorded) -> None:
    """One that is no symbol is attached at its address; one that only jumps to a symbol is not, as it would count twice."""
    calls = recorded.calls("give.call")
    assert Counter(calls["mark"].tolist())[43] == 5
    assert Counter(calls["mark"].tolist())[47] == 7
    of_hidden = calls["mark"] == 43
    assert calls["result"][of_hidden].tolist() == [3 * 43 + number for number in calls["number"][of_hidden].tolist()]
    rest = recorded.calls("give.rest")
    assert Counter(rest["mark"].tolist()) == {53: 11}
    assert rest["result"].tolist() == [5 * 53 + number for number in rest["number"].tolist()]


def test_what_was_attached_by_offset_is_told(recorded: Recorded) -> None:
    facts = [fact.data for fact in recorded.recording.facts("by_offset")]
    assert [fact["function"] for fact in facts] == ["give_work", "give_rest"]
    addresses = np.array([recorded.hidden, recorded.rest], np.uint64)
    asked_for = recorded.calls("give.address")
    times = asked_for.records["time_ns"][:2]
    located = recorded.modules.locate(np.array([recorded.pid] * 2), times, addresses)
    assert [fact["offset"] for fact in facts] == located.offset.tolist()
    library = str(recorded.recording.path.parent / "libgiving.so")
    assert recorded.recording.manifest.layers["give"].attached == (f"{library} (4 functions, 2 by offset)",)
    assert not recorded.recording.manifest.layers["give"].missing


def test_calls_before_a_handed_out_function_had_a_probe_are_said_to_be_missing(recorded: Recorded) -> None:
    facts = {fact.data["function"]: fact.data for fact in recorded.recording.facts("by_offset")}
    asked_for = recorded.calls("give.address")
    given = dict(zip(asked_for["address"].tolist(), asked_for.records["time_ns"].tolist(), strict=True))
    gaps = {
        row.kind: (row.from_ns, row.to_ns) for row in recorded.recording.loss if row.stage == "attach_gap" and row.kind
    }
    assert gaps == {
        "give.call": (given[recorded.hidden], facts["give_work"]["attached_ns"]),
        "give.rest": (given[recorded.rest], facts["give_rest"]["attached_ns"]),
    }


def test_only_addresses_without_a_probe_are_asked_for(recorded: Recorded) -> None:
    assert [row["address"] for row in asked][:2] == [recorded.hidden, recorded.rest]
    assert len(asked) == 3


def test_a_layer_that_fails_to_say_what_was_handed_out(tmp_path: Path) -> None:
    """The recording goes on without those functions, and says so."""

    def failing(row: Mapping[str, Any]) -> str | None:
        raise KeyError(row["version"])

    folder = build(tmp_path)
    use = msgspec.structs.replace(USE, handed_out=(HandedOut("give.address", "address", failing),))
    driven = Driven(folder / "program", folder)
    found = Recorded(record(folder, driven, use), driven)
    assert found.steps[-1] == "again"
    marks = Counter(found.calls("give.call")["mark"].tolist())
    assert (marks[41], marks[43], marks[47]) == (3, 0, 7)
    assert {missing.why for missing in found.recording.manifest.layers["give"].missing} == {
        f"the function for addresses handed out by give.address failed: KeyError: {version}" for version in (1, 2)
    }
