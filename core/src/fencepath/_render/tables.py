# SPDX-License-Identifier: Apache-2.0
"""Tables in which only the last column gives way when the terminal is narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

__all__ = ["table_of"]

Row = Sequence[str | Text]

_PADDING = 2
_LEAST = 8
"""Cells that the last column gets in any case."""


def table_of(headers: Sequence[str], rows: Sequence[Row], width: int, longest: int = 48) -> Table:
    """Return a table; a header that begins with ``>`` is that of a column of numbers, which go to the right.

    Args:
        headers: one a column.
        rows: of as many cells each; they are text, never markup.
        width: of the terminal; the last column is cut where it ends.
        longest: no other column is wider than this.
    """
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    names = [header.removeprefix(">") for header in headers]
    widths = [max([len(name), *(row[place].cell_len for row in cells)]) for place, name in enumerate(names)]
    widths[:-1] = [min(longest, wanted) for wanted in widths[:-1]]
    room = width - sum(widths[:-1]) - _PADDING * (len(widths) - 1)
    widths[-1] = min(widths[-1], max(_LEAST, room))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _PADDING, 0, 0))
    for name, header, wide in zip(names, headers, widths, strict=True):
        justify: JustifyMethod = "left" if name == header else "right"
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", width=wide)
    for row in cells:
        table.add_row(*row)
    return table
