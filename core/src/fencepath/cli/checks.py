# SPDX-License-Identifier: Apache-2.0
"""``fencepath doctor``."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from fencepath.cli.exits import Exit
from fencepath.cli.messages import output_console

__all__ = ["doctor"]

_SIGNS = {"ok": "ok", "warn": "warning", "degrade": "less", "refuse": "blocked"}


def doctor(
    pid: Annotated[int | None, typer.Option("--pid", help="Also look at this process.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check what this machine lacks for recording, before anything is attached. Exits 1 if something blocks it."""
    from fencepath._doctor import run_checks

    checks = run_checks(pid)
    if as_json:
        print(msgspec.json.encode(checks).decode())
    else:
        _show(checks)
    if any(check.verdict == "refuse" for _, check in checks):
        raise typer.Exit(int(Exit.NO))


def _show(checks) -> None:  # type: ignore[no-untyped-def]
    console = output_console()
    table = Table("", "layer", "check", "seen", box=None, pad_edge=False)
    for layer, check in checks:
        table.add_row(_SIGNS[check.verdict], layer, check.name, check.evidence)
        if check.cost:
            table.add_row("", "", "", f"you lose: {check.cost}")
        if check.remedy:
            table.add_row("", "", "", f"to mend it: {check.remedy}")
    console.print(table)
