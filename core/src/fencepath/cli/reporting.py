# SPDX-License-Identifier: Apache-2.0
"""``fencepath report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from fencepath.cli.exits import Exit
from fencepath.cli.messages import output_console, say
from fencepath.errors import UsageError

if TYPE_CHECKING:
    from fencepath.analysis import Analysis
    from fencepath.recording import Recording
    from fencepath.report import Report
    from fencepath.requests import Request

__all__ = ["report", "warn_of_damage"]


def report(
    name: Annotated[Path, typer.Argument(help="Recording folder.")],
    request: Annotated[str | None, typer.Option("--request", help="Only this request, by its id or key.")] = None,
    to: Annotated[str, typer.Option("--to", help="end, first_token or token:N.")] = "end",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 for any damage, 1 for loss or violations in what is shown.")
    ] = False,
    output_format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    without: Annotated[str, typer.Option("--without", help="Layers to leave out, separated by commas.")] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write instead of standard output.")
    ] = None,
) -> None:
    """Print the critical path of each request. Needs neither root nor a GPU."""
    from fencepath.analysis import Analysis
    from fencepath.recording import open_recording

    if output_format not in ("text", "json"):
        raise UsageError(f"unknown format {output_format!r}; use text or json")
    recording = open_recording(name)
    analysis = Analysis(recording, without=[layer for layer in without.split(",") if layer])
    warn_of_damage(recording)
    chosen = _choose(analysis, request)
    result = analysis.report(chosen, to) if chosen else analysis.report((), "end")
    if as_json or output_format == "json":
        _write(msgspec.json.encode(result).decode() + "\n", output)
    else:
        _write_text(result, output)
    if not chosen:
        say(_no_requests(request))
    if strict and recording.damage:
        raise typer.Exit(int(Exit.DAMAGED))
    if not chosen or (strict and not _is_whole(result)):
        raise typer.Exit(int(Exit.NO))


def warn_of_damage(recording: Recording) -> None:
    """Say on standard error what of a recording cannot be read, and that it has no orderly end."""
    mend = "`fencepath repair` makes the recording whole"
    if recording.live:
        say("warning: this is still being recorded; what has been written by now is shown")
    elif recording.manifest.ended_realtime_ns is None:
        say(f"warning: its recorder was ended from outside, so the last second may be missing; {mend}")
    for item in recording.damage:
        say(f"warning: {item.file}: {item.what}; {mend}")


def _choose(analysis: Analysis, name: str | None) -> tuple[Request, ...]:
    if name is None:
        return analysis.requests
    return tuple(request for request in analysis.requests if name in (request.id, request.key))


def _no_requests(name: str | None) -> str:
    if name is not None:
        return f"no request {name} in this recording; without --request all are shown"
    return "no requests in this recording: the program sent no marks (see `fencepath.mark`), so there is nothing to explain"


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)


def _write_text(result: Report, output: Path | None) -> None:
    from fencepath._render.text import render_report

    if output is None:
        render_report(result, output_console())
        return
    with output.open("w") as file:
        render_report(result, Console(file=file, width=120, highlight=False))


def _is_whole(result: Report) -> bool:
    """Whether nothing is known to be missing from the requests that are shown, or wrong in them."""
    gaps = [row for row in result.loss if row.stage == "attach_gap"]
    return not any(
        shown.path.lost_events
        or shown.path.violations
        or any(gap.from_ns < shown.path.end_ns and gap.to_ns > shown.path.start_ns for gap in gaps)
        for shown in result.requests
    )
