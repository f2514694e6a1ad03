# SPDX-License-Identifier: Apache-2.0
"""Where an export is written."""

from __future__ import annotations

from pathlib import Path

from fencepath.analysis import Analysis
from fencepath.errors import UsageError

__all__ = ["count", "output_path"]


def output_path(analysis: Analysis, output: Path | None, endpoint: str | None, suffix: str) -> Path:
    """Return the path to write: the given one, else one in the current folder named after the recording.

    Raises:
        UsageError: an endpoint was given, or the folder does not exist.
    """
    if endpoint is not None:
        raise UsageError("--endpoint is for --to otlp; this format is written to a file, named by -o")
    path = output if output is not None else Path(analysis.recording.path.stem + suffix)
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: {path.parent} is not a folder")
    return path


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 request``, ``2 requests``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
