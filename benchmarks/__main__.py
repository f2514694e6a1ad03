# SPDX-License-Identifier: Apache-2.0
"""Runs every benchmark, one after the other, each in a process of its own, and prints a table.

    python -m benchmarks [--quick] [--only NAME ...] [--json] [--write docs/benchmarks.md]

Exit code: 0 if all were measured, 1 if one failed. Whether the design's budgets hold is in the table, not in the code:
on a shared machine that would be chance. Needs root and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks import gpu_decode
from benchmarks.page import TITLES, markdown, sections_after, table
from benchmarks.results import Result, Row, machine

_LIMIT_S = 300


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes: about a minute")
    parser.add_argument("--only", action="append", choices=list(TITLES), help="measure this alone; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page too")
    given = parser.parse_args()
    result = run(given.only or list(TITLES), quick=given.quick)
    sys.stdout.write((msgspec.json.encode(result).decode() if given.json else table(result)) + "\n")
    if given.write is not None:
        given.write.write_text(markdown(result) + sections_after(given.write, [gpu_decode.TITLE]))
    return 1 if result.failed else 0


def run(names: list[str], *, quick: bool) -> Result:
    """Run the benchmarks named."""
    rows: dict[str, list[Row]] = {}
    failed: dict[str, str] = {}
    before = os.getloadavg()[0]
    for name in names:
        sys.stderr.write(f"benchmarks: {TITLES[name].lower()}\n")
        try:
            rows[name] = measure(name, quick=quick)
        except RuntimeError as error:
            failed[name] = str(error)
    return Result(machine=machine(), quick=quick, rows=rows, failed=failed, load=(before, os.getloadavg()[0]))


def measure(name: str, *, quick: bool) -> list[Row]:
    """Run one benchmark.

    Raises:
        RuntimeError: it failed; the text is the last line that it wrote.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it took more than {_LIMIT_S} s") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"it ended with {error.returncode}") from error
    return msgspec.json.decode(done.stdout, type=list[Row])


if __name__ == "__main__":
    sys.exit(main())
