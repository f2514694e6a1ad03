# SPDX-License-Identifier: Apache-2.0
"""Call records to columns, for all functions of a kind at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fencepath._calls.captures import Capture
from fencepath._calls.functions import INTEGER_BITS, TEXT_BYTES, Function
from fencepath.records import Flags, Records

__all__ = ["DecodedCalls", "decode"]

_Column = npt.NDArray[Any]
_Mask = npt.NDArray[np.bool_]
_Rows: TypeAlias = slice | npt.NDArray[np.intp]

_NUMPY = {name: np.dtype(f"{'u' if name[0] == 'u' else 'i'}{bits // 8}") for name, bits in INTEGER_BITS.items()}

_TEXT = np.dtype(f"S{TEXT_BYTES}")

_WHOLE = ("result", "text")
"""Fields of a call record that are one value."""

_REGISTER_WORDS = 6
"""Words that are in registers on every architecture; the others may have been read from memory."""


class DecodedCalls(Mapping[str, _Column]):
    """Columns of the calls of one kind, as a read-only mapping.

    Columns: ``function`` (s32, index in today's table), ``caller_ip`` (u64), ``entry_only`` and ``returned`` (bool),
    ``result``, then one for each name that a function of the kind declares, and ``has_<name>`` (bool) for those that
    not every call here has. A value that a call does not have is 0. Texts are bytes (dtype ``S``), b"" if there is none.

    Attributes:
        records: the records behind the rows: those of unknown functions are left out.
        unknown: how many were left out, by the name of the function.
    """

    def __init__(self, records: Records, columns: Mapping[str, _Column], unknown: Mapping[str, int]) -> None:
        self.records = records
        self.unknown = dict(unknown)
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> _Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def has(self, name: str) -> _Mask:
        """Return which calls have the value `name`.

        Raises:
            KeyError: no function of the kind declares it.
        """
        column = self._columns[name]
        return self._columns.get(f"has_{name}", np.ones(len(column), np.bool_))


class _Place(NamedTuple):
    """Where a value is in a record; `at` is an index, and the value itself of a constant."""

    array: str
    at: int
    shift: int = 0
    width: int = 64
    signed: bool = False
    from_memory: bool = False
    pointer: int = -1
    """Where in ``args`` the pointer is through which it was read; -1 if there is none."""
    limit: int = -1
    """Where in ``args`` it says how many words there were to read; -1 if it does not."""
    nth: int = 0
    """Which of them it is."""

    def values(self, words: _Column) -> _Column:
        """Return the values that `words`, of u64, hold here."""
        if self.width < 64:
            words = words << np.uint64(64 - self.shift - self.width)
            down = 64 - self.width
            words = words.view(np.int64) >> np.int64(down) if self.signed else words >> np.uint64(down)
        return words


class _Words:
    """The words of a batch's records, taken out of them once."""

    def __init__(self, records: Records, numbers: _Column) -> None:
        self._records, self._numbers = records, numbers
        self._present = set(np.flatnonzero(np.bincount(numbers)).tolist())
        self._rows: dict[tuple[int, ...], _Rows] = {}
        self._taken: dict[tuple[str, int], _Column] = {}

    def width(self, array: str) -> int:
        """Return how many words of `array` the records have."""
        known = array in (self._records.dtype.names or ())
        return int(np.prod(self._records.dtype[array].shape)) if known else 0

    def rows(self, members: Sequence[int]) -> _Rows | None:
        """Return the rows of the functions with these numbers; None if there are none."""
        key = tuple(members)
        found = self._present.intersection(members)
        if found and key not in self._rows:
            every = len(found) == len(self._present)
            self._rows[key] = slice(None) if every else np.flatnonzero(np.isin(self._numbers, members))
        return self._rows[key] if found else None

    def take(self, array: str, at: int) -> _Column:
        """Return one word of every record."""
        if (array, at) not in self._taken:
            words = self._records[array] if array in _WHOLE else self._records[array][:, at]
            self._taken[array, at] = np.ascontiguousarray(words, None if array == "text" else np.uint64)
        return self._taken[array, at]

    def absent(self, place: _Place, rows: _Rows) -> _Mask | None:
        """Return in which of `rows` there is no value at `place`; None if there is one in all."""
        unreadable = Flags.READ_FAULT if place.from_memory else 0
        unfinished = {"out": Flags.ENTRY_ONLY | Flags.OPEN, "result": Flags.ENTRY_ONLY | Flags.OPEN, "text": Flags.OPEN}
        flags = unreadable | unfinished.get(place.array, 0)
        absent: _Mask = (self._records["flags"][rows] & np.uint32(flags)) != 0
        if place.pointer >= 0:
            absent |= self.take("args", place.pointer)[rows] == 0
        if place.limit >= 0:
            absent |= self.take("args", place.limit)[rows] <= place.nth
        return absent if absent.any() else None


_Places = dict[str, dict[_Place, list[int]]]


def _places(function: Function, capture: Capture) -> Iterator[tuple[str, _Place]]:
    for arg in function.args:
        index = capture.find_slot(arg.slot, function.reads)
        if index is not None:
            read = next((read for read in capture.reads if index in read.slots), None)
            memory = index >= _REGISTER_WORDS or read is not None
            through = (read.slot, read.count, index - read.into) if read else ()
            yield arg.name, _Place("args", index, arg.shift, arg.width, arg.type[0] == "s", memory, *through)
    for out in function.out:
        index = capture.find_out(out)
        if index is not None:
            yield out.name, _Place("out", index, 0, 8 * out.bytes, False, True, out.slot)
    if function.text and capture.has_text(function.text):
        yield function.text.name, _Place("text", 0, from_memory=True, pointer=function.text.slot)
    if function.result:
        yield "result", _Place("result", 0, 0, INTEGER_BITS[function.result], function.result[0] == "s")
    for name, value in function.constants.items():
        yield name, _Place("", int(value))


def _column_types(functions: Sequence[Function]) -> dict[str, np.dtype[Any]]:
    types: dict[str, str] = {}
    for function in functions:
        for name, type_ in function.columns:
            types[name] = max(types.get(name, ""), type_, key=lambda known: INTEGER_BITS.get(known, 0))
    texts = {function.text.name for function in functions if function.text}
    return {name: _TEXT if name in texts else _NUMPY[type_ or "s64"] for name, type_ in types.items()}


class _Plan:
    """What the function numbers of one recording mean in today's table, for one kind."""

    def __init__(self, functions: Sequence[Function], kind: str, recorded: Sequence[str]) -> None:
        by_symbol = {symbol: index for index, function in enumerate(functions) for symbol in function.symbols}
        self.names: list[str] = []
        self.places: _Places = defaultdict(lambda: defaultdict(list))
        # One more than there are: what numbers beyond the end lead to.
        self.index = np.full(len(recorded) + 1, -1, np.int32)
        for number, text in enumerate(recorded):
            name, capture = Capture.parse(text)
            self.names.append(name)
            index = by_symbol.get(name, -1)
            if index >= 0 and functions[index].kind == kind:
                self.index[number] = index
                for column, place in _places(functions[index], capture or Capture.of(functions[index])):
                    self.places[column][place].append(number)

    def unknown(self, numbers: _Column) -> dict[str, int]:
        found, counts = np.unique(numbers, return_counts=True)
        every = [*self.names, "(number beyond the table)"]
        pairs: list[tuple[int, int]] = list(zip(found.tolist(), counts.tolist(), strict=True))
        return {every[number]: count for number, count in pairs}


def _column(
    places: Mapping[_Place, Sequence[int]], dtype: np.dtype[Any], words: _Words, size: int
) -> tuple[_Column, _Mask]:
    values, has = np.zeros(size, dtype), np.zeros(size, np.bool_)
    for place, members in places.items():
        rows = words.rows(members)
        if rows is None or (place.array and place.at >= words.width(place.array)):
            continue
        if not place.array:
            values[rows], has[rows] = place.at, True
            continue
        here = place.values(words.take(place.array, place.at)[rows])
        absent = words.absent(place, rows)
        if absent is not None:
            here = np.where(absent, np.zeros((), here.dtype), here)
        values[rows] = here.astype(dtype)
        has[rows] = True if absent is None else ~absent
    return values, has


def decode(functions: Sequence[Function], kind: str, records: Records, recorded: Sequence[str]) -> DecodedCalls:
    """Decode records of one kind; see :meth:`fencepath.calls.CallTable.decode`."""
    plan = _Plan(functions, kind, recorded)
    numbers = np.minimum(records["function"], len(recorded)).astype(np.intp)
    known = plan.index[numbers] >= 0
    unknown = {} if known.all() else plan.unknown(numbers[~known])
    if unknown:
        records, numbers = records[known], numbers[known]
    entry_only = (records["flags"] & np.uint32(Flags.ENTRY_ONLY)) != 0
    columns: dict[str, _Column] = {
        "function": plan.index[numbers],
        "caller_ip": np.ascontiguousarray(records["caller_ip"]),
        "entry_only": entry_only,
        "returned": (records["flags"] & np.uint32(Flags.ENTRY_ONLY | Flags.OPEN)) == 0,
    }
    of_kind = [function for function in functions if function.kind == kind]
    types = {"result": np.dtype("i4"), **_column_types(of_kind)}
    words = _Words(records, numbers)
    for name, dtype in types.items():
        columns[name], has = _column(plan.places.get(name, {}), dtype, words, len(records))
        if not has.all() or any(name not in dict(function.columns) for function in of_kind):
            columns[f"has_{name}"] = has
    return DecodedCalls(records, columns, unknown)
