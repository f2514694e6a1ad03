# SPDX-License-Identifier: Apache-2.0
"""The command line: the only place that turns errors into exit codes."""

from __future__ import annotations

from fencepath.cli.main import main

__all__ = ["main"]
