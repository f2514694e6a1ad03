# SPDX-License-Identifier: Apache-2.0
"""Record layouts: what numpy and C make of them, and what is refused."""

from __future__ import annotations

import pytest

from fencepath.records import CALL_HEAD, HEADER, RING_CLASSES, Field, RecordLayout, ring_class


def test_the_header_is_24_bytes() -> None:
    layout = RecordLayout("acme.ping", HEADER)
    assert layout.size_bytes == 24
    assert layout.dtype.names == ("time_ns", "tgid", "tid", "kind", "cpu", "flags")
    assert not layout.lasts


def test_offsets_are_those_of_c() -> None:
    layout = RecordLayout(
        "acme.call", (*CALL_HEAD, Field("args", "u64[3]"), Field("name", "char[5]"), Field("bytes", "u64"))
    )
    fields = layout.dtype.fields
    assert fields is not None
    assert [fields[name][1] for name in ("begin_ns", "function", "caller_ip", "args", "name", "bytes")] == [
        24,
        32,
        40,
        48,
        72,
        80,
    ]
    assert layout.size_bytes == 88
    assert layout.lasts
    assert "char name[5];" in layout.c_struct()


@pytest.mark.parametrize("kind", ["float", "u64[0]", "u7", "char[-1]", "u32[3", "struct x", ""])
def test_an_unknown_type_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="unknown type"):
        Field("value", kind)


def test_a_layout_begins_with_the_header_and_names_each_field_once() -> None:
    with pytest.raises(ValueError, match="record header"):
        RecordLayout("acme.ping", (Field("time_ns", "u64"),))
    with pytest.raises(ValueError, match="names a field twice"):
        RecordLayout("acme.ping", (*HEADER, Field("flags", "u32")))
    with pytest.raises(ValueError, match="no name"):
        Field("a b", "u32")


def test_the_smallest_ring_class_is_taken() -> None:
    assert [ring_class(size) for size in (1, 32, 33, 8320)] == [32, 32, 64, 8320]
    with pytest.raises(ValueError, match="largest ring class"):
        ring_class(RING_CLASSES[-1] + 1)
