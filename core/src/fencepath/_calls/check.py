# SPDX-License-Identifier: Apache-2.0
"""What must hold of a call table. Found when a plugin is imported, not when its probes run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fencepath._calls.captures import SHAPES, shape_for
from fencepath._calls.functions import DETAILS, INTEGER_BITS, TEXT_BYTES, Function
from fencepath.records import CALL_HEAD

__all__ = ["check"]

_MOST_ARGS = max(shape.args for shape in SHAPES)
_MOST_OUT = max(shape.out for shape in SHAPES)
_RESERVED = {"entry_only", "returned", "out", "args", "text", "label", *(field.name for field in CALL_HEAD)}


def check(layer: str, libraries: Sequence[str], functions: Sequence[Function]) -> None:
    """Check a table.

    Raises:
        ValueError: with the function's name and what is wrong with it.
    """
    if not libraries:
        raise ValueError(f"the call table of {layer} names no library")
    for symbol, count in Counter(symbol for function in functions for symbol in function.symbols).items():
        if count > 1:
            raise ValueError(f"{symbol} is in the call table of {layer} {count} times")
    for function in functions:
        for problem in _problems(layer, function):
            raise ValueError(f"{function.name}: {problem}")
    for kind in dict.fromkeys(function.kind for function in functions):
        _check_kind(kind, [function for function in functions if function.kind == kind])


def _problems(layer: str, function: Function) -> Iterator[str]:
    if not function.kind.startswith(f"{layer}."):
        yield f"the kind {function.kind} is not one of the layer {layer}"
    if function.detail not in DETAILS:
        yield f"detail {function.detail} is none of {', '.join(DETAILS)}"
    for symbol in function.symbols:
        if not symbol or any(character.isspace() for character in symbol):
            yield f"{symbol!r} is no symbol"
    yield from _column_problems(function)
    yield from _value_problems(function)
    yield from _pointer_problems(function)
    if shape_for([function]) is None:
        yield f"it records more than {'one with text' if function.text else 'the largest call record'} holds ({_room(function)})"


def _room(function: Function) -> str:
    if not function.text:
        return f"{_MOST_ARGS} args, {_MOST_OUT} out"
    shape = next(shape for shape in SHAPES if shape.text)
    return f"{shape.args} args, {shape.out} out"


def _column_problems(function: Function) -> Iterator[str]:
    names = [name for name, _ in function.columns]
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{name} is named twice"
        if not name.isidentifier() or name in _RESERVED or name.startswith("has_"):
            yield f"{name!r} cannot be a column's name"


def _value_problems(function: Function) -> Iterator[str]:
    if function.result and function.result not in INTEGER_BITS:
        yield f"it returns {function.result}, which is no fixed-width integer"
    for arg in function.args:
        if arg.type not in INTEGER_BITS:
            yield f"{arg.name} has the type {arg.type}, which is no fixed-width integer"
        elif arg.shift < 0 or arg.bits < 1 or arg.shift + arg.width > 64:
            yield f"{arg.name} takes {arg.width} bits from bit {arg.shift} of a 64-bit word"
        if not 0 <= arg.slot < _MOST_ARGS:
            yield f"{arg.name} is in slot {arg.slot}; a call record has 0 to {_MOST_ARGS - 1}"
    for out in function.out:
        if out.bytes not in (1, 2, 4, 8):
            yield f"{out.name} is {out.bytes} bytes wide, not 1, 2, 4 or 8"
    if function.text and not 2 <= function.text.bytes <= TEXT_BYTES:
        yield f"{function.text.name} has room for {function.text.bytes} bytes; a record has 2 to {TEXT_BYTES}"


def _pointer_problems(function: Function) -> Iterator[str]:
    if sum(read.words for read in function.reads) != len(function.filled):
        yield "two reads fill one slot, or a read copies no words"
    if any(slot not in range(_MOST_ARGS) for slot in function.filled):
        yield f"a read fills a slot beyond {_MOST_ARGS - 1}"
    for slot in function.pointers:
        if not 0 <= slot < _MOST_ARGS or slot in function.filled:
            yield f"slot {slot} cannot hold a pointer: it is no machine word that stays in the record"
    for read in function.reads:
        if read.count != -1 and (not 0 <= read.count < _MOST_ARGS or read.count in function.filled):
            yield f"slot {read.count} cannot hold a count: it is no machine word that stays in the record"


def _check_kind(kind: str, functions: Sequence[Function]) -> None:
    if shape_for(functions) is None:
        largest = max(functions, key=lambda function: len(function.out))
        raise ValueError(f"{largest.name}: the functions of {kind} together need more than the largest record holds")
    signs: dict[str, tuple[str, str]] = {}
    texts = {function.text.name for function in functions if function.text}
    for function in functions:
        for name, type_ in function.columns:
            if name in texts and (function.text is None or name != function.text.name):
                raise ValueError(f"{function.name}: {name} is a text of another function of {kind}")
            first, sign = signs.setdefault(name, (function.name, type_[:1])) if type_ else ("", "")
            if type_ and sign != type_[0]:
                raise ValueError(f"{function.name}: {name} is {type_}, and signed otherwise in {first}, also {kind}")
    for function in functions:
        _check_constants(function, [column for other in functions for column in other.columns])


def _check_constants(function: Function, columns: Sequence[tuple[str, str]]) -> None:
    for name, value in function.constants.items():
        type_ = max(
            (known for column, known in columns if column == name), key=lambda known: INTEGER_BITS.get(known, 0)
        )
        bits, signed = INTEGER_BITS.get(type_, 64), type_[:1] != "u"
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        if not least <= value <= most:
            raise ValueError(f"{function.name}: {name} is {value}, which its column, {type_ or 's64'}, cannot hold")
