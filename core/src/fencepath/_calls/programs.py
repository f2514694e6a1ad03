# SPDX-License-Identifier: Apache-2.0
"""The BPF programs of a call table: one set for every distinct way to copy a call."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import msgspec

from fencepath._calls.captures import Capture, Shape
from fencepath._calls.functions import Function, Read

__all__ = ["Program", "header", "programs"]


class Program(msgspec.Struct, frozen=True):
    """The BPF programs for functions that are recorded alike. Which function was called is in the attach cookie.

    Attributes:
        number: of the program in its table.
        shape: of the record it writes.
        capture: what it copies.
        functions: indices of the functions in the table.
    """

    number: int
    shape: Shape
    capture: Capture
    functions: tuple[int, ...]

    @property
    def entry(self) -> str:
        """C name of the program for entries whose returns :attr:`exit` has. The latter is attached first."""
        return f"fp_enter_{self.number}"

    @property
    def exit(self) -> str:
        """C name of the program for the functions' returns, which writes the record."""
        return f"fp_return_{self.number}"

    @property
    def once(self) -> str:
        """C name of the program that writes the record at entry, for functions whose return is not probed."""
        return f"fp_once_{self.number}"

    def source(self, functions: Sequence[Function]) -> str:
        """Return the C that instantiates the three programs."""
        reads = [_read_macro(read) for read in self.capture.reads]
        outs = [f"FP_OUT({i}, {out.slot}, {out.offset}, {out.bytes})" for i, out in enumerate(self.capture.out)]
        text = f"FP_TEXT({self.capture.text.slot}, {self.capture.text.bytes})" if self.capture.text else ""
        names = textwrap.fill(", ".join(functions[index].name for index in self.functions), 110, break_on_hyphens=False)
        ways = ", ".join([str(self.capture.words), " ".join(reads), " ".join(outs), text])
        return f"/* {names} */\nFP_CALL({self.number}, {self.shape.name}, {ways})\n"


def _read_macro(read: Read) -> str:
    if read.count < 0:
        return f"FP_READ({read.slot}, {read.offset}, {read.words}, {read.into})"
    return f"FP_READ_UP_TO({read.slot}, {read.offset}, {read.words}, {read.into}, {read.count})"


def programs(functions: Sequence[Function], shapes: Mapping[str, Shape]) -> tuple[Program, ...]:
    """Return the distinct programs; `shapes` are the kinds'."""
    alike: dict[tuple[Shape, Capture], list[int]] = {}
    for index, function in enumerate(functions):
        alike.setdefault((shapes[function.kind], Capture.of(function)), []).append(index)
    return tuple(
        Program(number, shape, capture, tuple(members))
        for number, ((shape, capture), members) in enumerate(alike.items())
    )


def header(layer: str, functions: Sequence[Function], sets: Sequence[Program]) -> str:
    """Return the C header that instantiates `sets`."""
    lines = [
        "// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0",
        f"/* Made from the call table of the layer {layer}. */",
        '#include "calls.h"',
        "",
    ]
    return "\n".join([*lines, *(program.source(functions) for program in sets)])
