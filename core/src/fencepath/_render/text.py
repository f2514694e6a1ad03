# SPDX-License-Identifier: Apache-2.0
"""``fencepath report`` as text: what a person sees first."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from fencepath._render.chain import render_chain
from fencepath._render.layers import render_layers
from fencepath._render.overview import render_overview
from fencepath._render.request import render_request
from fencepath._render.unseen import render_unseen
from fencepath._render.words import count, listed
from fencepath.report import Report

__all__ = ["render_report"]


def render_report(report: Report, console: Console) -> None:
    """Print a report: all requests in a table, then the slowest (or the only one) in full, then what was not seen.

    Args:
        report: from :meth:`fencepath.Analysis.report`.
        console: where to; its width is used, colours only if it has them.
    """
    requests = sorted(report.requests, key=lambda request: (request.path.start_ns - request.path.end_ns, request.id))
    _headline(report, console)
    if len(requests) > 1:
        render_overview(requests, console)
    for request in requests[:1]:
        render_request(request, console, slowest=len(requests) > 1)
        if request.path.segments:
            render_chain(request, report.recording.get("threads", {}), console)
    render_layers(report.layers, console)
    _findings(report, console)
    render_unseen(report, requests[:1], console)


def _headline(report: Report, console: Console) -> None:
    recording = report.recording
    layers = {kind.split(".")[0] for kind in recording["events"]}
    words = f"{recording['host']}, kernel {recording['kernel']}: {count(sum(recording['events'].values()), 'event')}"
    if layers:
        words += f" of {listed(sorted(layers))}"
    console.print(Text(words, style="dim"))


def _findings(report: Report, console: Console) -> None:
    for finding in report.findings:
        console.print()
        console.print(Text(finding.title, style="bold"))
        if finding.detail:
            console.print(Text(finding.detail))
