# SPDX-License-Identifier: Apache-2.0
"""Call tables without a kernel: what they refuse, what they generate, and how records are decoded."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.btf_samples import Btf, kernel_types

from fencepath._calls import dead
from fencepath._calls.entries import _OPEN
from fencepath._calls.returns import return_defines
from fencepath._calls.stacks import blocked_stack_pointer, on_one_stack
from fencepath.calls import TEXT_BYTES, Arg, CallTable, Capture, Function, Out, Read, Text
from fencepath.records import Flags, Records, ring_class

LAUNCH = Function(
    "launch",
    "demo.launch",
    (
        Arg("code", 0),
        Arg("grid_x", 1, "u32"),
        Arg("grid_y", 1, "u32", 32),
        Arg("grid_z", 2, "u32"),
        Arg("stream", 8),
    ),
    detail="launch",
    group="launch",
    api="driver",
    hot=True,
)
LAUNCH_EX = Function(
    "launchEx",
    "demo.launch",
    (Arg("code", 1), Arg("grid_x", 2, "u32"), Arg("grid_y", 2, "u32", 32), Arg("grid_z", 3, "u32")),
    reads=(Read(0, 0, 2, 2),),
    detail="launch",
    group="launch",
)
CREATE = Function("create", "demo.create", (Arg("mode", 1, "s32"),), out=(Out("handle", 0),), aliases=("create_v2",))
NAME = Function("name", "demo.name", (Arg("module", 1),), out=(Out("code", 0),), text=Text("title", 2))
NODES = Function(
    "nodes",
    "demo.nodes",
    (Arg("graph", 0), *(Arg(f"node_{index}", 4 + index) for index in range(3))),
    reads=(Read(1, 0, 3, 4, 2),),
)
WAIT = Function("wait", "demo.wait", (Arg("stream", 0),), detail="sync", group="wait")


def table(*functions: Function) -> CallTable:
    return CallTable("demo", ("libdemo.so",), functions)


TABLE = table(LAUNCH, LAUNCH_EX, CREATE, WAIT)


def record(owner: CallTable, name: str, **fields: Any) -> Records:
    """One record of a function, as the BPF programs of `owner` write it; args and out are lists of words."""
    kind = owner.functions[owner.index(name)].kind
    (layout,) = [layout for layout in owner.layouts() if layout.kind == kind]
    row = np.zeros(1, layout.dtype)
    row["function"] = owner.index(name)
    row["flags"] = Flags.TASK
    for field, value in fields.items():
        if isinstance(value, list):
            row[field][0, : len(value)] = value
        else:
            row[field] = value
    return row


def decode(owner: CallTable, kind: str, *rows: Records, recorded: Sequence[str] | None = None) -> Any:
    return owner.decode(kind, np.concatenate(rows), owner.recorded if recorded is None else recorded)


class TestTable:
    @pytest.mark.parametrize(
        ("functions", "message"),
        [
            ((WAIT, WAIT), "wait is in the call table of demo 2 times"),
            ((CREATE, Function("create_v2", "demo.create")), "create_v2 is in the call table"),
            ((Function("f", "other.kind"),), "f: the kind other.kind is not one of the layer demo"),
            ((Function("f g", "demo.a"),), "f g: 'f g' is no symbol"),
            ((Function("f", "demo.a", (Arg("x", 14),)),), "f: x is in slot 14"),
            ((Function("f", "demo.a", (Arg("x", -1),)),), "f: x is in slot -1"),
            ((Function("f", "demo.a", (Arg("x", 0, "float"),)),), "f: x has the type float"),
            ((Function("f", "demo.a", result="int"),), "f: it returns int"),
            ((Function("f", "demo.a", (Arg("x", 0, "u32", 33),)),), "f: x takes 32 bits from bit 33"),
            ((Function("f", "demo.a", (Arg("x", 0), Arg("x", 1))),), "f: x is named twice"),
            ((Function("f", "demo.a", (Arg("x", 0),), constants={"x": 1}),), "f: x is named twice"),
            ((Function("f", "demo.a", (Arg("has_x", 0),)),), "f: 'has_x' cannot be a column's name"),
            ((Function("f", "demo.a", (Arg("flags", 0),)),), "f: 'flags' cannot be a column's name"),
            ((Function("f", "demo.a", (Arg("two words", 0),)),), "f: 'two words' cannot be a column's name"),
            ((Function("f", "demo.a", out=(Out("x", 0, 0, 3),)),), "f: x is 3 bytes wide"),
            ((Function("f", "demo.a", out=tuple(Out(f"x{i}", i) for i in range(5))),), "f: it records more than"),
            ((Function("f", "demo.a", reads=(Read(0, 0, 2, 2), Read(1, 0, 2, 3))),), "f: two reads fill one slot"),
            ((Function("f", "demo.a", reads=(Read(0, 0, 2, 13),)),), "f: a read fills a slot beyond 13"),
            (
                (Function("f", "demo.a", out=(Out("x", 2),), reads=(Read(0, 0, 2, 2),)),),
                "f: slot 2 cannot hold a pointer",
            ),
            (
                (Function("f", "demo.a", (Arg("x", 0, "u32"),)), Function("g", "demo.a", (Arg("x", 0, "s32"),))),
                "g: x is s32, and signed otherwise in f",
            ),
            (
                (Function("f", "demo.a", (Arg("x", 0, "u8"),)), Function("g", "demo.a", constants={"x": 256})),
                "g: x is 256, which its column, u8, cannot hold",
            ),
            (
                (Function("f", "demo.a", text=Text("t", 0, TEXT_BYTES + 1)),),
                "f: t has room for 385 bytes; a record has 2 to",
            ),
            ((Function("f", "demo.a", text=Text("t", 0, 1)),), "f: t has room for 1 bytes"),
            ((Function("f", "demo.a", text=Text("text", 0)),), "f: 'text' cannot be a column's name"),
            ((Function("f", "demo.a", (Arg("x", 0),), text=Text("x", 1)),), "f: x is named twice"),
            (
                (Function("f", "demo.a", (Arg("x", 7),), text=Text("t", 1)),),
                "f: it records more than one with text holds",
            ),
            (
                (Function("f", "demo.a", text=Text("x", 0)), Function("g", "demo.a", (Arg("x", 0),))),
                "g: x is a text of another function of demo.a",
            ),
            (
                (Function("f", "demo.a", text=Text("x", 0)), Function("g", "demo.a", constants={"x": 1})),
                "g: x is a text of another function of demo.a",
            ),
            (
                (Function("f", "demo.a", text=Text("t", 2), reads=(Read(0, 0, 1, 2),)),),
                "f: slot 2 cannot hold a pointer",
            ),
            ((Function("f", "demo.a", reads=(Read(0, 0, 1, 2, 2),)),), "f: slot 2 cannot hold a count"),
            ((Function("f", "demo.a", constants={"x": 2**63}),), "f: x is 9223372036854775808, which its column, s64"),
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, functions: tuple[Function, ...], message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            table(*functions)

    def test_no_library_is_refused(self) -> None:
        with pytest.raises(ValueError, match="names no library"):
            CallTable("demo", (), [WAIT])

    def test_only_kinds_with_text_have_room_for_it(self) -> None:
        other = Function("other", "demo.name", (Arg("module", 0),))
        layouts = {layout.kind: layout for layout in table(*TABLE.functions, NAME, other).layouts()}
        assert layouts["demo.name"].size_bytes == ring_class(385) == 512
        assert layouts["demo.name"].dtype["text"] == np.dtype(f"S{TEXT_BYTES}")
        assert "text" not in (layouts["demo.launch"].dtype.names or ())
        assert layouts["demo.create"].size_bytes == layouts["demo.launch"].size_bytes == 128

    def test_kinds_share_few_record_sizes(self) -> None:
        big = Function("big", "demo.big", (Arg("x", 13),), out=(Out("y", 0), Out("z", 1), Out("v", 2)))
        sizes = {layout.kind: layout.size_bytes for layout in table(*TABLE.functions, big).layouts()}
        assert sizes == {"demo.launch": 128, "demo.create": 128, "demo.wait": 128, "demo.big": 200}
        assert {ring_class(size) for size in sizes.values()} == {128, 256}

    def test_details_are_cumulative(self) -> None:
        names = {detail: [f.name for f in TABLE.selected(detail)] for detail in ("sync", "launch", "full")}
        assert names == {
            "sync": ["wait"],
            "launch": ["launch", "launchEx", "wait"],
            "full": ["launch", "launchEx", "create", "wait"],
        }

    def test_functions_recorded_alike_share_programs(self) -> None:
        free, query = Function("free", "demo.free", (Arg("at", 0),)), Function("query", "demo.query", (Arg("at", 0),))
        programs = table(*TABLE.functions, free, query).programs()
        shared = [program for program in programs if len(program.functions) > 1]
        assert [program.functions for program in shared] == [(3, 4, 5)]
        assert sorted(index for program in programs for index in program.functions) == [0, 1, 2, 3, 4, 5]

    def test_program_names_are_the_same_at_every_detail(self) -> None:
        full = {program.functions: program.entry for program in TABLE.programs()}
        assert {program.functions: program.entry for program in TABLE.programs("sync")}.items() <= full.items()
        assert len(TABLE.programs("sync")) == 1

    def test_the_header_has_a_macro_for_each_program(self) -> None:
        header = TABLE.bpf_header()
        assert "FP_CALL(1, launch, 2, FP_READ(0, 0, 2, 2), , )" in header
        assert "FP_CALL(2, small, 2, , FP_OUT(0, 0, 0, 8), )" in header
        assert header.count("FP_CALL(") == len(TABLE.programs()) == 4
        assert TABLE.bpf_header("sync").count("FP_CALL(") == 1

    def test_a_cookie_holds_kind_and_function(self) -> None:
        assert TABLE.cookie(3, 7) == 7 << 32 | 3

    def test_only_the_entry_of_hot_and_unwinding_functions_is_recorded(self) -> None:
        assert LAUNCH.entry_only
        assert Function("f", "demo.a", no_unwind=False).entry_only
        assert not WAIT.entry_only

    def test_a_variant_has_other_symbols_and_constants(self) -> None:
        variant = CREATE.variant("_ptsz", per_thread=1)
        assert variant.symbols == ("create_ptsz", "create_v2_ptsz")
        assert variant.constants == {"per_thread": 1}
        assert variant.args == CREATE.args

    def test_the_docs_name_every_function_once(self) -> None:
        text = TABLE.markdown()
        for row in TABLE.rows():
            for symbol in row.function.split(", "):
                assert text.count(f"`{symbol}`") == 1
        assert "| `launch` | `demo.launch` | driver | launch | entry | code, grid_x, grid_y, grid_z, stream |" in text
        assert "(handle)" in text


class TestDecode:
    def test_dim3_by_value_is_two_words(self) -> None:
        """The error of peers: x and y share a register, z has the next one."""
        row = record(TABLE, "launch", args=[0x1000, 7 | 65535 << 32, 3 | 0xDEAD << 32, 0, 0, 0, 0, 0, 0x51])
        columns = decode(TABLE, "demo.launch", row)
        assert [columns[name][0] for name in ("code", "grid_x", "grid_y", "grid_z", "stream")] == [
            0x1000,
            7,
            65535,
            3,
            0x51,
        ]

    def test_functions_of_a_kind_are_decoded_each_in_its_way(self) -> None:
        rows = [
            record(TABLE, "launchEx", args=[0xC0, 0x2000, 11 | 12 << 32, 13], result=0),
            record(
                TABLE, "launch", args=[0x1000, 7 | 8 << 32, 9, 0, 0, 0, 0, 0, 0x51], flags=Flags.TASK | Flags.ENTRY_ONLY
            ),
        ]
        columns = decode(TABLE, "demo.launch", *rows)
        assert columns["function"].tolist() == [1, 0]
        assert columns["code"].tolist() == [0x2000, 0x1000]
        assert columns["grid_y"].tolist() == [12, 8]
        assert columns["stream"].tolist() == [0, 0x51]
        assert columns["has_stream"].tolist() == [False, True]
        assert "has_code" not in columns
        assert columns.has("code").tolist() == [True, True]
        assert columns["entry_only"].tolist() == [False, True]
        assert columns.has("result").tolist() == [True, False]
        with pytest.raises(KeyError):
            columns.has("nothing")

    def test_values_have_their_width_and_sign(self) -> None:
        narrow = table(
            Function(
                "f",
                "demo.a",
                (Arg("s8", 0, "s8"), Arg("u8", 1, "u8"), Arg("bits", 2, "s32", 4, 3), Arg("s64", 3, "s64")),
            )
        )
        garbage = 0xDEADBEEFDEADBE00
        row = record(
            narrow,
            "f",
            args=[garbage | 0xFE, garbage | 0xFE, 0b1101_1111, 2**64 - 5],
            result=garbage << 8 & 2**64 - 1 | 3,
        )
        columns = decode(narrow, "demo.a", row)
        assert [int(columns[name][0]) for name in ("s8", "u8", "bits", "s64")] == [-2, 254, -3, -5]
        assert columns["result"].dtype == np.int32
        assert [str(columns[name].dtype) for name in ("s8", "u8", "bits", "s64")] == ["int8", "uint8", "int32", "int64"]

    def test_a_value_that_was_not_returned_is_not_there(self) -> None:
        rows = [
            record(TABLE, "create", args=[0x10, 2**64 - 1], out=[0xABC]),
            record(TABLE, "create", args=[0x10, 2], flags=Flags.TASK | Flags.OPEN),
            record(TABLE, "create", args=[0x10, 3], flags=Flags.TASK | Flags.READ_FAULT),
            record(TABLE, "create", args=[0, 4]),
        ]
        columns = decode(TABLE, "demo.create", *rows)
        assert columns["handle"].tolist() == [0xABC, 0, 0, 0]
        assert columns["has_handle"].tolist() == [True, False, False, False]
        assert columns["mode"].tolist() == [-1, 2, 3, 4]
        assert columns["returned"].tolist() == [True, False, True, True]

    def test_a_fault_spoils_only_what_is_read_from_memory(self) -> None:
        row = record(TABLE, "launch", args=[1, 2, 3], flags=Flags.TASK | Flags.READ_FAULT)
        columns = decode(TABLE, "demo.launch", row)
        assert [columns.has(name)[0] for name in ("code", "grid_x", "stream")] == [True, True, False]

    def test_texts_are_bytes(self) -> None:
        names = table(NAME, Function("other", "demo.name", (Arg("module", 0),)))
        longest = bytes(range(1, 256)) + b"x" * 128
        rows = [
            record(names, "name", args=[0x10, 7, 0x20], text=longest, out=[0xC0DE]),
            record(names, "name", args=[0x10, 8, 0x20], text=b""),
            record(names, "other", args=[9], text=b"of an earlier record"),
            record(names, "name", args=[0x10, 10, 0], text=b"stale"),
            record(names, "name", args=[0x10, 11, 0x20], text=b"unread", flags=Flags.TASK | Flags.READ_FAULT),
            record(names, "name", args=[0x10, 12, 0x20], text=b"open", flags=Flags.TASK | Flags.OPEN),
            record(names, "name", args=[0x10, 13, 0x20], text=b"hot", flags=Flags.TASK | Flags.ENTRY_ONLY),
            record(names, "name", args=[0x10, 14, 0x20], text=b"cut", flags=Flags.TASK | Flags.TRUNCATED),
        ]
        columns = decode(names, "demo.name", *rows)
        assert columns["module"].tolist() == [*range(7, 15)]
        assert columns["title"].tolist() == [longest, b"", b"", b"", b"", b"", b"hot", b"cut"]
        assert columns.has("title").tolist() == [True, True, False, False, False, False, True, True]
        assert columns["title"].dtype == np.dtype(f"S{TEXT_BYTES}")
        assert columns["code"].tolist()[0] == 0xC0DE

    def test_what_an_array_does_not_have_is_absent(self) -> None:
        nodes = table(NODES)
        words = [0xE1, 0xE2, 0xE3]
        rows = [record(nodes, "nodes", args=[1, 0x20, count, 0, *words]) for count in (0, 1, 3, 2**63)]
        rows.append(record(nodes, "nodes", args=[1, 0, 3, 0, *words]))
        columns = decode(nodes, "demo.nodes", *rows)
        assert columns["node_0"].tolist() == [0, 0xE1, 0xE1, 0xE1, 0]
        assert columns["node_2"].tolist() == [0, 0, 0xE3, 0xE3, 0]
        assert columns.has("node_1").tolist() == [False, False, True, True, False]

    def test_constants_fill_columns_of_others(self) -> None:
        copies = table(
            Function("copy", "demo.copy", (Arg("direction", 3, "s32"),)),
            Function("copyHtoD", "demo.copy", constants={"direction": 1, "per_thread": -1}),
        )
        columns = decode(copies, "demo.copy", record(copies, "copyHtoD"), record(copies, "copy", args=[0, 0, 0, 2]))
        assert columns["direction"].tolist() == [1, 2]
        assert columns["direction"].dtype == np.int32
        assert columns["per_thread"].tolist() == [-1, 0]
        assert columns["has_per_thread"].tolist() == [True, False]

    def test_no_records_have_every_column(self) -> None:
        columns = TABLE.decode("demo.launch", record(TABLE, "launch")[:0], TABLE.recorded)
        assert {"function", "caller_ip", "result", "code", "grid_x", "stream", "has_stream"} <= set(columns)
        assert all(len(column) == 0 for column in columns.values())


class TestOtherVersions:
    def test_functions_are_found_by_name(self) -> None:
        older = table(Function("gone", "demo.launch"), WAIT, LAUNCH_EX, LAUNCH)
        rows = [
            record(older, "gone"),
            record(older, "launch", args=[0x1000, 1 | 2 << 32, 3], time_ns=5),
            record(older, "gone"),
            record(older, "launchEx", args=[0xC0, 0x2000, 4], time_ns=6),
        ]
        columns = decode(TABLE, "demo.launch", *rows, recorded=older.recorded)
        assert columns["function"].tolist() == [TABLE.index("launch"), TABLE.index("launchEx")]
        assert columns["code"].tolist() == [0x1000, 0x2000]
        assert columns.records["time_ns"].tolist() == [5, 6]
        assert columns.unknown == {"gone": 2}

    def test_bare_names_mean_what_is_copied_today(self) -> None:
        row = record(TABLE, "create", args=[0x10, 5], out=[0xABC])
        columns = decode(TABLE, "demo.create", row, recorded=["launch", "launchEx", "create", "wait"])
        assert (columns["mode"][0], columns["handle"][0]) == (5, 0xABC)

    def test_what_an_older_table_did_not_copy_is_absent_not_zero(self) -> None:
        older = table(Function("create", "demo.create", (Arg("mode", 1),)))
        newer = table(
            Function(
                "create", "demo.create", (Arg("mode", 1), Arg("stream", 5)), out=(Out("extra", 0, 8), Out("handle", 0))
            )
        )
        columns = decode(
            newer, "demo.create", record(older, "create", args=[0x10, 5, 0, 0, 0, 77]), recorded=older.recorded
        )
        assert columns["mode"].tolist() == [5]
        for name in ("stream", "handle", "extra"):
            assert not columns.has(name)[0]

    def test_moved_words_are_found_again(self) -> None:
        """A newer table reads further into the struct, to other slots, and returns another value first."""
        older = table(
            Function("f", "demo.a", (Arg("x", 1), Arg("y", 2)), reads=(Read(0, 8, 2, 1),), out=(Out("h", 3),))
        )
        newer = table(
            Function(
                "f",
                "demo.a",
                (Arg("w", 5), Arg("x", 6), Arg("y", 7), Arg("z", 8)),
                reads=(Read(0, 0, 4, 5),),
                out=(Out("g", 3, 8), Out("h", 3)),
            )
        )
        row = record(older, "f", args=[0xC0, 111, 222, 0xD0], out=[333])
        columns = decode(newer, "demo.a", row, recorded=older.recorded)
        assert [columns[name][0] for name in ("x", "y", "h")] == [111, 222, 333]
        assert [bool(columns.has(name)[0]) for name in ("w", "x", "y", "z", "g", "h")] == [
            False,
            True,
            True,
            False,
            False,
            True,
        ]

    def test_a_table_that_copied_no_text_gives_none(self) -> None:
        older = table(Function("name", "demo.name", (Arg("module", 1), Arg("at", 2)), out=(Out("code", 0),)))
        row = record(older, "name", args=[0x10, 7, 0x20], out=[0xC0DE])
        columns = decode(table(NAME), "demo.name", row, recorded=older.recorded)
        assert (columns["module"][0], columns["code"][0], columns["title"][0]) == (7, 0xC0DE, b"")
        assert not columns.has("title")[0]

    def test_a_text_is_found_by_its_argument_whatever_room_it_had(self) -> None:
        smaller = table(Function("name", "demo.name", (Arg("module", 1),), text=Text("title", 2, 16)))
        other = table(Function("name", "demo.name", (Arg("module", 1),), text=Text("title", 3, 16)))
        for owner, text in ((smaller, b"short"), (other, b"")):
            row = record(owner, "name", args=[0x10, 7, 0x20, 0x30], text=b"short")
            assert decode(table(NAME), "demo.name", row, recorded=owner.recorded)["title"].tolist() == [text]

    def test_an_older_table_that_read_a_whole_array_is_read_as_it_was(self) -> None:
        older = table(Function("nodes", "demo.nodes", NODES.args, (Read(1, 0, 3, 4),)))
        row = record(older, "nodes", args=[1, 0x20, 1, 0, 0xE1, 0xE2, 0xE3])
        assert decode(table(NODES), "demo.nodes", row, recorded=older.recorded)["node_2"].tolist() == [0xE3]

    def test_a_function_that_is_another_kind_now_is_left_out(self) -> None:
        older = table(Function("wait", "demo.create"))
        columns = decode(TABLE, "demo.create", record(older, "wait"), recorded=older.recorded)
        assert (len(columns["function"]), columns.unknown) == (0, {"wait": 1})

    def test_numbers_beyond_the_table_are_counted(self) -> None:
        row = record(TABLE, "wait")
        row["function"] = 2**32 - 1
        assert decode(TABLE, "demo.wait", row).unknown == {"(number beyond the table)": 1}

    @given(st.binary(min_size=128 * 5, max_size=128 * 5))
    def test_any_bytes_are_decoded(self, data: bytes) -> None:
        for layout in TABLE.layouts():
            records = np.frombuffer(data, layout.dtype)
            columns = TABLE.decode(layout.kind, records, TABLE.recorded)
            assert len(columns["function"]) + sum(columns.unknown.values()) == 5


NAMES = [f"v{number}" for number in range(8)]


@st.composite
def functions(draw: st.DrawFn, name: str) -> Function:
    """A function of one kind with any args, reads and out values. A column has one sign everywhere."""
    columns = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=6))
    out_count = draw(st.integers(0, min(2, len(columns) - 1)))
    read = draw(
        st.none() | st.builds(Read, st.integers(0, 3), st.integers(0, 64), st.integers(1, 4), st.integers(6, 10))
    )
    free = [slot for slot in range(14) if read is None or slot not in read.slots]
    pointers = [slot for slot in free if slot < 6]
    args = []
    for column in columns[out_count:]:
        bits = draw(st.sampled_from([8, 16, 32, 64]))
        width = draw(st.integers(1, bits))
        slot = draw(st.sampled_from([slot for slot in range(14) if slot not in pointers[:3]]))
        args.append(Arg(column, slot, f"{sign_of(column)}{bits}", draw(st.integers(0, 64 - width)), width))
    out = [
        Out(column, draw(st.sampled_from(pointers[:3])), draw(st.integers(0, 8)), draw(st.sampled_from([1, 2, 4, 8])))
        for column in columns[:out_count]
        if sign_of(column) == "u"
    ]
    # Two values behind one pointer at one place are one value.
    unique = {(value.slot, value.offset, value.bytes): value for value in out}
    return Function(name, "demo.any", tuple(args), (read,) if read else (), tuple(unique.values()))


def sign_of(column: str) -> str:
    return "us"[int(column[1:]) % 2]


@st.composite
def calls(draw: st.DrawFn) -> tuple[CallTable, list[tuple[str, Mapping[str, int], list[int], list[int]]]]:
    """A table, and calls of its functions: the name, the values of its columns, and the words of its record."""
    count = draw(st.integers(1, 4))
    owner = table(*(draw(functions(f"f{number}")) for number in range(count)))
    made: list[tuple[str, Mapping[str, int], list[int], list[int]]] = []
    for _ in range(draw(st.integers(1, 8))):
        function = draw(st.sampled_from(owner.functions))
        args = draw(st.lists(st.integers(0, 2**64 - 1), min_size=14, max_size=14))
        for pointer in function.pointers:
            args[pointer] |= 1
        out = [draw(st.integers(0, 2 ** (8 * value.bytes) - 1)) for value in function.out]
        values = {arg.name: value_of(arg, args[arg.slot]) for arg in function.args}
        values.update((value.name, word) for value, word in zip(function.out, out, strict=True))
        made.append((function.name, values, args, out))
    return owner, made


def value_of(arg: Arg, word: int) -> int:
    """What C reads: the bits, taken as a bit field of the type."""
    value = word >> arg.shift & (1 << arg.bits) - 1
    return value - (1 << arg.bits) if arg.type[0] == "s" and value >> (arg.bits - 1) else value


class TestRoundTrip:
    @settings(max_examples=150, deadline=None)
    @given(calls())
    def test_what_is_in_the_registers_is_decoded(
        self, drawn: tuple[CallTable, list[tuple[str, Mapping[str, int], list[int], list[int]]]]
    ) -> None:
        owner, made = drawn
        (layout,) = owner.layouts()
        rows = [
            record(owner, name, args=args[: layout.dtype["args"].shape[0]], **({"out": out} if out else {}))
            for name, _, args, out in made
        ]
        columns = decode(owner, "demo.any", *rows)
        for row, (name, values, _, _) in enumerate(made):
            assert owner.functions[columns["function"][row]].name == name
            has = {column for column in NAMES if column in columns and columns.has(column)[row]}
            assert has == set(values)
            assert {column: int(columns[column][row]) for column in values} == values

    @given(functions("anything"), st.none() | st.builds(Text, st.just("t"), st.integers(0, 5)), st.integers(-1, 5))
    def test_a_capture_is_read_back_from_its_text(self, function: Function, text: Text | None, count: int) -> None:
        reads = tuple(msgspec.structs.replace(read, count=count) for read in function.reads)
        capture = Capture.of(msgspec.structs.replace(function, reads=reads, text=text))
        assert Capture.parse(capture.text_form(function.name)) == ("anything", capture)

    def test_what_is_copied_has_one_text_form(self) -> None:
        assert table(LAUNCH_EX, NAME, NODES).recorded == (
            "launchEx 2 r0+0*2>2",
            "name 3 o0+0:8 t2:384",
            "nodes 3 r1+0*3>4#2",
        )

    @pytest.mark.parametrize(
        "text", ["name", "name 3 later+form", "name x", "name 2 o1", "name 2 r0+0*1>2#", "name 1 "]
    )
    def test_a_text_of_a_later_version_is_a_bare_name(self, text: str) -> None:
        assert Capture.parse(text) == ("name", None)


def opened(*calls: tuple[int, int, int, int]) -> Records:
    """Open calls as (tid, stack pointer, begin_ns, tgid)."""
    rows = np.zeros(len(calls), _OPEN)
    for row, (tid, pointer, begin_ns, tgid) in zip(rows, calls, strict=True):
        row["key"]["sp"], row["key"]["tid"] = pointer, tid
        row["entry"]["tid"], row["entry"]["begin_ns"], row["entry"]["tgid"] = tid, begin_ns, tgid
    return rows


class TestDeadCalls:
    def test_only_calls_begun_inside_a_returned_one_are_dead(self) -> None:
        around = record(TABLE, "wait", tid=7, begin_ns=100, time_ns=200)
        found = opened((7, 64, 150, 1), (7, 64, 99, 1), (7, 64, 201, 1), (8, 64, 150, 1))
        assert dead.inside(found, [around]).tolist() == [True, False, False, False]
        for flag in (Flags.OPEN, Flags.ENTRY_ONLY):
            around["flags"] = flag
            assert not dead.inside(found, [around]).any()
        assert dead.inside(found[:0], [around]).tolist() == []

    def test_a_later_call_above_on_the_same_stack_ends_the_one_below(self) -> None:
        local = np.zeros(8, np.uint64)
        heap = local.ctypes.data
        tgid, tid = os.getpid(), 2**22 + 1
        found = opened((tid, heap, 10, tgid), (tid, heap + 8, 20, tgid), (tid, heap, 30, tgid))
        assert dead.stack_is_gone(found).tolist() == [True, False, False]
        elsewhere = opened((tid, 4096, 10, tgid), (tid, heap, 20, tgid))
        assert dead.stack_is_gone(elsewhere).tolist() == [False, False]

    def test_ends_before_a_call_are_of_an_earlier_thread(self) -> None:
        found = opened((7, 64, 150, 1), (8, 64, 150, 2))
        assert dead.ended_ns(found, {7: 149}, {2: 150}).tolist() == [0, 150]
        assert dead.ended_ns(found, {7: 160}, {1: 155}).tolist() == [160, 0]

    def test_a_free_entry_that_was_used_after_an_exec_is_of_the_new_program(self) -> None:
        """Deleting it would race with its next use, and that call's return would find no entry."""
        found = opened((7, 64, 0, 1), (8, 64, 0, 1))
        found["entry"]["time_ns"] = (140, 160)
        assert dead.ended_ns(found, {}, {1: 150}).tolist() == [150, 0]

    def test_a_stack_pointer_is_known_only_of_a_thread_in_the_kernel(self) -> None:
        own = blocked_stack_pointer(os.getpid(), threading.get_native_id())
        assert own > 0
        assert on_one_stack(os.getpid(), own, own + 8)
        assert not on_one_stack(os.getpid(), own, 4096)
        assert blocked_stack_pointer(2**22 + 1, 2**22 + 1) == 0
        assert not on_one_stack(2**22 + 1, 0, 0)


class TestReturnOffsets:
    @staticmethod
    def made(*lacking: str) -> Btf:
        made = Btf()
        number = made.integer()
        members = {
            "task_struct": [("utask", 64)],
            "uprobe_task": [("return_instances", 128)],
            "return_instance": [("orig_ret_vaddr", 192), ("stack", 256)],
        }
        for name, each in members.items():
            made.structure(name, [(member, number, bits) for member, bits in each if member not in lacking])
        return made

    def test_macros_are_offsets_in_bytes(self, tmp_path: Path) -> None:
        kernel_types(tmp_path, self.made())
        assert return_defines(tmp_path) == {
            "FP_TASK_UTASK": 8,
            "FP_UTASK_RETURNS": 16,
            "FP_RETURN_ADDRESS": 24,
            "FP_RETURN_STACK": 32,
        }

    def test_without_one_member_or_types_there_are_no_macros(self, tmp_path: Path) -> None:
        assert return_defines(tmp_path) == {}
        kernel_types(tmp_path, self.made("stack"))
        assert return_defines(tmp_path) == {}
