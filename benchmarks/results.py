# SPDX-License-Identifier: Apache-2.0
"""What a benchmark gives: rows with their spread and what the design requires of them."""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

__all__ = ["Result", "Row", "machine", "parse_spread", "row", "run_as_script"]

_SPREAD = re.compile(r"([\d.,]+) \(least ([\d.,]+), most ([\d.,]+)\)")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure.

    Attributes:
        what: was measured.
        unit: of the figures; "" for a ratio.
        least: smallest value of all rounds.
        middle: median.
        most: greatest.
        rounds: how many there were.
        at_least: what the design requires the median to reach; None for nothing.
        at_most: what it must not exceed, likewise.
        note: how it was measured, or what it depends on.
    """

    what: str
    unit: str
    least: float
    middle: float
    most: float
    rounds: int
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the median is as required; None if nothing is."""
        if self.at_least is None and self.at_most is None:
            return None
        low = -float("inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return low <= self.middle <= high


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the benchmarks.

    Attributes:
        machine: where.
        quick: whether it was shortened.
        rows: by the name of the benchmark.
        failed: why a benchmark gave none, by its name.
        load: load average over one minute before and after, which says how busy the machine was with other things.
    """

    machine: str
    quick: bool
    rows: dict[str, list[Row]]
    failed: dict[str, str]
    load: tuple[float, float]


def row(
    what: str,
    unit: str,
    values: Sequence[float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """Make a row from the values of all rounds."""
    return Row(
        what=what,
        unit=unit,
        least=min(values),
        middle=statistics.median(values),
        most=max(values),
        rounds=len(values),
        at_least=at_least,
        at_most=at_most,
        note=note,
    )


def parse_spread(text: str) -> tuple[float, float, float]:
    """Return median, least and most of what ``spread_of`` of the older benchmarks wrote.

    Raises:
        ValueError: it did not write that.
    """
    found = _SPREAD.fullmatch(text)
    if found is None:
        raise ValueError(f"not a spread: {text}")
    middle, least, most = (float(part.replace(",", "")) for part in found.groups())
    return middle, least, most


def machine() -> str:
    """Name this machine: processor, CPUs, kernel, and whether it is a virtual one."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    virtual = ", virtual machine" if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE) else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model[1] if model else platform.machine()
    return f"{name}, {os.cpu_count()} CPUs, {memory:.0f} GiB{virtual}, Linux {platform.release()}, Python {platform.python_version()}"


def run_as_script(measure: Callable[[bool], Iterable[Row]], description: str | None) -> None:
    """Measure and print the rows as JSON; ``--quick`` shortens it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    given = parser.parse_args()
    sys.stdout.buffer.write(msgspec.json.encode(list(measure(given.quick))) + b"\n")
