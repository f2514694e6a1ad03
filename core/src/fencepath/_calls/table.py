# SPDX-License-Identifier: Apache-2.0
"""The table of a layer's functions, from which everything else about its calls is made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from fencepath._calls import docs
from fencepath._calls import programs as bpf
from fencepath._calls.captures import Capture, Shape, shape_for
from fencepath._calls.check import check
from fencepath._calls.decode import DecodedCalls, decode
from fencepath._calls.docs import FunctionRow
from fencepath._calls.functions import DETAILS, Detail, Function
from fencepath._calls.programs import Program
from fencepath.records import CALL_HEAD, Field, RecordLayout, Records

__all__ = ["CallTable", "layout_of"]


def layout_of(kind: str, shape: Shape) -> RecordLayout:
    """Return the layout of call records of one shape: ``args``, ``out`` and ``result`` after the call head."""
    arrays = [Field(name, f"u64[{count}]") for name, count in (("args", shape.args), ("out", shape.out)) if count]
    text = [Field("text", f"char[{shape.text}]")] if shape.text else []
    return RecordLayout(kind, (*CALL_HEAD, *arrays, Field("result", "u64"), *text))


class CallTable:
    """Functions of a user-space API, declared as data.

    BPF programs, record layouts, decoding and docs all come from it. The index of a function in the table is the
    ``function`` of its records; it may change from version to version, as recordings keep :attr:`recorded`.

    Attributes:
        layer: the plugin's layer, such as ``cuda``.
        libraries: file names (sonames) that hold the functions.
        functions: in table order.
    """

    def __init__(self, layer: str, libraries: Sequence[str], functions: Sequence[Function]) -> None:
        """Make a table and check it.

        Raises:
            ValueError: with the function's name: two functions with one symbol, a slot out of range, and the like.
        """
        check(layer, libraries, functions)
        self.layer = layer
        self.libraries = tuple(libraries)
        self.functions = tuple(functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __repr__(self) -> str:
        return f"CallTable({self.layer!r}, {len(self)} functions of {', '.join(self.libraries)})"

    @cached_property
    def _index(self) -> dict[str, int]:
        return {symbol: index for index, function in enumerate(self.functions) for symbol in function.symbols}

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        for kind in dict.fromkeys(function.kind for function in self.functions):
            shape = shape_for(function for function in self.functions if function.kind == kind)
            assert shape is not None  # checked when the table was made
            shapes[kind] = shape
        return shapes

    @property
    def kinds(self) -> tuple[str, ...]:
        """Event kinds of the functions, each once."""
        return tuple(self._shapes)

    @property
    def recorded(self) -> tuple[str, ...]:
        """What a recording's manifest keeps of the table: for each function its name and what is copied of its calls.

        Decoders get the texts back. The name is what stands before the first space.
        """
        return tuple(Capture.of(function).text_form(function.name) for function in self.functions)

    def index(self, symbol: str) -> int:
        """Return the index of the function that has `symbol` as name or alias.

        Raises:
            KeyError: there is none.
        """
        return self._index[symbol]

    def layouts(self) -> tuple[RecordLayout, ...]:
        """Return the record layout of each kind."""
        return tuple(layout_of(kind, shape) for kind, shape in self._shapes.items())

    def selected(self, detail: Detail) -> tuple[Function, ...]:
        """Return the functions that are on at `detail`, in table order."""
        on = DETAILS[: DETAILS.index(detail) + 1]
        return tuple(function for function in self.functions if function.detail in on)

    def programs(self, detail: Detail = "full") -> tuple[Program, ...]:
        """Return the BPF programs that the functions on at `detail` need.

        A program's number, and so its names, are the same at every detail; its functions are those on at `detail`.
        """
        on = DETAILS[: DETAILS.index(detail) + 1]
        every = bpf.programs(self.functions, self._shapes)
        chosen = [tuple(i for i in program.functions if self.functions[i].detail in on) for program in every]
        return tuple(
            Program(program.number, program.shape, program.capture, members)
            for program, members in zip(every, chosen, strict=True)
            if members
        )

    def bpf_header(self, detail: Detail = "full") -> str:
        """Return the C header ``fp_calls.h`` with the programs that `detail` needs. It includes ``calls.h``."""
        return bpf.header(self.layer, self.functions, self.programs(detail))

    @staticmethod
    def cookie(function: int, kind_number: int) -> int:
        """Return the attach cookie of a probe: ``kind << 32 | function``.

        Args:
            function: index in the table.
            kind_number: number of the function's kind in this recording.
        """
        return kind_number << 32 | function

    def decode(self, kind: str, records: Records, recorded: Sequence[str]) -> DecodedCalls:
        """Decode the records of one kind.

        Functions are found by name, so that recordings of older and newer tables are read; records of functions that
        are not in this table, or are another kind here, are left out and counted.

        Args:
            kind: one of :attr:`kinds`.
            records: of a layout of this kind; ``args`` and ``out`` may be shorter or longer than today's.
            recorded: :attr:`recorded` of the table that wrote them. A bare name means: it copied what this one copies.

        Returns:
            A mapping from column names to arrays; see :class:`DecodedCalls`.
        """
        return decode(self.functions, kind, records, recorded)

    def rows(self) -> tuple[FunctionRow, ...]:
        """Return one row a function for ``fencepath plugins LAYER``."""
        return docs.rows(self.functions)

    def markdown(self) -> str:
        """Return the docs tables, one a group."""
        return docs.markdown(self.functions)
