# SPDX-License-Identifier: Apache-2.0
"""``fencepath demo``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fencepath.errors import MachineError

__all__ = ["demo"]


def demo(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Keep the recording here.")] = None,
    requests: Annotated[int, typer.Option("--requests", help="Requests the simulated server answers.", min=1)] = 5,
) -> None:
    """Record a small inference server on a simulated GPU with live eBPF, and show where its requests spent their time.

    Without root, BPF or a C compiler it shows a packaged recording instead.
    """
    from fencepath._demo import find_demo, record_demo
    from fencepath.cli.reporting import report

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    found = find_demo()
    folder = Path(tempfile.mkdtemp(prefix="fencepath-demo-"))
    path, title = output or folder / "demo.fencepath", found.title
    last = f"kept in {path}" if output else "keep the recording with -o NAME.fencepath"
    try:
        console.print(f"fencepath: recording {found.title}", markup=False)
        try:
            record_demo(found, path, folder, requests)
        except MachineError as error:
            console.print(f"fencepath: cannot record live here: {error}. Showing a packaged recording", markup=False)
            path, title, last = found.packaged, found.packaged_title, "nothing was recorded here"
        report(path, request=None, to="end", strict=False, output_format="text", as_json=False, without="", output=None)
        console.print(f"fencepath: {title}; {last}", markup=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
