# SPDX-License-Identifier: Apache-2.0
"""``fencepath plugins`` and ``fencepath check-plugin``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from fencepath.cli.exits import Exit
from fencepath.errors import UsageError

__all__ = ["check_plugin", "plugins"]


def plugins(
    layer: Annotated[str | None, typer.Argument(help="Show this layer: its kinds and functions.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed layers, or show one. A plugin that cannot be loaded is listed with the reason."""
    from fencepath._loader import load_plugins

    registry = load_plugins()
    if layer is not None and layer not in registry.plugins:
        raise UsageError(f"no layer {layer}; there are {', '.join(sorted(registry.plugins))}")
    if as_json:
        chosen = [plugin for name, plugin in registry.plugins.items() if layer in (None, name)]
        rows = [{**msgspec.to_builtins(p.info), "distribution": p.distribution, "kinds": sorted(p.kinds)} for p in chosen]
        print(msgspec.json.encode({"plugins": rows, "problems": [str(problem) for problem in registry.problems]}).decode())
    elif layer is not None:
        _show_layer(registry.plugins[layer])
    else:
        _show_all(registry)
    if registry.problems and layer is None:
        raise typer.Exit(int(Exit.NO))


def _show_all(registry) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    table = Table("layer", "covers", "version", "from", "not built yet", box=None, pad_edge=False)
    for name, plugin in sorted(registry.plugins.items()):
        table.add_row(name, plugin.info.title, plugin.info.version, plugin.distribution, plugin.info.status)
    console = Console(highlight=False)
    console.print(table)
    for problem in registry.problems:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"fencepath: {problem}", markup=False)


def _show_layer(plugin) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    console = Console(highlight=False)
    console.print(f"{plugin.name} {plugin.info.version}: {plugin.info.title}", markup=False)
    if plugin.info.status:
        console.print(f"not built yet: {plugin.info.status}", markup=False)
    kinds = Table("kind", "role", "keys", box=None, pad_edge=False)
    for kind, event in sorted(plugin.kinds.items()):
        kinds.add_row(kind, str(event.info.role), ", ".join(key.column for key in event.info.keys))
    console.print(kinds)
    for call_table in plugin.call("fencepath_call_tables") or ():
        functions = Table("function", "kind", "detail", "api", "ends", box=None, pad_edge=False)
        for function in call_table.functions:
            functions.add_row(function.name, function.kind, function.detail, function.api, "no" if function.entry_only else "yes")
        console.print(functions)


def check_plugin(
    name: Annotated[str, typer.Argument(help="Layer.")],
    formats: Annotated[Path | None, typer.Option("--formats", help="Folder of saved tracefs formats: DIR/<group>/<event>.format.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a plugin against this machine or against saved formats of another kernel."""
    from fencepath.testing.check import check_layer

    checks = check_layer(name, formats)
    if as_json:
        print(msgspec.json.encode(checks).decode())
    else:
        console = Console(highlight=False)
        table = Table("check", "verdict", "seen", box=None, pad_edge=False)
        for check in checks:
            table.add_row(check.name, check.verdict, check.evidence)
        console.print(table)
    if any(check.verdict == "refuse" for check in checks):
        raise typer.Exit(int(Exit.NO))
