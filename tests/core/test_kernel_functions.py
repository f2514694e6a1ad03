# SPDX-License-Identifier: Apache-2.0
"""Functions of the kernel as plugins declare them: what is refused, what a kernel has, layouts, programs, columns."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fencepath._bpf.kernel_functions import FORCE_VARIABLE, functions_refused
from fencepath._doctor.judge import judge_layers
from fencepath._doctor.probes import kernel_functions
from fencepath._doctor.state import MachineState, Trial, load_state
from fencepath._kernel_functions.program import generate_programs
from fencepath._text import absent_groups, absent_modules, no_group, no_module
from fencepath.errors import UsageError
from fencepath.kernel_functions import (
    FunctionRecord,
    FunctionValue,
    KernelFunction,
    NoFunctions,
    ResolvedFunctions,
    decode_functions,
)
from fencepath.system import LiveSymbols, SavedSymbols

MACHINES = Path(__file__).parent / "machines"
RECORD = FunctionRecord(
    kind="toy.call",
    functions=(KernelFunction(("new_name", "old_name"), "toy"), KernelFunction(("other",), "toy_more", within=0)),
    values=(
        FunctionValue(name="small", type="u16", argument=0),
        FunctionValue(name="where", type="u64", argument=1, members=("a.b", "b.c"), identity=True),
    ),
    result="s32",
)


def saved(folder: Path, text: str) -> SavedSymbols:
    (folder / "symbols.txt").write_text(text)
    return SavedSymbols(folder / "symbols.txt")


class TestDeclared:
    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda: FunctionValue(name="a", type="u64", argument=5), "argument 5"),
            (lambda: FunctionValue(name="a", type="char[8]", argument=0), "is no number"),
            (lambda: FunctionValue(name="a", type="u64[2]", argument=0), "is no number"),
            (lambda: FunctionValue(name="a", type="u32", argument=0, identity=True), "is a u64"),
            (lambda: FunctionValue(name="a", type="u64", argument=0, members=("b",)), "not STRUCT.MEMBER"),
            (lambda: FunctionRecord(kind="t.a", functions=()), "name the functions"),
            (lambda: FunctionRecord(kind="t.a", functions=(KernelFunction(()),)), "name the functions"),
            (lambda: FunctionRecord(kind="t.a", functions=(KernelFunction(("f",), within=0),)), "within none"),
            (lambda: FunctionRecord(kind="t.a", functions=(KernelFunction(("f",), within=1),)), "within none"),
            (
                lambda: FunctionRecord(
                    kind="t.a",
                    functions=(KernelFunction(("f",)),),
                    values=(FunctionValue(name="result", type="u64", argument=0),),
                ),
                "two fields have one name",
            ),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, make: Callable[[], object], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            make()

    def test_the_layout_has_no_holes(self) -> None:
        names = [field.name for field in RECORD.layout.fields]
        assert names[-5:] == ["function", "reserved", "result", "where", "small"]
        assert RECORD.layout.lasts
        assert RECORD.members == ("a.b", "b.c")

    def test_the_first_name_that_is_there_is_taken(self, tmp_path: Path) -> None:
        both = saved(tmp_path, "0 t old_name [toy]\n0 t new_name [toy]\n0 T other.isra.0 [toy_more]\n")
        found = RECORD.resolve(both)
        assert isinstance(found, ResolvedFunctions)
        assert (found.names, found.modules) == (("new_name", ""), ("toy", ""))
        assert found.recorded == ("new_name", "other")
        assert found.present == ("new_name",)
        older = RECORD.resolve(saved(tmp_path, "0 t old_name [toy]\n"))
        assert isinstance(older, ResolvedFunctions)
        assert older.names == ("old_name", "")

    def test_why_nothing_is_there(self, tmp_path: Path) -> None:
        none = RECORD.resolve(saved(tmp_path, "0 T something\n"))
        assert isinstance(none, NoFunctions)
        assert str(none) == "toy.call cannot be recorded: no module toy is loaded; no module toy_more is loaded"
        assert absent_modules(str(none)) == ["toy", "toy_more"]
        built = RECORD.resolve(saved(tmp_path, "0 T something [toy]\n"))
        assert isinstance(built, NoFunctions)
        assert built.why == "this kernel has no function new_name, old_name, other"
        assert absent_modules(str(built)) == []


class TestSymbols:
    def test_modules_of_every_form_of_list(self, tmp_path: Path) -> None:
        text = "ffffffff81000000 T own\nffffffffc0000000 t theirs\t[toy]\n[more] t listed\nbare@@V1\n# no\n"
        packed = tmp_path / "s.gz"
        packed.write_bytes(gzip.compress(text.encode()))
        for symbols in (saved(tmp_path, text), SavedSymbols(packed)):
            assert [symbols.module_of(name) for name in ("own", "theirs", "listed", "bare", "none")] == [
                "",
                "toy",
                "more",
                "",
                "",
            ]
            assert [symbols.has(name) for name in ("own", "theirs", "listed", "bare", "none")] == [True] * 4 + [False]
            assert [symbols.has_module(name) for name in ("toy", "more", "own")] == [True, True, False]
            assert len(symbols) == 4

    def test_those_of_a_running_kernel(self, tmp_path: Path) -> None:
        (tmp_path / "kallsyms").write_text("0000000000000000 T own\n0000000000000000 t theirs\t[toy]\n")
        (tmp_path / "modules" / "toy").mkdir(parents=True)
        live = LiveSymbols(tmp_path / "kallsyms", tmp_path / "modules")
        assert (live.module_of("theirs"), live.module_of("own"), live.has("own")) == ("toy", "", True)
        assert (live.has_module("toy"), live.has_module("other")) == (True, False)
        unreadable = LiveSymbols(tmp_path / "absent", tmp_path / "absent")
        assert (unreadable.has("own"), unreadable.module_of("own"), unreadable.has_module("toy")) == (False, "", False)


def test_reasons_are_told_apart() -> None:
    why = f"t.a cannot be recorded: {no_module('toys')}"
    assert (absent_modules(why), absent_groups(why)) == (["toys"], [])
    other = f"t.a cannot be recorded: t:a: {no_group('toys')}"
    assert (absent_modules(other), absent_groups(other)) == ([], ["toys"])
    assert absent_modules(f"{no_module('toys')}; this kernel has no function a") == []


def test_programs_are_made_of_what_is_there() -> None:
    text = generate_programs(ResolvedFunctions(RECORD, ("", "other"), ("", "toy_more")))
    assert "FP_FUNCTION(toy_call, fp_toy_call, 1, 0, 2, s32, 1, FP_KIND_TOY_CALL, FP_CALLS_OF_TOY_CALL_FD)" in text
    assert "FP_FUNCTION(toy_call, fp_toy_call, 0" not in text
    assert "flags |= fp_kernel_read(&at, 8, at + FP_OFFSET_A_B);" in text
    assert "r->where = fp_identity(r->where);" in text


def test_columns_of_records() -> None:
    records = np.zeros(3, RECORD.layout.dtype)
    records["function"], records["result"], records["small"] = [0, 1, 7], [-5, 0, 2], [1, 2, 3]
    records["begin_ns"], records["time_ns"] = [1, 2, 3], [4, 5, 6]
    batch = decode_functions("toy.call", records, ("new_name", "other"))
    assert batch["label"].tolist() == [0, 1, -1]
    assert batch.labels == ("new_name", "other")
    assert (batch["result"].tolist(), batch["small"].tolist()) == ([-5, 0, 2], [1, 2, 3])
    assert "function" not in batch
    assert batch["begin_ns"].tolist() == [1, 2, 3]


class TestMachine:
    def test_what_ftrace_lists(self, tmp_path: Path) -> None:
        (tmp_path / "list").write_text("do_one\ndo_two [toy]\n")
        live = LiveSymbols(tmp_path / "absent", tmp_path, tmp_path / "list")
        assert [live.traceable(name) for name in ("do_one", "do_two", "do_three")] == [True, True, False]
        assert LiveSymbols(tmp_path / "absent", tmp_path, tmp_path / "absent").traceable("do_one") is None

    def test_a_captured_machine_says_the_same(self) -> None:
        """By which functions, which of them not by fentry, and that a missing module loses nothing."""
        names = ("nvidia_isr_msix", "nvidia_isr", "nvidia_isr_msix_kthread_bh", "nvidia_isr_kthread_bh")
        state = msgspec.structs.replace(
            load_state(MACHINES / "drm-6.18.json"),
            kernel_functions=Trial(works=True),
            symbols=dict.fromkeys(names, True),
            modules={"nvidia": True, "nvidia_uvm": False},
            traceable={name: name != "nvidia_isr" for name in names},
        )
        said = {check.name: check for layer, check in judge_layers(state) if layer == "nvidia"}
        halves = said["both halves of interrupts"]
        assert halves.verdict == "ok"
        assert halves.evidence.endswith(
            f"by functions of the kernel: {', '.join(names)}; ftrace does not list nvidia_isr: by kprobes"
        )
        assert said["page faults of GPUs, migrations"].evidence == "not loaded: nvidia_uvm, so that nothing is lost"
        worse = msgspec.structs.replace(state, kernel_functions=Trial(works=False, why="no kprobes"))
        lacking = {check.name: check for layer, check in judge_layers(worse) if layer == "nvidia"}
        assert lacking["both halves of interrupts"].verdict == "degrade"
        assert lacking["both halves of interrupts"].evidence == "no kprobes"

    def test_doctor_says_what_is_lost_and_that_nothing_needs_it(self) -> None:
        assert list(kernel_functions(MachineState())) == []
        (fine,) = kernel_functions(MachineState(kernel_functions=Trial(works=True)))
        assert fine.verdict == "ok"
        (worse,) = kernel_functions(MachineState(kernel_functions=Trial(works=False, why="no kprobes")))
        assert (worse.verdict, worse.evidence) == ("warn", "no kprobes")
        assert "does not need it" in worse.cost

    def test_another_way_to_attach_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(FORCE_VARIABLE, "magic")
        functions_refused.cache_clear()
        with pytest.raises(UsageError, match="magic"):
            functions_refused()
        functions_refused.cache_clear()
