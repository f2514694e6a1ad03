# SPDX-License-Identifier: Apache-2.0
"""The application: its commands, and errors as one line and an exit code."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn, ParamSpec

import typer

from fencepath.cli import checks, demo, exporting, plugins, recording, repairing, reporting
from fencepath.cli.exits import Exit, exit_of
from fencepath.cli.messages import say
from fencepath.errors import FencepathError

__all__ = ["TRACEBACK_VARIABLE", "app", "main"]

TRACEBACK_VARIABLE = "FENCEPATH_TRACEBACK"
"""Environment variable: 1 shows the traceback of a fault in fencepath itself."""

_MACHINE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_Arguments = ParamSpec("_Arguments")

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


def _read_by_somebody(command: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """End well when whoever read the output has seen enough: click would call that a failure."""

    @functools.wraps(command)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            sys.stdout = None  # Python would complain when it flushes at exit
            raise typer.Exit(int(Exit.DONE)) from None

    return run


app.command("record", context_settings={"allow_interspersed_args": False})(recording.record)
app.command("report")(_read_by_somebody(reporting.report))
app.command("export")(_read_by_somebody(exporting.export))
app.command("plugins")(_read_by_somebody(plugins.plugins))
app.command("check-plugin")(_read_by_somebody(plugins.check_plugin))
app.command("doctor")(_read_by_somebody(checks.doctor))
app.command("repair")(_read_by_somebody(repairing.repair))
app.command("demo")(_read_by_somebody(demo.demo))


def main() -> NoReturn:
    """Run the command line; whatever goes wrong is one line on standard error and an exit code."""
    _open_standard_files()
    try:
        code = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(int(Exit.INTERRUPTED))
    except BrokenPipeError:
        # whoever read the output has seen enough; Python would complain when it flushes at exit
        sys.stdout = None
        sys.exit(int(Exit.DONE))
    except FencepathError as error:
        say(str(error))
        sys.exit(int(exit_of(error)))
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        say(f"{name}{(error.strerror or str(error)).lower()}")
        sys.exit(int(Exit.MACHINE if error.errno in _MACHINE_ERRNOS else Exit.USAGE))
    except Exception as error:
        # typer's errors of use have no public class
        show, wrong_use = getattr(error, "show", None), getattr(error, "exit_code", None)
        if callable(show) and isinstance(wrong_use, int):
            show()
            sys.exit(wrong_use)
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        say(
            f"a fault of fencepath itself: {type(error).__name__}: {error}; "
            f"please report it with the traceback that {TRACEBACK_VARIABLE}=1 shows"
        )
        sys.exit(int(Exit.FAULT))
    sys.exit(code if isinstance(code, int) else int(Exit.DONE))


def _open_standard_files() -> None:
    """Open those of 0 to 2 that are closed, so that no file of a recording gets their numbers and is written to by mistake.

    A command that is recorded does not see that: what is opened here closes on exec.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
