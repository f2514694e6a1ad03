# SPDX-License-Identifier: Apache-2.0
"""``fencepath doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from fencepath.cli.exits import Exit
from fencepath.cli.messages import output_console, say
from fencepath.errors import UsageError

if TYPE_CHECKING:
    from fencepath._doctor import MachineState
    from fencepath.plugin import Check

__all__ = ["doctor"]

_SCHEMA = "fencepath.doctor/1"
_SIGNS = {"ok": "ok", "warn": "warning", "degrade": "less", "refuse": "blocked"}


def doctor(
    pid: Annotated[int | None, typer.Option("--pid", help="Also look at this process.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write what was seen to this file, to be judged elsewhere.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Judge what --save wrote, of this machine or another; looks at nothing."),
    ] = None,
) -> None:
    """Check what this machine lacks for recording, before anything is attached. Exits 1 if something blocks it."""
    from fencepath._doctor import examine, judge, judge_layers, load_state, save_state

    if state is not None:
        if pid is not None or save is not None:
            raise UsageError("--state looks at no machine; leave --pid and --save out")
        seen = load_state(state)
        checks = [*(("core", check) for check in judge(seen)), *judge_layers(seen)]
    else:
        seen, checks = examine(pid)
    if save is not None:
        save_state(seen, save)
    if as_json:
        print(_encode(seen, checks))
    else:
        _show(checks)
    if any(check.verdict == "refuse" for _, check in checks):
        raise typer.Exit(int(Exit.NO))


def _encode(state: MachineState, checks: list[tuple[str, Check]]) -> str:
    rows = [{"layer": layer, **msgspec.to_builtins(check)} for layer, check in checks]
    about = {"kernel": state.kernel, "architecture": state.architecture}
    return msgspec.json.encode({"schema": _SCHEMA, "machine": about, "checks": rows}).decode()


def _show(checks: list[tuple[str, Check]]) -> None:
    table = Table("", "layer", box=None, pad_edge=False)
    for title in ("check", "seen"):
        # paths and names are long, and a part of one is of no use
        table.add_column(title, overflow="fold")
    for layer, check in checks:
        table.add_row(_SIGNS[check.verdict], layer, Text(check.name), Text(check.evidence))
        if check.cost:
            table.add_row("", "", "", Text(f"you lose: {check.cost}"))
        if check.remedy:
            table.add_row("", "", "", Text(f"to mend it: {check.remedy}"))
    output_console().print(table)
    blocked = sum(check.verdict == "refuse" for _, check in checks)
    less = sum(check.verdict == "degrade" for _, check in checks)
    if blocked:
        say(f"{blocked} of these block recording")
    elif less:
        say(f"recording works here, without what {less} of these cost")
