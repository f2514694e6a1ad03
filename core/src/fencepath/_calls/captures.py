# SPDX-License-Identifier: Apache-2.0
"""What of a call is copied into its record, apart from what the copies are called.

A recording keeps the captures of its table (:attr:`fencepath.calls.CallTable.recorded`), so that a later table, which
may take more or name it anew, reads an old record right and does not take an absent value for a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from fencepath._calls.functions import TEXT_BYTES, Function, Out, Read, Text

__all__ = ["Capture", "Shape", "shape_for"]

_PARTS = {
    "r": re.compile(r"r(\d+)\+(\d+)\*(\d+)>(\d+)(?:#(\d+))?"),
    "o": re.compile(r"o(\d+)\+(\d+):(\d+)"),
    "t": re.compile(r"t(\d+):(\d+)"),
}
"""What a part of a capture's text looks like, by its first letter."""


class Shape(msgspec.Struct, frozen=True):
    """Room in a call record: one of a few, so that records fill few ring classes well.

    Attributes:
        name: C suffix.
        args: slots known at entry.
        out: values read at return.
        text: bytes of text.
    """

    name: str
    args: int
    out: int
    text: int = 0


SHAPES = (Shape("small", 7, 2), Shape("launch", 9, 0), Shape("large", 14, 4), Shape("text", 7, 2, TEXT_BYTES))
"""Sizes 128, 128, 200 and 512 bytes: head 48, ``args``, ``out``, ``result`` 8, text. ``fp_call_*`` in calls.h has the same."""


def shape_for(functions: Iterable[Function]) -> Shape | None:
    """Return the smallest shape that holds every one of `functions`; None if none does."""
    listed = tuple(functions)
    args = max((max((function.words, *(slot + 1 for slot in function.filled))) for function in listed), default=0)
    out = max((len(function.out) for function in listed), default=0)
    text = max((function.text.bytes for function in listed if function.text), default=0)
    fitting = (shape for shape in SHAPES if args <= shape.args and out <= shape.out and text <= shape.text)
    return next(fitting, None)


class Capture(msgspec.Struct, frozen=True):
    """What is copied of a function's calls.

    Its text, ``cuStreamCreate 2 o0+0:8``, is the function's name, the machine words in ``args[0:words]``, then
    ``r<slot>+<offset>*<words>><into>`` for each read (with ``#<count>`` where that is a slot), ``o<slot>+<offset>:<bytes>``
    for each of ``out`` and ``t<slot>:<bytes>`` for the text.

    Attributes:
        words: machine words, from slot 0.
        reads: words copied through pointers at entry.
        out: values copied through pointers at return; ``out[i]`` of the record is the i-th. Their names are "".
        text: the text copied, named "".
    """

    words: int
    reads: tuple[Read, ...] = ()
    out: tuple[Out, ...] = ()
    text: Text | None = None

    @classmethod
    def of(cls, function: Function) -> Capture:
        """Return what today's table copies of `function`."""
        unnamed = tuple(Out("", out.slot, out.offset, out.bytes) for out in function.out)
        text = Text("", function.text.slot, function.text.bytes) if function.text else None
        return cls(function.words, function.reads, unnamed, text)

    def text_form(self, name: str) -> str:
        """Return the text form, for the function `name`."""
        parts = [name, str(self.words)]
        for read in self.reads:
            count = f"#{read.count}" if read.count >= 0 else ""
            parts.append(f"r{read.slot}+{read.offset}*{read.words}>{read.into}{count}")
        parts += [f"o{out.slot}+{out.offset}:{out.bytes}" for out in self.out]
        parts += [f"t{self.text.slot}:{self.text.bytes}"] if self.text else []
        return " ".join(parts)

    @classmethod
    def parse(cls, text: str) -> tuple[str, Capture | None]:
        """Return the function's name and its capture; None if `text` is a bare name or a form of later versions."""
        name, *parts = text.split(" ")
        if not parts or not parts[0].isdecimal():
            return name, None
        numbers: dict[str, list[list[int]]] = {letter: [] for letter in _PARTS}
        for part in parts[1:]:
            match = _PARTS[part[:1]].fullmatch(part) if part[:1] in _PARTS else None
            if match is None:
                return name, None
            numbers[part[0]].append([int(group) for group in match.groups() if group is not None])
        texts = [Text("", *number) for number in numbers["t"]]
        reads, outs = (Read(*number) for number in numbers["r"]), (Out("", *number) for number in numbers["o"])
        return name, cls(int(parts[0]), tuple(reads), tuple(outs), texts[0] if texts else None)

    def find_slot(self, slot: int, reads: Iterable[Read]) -> int | None:
        """Return where in ``args`` the value is that a table with `reads` calls `slot`; None if it was not copied."""
        for read in reads:
            if slot in read.slots:
                return self._find_word(read.slot, read.offset + 8 * (slot - read.into))
        overwritten = any(slot in read.slots for read in self.reads)
        return slot if slot < self.words and not overwritten else None

    def _find_word(self, pointer: int, offset: int) -> int | None:
        for read in self.reads:
            index, rest = divmod(offset - read.offset, 8)
            if read.slot == pointer and rest == 0 and 0 <= index < read.words:
                return read.into + index
        return None

    def find_out(self, out: Out) -> int | None:
        """Return where in the record's ``out`` the value is; None if it was not copied."""
        wanted = Out("", out.slot, out.offset, out.bytes)
        return self.out.index(wanted) if wanted in self.out else None

    def has_text(self, text: Text) -> bool:
        """Return whether the record's text is the one that a table calls `text`, however much room it had."""
        return self.text is not None and self.text.slot == text.slot
