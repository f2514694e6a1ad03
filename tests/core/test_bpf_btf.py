# SPDX-License-Identifier: Apache-2.0
"""The reader of type information: the kernel's, and some made by hand."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.btf_samples import CONST, ENUM, FUNCTION, PROTOTYPE, TYPEDEF, UNION, VOLATILE, Btf, kernel_types

from fencepath._bpf import btf
from fencepath.errors import MachineError
from fencepath.kernel_types import KernelTypes


class TestOfThisKernel:
    @pytest.fixture
    def types(self) -> KernelTypes:
        types = KernelTypes()
        if types.problem is not None:
            pytest.skip(f"{types.problem}; boot a kernel with CONFIG_DEBUG_INFO_BTF")
        return types

    def test_offsets_are_those_of_the_kernels_headers(self, types: KernelTypes) -> None:
        """include/linux/types.h, fdtable.h and fs.h: first and second members on 64 bits."""
        expected = {
            "list_head.next": 0,
            "list_head.prev": 8,
            "fdtable.max_fds": 0,
            "fdtable.fd": 8,
            "inode.i_mode": 0,
        }
        assert types.require_offsets(expected) == types.offsets([*expected, "list_head.nothing"]) == expected
        with pytest.raises(MachineError, match=r"has no list_head\.nothing"):
            types.require_offsets(["list_head.next", "list_head.nothing"])

    def test_functions_are_of_the_number_that_each_has_in_a_walk(self, types: KernelTypes) -> None:
        data = (btf.BTF_FOLDER / "vmlinux").read_bytes()
        assert types.function("vfs_read") == walked(data)["vfs_read"]
        assert types.function("no_such_function") is None

    def test_it_is_read_once(self, types: KernelTypes, monkeypatch: pytest.MonkeyPatch) -> None:
        assert types.offsets(["list_head.prev"])

        def read(path: Path) -> bytes:
            raise AssertionError(f"{path} is read again")

        monkeypatch.setattr(Path, "read_bytes", read)
        assert KernelTypes().offsets(["list_head.prev"]) == {"list_head.prev": 8}


def walked(data: bytes) -> dict[str, int]:
    """Functions and their numbers, by a walk from type to type."""
    _, _, _, head, types_at, types_bytes, texts_at, _ = struct.unpack_from("<HBBIIIII", data)
    fixed = {1: 4, 3: 12, 14: 4, 17: 4}
    each = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
    at, number, found = head + types_at, 1, dict[str, int]()
    while at < head + types_at + types_bytes:
        text, information, _ = struct.unpack_from("<III", data, at)
        kind = information >> 24 & 0x7F
        if kind == FUNCTION:
            begin = head + texts_at + text
            found.setdefault(data[begin : data.index(b"\0", begin)].decode(), number)
        at += 12 + fixed.get(kind, 0) + each.get(kind, 0) * (information & 0xFFFFFF)
        number += 1
    return found


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 16384])
def test_members_are_found_behind_types_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(btf, "_PIECE", piece)
    made = Btf()
    number = made.integer()
    made.every_kind()
    made.structure("pair", [("red", number, 0), ("green", number, 64)])
    types = kernel_types(tmp_path, made)
    assert types.offsets(["pair.green", "pair.red", "pair.x", "colours.red", "int.x"]) == {
        "pair.green": 8,
        "pair.red": 0,
    }


def test_members_of_nameless_unions_count_as_the_outer_ones(tmp_path: Path) -> None:
    """struct outer { u32 a; union { u32 b; u32 c:8; struct { u32 d; u32 e; }; }; u32 f; }, the union with kind_flag."""
    made = Btf()
    number = made.integer()
    inner = made.structure("", [("d", number, 0), ("e", number, 32)])
    union = made.structure("", [("b", number, 0), ("c", number, 8 << 24), ("", inner, 0)], UNION, flag=True)
    made.structure("outer", [("a", number, 0), ("", union, 32), ("f", number, 96)])
    wanted = [f"outer.{name}" for name in "abcdef"]
    assert list(kernel_types(tmp_path, made).offsets(wanted).values()) == [0, 4, 4, 4, 8, 12]


def test_members_of_qualified_nameless_structures_count_too(tmp_path: Path) -> None:
    """As in struct vm_fault: struct outer { const struct { u32 b; }; u32 a; }."""
    made = Btf()
    number = made.integer()
    inner = made.structure("", [("b", number, 0)])
    qualified = made.add(TYPEDEF, "name", of=made.add(CONST, of=made.add(VOLATILE, of=inner)))
    made.structure("outer", [("", qualified, 64), ("a", number, 32)])
    assert kernel_types(tmp_path, made).offsets(["outer.b", "outer.a"]) == {"outer.b": 8, "outer.a": 4}


def test_the_upper_byte_of_an_offset_is_a_bit_field_s_width(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    made.structure("flags", [("one", number, 1 << 24 | 67), ("plain", number, 320)], flag=True)
    made.structure("large", [("last", number, 1 << 24)])
    assert kernel_types(tmp_path, made).offsets(["flags.one", "flags.plain", "large.last"]) == {
        "flags.one": 8,
        "flags.plain": 40,
        "large.last": 1 << 21,
    }


def test_more_members_than_16_bits_count(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    made.structure("long", [*[("same", number, 0)] * 70_001, ("last", number, 8)])
    made.structure("behind", [("it", number, 16)])
    assert kernel_types(tmp_path, made).offsets(["long.last", "behind.it"]) == {"long.last": 1, "behind.it": 2}


def test_of_several_structures_it_is_the_first_with_the_member(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    for at, members in enumerate(["", "a", "ab", "b"]):
        made.structure("one", [(name, number, 64 * at) for name in members])
    made.structure("one", [("c", number, 0)], UNION)
    assert kernel_types(tmp_path, made).offsets(["one.a", "one.b", "one.c"]) == {"one.a": 8, "one.b": 16}


def test_a_name_may_be_the_end_of_a_longer_one(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    made.structure("my_file", [("my_inode", number, 32)])
    made.structure("file", [("inode", number, 64)])
    assert made.texts.count(b"file") == 1
    assert kernel_types(tmp_path, made).offsets(
        ["file.inode", "my_file.my_inode", "file.my_inode", "y_file.inode"]
    ) == {
        "file.inode": 8,
        "my_file.my_inode": 4,
    }


def test_a_name_that_only_begins_another_is_not_it(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    made.structure("files", [("inodes", number, 32)])
    assert kernel_types(tmp_path, made).offsets(["file.inodes", "files.inode"]) == {}


def test_what_looks_like_a_structure_inside_another_type_is_none(tmp_path: Path) -> None:
    """An enumeration whose values are the words of a structure with a member at byte 5."""
    made = Btf()
    number = made.integer()
    name, member = made.text("task"), made.text("files")
    made.add(ENUM, "trap", name, 4 << 24 | 1, 4, member, number, 40, count=3)
    made.structure("task", [("files", number, 64)])
    assert kernel_types(tmp_path, made).offsets(["task.files"]) == {"task.files": 8}


def test_types_of_a_module_go_on_where_the_kernel_s_end(tmp_path: Path) -> None:
    """Names are in the kernel's texts or the module's own; a nameless structure inside is the kernel's, another the module's."""
    kernel = Btf()
    number = kernel.integer()
    prototype = kernel.add(PROTOTYPE, of=1)
    here = kernel.add(FUNCTION, "here", of=prototype)
    inner = kernel.structure("", [("both", number, 32)])
    kernel.structure("shared", [("both", number, 0)])
    module = Btf(kernel)
    own = module.structure("", [("mine", number, 64)])
    module.structure("there", [("here", number, 0), ("", inner, 128), ("", own, 256)])
    there = module.add(FUNCTION, "there", of=prototype)
    again = module.add(FUNCTION, "shared", of=prototype)
    types = kernel_types(tmp_path, kernel, module)
    assert (there, again) == (kernel.end + 2, kernel.end + 3)
    assert (types.function("there"), types.function("shared")) == (there, again)
    assert types.function("here") is None, "the kernel's"
    assert types.offsets(["there.here", "there.both", "there.mine", "shared.both"]) == {
        "there.here": 0,
        "there.both": 20,
        "there.mine": 40,
    }
    kernel_s = KernelTypes(folder=tmp_path)
    assert kernel_s.function("here") == here
    assert kernel_s.function("there") is None
    assert kernel_s.offsets(["shared.both"]) == {"shared.both": 0}


def test_variables_are_those_of_the_section_that_holds_the_named_one(tmp_path: Path) -> None:
    made = Btf()
    made.integer()
    made.every_kind()
    made.add(FUNCTION, "runqueues")
    made.section(".data", [(made.variable("other"), 8), (made.variable("current"), 16)])
    places = {"current": 64, "runqueues": 4096, "hidden": 8}
    made.section(".data..percpu", [*((made.variable(name), at) for name, at in places.items()), (9999, 1)])
    types = kernel_types(tmp_path, made)
    assert types.variables("runqueues") == places
    assert types.variables("other") == {"other": 8, "current": 16}
    assert types.variables("absent") == {}


def test_variables_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    made = Btf()
    made.integer()
    made.section(".data..percpu", [(made.variable(name), 8 * at) for at, name in enumerate(["a", "b", "a", "c", "a"])])
    assert kernel_types(tmp_path, made).variables("b") == {"b": 8, "c": 24}
    assert KernelTypes(folder=tmp_path).variables("a") == {"b": 8, "c": 24}


def test_without_types_nothing_is_found(tmp_path: Path) -> None:
    types = KernelTypes(folder=tmp_path)
    assert (types.offsets(["a.b"]), types.function("a"), types.variables("a")) == ({}, None, {})
    assert "CONFIG_DEBUG_INFO_BTF" in str(types.problem)
    with pytest.raises(MachineError, match="vmlinux cannot be read"):
        types.require_offsets(["a.b"])
    kernel_types(tmp_path, Btf())
    assert KernelTypes(folder=tmp_path).problem is None
    assert "absent cannot be read" in str(KernelTypes("absent", tmp_path).problem)


UNKNOWN = Btf()
UNKNOWN.add(31)
HALF = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 16, 16, 1) + struct.pack("<IIII", 0, 4 << 24 | 1, 0, 0) + b"\0"
NO_TEXTS = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 0) + struct.pack("<III", 0, 4 << 24, 0)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x9f", b"\x9f\xeb" + bytes(3), b"something else altogether", bytes(64), UNKNOWN.bytes(), HALF, NO_TEXTS],
)
def test_what_is_no_type_information_is_said(tmp_path: Path, data: bytes) -> None:
    types = kernel_types(tmp_path, data)
    assert types.offsets(["a.b"]) == {}
    with pytest.raises(MachineError, match="not of a known form"):
        types.require_offsets(["a.b"])


def sample() -> Btf:
    made = Btf()
    number = made.integer()
    made.every_kind()
    inner = made.structure("", [("b", number, 0)])
    made.structure("outer", [("a", number, 0), ("", made.add(CONST, of=inner), 64)])
    made.add(FUNCTION, "outer")
    made.section(".data..percpu", [(made.variable("a"), 8), (made.variable("b"), 16)])
    return made


@pytest.mark.parametrize("length", range(0, len(sample().bytes()), 7))
def test_a_file_that_is_cut_gives_nothing(tmp_path: Path, length: int) -> None:
    types = kernel_types(tmp_path, sample().bytes()[:length])
    assert types.problem is not None
    assert types.offsets(["outer.a", "outer.b"]) == {}


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, len(sample().bytes()) - 1), st.integers(0, 255)), min_size=1, max_size=5)
)
def test_damage_raises_nothing(tmp_path: Path, damage: list[tuple[int, int]]) -> None:
    data = bytearray(sample().bytes())
    for at, byte in damage:
        data[at] = byte
    # Examples follow faster than a file system's clock goes on, by which a changed file is known.
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    types = kernel_types(folder, bytes(data))
    types.offsets(["outer.a", "outer.b", "outer.c"])
    types.function("outer")
    types.variables("a")


def test_a_structure_inside_itself_has_an_end(tmp_path: Path) -> None:
    made = Btf()
    number = made.integer()
    made.structure("outer", [("", number + 1, 0), ("", number + 2, 0), ("a", number, 64)])
    made.add(CONST, of=number + 2)
    assert kernel_types(tmp_path, made).offsets(["outer.a", "outer.b"]) == {"outer.a": 8}


def test_a_file_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    for at in (0, 64, 128):
        made = Btf()
        number = made.integer()
        made.structure("s", [("m", number, at)] + [("more", number, 0)] * at)
        assert kernel_types(tmp_path, made).offsets(["s.m"]) == {"s.m": at // 8}
