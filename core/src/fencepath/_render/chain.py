# SPDX-License-Identifier: Apache-2.0
"""The critical path itself, as a list that can be read from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from fencepath._coalesce import Run, coalesce, thread_number
from fencepath._render.overview import length_of
from fencepath._render.tables import table_of
from fencepath._render.words import HANDED_ON, colour
from fencepath.joins import Confidence
from fencepath.report import RequestReport

__all__ = ["render_chain"]

LINES = 24
_LEAST_SHARE = 500
"""What is shorter than this part of the path is shown with its neighbours."""
_WORTH_SAYING_PER_CENT = 5


def render_chain(request: RequestReport, names: Mapping[str, str], console: Console) -> None:
    """Print the path of a request, what is alike or short as one line.

    Args:
        request: whose.
        names: names of threads by their texts.
        console: where to.
    """
    runs = coalesce(request.path.segments, LINES, least_ns=length_of(request) // _LEAST_SHARE)
    console.print()
    console.print(Text("Its critical path: each line waited for the one above it", style="bold"))
    phases = any(run.phase != "none" for run in runs)
    rows: list[list[str | Text]] = []
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        row: list[str | Text] = [_ms(run.start_ns - request.path.start_ns), _ms(run.duration_ns)]
        if phases:
            row.append(run.phase if run.phase != "none" else "")
        row += [_thread(run, names), Text(str(run.category), style=colour(run.category))]
        rows.append([*row, _detail(run, following, names)])
    headers = [">at, ms", ">for, ms", *(["phase"] if phases else []), "thread", "mostly", ""]
    console.print(table_of(headers, rows, console.width, longest=24))
    if len(runs) < len(request.path.segments):
        shown = f"{len(request.path.segments)} segments in {len(runs)} lines; --json has them all"
        console.print(Text(shown, style="dim"))


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.3f}"


def _thread(run: Run, names: Mapping[str, str]) -> str:
    number = thread_number(run.thread)
    return f"{names.get(run.thread, '') or 'thread'} {number}" if number else ""


def _detail(run: Run, following: Run | None, names: Mapping[str, str]) -> str:
    longest = run.longest
    words = [longest.activity] if longest.activity else []
    if longest.waited_for:
        words = [f"{longest.activity} for {longest.waited_for}"]
    others = [(name, round(100 * ns / run.duration_ns)) for name, ns in run.categories.most_common(4)[1:]]
    shown = [f"{name} {per_cent}%" for name, per_cent in others if per_cent >= _WORTH_SAYING_PER_CENT]
    if shown:
        words.append("with " + ", ".join(shown))
    if run.confidence is not Confidence.EXACT:
        words.append(str(run.confidence))
    if any(segment.ambiguous for segment in run.segments):
        words.append("one of several that fit")
    handed_on = HANDED_ON.get(run.segments[-1].rule or "")
    if handed_on and following is not None and following.thread != run.thread:
        words.append(f"{handed_on} {_thread(following, names)}")
    return "; ".join(words)
