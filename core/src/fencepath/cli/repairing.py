# SPDX-License-Identifier: Apache-2.0
"""``fencepath repair``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

__all__ = ["repair"]


def repair(
    name: Annotated[Path, typer.Argument(help="Recording folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a cut recording whole: drop what cannot be read, rebuild indexes, and say what was dropped."""
    from fencepath.recording import repair_recording

    result = repair_recording(name)
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    print(result)
