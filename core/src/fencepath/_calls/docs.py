# SPDX-License-Identifier: Apache-2.0
"""A call table as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fencepath._calls.functions import Function

__all__ = ["FunctionRow", "markdown", "rows"]


class FunctionRow(msgspec.Struct, frozen=True):
    """One function as ``fencepath plugins LAYER`` shows it.

    Attributes:
        function: symbol, then its aliases.
        kind: event kind.
        group: heading.
        api: ``driver``, ``runtime``, ...
        detail: least detail at which it is on.
        probes: ``entry`` or ``entry and return``.
        columns: what is decoded, those known only at return in parentheses.
    """

    function: str
    kind: str
    group: str
    api: str
    detail: str
    probes: str
    columns: str


def rows(functions: Iterable[Function]) -> tuple[FunctionRow, ...]:
    """Return one row a function, in table order."""
    return tuple(_row(function) for function in functions)


def _row(function: Function) -> FunctionRow:
    constants = [f"{name}={int(value)}" for name, value in function.constants.items()]
    late = [*function.out, *((function.text,) if function.text else ())]
    shown = [*(arg.name for arg in function.args), *(f"({value.name})" for value in late), *constants]
    return FunctionRow(
        ", ".join(function.symbols),
        function.kind,
        function.group,
        function.api,
        function.detail,
        "entry" if function.entry_only else "entry and return",
        ", ".join(shown),
    )


def markdown(functions: Sequence[Function]) -> str:
    """Return a table for each group, in the order the groups first appear."""
    parts: list[str] = []
    for group in dict.fromkeys(function.group for function in functions):
        parts += [f"### {group}", ""] if group else []
        parts += ["| function | kind | API | from detail | probes | columns |", "| --- | --- | --- | --- | --- | --- |"]
        for row in rows(function for function in functions if function.group == group):
            symbols = ", ".join(f"`{symbol}`" for symbol in row.function.split(", "))
            cells = (symbols, f"`{row.kind}`", row.api, row.detail, row.probes, row.columns)
            parts.append("| " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)
