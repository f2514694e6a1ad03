# SPDX-License-Identifier: Apache-2.0
"""The layers' own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from fencepath._render.tables import table_of
from fencepath._render.words import duration, size
from fencepath.report import LayerTable

__all__ = ["render_layers"]

SHOWN = 12
"""Rows of a table; all are in the JSON form."""
_NS, _BYTES = "_ns", "_bytes"
_NAMES = frozenset(("pid", "tid"))
"""Columns of numbers that count nothing."""


def render_layers(layers: Mapping[str, Mapping[str, LayerTable]], console: Console) -> None:
    """Print each table under its title.

    Columns whose names end in ``_ns`` are shown as durations, in ``_bytes`` as sizes, without the ending. Those in which there
    is nothing are left out.
    """
    for tables in layers.values():
        for table in tables.values():
            if table.rows:
                console.print()
                console.print(Text(table.title, style="bold"))
                _print(table.rows, console)


def _print(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))
    numbers = {name for name in names if all(isinstance(row.get(name) or 0, int | float) for row in rows)}
    headers = [(">" if name in numbers else "") + _header(name) for name in names]
    cells = [[_cell(name, row.get(name)) for name in names] for row in rows[:SHOWN]]
    console.print(table_of(headers, cells, console.width, longest=60))
    if len(rows) > SHOWN:
        console.print(Text(f"and {len(rows) - SHOWN} more; --json has all", style="dim"))


def _header(name: str) -> str:
    return name.removesuffix(_NS).removesuffix(_BYTES).replace("_", " ")


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or name in _NAMES:
        return str(value)
    if name.endswith(_NS):
        return duration(int(value))
    if name.endswith(_BYTES):
        return size(int(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
