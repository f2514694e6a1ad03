# SPDX-License-Identifier: Apache-2.0
"""The command line: the only place that turns errors into exit codes."""

from __future__ import annotations

import signal
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line."""
    # Ctrl-C while modules are imported ends this without a traceback.
    python_handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_handles:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fencepath.cli.application import main as run

    if python_handles:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
