# SPDX-License-Identifier: Apache-2.0
"""``fencepath report`` as text: what a person sees first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepath._render.stretches import Stretch, stretches, thread_number
from fencepath._render.words import COLOURS, FILLS, MEANINGS, duration, share
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.report import Report, RequestReport

__all__ = ["render_report"]

PATH_LINES = 24
_LISTED = 12


def render_report(report: Report, console: Console) -> None:
    """Print a report: all requests in a table, then the slowest (or the only one) in full.

    Args:
        report: from :meth:`fencepath.Analysis.report`.
        console: where to; its width is used, colours only if it has them.
    """
    requests = sorted(report.requests, key=lambda request: request.path.start_ns - request.path.end_ns)
    _headline(report, console)
    if len(requests) > 1:
        _overview(requests, console)
    if requests:
        _request(requests[0], report, console, slowest=len(requests) > 1)
    _findings(report, console)
    _unseen(report, console)


def _length(request: RequestReport) -> int:
    return request.path.end_ns - request.path.start_ns


def _headline(report: Report, console: Console) -> None:
    recording = report.recording
    layers = [name for name, layer in recording["layers"].items() if name in {k.split(".")[0] for k in recording["events"]} or layer["missing"]]
    events = sum(recording["events"].values())
    parts = [f"host {recording['host']}", f"kernel {recording['kernel']}", f"{events} events", f"layers {', '.join(sorted(layers))}"]
    console.print(Text(" · ".join(parts), style="dim"), soft_wrap=True)


def _overview(requests: Sequence[RequestReport], console: Console) -> None:
    lengths = sorted(_length(request) for request in requests)
    middle, high = lengths[(len(lengths) - 1) // 2], lengths[min(len(lengths) - 1, (len(lengths) * 95) // 100)]
    console.print()
    console.print(
        Text.assemble(
            (f"{len(requests)} requests", "bold"),
            f"   median {duration(middle)}   p95 {duration(high)}   slowest {duration(lengths[-1])}",
        )
    )
    table = Table("request", box=None, pad_edge=False, header_style="dim")
    table.add_column("duration", justify="right")
    table.add_column("first token", justify="right")
    table.add_column("where its time went", no_wrap=True, overflow="ellipsis")
    for request in requests[:_LISTED]:
        first = request.milestones.first_token_ns
        table.add_row(
            Text(request.key),
            duration(_length(request)),
            duration(first - request.start_ns) if first is not None else "-",
            Text(_shares(request)),
        )
    console.print(table)
    if len(requests) > _LISTED:
        console.print(Text(f"and {len(requests) - _LISTED} faster ones; --request ID shows one, --json all", style="dim"))


def _shares(request: RequestReport) -> str:
    whole = _length(request)
    largest = sorted(request.path.by_category_ns.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{category} {round(100 * time_ns / max(1, whole))}%" for category, time_ns in largest)


def _request(request: RequestReport, report: Report, console: Console, *, slowest: bool) -> None:
    path = request.path
    console.print()
    title = Text.assemble(("the slowest: " if slowest else "", "dim"), (request.key, "bold"), f"   {duration(_length(request))}")
    if path.target != "end":
        title.append(f" to {path.target}")
    if request.milestones.first_token_ns is not None:
        title.append(f"   first token after {duration(request.milestones.first_token_ns - request.start_ns)}")
    if request.state != "complete":
        title.append(f"   {request.state}: {'it has not ended' if request.state == 'open' else 'its begin was not seen'}", style="yellow")
    console.print(title)
    console.print()
    order = [category for category, _ in sorted(path.by_category_ns.items(), key=lambda item: -item[1])]
    fills = {category: FILLS[min(i, len(FILLS) - 1)] for i, category in enumerate(order)}
    console.print(_bar(request, fills, console.width))
    _categories(request, order, fills, console)
    _path(request, report, console)
    _contributors(request, console)


def _bar(request: RequestReport, fills: dict[Category, str], width: int) -> Text:
    """The path from begin to end; each cell shows what took most of its time."""
    cells = max(10, min(width, 100))
    whole = max(1, _length(request))
    spent: list[dict[Category, int]] = [defaultdict(int) for _ in range(cells)]
    for segment in request.path.segments:
        begin, end = segment.start_ns - request.path.start_ns, segment.end_ns - request.path.start_ns
        first, last = begin * cells // whole, min(cells - 1, (end * cells - 1) // whole)
        for cell in range(first, last + 1):
            low, high = cell * whole, (cell + 1) * whole
            spent[cell][segment.category] += min(high, end * cells) - max(low, begin * cells)
    bar = Text()
    for cell in spent:
        category = max(cell, key=lambda name: cell[name]) if cell else Category.UNEXPLAINED
        bar.append(fills.get(category, " "), style=COLOURS.get(category, "white"))
    return bar


def _categories(request: RequestReport, order: Sequence[Category], fills: dict[Category, str], console: Console) -> None:
    whole = _length(request)
    unsure: dict[Category, int] = defaultdict(int)
    for segment in request.path.segments:
        if segment.confidence is not Confidence.EXACT:
            unsure[segment.category] += segment.duration_ns
    table = Table("", "category", box=None, pad_edge=False, header_style="dim")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("not exact", justify="right")
    table.add_column("means", no_wrap=True, overflow="ellipsis")
    for category in order:
        time_ns = request.path.by_category_ns[category]
        table.add_row(
            Text(fills[category], style=COLOURS.get(category, "white")),
            str(category),
            duration(time_ns),
            share(time_ns, whole),
            share(unsure[category], time_ns) if unsure[category] else "",
            Text(MEANINGS[category], style="dim"),
        )
    table.add_row("", "sum", duration(whole), "100.0 %", "", "")
    console.print(table)


def _path(request: RequestReport, report: Report, console: Console) -> None:
    console.print()
    console.print(Text("its critical path, from begin to end", style="bold"))
    names = report.recording.get("threads", {})
    header = ("at, ms", "for, ms", "phase", "thread", "mostly")
    rows: list[tuple[tuple[str, ...], Stretch]] = []
    for part in stretches(request.path.segments, PATH_LINES):
        at, length = part.start_ns - request.path.start_ns, part.end_ns - part.start_ns
        phase = part.phase if part.phase != "none" else ""
        cells = (f"{at / 1e6:.3f}", f"{length / 1e6:.3f}", phase, _thread(part.thread, names), str(part.category))
        rows.append((cells, part))
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for i, name in enumerate(header):
        # what says where and what keeps its width; the detail after it gives way
        width = max([len(name), *(len(cells[i]) for cells, _ in rows)])
        table.add_column(name, width=width, justify="right" if i < 2 else "left", no_wrap=True)
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    for cells, part in rows:
        category = Text(cells[-1], style=COLOURS.get(part.category, "white"))
        table.add_row(*(Text(cell) for cell in cells[:-1]), category, Text(_detail(part)))
    console.print(table)


def _thread(text: str, names: dict[str, str]) -> str:
    number = thread_number(text)
    return f"{names.get(text, '') or 'thread'} {number}" if number else ""


def _detail(part: Stretch) -> str:
    whole = part.end_ns - part.start_ns
    words = [part.name] if part.name else []
    others = [(category, round(100 * time_ns / whole)) for category, time_ns in part.categories.most_common(4)[1:]]
    shown = [f"{category} {per_cent}%" for category, per_cent in others if per_cent]
    if shown:
        words.append("with " + ", ".join(shown))
    return "; ".join(words)


def _contributors(request: RequestReport, console: Console) -> None:
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for segment in request.path.segments:
        if segment.activity:
            times[segment.activity] += segment.duration_ns
    for name in {segment.activity for segment in request.path.segments if segment.activity}:
        counts[name] = len({s.activity_id for s in request.path.segments if s.activity == name})
    if not times:
        return
    console.print()
    console.print(Text("calls on the path", style="bold"))
    table = Table("name", box=None, pad_edge=False, header_style="dim")
    for name in ("times", "in all", "share"):
        table.add_column(name, justify="right")
    for name, time_ns in times.most_common(8):
        table.add_row(Text(name), str(counts[name]), duration(time_ns), share(time_ns, _length(request)))
    console.print(table)


def _findings(report: Report, console: Console) -> None:
    for finding in report.findings:
        console.print()
        console.print(Text(finding.title, style="bold"))
        if finding.detail:
            console.print(Text(finding.detail))


def _unseen(report: Report, console: Console) -> None:
    lines = list(_unseen_lines(report))
    if not lines:
        return
    console.print()
    console.print(Text("what was not seen", style="bold"))
    for line in lines:
        console.print(Text(f"- {line}"))


def _unseen_lines(report: Report) -> Iterator[str]:
    if report.recording.get("cut"):
        yield "the recording was cut: what came after the break is missing"
    for damage in report.recording.get("damage", ()):
        yield f"damaged: {damage}"
    lost: Counter[tuple[str, str]] = Counter()
    for row in report.loss:
        lost[row.stage, row.kind] += row.count
    for (stage, kind), count in lost.items():
        if stage == "attach_gap":
            yield "a library was mapped before its probes were there; calls in between were not recorded"
        else:
            yield f"{count} {kind or 'records'} lost ({stage})"
    for name, layer in report.recording["layers"].items():
        for missing in layer["missing"]:
            yield f"{name}: {missing['probe']}: {missing['why']}"
    for count in report.joins:
        if count.off and count.off.split(".")[0] != count.rule.split(".")[0]:
            yield f"rule {count.rule} is off: {count.off}"
        elif count.ambiguous:
            yield f"rule {count.rule}: {count.ambiguous} of {count.matched + count.unmatched} ambiguous"
    yield from report.problems
