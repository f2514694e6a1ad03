# SPDX-License-Identifier: Apache-2.0
"""Categories in plain words and colours, and times with a unit that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepath.events import Category

__all__ = [
    "COLOURS",
    "FILLS",
    "HANDED_ON",
    "MEANINGS",
    "colour",
    "count",
    "duration",
    "fills_of",
    "listed",
    "share",
]

MEANINGS: Mapping[Category, str] = {
    Category.HOST_COMPUTE: "the thread ran its own code",
    Category.API_CALL: "in calls of a library (CUDA, ...)",
    Category.LAUNCH_QUEUE: "work waited to be started",
    Category.DEVICE_EXECUTION: "the device ran what was waited for",
    Category.DEVICE_WAIT: "waited for the device",
    Category.TRANSFER: "moved or set memory of the device",
    Category.MEMORY: "allocated or freed memory of the device",
    Category.DRIVER: "in the kernel's driver",
    Category.DEPENDENCY: "work waited for other work",
    Category.FENCE_WAIT: "waited for a fence",
    Category.INTERRUPT: "an interrupt was served",
    Category.RUNQUEUE: "could run, waited for a CPU",
    Category.BLOCKED: "slept; the reason was not recorded",
    Category.BLOCKED_LOCK: "waited for a lock",
    Category.BLOCKED_IO: "waited for I/O",
    Category.BLOCKED_IPC: "waited for another process",
    Category.SLEEP: "slept on purpose",
    Category.PAGE_FAULT: "a page had to be brought in",
    Category.ADMISSION_QUEUE: "waited to be admitted",
    Category.COLLECTIVE_WAIT: "waited for other GPUs",
    Category.UNDECIDED: "bounded, cannot be told apart",
    Category.NOT_OBSERVED: "a layer that would tell was not recorded",
    Category.UNEXPLAINED: "nothing recorded says what it was",
}

COLOURS: Mapping[Category, str] = {
    Category.HOST_COMPUTE: "green",
    Category.API_CALL: "cyan",
    Category.LAUNCH_QUEUE: "bright_cyan",
    Category.DEVICE_EXECUTION: "blue",
    Category.DEVICE_WAIT: "bright_blue",
    Category.TRANSFER: "magenta",
    Category.MEMORY: "bright_magenta",
    Category.DRIVER: "bright_yellow",
    Category.RUNQUEUE: "red",
    Category.BLOCKED: "yellow",
    Category.NOT_OBSERVED: "bright_black",
    Category.UNEXPLAINED: "bright_black",
}

FILLS = "█▓▒░▚▞▤▥▧▨"
"""Fills of a bar, so that it can be read without colours; one a category, in order of size, the last for all others."""

HANDED_ON: Mapping[str, str] = {"core.wake": "then woke", "core.fork": "then made"}
"""How one thread made another go on, by the rule of the edge."""

_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def colour(category: Category) -> str:
    """Return the colour of a category; white if it has none of its own."""
    return COLOURS.get(category, "white")


def fills_of(categories: Iterable[Category]) -> dict[Category, str]:
    """Return a fill for each category, given largest first."""
    return {category: FILLS[min(place, len(FILLS) - 1)] for place, category in enumerate(categories)}


def duration(time_ns: int) -> str:
    """Return a duration with three decimals, in the largest unit in which it is at least 1."""
    for unit_ns, name in _UNITS:
        if time_ns >= unit_ns:
            return f"{time_ns / unit_ns:.3f} {name}"
    return f"{time_ns} ns"


def size(number: int) -> str:
    """Return a number of bytes, which may be negative, with one decimal in the largest unit in which it is at least 1."""
    for unit, name in _SIZES:
        if abs(number) >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number} B"


def share(part: int, whole: int) -> str:
    """Return a share in per cent; what is there but rounds to nothing is ``<0.1%``."""
    if whole == 0 or part == 0:
        return "0.0%"
    per_cent = 100 * part / whole
    return "<0.1%" if per_cent < 0.05 else f"{per_cent:.1f}%"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 call``, ``2 calls``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
