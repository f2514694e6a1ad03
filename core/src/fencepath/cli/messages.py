# SPDX-License-Identifier: Apache-2.0
"""Where results go, and what fencepath says besides them: lines on standard error."""

from __future__ import annotations

import contextlib
import sys
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
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
