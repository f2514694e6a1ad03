# SPDX-License-Identifier: Apache-2.0
"""Offsets of members and numbers of functions, from the kernel's types and from some made by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fencepath._bpf.btf import function_number, member_offsets
from fencepath.errors import MachineError


def test_offsets_are_those_of_the_kernels_headers() -> None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel has no BTF; boot one with CONFIG_DEBUG_INFO_BTF")
    offsets = member_offsets(["list_head.next", "list_head.prev", "fdtable.max_fds", "fdtable.fd", "inode.i_mode"])
    # include/linux/types.h, fdtable.h and fs.h: first and second members on 64 bits.
    assert offsets == {
        "list_head.next": 0,
        "list_head.prev": 8,
        "fdtable.max_fds": 0,
        "fdtable.fd": 8,
        "inode.i_mode": 0,
    }
    with pytest.raises(MachineError, match=r"has no list_head\.nothing"):
        member_offsets(["list_head.nothing"])


def test_type_information_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="CONFIG_DEBUG_INFO_BTF"):
        member_offsets(["a.b"], tmp_path / "absent")
    for content in (
        b"",
        b"\0" * 64,
        struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 1) + struct.pack("<III", 0, 31 << 24, 0),
    ):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(MachineError, match="not of a known form"):
            member_offsets(["a.b"], tmp_path / "file")


def test_members_of_anonymous_unions_count_as_the_outer_ones(tmp_path: Path) -> None:
    """Made by hand: struct outer { u32 a; union { u32 b; u32 c:8; }; }, the union with kind_flag."""
    text = b"\0outer\0a\0b\0c\0"
    names = {name: text.index(name.encode() + b"\0") for name in ("outer", "a", "b", "c")}
    integer = struct.pack("<IIII", 0, 1 << 24, 4, 32)
    union = (
        struct.pack("<III", 0, 1 << 31 | 5 << 24 | 2, 4)
        + struct.pack("<III", names["b"], 1, 0)
        + struct.pack("<III", names["c"], 1, 8 << 24)
    )
    outer = (
        struct.pack("<III", names["outer"], 4 << 24 | 2, 8)
        + struct.pack("<III", names["a"], 1, 0)
        + struct.pack("<III", 0, 2, 32)
    )
    types = integer + union + outer
    (tmp_path / "btf").write_bytes(
        struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(text)) + types + text
    )
    assert member_offsets(["outer.a", "outer.b", "outer.c"], tmp_path / "btf") == {
        "outer.a": 0,
        "outer.b": 4,
        "outer.c": 4,
    }


def btf(types: bytes, text: bytes) -> bytes:
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(text)) + types + text


def test_members_of_qualified_anonymous_structures_count_too(tmp_path: Path) -> None:
    """As in struct vm_fault: struct outer { const struct { u32 b; }; u32 a; }."""
    text = b"\0outer\0a\0b\0"
    integer = struct.pack("<IIII", 0, 1 << 24, 4, 32)
    inner = struct.pack("<III", 0, 4 << 24 | 1, 4) + struct.pack("<III", text.index(b"b\0"), 1, 0)
    volatile, const = struct.pack("<III", 0, 9 << 24, 2), struct.pack("<III", 0, 10 << 24, 3)
    outer = (
        struct.pack("<III", text.index(b"outer\0"), 4 << 24 | 2, 8)
        + struct.pack("<III", 0, 4, 0)
        + struct.pack("<III", text.index(b"a\0"), 1, 32)
    )
    (tmp_path / "btf").write_bytes(btf(integer + inner + volatile + const + outer, text))
    assert member_offsets(["outer.b", "outer.a"], tmp_path / "btf") == {"outer.b": 0, "outer.a": 4}


def test_functions_of_a_module_go_on_where_the_kernel_s_types_end(tmp_path: Path) -> None:
    """Kernel: int (1), a prototype (2), here() (3). Module: a structure (4), there() (5), whose name is in the module's texts."""
    text, more = b"\0here\0", b"there\0other\0"
    integer, prototype = struct.pack("<IIII", 0, 1 << 24, 4, 32), struct.pack("<III", 0, 13 << 24, 1)
    function = struct.pack("<III", 1, 12 << 24, 2)
    (tmp_path / "vmlinux").write_bytes(btf(integer + prototype + function, text))
    structure = struct.pack("<III", len(text) + more.index(b"other"), 4 << 24, 0)
    (tmp_path / "module").write_bytes(btf(structure + struct.pack("<III", len(text), 12 << 24, 2), more))
    assert function_number("here", folder=tmp_path) == 3
    assert function_number("there", "module", tmp_path) == 5
    assert function_number("other", "module", tmp_path) is None, "a structure"
    assert function_number("there", folder=tmp_path) is None
    with pytest.raises(MachineError, match="absent cannot be read"):
        function_number("there", "absent", tmp_path)
