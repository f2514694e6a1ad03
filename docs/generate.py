# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs that adds the reference pages that come from code."""

from __future__ import annotations

import inspect
import json
import re
from itertools import groupby

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fencepath._interfaces import interfaces
from fencepath._loader import load_plugins
from fencepath._stacks import stack_table
from fencepath.cli.application import app
from fencepath.events import HEAD_COLUMNS, columns_of
from fencepath.plugin import API_VERSION, LayerSpecs
from fencepath.report import json_schema
from fencepath.testing._matrix import saved_kernels, shipped_kernels

PUBLIC = (
    "plugin", "events", "records", "joins", "entities", "modules", "calls", "tracepoints", "syscalls", "kernel_functions", "kernel_types", "requests", "clocks", "bus", "recording", "analysis",
    "report", "system", "mark", "errors", "testing",
)  # fmt: skip


PAGES: dict[str, str] = {}


def write(path: str, *lines: str) -> None:
    PAGES[path] = "\n".join(lines) + "\n"


def command_line() -> None:
    group = typer.main.get_command(app)
    lines = ["# Command line", "", (group.help or "").strip(), ""]
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]  # the application is a group
        lines += [f"## fencepath {name}", "", inspect.cleandoc(command.help or ""), ""]
        lines += ["| option or argument | meaning |", "| --- | --- |"]
        for parameter in command.params:
            names = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.name.upper()
            lines.append(f"| `{names}` | {getattr(parameter, 'help', None) or ''} |")
        lines.append("")
    lines += ["## Exit codes", "", "| code | means |", "| --- | --- |"]
    lines += [
        "| 0 | done |",
        "| 1 | the answer is no: no such request, a check failed, loss with `--strict` |",
        "| 2 | wrong use, or the path is no recording |",
        "| 3 | this machine, or this fencepath, lacks something; the message says how to get it |",
        "| 4 | the recording is damaged and what was asked for cannot be read |",
        "| 70 | a fault of fencepath itself; `FENCEPATH_TRACEBACK=1` shows the traceback |",
        "| other | with `record -- COMMAND`: the command's own, 128 + n for a signal, 126 or 127 if it could not be started |",
    ]
    write("reference/command-line.md", *lines)


def layers() -> None:
    lines = ["# Layers and kinds", ""]
    for name, plugin in sorted(load_plugins().plugins.items()):
        lines += [f"## {name}", "", f"{plugin.info.title}.", ""]
        if plugin.info.status:
            lines += [f"**Not built yet:** {plugin.info.status}.", ""]
        if plugin.info.seen:
            lines += [f"**Seen:** {plugin.info.seen}.", ""]
        for kind, event in sorted(plugin.kinds.items()):
            keys = ", ".join(f"`{key.column}` ({key.entity})" for key in event.info.keys) or "none"
            category = event.info.time_category or "none (an instant)"
            lines += [f"### `{kind}`", "", inspect.getdoc(event) or "", ""]
            lines += [
                f"Role `{event.info.role}`, category of its time `{category}`, version {event.info.version}, keys: {keys}.",
                "",
            ]
            own = {column: dtype for column, dtype in columns_of(event).items() if column not in HEAD_COLUMNS}
            if own:
                lines += ["| column | type |", "| --- | --- |"]
                lines += [
                    f"| `{column}` | {'text' if dtype.kind == 'O' else dtype.name} |" for column, dtype in own.items()
                ]
                lines.append("")
    write("reference/layers.md", *lines)


def support() -> str:
    """The layers' rows of the support matrix, as they declare them."""
    lines = ["| layer | what it covers | seen | not built yet |", "| --- | --- | --- | --- |"]
    for name, plugin in sorted(load_plugins().plugins.items()):
        info = plugin.info
        lines.append(f"| `{name}` | {info.title} | {info.seen} | {info.status} |")
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs with each page's text: fills in what comes from the plugins."""
    del page, config, files
    markdown = markdown.replace("<!-- layers -->", support())
    return markdown.replace("<!-- links -->", stack_table(plugin.info for plugin in load_plugins().plugins.values()))


def functions() -> None:
    lines = ["# Functions probed", "", "From the call tables, as `fencepath plugins LAYER` shows them.", ""]
    for name, plugin in sorted(load_plugins().plugins.items()):
        for table in plugin.call("fencepath_call_tables") or ():
            lines += [f"## {name}", "", table.markdown(), ""]
    write("reference/functions.md", *lines)


def interfaces_page() -> None:
    """What each way of recording needs, for the newest of the packaged kernels."""
    systems = [one for one in saved_kernels(shipped_kernels()) if one.kernel[0].isdigit()]
    system = max(systems, key=lambda one: [int(part) for part in re.findall(r"\d+", one.kernel)[:3]])
    lines = [
        "# What each interface needs and gives",
        "",
        f"As the plugins declare it for a kernel {system.kernel}. Everything needs the rights that SECURITY.md names. Of several ways the first is taken that",
        "is possible; what the others lack is in the manifest, and `fencepath doctor` says it of a machine.",
        "",
    ]
    for layer, rows in groupby(interfaces(load_plugins(), system), key=lambda one: one.layer):
        lines += [
            f"## {layer}",
            "",
            "| probe set | from detail | needs | gives | what is lost by it |",
            "| --- | --- | --- | --- | --- |",
        ]
        for one in rows:
            name = one.probe_set + (f", way {one.way}" if one.way > 1 else "")
            gives = ", ".join(f"`{kind}`" for kind in one.gives)
            lines.append(f"| {name} | `{one.detail}` | {'; '.join(one.needs)} | {gives} | {one.loses} |")
        lines.append("")
    write("reference/interfaces.md", *lines)


def hooks() -> None:
    lines = [
        "# Hooks",
        "",
        f"Plugin API {API_VERSION[0]}.{API_VERSION[1]}, in `fencepath.plugin`. All but `fencepath_layer` are optional.",
        "",
    ]
    for name, spec in vars(LayerSpecs).items():
        if name.startswith("fencepath_"):
            hints = {key: str(value) for key, value in spec.__annotations__.items()}
            arguments = ", ".join(f"{key}: {hint}" for key, hint in hints.items() if key != "return")
            lines += [
                f"## `{name}`",
                "",
                f"```python\ndef {name}({arguments}) -> {hints['return']}\n```",
                "",
                inspect.getdoc(spec) or "",
                "",
            ]
    write("reference/hooks.md", *lines)


def api() -> None:
    lines = [
        "# Public modules",
        "",
        "What plugins and scripts may import. Modules whose name begins with an underscore may change at any time.",
        "",
    ]
    lines += [f"::: fencepath.{name}\n" for name in PUBLIC]
    write("reference/api.md", *lines)


def report_schema() -> None:
    schema = json.dumps(json_schema(), indent=2)
    write(
        "reference/report-schema.md",
        "# Report schema",
        "",
        "`fencepath report --json` prints this.",
        "",
        "```json",
        schema,
        "```",
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs when it has collected the pages of the folder."""
    for make in (command_line, layers, functions, interfaces_page, hooks, api, report_schema):
        make()
    for path, text in PAGES.items():
        files.append(File.generated(config, path, content=text))
    return files
