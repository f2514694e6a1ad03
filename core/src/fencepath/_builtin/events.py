# SPDX-License-Identifier: Apache-2.0
"""Kinds of the layers ``mark`` and ``process``."""

from __future__ import annotations

from typing import ClassVar

from fencepath.events import U8, U16, U32, U64, Event, KindInfo, Role
from fencepath.records import HEADER, INTERVAL, Field, RecordLayout

__all__ = [
    "MARK_LAYOUTS", "MARK_MEMBERS", "MARK_POINT", "MARK_TEXT", "MEMBER_BYTES", "PROCESS_LAYOUTS",
    "Exec", "Exit", "Fork", "Map", "MarkMembers", "MarkPoint", "MarkText",
]  # fmt: skip

MARK_POINT, MARK_TEXT, MARK_MEMBERS = "mark.point", "mark.text", "mark.members"
MEMBER_BYTES = 16
"""Size of one step member: request u64, tokens u32, phase u8, 3 bytes of padding."""
MAX_MEMBERS = 512

MARK_FIELDS = (
    *HEADER,
    Field("op", "u16"),
    Field("mark_flags", "u16"),
    Field("value", "u32"),
    Field("request", "u64"),
    Field("step", "u64"),
    Field("trace_id", "u8[16]"),
    Field("span_id", "u8[8]"),
    Field("trace_flags", "u8"),
    Field("phase", "u8"),
    Field("len", "u16"),
    Field("mark_reserved", "u32"),
    Field("ptr", "u64"),
)
"""A record header and struct fencepath_mark_v1."""

MARK_LAYOUTS = (
    RecordLayout(MARK_POINT, MARK_FIELDS),
    RecordLayout(MARK_TEXT, (*MARK_FIELDS, Field("text", "u8[256]"))),
    RecordLayout(MARK_MEMBERS, (*MARK_FIELDS, Field("members", f"u8[{MAX_MEMBERS * MEMBER_BYTES}]"))),
)

PROCESS_LAYOUTS = (
    RecordLayout("process.fork", (*HEADER, Field("child_tid", "u32"), Field("clone_flags", "u32"))),
    RecordLayout("process.exec", (*HEADER, Field("old_tid", "u32"), Field("reserved", "u32"))),
    RecordLayout("process.exit", HEADER),
    RecordLayout("process.map", INTERVAL),
)


class MarkPoint(Event, frozen=True, kw_only=True, tag=MARK_POINT):
    """A mark without text: ends, steps, phases, tokens, bindings, hand-overs, and ops this version does not know."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MARK)

    op: U16
    mark_flags: U16
    value: U32
    request: U64
    step: U64
    phase: U8


class MarkText(Event, frozen=True, kw_only=True, tag=MARK_TEXT):
    """A mark that brings text: the begin of a request with its id, or an attribute."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MARK, keep=True)

    op: U16
    mark_flags: U16
    value: U32
    request: U64
    step: U64
    phase: U8
    text: str = ""


class MarkMembers(Event, frozen=True, kw_only=True, tag=MARK_MEMBERS):
    """The members of a step; `value` is how many."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MARK)

    op: U16
    value: U32
    request: U64
    step: U64


class Fork(Event, frozen=True, kw_only=True, tag="process.fork"):
    """A thread or process was made, by the event's thread."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    child_tid: U32
    clone_flags: U32


class Exec(Event, frozen=True, kw_only=True, tag="process.exec"):
    """A process became another program; `old_tid` is the thread that called execve."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE, keep=True)

    old_tid: U32


class Map(Event, frozen=True, kw_only=True, tag="process.map"):
    """A process has mapped a file executable: it may be a library with functions to probe."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE)


class Exit(Event, frozen=True, kw_only=True, tag="process.exit"):
    """A thread ended."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.LIFE)
