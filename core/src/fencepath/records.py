# SPDX-License-Identifier: Apache-2.0
"""Records: the fixed-size C structs that BPF programs write, as numpy sees them.

A plugin declares each record once, here in Python, as a :class:`RecordLayout`; the C struct that its BPF source uses is
generated from it (:meth:`RecordLayout.c_struct`), so the two cannot drift apart. The manifest of a recording keeps the
layouts, so that a recording can be read without the plugin version that wrote it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "CALL_HEAD",
    "HEADER",
    "INTERVAL",
    "RING_CLASSES",
    "Field",
    "Flags",
    "Layouts",
    "RecordLayout",
    "Records",
    "ring_class",
]

Records = npt.NDArray[np.void]
"""A structured array whose dtype is a record layout's: one row a record."""

RING_CLASSES = (32, 64, 128, 256, 512, 1024, 8320)
"""Sizes in bytes at which records are reserved in a ring; one ring a size."""


class Flags(enum.IntFlag):
    """Bits of ``flags`` in every record's header."""

    OPEN = 1
    """Still running when read; ``time_ns`` is when it was read."""
    TRUNCATED = 2
    """A string or array did not fit; what is there is its beginning."""
    READ_FAULT = 4
    """A read of user memory failed; the fields read so are 0."""
    ENTRY_ONLY = 8
    """Written at entry: the end is not known and ``begin_ns == time_ns``."""
    TASK = 16
    """Written in task context: ``tgid`` and ``tid`` are who did it. Without it they name whoever was interrupted."""
    COMPAT = 32
    """Written for a 32-bit task."""
    BOUNDS = 64
    """Never in a recording: of a derived event, ``begin_ns`` is its earliest begin and ``time_ns`` its latest end."""


_TYPE = re.compile(r"(?:[us](?:8|16|32|64)|char)(?:\[[1-9][0-9]*\])?")


class Field(msgspec.Struct, frozen=True):
    """One field of a record.

    Attributes:
        name: identifier, the same in C, numpy and Arrow.
        type: ``u8 u16 u32 u64 s8 s16 s32 s64``, ``char[N]`` (bytes, NUL padded) or ``u64[N]`` and the like.
    """

    name: str
    type: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is no name for a field")
        if _TYPE.fullmatch(self.type) is None:
            raise ValueError(
                f"field {self.name}: unknown type {self.type!r}; use u8 to u64, s8 to s64, char[N] or an array such as u64[4]"
            )

    @property
    def base(self) -> str:
        """Type without the array length."""
        return self.type.split("[")[0]

    @property
    def count(self) -> int:
        """Array length; 1 for a scalar."""
        return int(self.type[:-1].split("[")[1]) if "[" in self.type else 1


_NUMPY = {f"{c}{8 * n}": f"<{k}{n}" for c, k in (("u", "u"), ("s", "i")) for n in (1, 2, 4, 8)}

HEADER = (
    Field("time_ns", "u64"),
    Field("tgid", "u32"),
    Field("tid", "u32"),
    Field("kind", "u16"),
    Field("cpu", "u16"),
    Field("flags", "u32"),
)
"""24 bytes at the start of every record. ``time_ns``: CLOCK_MONOTONIC when written, so the completion of what is recorded."""

INTERVAL = (*HEADER, Field("begin_ns", "u64"))
"""Header of kinds that last: 32 bytes. ``begin_ns``: CLOCK_MONOTONIC."""

CALL_HEAD = (*INTERVAL, Field("function", "u32"), Field("reserved", "u32"), Field("caller_ip", "u64"))
"""Header of call records: 48 bytes. ``function``: index in the CallTable; ``caller_ip``: return address at entry."""


def ring_class(size_bytes: int) -> int:
    """Return the smallest ring class that holds `size_bytes`.

    Raises:
        ValueError: if the record is larger than the largest class.
    """
    for candidate in RING_CLASSES:
        if size_bytes <= candidate:
            return candidate
    raise ValueError(f"a record of {size_bytes} bytes is larger than the largest ring class ({RING_CLASSES[-1]})")


class RecordLayout(msgspec.Struct, frozen=True):
    """Layout of the records of one kind, in C's natural alignment.

    Attributes:
        kind: event kind, such as ``cuda.launch``.
        fields: in order; begins with :data:`HEADER` or :data:`INTERVAL`.
    """

    kind: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if self.fields[: len(HEADER)] != HEADER:
            raise ValueError(f"the layout of {self.kind} does not begin with the record header")
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"the layout of {self.kind} names a field twice")

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Structured dtype with the offsets and size a C compiler gives the struct (x86-64 and arm64)."""
        formats: list[Any] = []
        for field in self.fields:
            if field.base == "char":
                formats.append(f"S{field.count}")
            elif field.count > 1:
                formats.append((_NUMPY[field.base], (field.count,)))
            else:
                formats.append(_NUMPY[field.base])
        return np.dtype({"names": [f.name for f in self.fields], "formats": formats}, align=True)

    @property
    def size_bytes(self) -> int:
        """Size of the C struct."""
        return self.dtype.itemsize

    @property
    def struct_name(self) -> str:
        """C tag of the generated struct: ``fp_`` and the kind with underscores."""
        return "fp_" + self.kind.replace(".", "_")

    @property
    def lasts(self) -> bool:
        """Whether records carry ``begin_ns``."""
        return self.fields[: len(INTERVAL)] == INTERVAL

    def c_struct(self) -> str:
        """Return the C definition that BPF programs of this kind use. The header is one member, ``h``."""
        lines = [f"struct {self.struct_name} {{", "    struct fp_header h;"]
        for field in self.fields[len(HEADER) :]:
            suffix = f"[{field.count}]" if "[" in field.type else ""
            lines.append(f"    {field.base} {field.name}{suffix};")
        return "\n".join([*lines, "};", ""])


class Layouts(Mapping[str, RecordLayout]):
    """The layouts of one recording, by kind, with the kind numbers used in it."""

    def __init__(self, layouts: Mapping[str, RecordLayout], numbers: Mapping[str, int]) -> None:
        self._layouts = dict(layouts)
        self._numbers = dict(numbers)

    def __getitem__(self, kind: str) -> RecordLayout:
        return self._layouts[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)

    def __len__(self) -> int:
        return len(self._layouts)

    def number(self, kind: str) -> int:
        """Number of `kind` in the header's ``kind`` field of this recording."""
        return self._numbers[kind]
