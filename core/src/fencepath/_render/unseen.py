# SPDX-License-Identifier: Apache-2.0
"""What a report cannot say, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepath._render.overview import length_of
from fencepath._render.tables import table_of
from fencepath._render.words import count, duration, share
from fencepath._text import absent_groups, absent_modules, cut_list
from fencepath.report import JoinCount, Report, RequestReport

__all__ = ["render_unseen"]

_WHY_UNMATCHED = "the first of a chain has no cause; many without one mean that a layer lost or lacks events"


def render_unseen(report: Report, shown: Sequence[RequestReport], console: Console) -> None:
    """Print what was lost, not recorded or not explained, and how well the layers fit together.

    Args:
        report: whole.
        shown: requests that are printed in full.
        console: where to.
    """
    lines = [*_of_requests(shown), *_of_recording(report), *_of_loss(report), *_of_layers(report), *report.problems]
    if lines:
        console.print()
        console.print(Text("What was not seen", style="bold"))
        for line in lines:
            console.print(_item(line))
    loose = [joined for joined in report.joins if joined.unmatched or joined.ambiguous]
    if loose:
        console.print()
        console.print(Text("Where layers did not fit together", style="bold"))
        console.print(_joins(loose, console.width))
        console.print(Text(_WHY_UNMATCHED, style="dim"))


def _item(line: str) -> Table:
    """A list item whose further lines stand under its first word."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row("-", Text(line))
    return table


def _of_requests(shown: Sequence[RequestReport]) -> Iterator[str]:
    for request in shown:
        path, whole = request.path, length_of(request)
        reasons = {
            "belongs to layers that were not recorded": path.not_observed_ns,
            "is explained by nothing that was recorded": path.unexplained_ns,
            "is bounded but cannot be told apart": path.undecided_ns,
        }
        for reason, time_ns in reasons.items():
            if time_ns:
                yield f"{duration(time_ns)} of {request.key} ({share(time_ns, whole)}) {reason}"
        if path.lost_events:
            yield f"{count(path.lost_events, 'record')} lost while {request.key} was served: its path may lack what they said"
        if path.violations:
            worst = max(violation.size_ns for violation in path.violations)
            edges = count(len(path.violations), "edge")
            yield f"{edges} in {request.key} would go back in time, by up to {duration(worst)}, and so did not count"


def _of_recording(report: Report) -> Iterator[str]:
    if report.recording.get("cut"):
        yield "the recording was cut: what came after the break is missing"
    for kind, number in report.recording.get("read_faults", {}).items():
        yield f"{count(number, f'{kind} record')} with arguments that could not be read; the fields are 0"
    for damage in report.recording.get("damage", ()):
        yield f"damaged: {damage}"


def _of_loss(report: Report) -> Iterator[str]:
    lost: Counter[tuple[str, str]] = Counter()
    rows: Counter[tuple[str, str]] = Counter()
    for row in report.loss:
        lost[row.stage, row.kind] += row.count
        rows[row.stage, row.kind] += 1
    for (stage, kind), number in lost.items():
        if stage == "attach_gap":
            yield "a library was mapped before its probes were there; calls in between were not recorded"
        elif stage == "ended_unseen":
            processes = count(rows[stage, kind], "short-lived process", "short-lived processes")
            yield f"{processes} ended before their libraries could be looked at"
        else:
            yield f"{count(number, f'{kind} record' if kind else 'record')} lost ({stage})"


def _of_layers(report: Report) -> Iterator[str]:
    absent: set[str] = set()
    modules: set[str] = set()
    for name, layer in report.recording["layers"].items():
        probes: dict[str, list[str]] = {}
        for missing in layer["missing"]:
            groups, without = absent_groups(missing["why"]), absent_modules(missing["why"])
            absent.update(groups)
            modules.update(without)
            if not groups and not without:
                probes.setdefault(missing["why"], []).append(missing["probe"])
        for why, names in probes.items():
            yield f"{name}: {', '.join(names)}: {cut_list(why)}"
        for limit in layer.get("limits", ()):
            yield f"{name}: {limit}"
    if absent:
        yield f"no driver with tracepoints of {', '.join(sorted(absent))} was loaded"
    if modules - absent:
        yield f"no module {', '.join(sorted(modules - absent))} was loaded"
    for joined in report.joins:
        # a layer whose rule lacks the layer's own kinds was not recorded at all, which the user knows
        if joined.off and joined.off.split(".")[0] != joined.rule.split(".")[0]:
            yield f"rule {joined.rule} is off: {joined.off}"


def _joins(loose: Sequence[JoinCount], width: int) -> Table:
    rows = [
        [
            joined.rule,
            *(str(number) if number else "" for number in (joined.matched, joined.unmatched, joined.ambiguous)),
        ]
        for joined in loose
    ]
    return table_of(["rule", ">matched", ">without a cause", ">several causes"], rows, width)
