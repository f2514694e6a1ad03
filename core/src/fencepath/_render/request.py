# SPDX-License-Identifier: Apache-2.0
"""One request: how long it took and what that time was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepath._render.overview import length_of
from fencepath._render.tables import table_of
from fencepath._render.words import MEANINGS, colour, duration, fills_of, share
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.report import RequestReport
from fencepath.requests import RequestState

__all__ = ["render_request"]

_WIDEST_BAR = 100
_WIDTH_FOR_MEANINGS = 90
_CONTRIBUTORS = 8
_STATES = {
    RequestState.OPEN: "it had not ended when the recording did",
    RequestState.BEGIN_UNKNOWN: "it began before the recording did",
}


def render_request(request: RequestReport, console: Console, *, slowest: bool) -> None:
    """Print a request's title, its time from begin to end as a bar, the sums, and the largest contributors.

    Args:
        request: to print.
        console: where to.
        slowest: whether to say that it is the slowest of several.
    """
    order = [category for category, _ in sorted(request.path.by_category_ns.items(), key=lambda item: -item[1])]
    fills = fills_of(order)
    console.print()
    console.print(_title(request, slowest=slowest))
    if not request.path.segments:
        return
    console.print()
    width = max(10, min(console.width, _WIDEST_BAR))
    console.print(_bar(request, fills, width))
    console.print(_axis(request, width))
    console.print()
    console.print(_categories(request, order, fills, console.width))
    contributors = _contributors(request, console.width)
    if contributors:
        console.print()
        console.print(Text("What it spent most time in, on its path", style="bold"))
        console.print(contributors)


def _title(request: RequestReport, *, slowest: bool) -> Text:
    path, first = request.path, request.milestones.first_token_ns
    title = Text.assemble(("The slowest: " if slowest else "Request ", "bold"), (request.key, "bold"))
    title.append(f", {duration(length_of(request))}")
    if path.target != "end":
        title.append(f" to {path.target.replace('_', ' ')}")
    elif first is not None:
        title.append(f", first token after {duration(first - request.start_ns)}")
    if request.state in _STATES:
        title.append(f"; {_STATES[request.state]}", style="yellow")
    return title


def _bar(request: RequestReport, fills: Mapping[Category, str], cells: int) -> Text:
    """The path from begin to end; each cell shows what took most of its time."""
    whole = max(1, length_of(request))
    spent: list[dict[Category, int]] = [defaultdict(int) for _ in range(cells)]
    for segment in request.path.segments:
        begin, end = segment.start_ns - request.path.start_ns, segment.end_ns - request.path.start_ns
        for cell in range(begin * cells // whole, min(cells, -(-end * cells // whole))):
            low, high = max(begin * cells, cell * whole), min(end * cells, (cell + 1) * whole)
            spent[cell][segment.category] += high - low
    bar = Text()
    for cell_spent in spent:
        if cell_spent:
            category = max(cell_spent, key=lambda name: cell_spent[name])
            bar.append(fills[category], style=colour(category))
    return bar


def _axis(request: RequestReport, width: int) -> Text:
    """Times under the bar; the first token's place if there is room for it."""
    end = duration(length_of(request))
    first = request.milestones.first_token_ns
    line = [" "] * width
    line[0] = "0"
    line[width - len(end) :] = end
    if first is not None and request.path.start_ns <= first < request.path.end_ns:
        at = (first - request.path.start_ns) * width // max(1, length_of(request))
        note = "^ first token"
        if at >= 2 and at + len(note) < width - len(end) - 1:
            line[at : at + len(note)] = note
    return Text("".join(line), style="dim")


def _categories(request: RequestReport, order: Sequence[Category], fills: Mapping[Category, str], width: int) -> Table:
    unsure: Counter[Category] = Counter()
    for segment in request.path.segments:
        if segment.confidence is not Confidence.EXACT:
            unsure[segment.category] += segment.duration_ns
    headers = ["", "category", ">time", ">share"]
    if unsure:
        headers.append(">not exact")
    meanings = width >= _WIDTH_FOR_MEANINGS
    if meanings:
        headers.append("what it means")
    rows: list[list[str | Text]] = []
    for category in order:
        time_ns, style = request.path.by_category_ns[category], colour(category)
        row: list[str | Text] = [Text(fills[category], style=style), str(category), duration(time_ns)]
        row.append(share(time_ns, length_of(request)))
        if unsure:
            row.append(share(unsure[category], time_ns) if unsure[category] else "")
        if meanings:
            row.append(Text(MEANINGS[category], style="dim"))
        rows.append(row)
    last: list[str | Text] = ["", "sum", duration(length_of(request)), "100.0%"]
    rows.append(last + [""] * (len(headers) - len(last)))
    return table_of(headers, rows, width)


def _contributors(request: RequestReport, width: int) -> Table | None:
    """Activities by name; None if there are none on the path."""
    times: Counter[tuple[str, str]] = Counter()
    activities: dict[tuple[str, str], set[str]] = defaultdict(set)
    for segment in request.path.segments:
        if segment.activity:
            times[segment.activity, segment.layer] += segment.duration_ns
            activities[segment.activity, segment.layer].add(segment.activity_id)
    if not times:
        return None
    rows: list[list[str]] = []
    for (name, layer), time_ns in times.most_common(_CONTRIBUTORS):
        number = str(len(activities[name, layer]))
        rows.append([name, layer, number, duration(time_ns), share(time_ns, length_of(request))])
    if len(times) > _CONTRIBUTORS:
        rest = sum(times.values()) - sum(time_ns for _, time_ns in times.most_common(_CONTRIBUTORS))
        more = f"{len(times) - _CONTRIBUTORS} more"
        rows.append([more, "", "", duration(rest), share(rest, length_of(request))])
    return table_of(["name", "layer", ">times", ">in all", ">share"], rows, width)
