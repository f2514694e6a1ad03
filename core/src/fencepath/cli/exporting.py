# SPDX-License-Identifier: Apache-2.0
"""``fencepath export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepath.cli.exits import Exit
from fencepath.cli.messages import say
from fencepath.cli.reporting import warn_of_damage
from fencepath.errors import UsageError

__all__ = ["export"]


def export(
    name: Annotated[Path, typer.Argument(help="Recording folder.")],
    to: Annotated[str, typer.Option("--to", help="otlp, perfetto, chrome, parquet or graphml.")],
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="OTLP over HTTP: http://HOST:4318.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="Only this request, by its id or key.")] = None,
) -> None:
    """Give the paths to another tool: a tracing backend, the Perfetto UI, a graph library."""
    from fencepath.analysis import Analysis
    from fencepath.export import EXPORTERS
    from fencepath.recording import open_recording

    if to not in EXPORTERS:
        raise UsageError(f"cannot export to {to!r}; use one of {', '.join(sorted(EXPORTERS))}")
    recording = open_recording(name)
    analysis = Analysis(recording)
    warn_of_damage(recording)
    chosen = [r for r in analysis.requests if request is None or request in (r.id, r.key)]
    if not chosen:
        say("no such request in this recording; nothing was exported")
        raise typer.Exit(int(Exit.NO))
    print(EXPORTERS[to](analysis, chosen, endpoint=endpoint, output=output))
