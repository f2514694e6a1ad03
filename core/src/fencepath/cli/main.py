# SPDX-License-Identifier: Apache-2.0
"""The application: its commands, and errors as one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from fencepath.cli import checks, demo, exporting, plugins, recording, repairing, reporting
from fencepath.cli.exits import Exit, exit_of
from fencepath.errors import FencepathError

__all__ = ["app", "main"]

app = typer.Typer(
    name="fencepath",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from fencepath import __version__

        print(f"fencepath {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Show why an LLM request was slow: the one chain through CUDA calls, driver jobs and wake-ups that set its latency."""


app.command("record", context_settings={"allow_interspersed_args": False})(recording.record)
app.command("report")(reporting.report)
app.command("export")(exporting.export)
app.command("plugins")(plugins.plugins)
app.command("check-plugin")(plugins.check_plugin)
app.command("doctor")(checks.doctor)
app.command("repair")(repairing.repair)
app.command("demo")(demo.demo)


def main() -> NoReturn:
    """Run the command line; errors of this project are one line on standard error and an exit code."""
    try:
        code = app(standalone_mode=False)
    except FencepathError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"fencepath: {error}", markup=False)
        sys.exit(int(exit_of(error)))
    except typer.Abort:
        sys.exit(int(Exit.INTERRUPTED))
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
    except BrokenPipeError:
        # whoever read the output has seen enough; Python would complain when it flushes at exit
        sys.stdout = None
        sys.exit(int(Exit.DONE))
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(int(error.exit_code))
        raise
    sys.exit(code if isinstance(code, int) else int(Exit.DONE))
