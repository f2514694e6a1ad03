# SPDX-License-Identifier: Apache-2.0
"""The rows of ``rings.py`` and ``recording.py``, which also run by themselves.

python -m benchmarks.drains [--quick]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, parse_spread, run_as_script

_RING_RATE = 5.0
_WRITE_US = 0.5
_READ_RATE = 5.0


def measure(quick: bool) -> Iterator[Row]:
    """Yield rows."""
    yield from ring_rows(run("rings.py", ["--rounds", "5" if quick else "21"]))
    sizes = ["--events", "200000", "--rounds", "3"] if quick else ["--rounds", "7"]
    yield from recording_rows(run("recording.py", sizes))


def run(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run one of them and return what it says."""
    command = [sys.executable, str(Path(__file__).with_name(name)), "--json", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def ring_rows(said: dict[str, Any]) -> Iterator[Row]:
    """Rates in millions, then ratios."""
    note = f"{said['records a round']:,} records of 64 bytes a round, CPU time of one thread"
    for name, text in said.items():
        if name.endswith(", records/s"):
            ours = name.startswith("fencepath")
            least = _RING_RATE if ours else None
            yield spread(
                f"ring to memory, one core: {name.removesuffix(', records/s')}",
                "M records/s",
                text,
                said,
                1e6,
                least,
                None,
                note,
            )
    for name, text in said.items():
        if name.startswith("ratio to "):
            yield spread(f"ring to memory: fencepath over {name.removeprefix('ratio to ')}", "", text, said)


def recording_rows(said: dict[str, Any]) -> Iterator[Row]:
    """Writing and reading a recording."""
    note = f"{said['events a round']:,} events a round"
    write = "ring rows to compressed folder, CPU us/event"
    yield spread("ring to compressed folder, CPU time", "us/event", said[write], said, 1.0, None, _WRITE_US, note)
    yield spread("that over one plain file", "", said["ratio to the plain file"], said)
    read = "recording to arrays of each kind, M events/s"
    yield spread("recording to columns", "M events/s", said[read], said, 1.0, _READ_RATE, None, f"{note}, elapsed time")


def spread(
    what: str,
    unit: str,
    text: str,
    said: dict[str, Any],
    scale: float = 1.0,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """Make a row of a text with median, least and most."""
    middle, least, most = (value / scale for value in parse_spread(text))
    return Row(
        what=what, unit=unit, least=least, middle=middle, most=most, rounds=int(said["rounds"]),
        at_least=at_least, at_most=at_most, note=note,
    )  # fmt: skip


if __name__ == "__main__":
    run_as_script(measure, __doc__)
