# SPDX-License-Identifier: Apache-2.0
"""Many requests at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepath._render.tables import table_of
from fencepath._render.words import duration
from fencepath.events import Category
from fencepath.report import RequestReport

__all__ = ["length_of", "render_overview"]

LISTED = 12
"""Requests that get a line."""
_ENOUGH_FOR_P95 = 20
_LARGEST = 4


def length_of(request: RequestReport) -> int:
    """Return the length of a request's path in ns."""
    return request.path.end_ns - request.path.start_ns


def render_overview(requests: Sequence[RequestReport], console: Console) -> None:
    """Print how long requests took and what they spent their time on.

    Args:
        requests: more than one, slowest first.
        console: where to.
    """
    lengths = sorted(length_of(request) for request in requests)
    spent: Counter[Category] = Counter()
    for request in requests:
        spent.update(request.path.by_category_ns)
    console.print()
    console.print(Text.assemble((f"{len(requests)} requests", "bold"), f": {_quantiles(lengths)}"))
    console.print(Text(f"all together: {_shares(spent, sum(lengths))}"))
    console.print()
    console.print(_table(requests[:LISTED], console.width))
    if len(requests) > LISTED:
        more = f"and {len(requests) - LISTED} faster ones; --request ID shows one in full, --json all"
        console.print(Text(more, style="dim"))


def _quantiles(lengths: Sequence[int]) -> str:
    """Nearest ranks. Of a few requests a 95th percentile would say no more than the slowest."""
    words = [f"median {duration(_rank(lengths, 50))}"]
    if len(lengths) >= _ENOUGH_FOR_P95:
        words.append(f"p95 {duration(_rank(lengths, 95))}")
    return ", ".join([*words, f"slowest {duration(lengths[-1])}"])


def _rank(ordered: Sequence[int], per_cent: int) -> int:
    return ordered[max(0, -(-len(ordered) * per_cent // 100) - 1)]


def _shares(spent: Mapping[Category, int], whole: int) -> str:
    largest = sorted(spent.items(), key=lambda item: -item[1])[:_LARGEST]
    shares = [(category, round(100 * time_ns / max(1, whole))) for category, time_ns in largest]
    return ", ".join(f"{category} {per_cent}%" for category, per_cent in shares if per_cent)


def _table(requests: Sequence[RequestReport], width: int) -> Table:
    tokens = any(request.milestones.first_token_ns is not None for request in requests)
    headers = ["request", ">duration", *([">first token"] if tokens else []), "where its time went"]
    rows: list[list[str]] = []
    for request in requests:
        state = "" if request.state == "complete" else f" ({request.state.replace('_', ' ')})"
        cells = [request.key + state, duration(length_of(request))]
        if tokens:
            cells.append(_first_token(request))
        rows.append([*cells, _shares(request.path.by_category_ns, length_of(request))])
    return table_of(headers, rows, width, longest=36)


def _first_token(request: RequestReport) -> str:
    first = request.milestones.first_token_ns
    return "" if first is None else duration(first - request.start_ns)
