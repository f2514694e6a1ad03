# SPDX-License-Identifier: Apache-2.0
"""The layers' own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from fencepath._render.tables import table_of
from fencepath._render.words import duration
from fencepath.report import LayerTable

__all__ = ["render_layers"]

SHOWN = 12
"""Rows of a table; all are in the JSON form."""
_NS = "_ns"


def render_layers(layers: Mapping[str, Mapping[str, LayerTable]], console: Console) -> None:
    """Print each table under its title. Columns whose names end in ``_ns`` are shown as durations, without the ending."""
    for tables in layers.values():
        for table in tables.values():
            if table.rows:
                console.print()
                console.print(Text(table.title, style="bold"))
                _print(table.rows, console)


def _print(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    numbers = {name for name in names if all(isinstance(row.get(name, 0), int | float) for row in rows)}
    headers = [(">" if name in numbers else "") + name.removesuffix(_NS).replace("_", " ") for name in names]
    cells = [[_cell(name, row.get(name)) for name in names] for row in rows[:SHOWN]]
    console.print(table_of(headers, cells, console.width, longest=60))
    if len(rows) > SHOWN:
        console.print(Text(f"and {len(rows) - SHOWN} more; --json has all", style="dim"))


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith(_NS):
        return duration(int(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
