# SPDX-License-Identifier: Apache-2.0
"""Results as text: a table for the terminal and the page ``docs/benchmarks.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import Result, Row

__all__ = ["TITLES", "markdown", "number", "put_section", "section", "sections_after", "table"]

TITLES = {
    "drains": "Rings and recordings",
    "live": "Live recording",
    "calls": "Cost of a recorded call",
    "attach": "Start",
    "paths": "From a recording to paths",
}

_HEAD = """\
# Benchmarks

The figures on this page come from one run of `python -m benchmarks --write docs/benchmarks.md`, as root (`make bench`
measures the same and writes no page), those on a real GPU from one run of `python -m benchmarks.gpu_decode`. Do not edit it
by hand. Figures of two machines cannot be compared; ratios within one run can.

"""

_NOTES = """
## How to read it

Median, least and most are those of the rounds of this run. Variants that are compared take turns in every round, and a
ratio is taken round by round. Required is what the design asks of the median; whether it holds is said, not enforced,
since on a shared machine a single run is chance. Above this there is no GPU in any of it: CUDA is simulated, down to the
instructions under the probes. Shares of time that are wrongly categorised or unexplained are tested, not timed.
"""


def number(value: float) -> str:
    """Three digits that mean something."""
    if value and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def required(row: Row) -> str:
    """What is asked, and whether it holds."""
    if row.holds is None:
        return ""
    bound = f"≥ {number(row.at_least)}" if row.at_least is not None else f"≤ {number(row.at_most or 0)}"
    return f"{bound}: {'holds' if row.holds else 'does not hold'}"


def table(result: Result) -> str:
    """Lines for a terminal."""
    width = max((len(row.what) for rows in result.rows.values() for row in rows), default=0)
    lines = [f"{result.machine}{' (quick)' if result.quick else ''}"]
    for name, rows in result.rows.items():
        lines += ["", TITLES.get(name, name)]
        lines += [
            f"  {row.what:{width}}  {number(row.middle):>9}  ({number(row.least)} to {number(row.most)}) {row.unit}  {required(row)}".rstrip()
            for row in rows
        ]
    lines += [f"{name}: not measured: {why}" for name, why in result.failed.items()]
    return "\n".join(lines)


def markdown(result: Result) -> str:
    """The page."""
    return _HEAD + "\n".join([*_machine(result), *_sections(result), *_failed(result), _NOTES])


def _machine(result: Result) -> Iterator[str]:
    yield f"Machine: {result.machine}."
    before, after = result.load
    busy = max(before, after) > 1
    yield (
        f"Load average over one minute: {before:.1f} before the run, {after:.1f} after it"
        + ("; the machine was shared and busy with other things, so spreads are wide." if busy else ".")
    )
    if result.quick:
        yield "This was a quick run, with fewer rounds and smaller sizes."


def _sections(result: Result) -> Iterator[str]:
    for name, rows in result.rows.items():
        yield section(TITLES.get(name, name), rows)


def section(title: str, rows: Sequence[Row], said: str = "") -> str:
    """A section of the page: a heading, what is `said` under it, and a table."""
    lines = [f"\n## {title}\n", *([said, ""] if said else [])]
    lines += ["| what | median | least | most | unit | rounds | required |"]
    lines += ["| --- | ---: | ---: | ---: | --- | ---: | --- |"]
    for row in rows:
        figures = [number(row.middle), number(row.least), number(row.most)]
        lines.append(f"| {' | '.join([row.what, *figures, row.unit, str(row.rounds), required(row)])} |")
    notes = [f"- {row.what}: {row.note}." for row in rows if row.note]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def put_section(page: Path, title: str, text: str) -> None:
    """Put a section at the end of a page, in the place of one of the same title."""
    kept = page.read_text().split(f"\n## {title}\n")[0].rstrip("\n")
    page.write_text(f"{kept}\n{text}\n")


def sections_after(page: Path, titles: Sequence[str]) -> str:
    """Return what a page has of sections with these titles, which others than its writer put there."""
    text = page.read_text() if page.exists() else ""
    found = [text.index(f"\n## {title}\n") for title in titles if f"\n## {title}\n" in text]
    return text[min(found) :] if found else ""


def _failed(result: Result) -> Iterator[str]:
    if result.failed:
        yield "\n## Not measured\n"
        yield from (f"- {name}: {why}" for name, why in result.failed.items())
