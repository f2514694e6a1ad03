# SPDX-License-Identifier: Apache-2.0
"""Where results go, and what fencepath says besides them: lines on standard error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["output_console", "say", "write_error_line"]


def output_console() -> Console:
    """Return the console for results. Whoever reads them may stop: that is a BrokenPipeError, as of print."""
    from rich.console import Console

    class OutputConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return OutputConsole(highlight=False)


def say(text: str) -> None:
    """Write one line for people to standard error."""
    write_error_line(f"fencepath: {text}")


def write_error_line(line: str) -> None:
    """Write a line to standard error; that nobody is there to read it must not end what goes on."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        # what is left in the buffer would fail again when Python ends, and change the exit code
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for the rest of the process
    except ValueError:
        pass  # it is closed
