# SPDX-License-Identifier: Apache-2.0
"""``fencepath plugins`` and ``fencepath check-plugin``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from fencepath.cli.exits import Exit
from fencepath.cli.messages import output_console, say
from fencepath.errors import UsageError

if TYPE_CHECKING:
    from fencepath._loader import LoadedPlugin, Registry
    from fencepath.plugin import Check
    from fencepath.testing._matrix import Cell, Matrix

__all__ = ["check_plugin", "plugins"]

_RESULTS = {"full": "all", "less": "less", "missing": "none", "not_saved": "not saved", "refused": "REFUSED"}


def plugins(
    layer: Annotated[
        str | None,
        typer.Argument(
            help="Show this layer: its kinds with their columns, its functions, and its links on each stack."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed layers, or show one. A plugin that cannot be loaded is listed with the reason."""
    from fencepath._loader import load_plugins

    registry = load_plugins()
    if layer is not None and layer not in registry.plugins:
        raise UsageError(f"no layer {layer}; there are {', '.join(sorted(registry.plugins))}")
    if as_json:
        chosen = [plugin for name, plugin in registry.plugins.items() if layer in (None, name)]
        rows = [
            {
                **msgspec.to_builtins(plugin.info),
                "distribution": plugin.distribution,
                "kinds": sorted(plugin.kinds),
                "columns": {kind: _columns(plugin, kind) for kind in sorted(plugin.kinds)},
            }
            for plugin in chosen
        ]
        print(
            msgspec.json.encode({"plugins": rows, "problems": [str(problem) for problem in registry.problems]}).decode()
        )
    elif layer is not None:
        _show_layer(registry.plugins[layer])
    else:
        _show_all(registry)
    if registry.problems and layer is None:
        raise typer.Exit(int(Exit.NO))


def _show_all(registry: Registry) -> None:
    table = Table("layer", "covers", "version", "from", "not built yet", box=None, pad_edge=False)
    for name, plugin in sorted(registry.plugins.items()):
        table.add_row(name, plugin.info.title, plugin.info.version, plugin.distribution, plugin.info.status)
    console = output_console()
    console.print(table)
    for problem in registry.problems:
        say(str(problem))


def _columns(plugin: LoadedPlugin, kind: str) -> list[str]:
    """Columns of a kind that not every event has."""
    from fencepath.events import HEAD_COLUMNS, columns_of

    event = plugin.kinds[kind]
    keys = [key.column for key in event.info.keys]
    return [*keys, *(name for name in columns_of(event) if name not in (*HEAD_COLUMNS, *keys))]


def _show_layer(plugin: LoadedPlugin) -> None:
    from rich.text import Text

    from fencepath.events import HEAD_COLUMNS

    console = output_console()
    console.print(f"{plugin.name} {plugin.info.version}: {plugin.info.title}", markup=False)
    if plugin.info.status:
        console.print(f"not built yet: {plugin.info.status}", markup=False)
    kinds = Table("kind", "role", "keys", "columns", box=None, pad_edge=False)
    for kind, event in sorted(plugin.kinds.items()):
        keys = [key.column for key in event.info.keys]
        columns = [name for name in _columns(plugin, kind) if name not in keys]
        kinds.add_row(kind, str(event.info.role), ", ".join(keys), ", ".join(columns))
    console.print(kinds)
    if plugin.kinds:
        console.print(f"and every kind: thread, process, {', '.join(HEAD_COLUMNS)}", markup=False)
    for call_table in plugin.call("fencepath_call_tables") or ():
        functions = Table("function", "kind", "detail", "api", "ends", box=None, pad_edge=False)
        for function in call_table.functions:
            functions.add_row(
                function.name, function.kind, function.detail, function.api, "no" if function.entry_only else "yes"
            )
        console.print(functions)
    if plugin.info.links:
        links = Table("stack", "link", "state", "by what, or why not", box=None, pad_edge=False)
        for link in plugin.info.links:
            links.add_row(link.stack, link.link, link.state, Text(link.text))
        console.print(links)


def check_plugin(
    name: Annotated[str, typer.Argument(help="Layer.")],
    formats: Annotated[
        Path | None,
        typer.Option(
            "--formats",
            help="Saved tracefs formats: of one kernel (DIR/<group>/<event>.format, or a file NAME.formats), or a folder of several.",
        ),
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Say what it would do on the kernels whose formats come with fencepath.")
    ] = False,
    library: Annotated[
        list[Path] | None,
        typer.Option("--library", help="Look the functions up in this file; may be given several times."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save-formats",
            help="Check nothing; save the tracefs formats that the plugin asks for, as DIR/<group>/<event>.format or NAME.formats.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a plugin against this machine or against saved formats of another kernel, or of several."""
    if save is not None:
        if formats is not None or library or shipped:
            raise UsageError("--save-formats checks nothing; leave --formats, --shipped and --library out")
        _save_formats(name, save, as_json=as_json)
        return
    if shipped and formats is not None:
        raise UsageError("--shipped and --formats name two sets of kernels; leave one out")
    if shipped or (formats is not None and _has_several(formats)):
        _check_matrix(name, formats, as_json=as_json)
        return
    from fencepath.testing.check import check_layer

    checks = check_layer(name, formats, library or ())
    if as_json:
        print(msgspec.json.encode(checks).decode())
    else:
        _show_checks(checks)
    if any(check.verdict == "refuse" for check in checks):
        raise typer.Exit(int(Exit.NO))


def _has_several(formats: Path) -> bool:
    from fencepath.tracepoints import bundle_name

    return formats.is_dir() and any(bundle_name(path) or any(path.glob("*/*.format")) for path in formats.iterdir())


def _check_matrix(name: str, folder: Path | None, *, as_json: bool) -> None:
    from fencepath.testing._matrix import check_matrix, saved_kernels, shipped_kernels

    matrix = check_matrix(name, saved_kernels(shipped_kernels() if folder is None else folder))
    if as_json:
        print(msgspec.json.encode(matrix).decode())
    else:
        _show_matrix(matrix)
    if any(cell.result == "refused" for cell in matrix.cells):
        raise typer.Exit(int(Exit.NO))


def _show_matrix(matrix: Matrix) -> None:
    console = output_console()
    table = Table("probe set", *matrix.kernels, box=None, pad_edge=False)
    for probe_set in matrix.probe_sets:
        table.add_row(probe_set, *(_cell(matrix.cell(probe_set, kernel)) for kernel in matrix.kernels))
    console.print(table)
    for why, kernels in _reasons(matrix).items():
        console.print(f"{', '.join(kernels)}: {why}", markup=False, highlight=False)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    way = f" ({cell.alternative}/{cell.alternatives})" if cell.alternative and cell.alternatives > 1 else ""
    return _RESULTS[cell.result] + way


def _reasons(matrix: Matrix) -> dict[str, list[str]]:
    """What is not in full, each once, with the kernels of which it is true."""
    found: dict[str, list[str]] = {}
    for cell in matrix.cells:
        said = [cell.loses] if cell.loses else []
        said += _absent(cell)
        if cell.result in ("missing", "refused") or cell.alternative > 1:
            said += cell.lacks
        for why in said:
            found.setdefault(f"{cell.probe_set}: {why}", []).append(cell.kernel)
    return found


def _absent(cell: Cell) -> list[str]:
    fields: dict[str, list[str]] = {}
    for name in cell.absent:
        event, _, field = name.partition(".")
        fields.setdefault(event, []).append(field)
    return [f"{event} does not give {', '.join(names)}" for event, names in fields.items()]


def _show_checks(checks: list[Check]) -> None:
    from rich.text import Text

    table = Table("check", "verdict", box=None, pad_edge=False)
    # paths are long, and a part of one is of no use
    table.add_column("seen", overflow="fold")
    for check in checks:
        table.add_row(check.name, check.verdict, Text(check.evidence))
    output_console().print(table)


def _save_formats(layer: str, folder: Path, *, as_json: bool) -> None:
    from fencepath.testing._formats import save_formats

    saved, absent = save_formats(layer, folder)
    if as_json:
        print(msgspec.json.encode({"saved": saved, "absent": absent}).decode())
        return
    for event in saved:
        print(f"saved {event}")
    for event in absent:
        print(f"this kernel has no {event}")
    if not saved and not absent:
        print(f"{layer} asks for no tracepoint and no kernel function")
