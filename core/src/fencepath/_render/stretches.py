# SPDX-License-Identifier: Apache-2.0
"""A path of thousands of segments as a list that a person reads: alike and small ones become one line.

For display only: sums and categories are those of the segments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from fencepath.events import Category
from fencepath.report import Segment

__all__ = ["Stretch", "stretches", "thread_number"]

_THREAD = re.compile(r"^thread:.*/(\d+)@[^/]*$")


class Stretch(msgspec.Struct):
    """Neighbouring segments of one thread and phase, shown as one line.

    Attributes:
        start_ns: begin.
        end_ns: end.
        thread: text of the thread, "" if there is none.
        phase: phase of all of them.
        categories: their time, by category.
        names: their time, by activity.
        segments: how many they are.
    """

    start_ns: int
    end_ns: int
    thread: str
    phase: str
    categories: Counter[Category]
    names: Counter[str]
    segments: int = 1

    @property
    def category(self) -> Category:
        """The one that took most of the time."""
        return self.categories.most_common(1)[0][0]

    @property
    def name(self) -> str:
        """The activity that took most of the time, "" if none did."""
        return self.names.most_common(1)[0][0] if self.names else ""

    def take(self, other: Stretch) -> None:
        """Become one with the stretch that follows."""
        self.end_ns = other.end_ns
        self.categories += other.categories
        self.names += other.names
        self.segments += other.segments


def thread_number(text: str) -> str:
    """Return the tid in a thread's text, "" if it is no thread."""
    match = _THREAD.match(text)
    return match[1] if match else ""


def stretches(segments: Sequence[Segment], lines: int) -> list[Stretch]:
    """Return at most about `lines` stretches.

    Neighbours of one category are joined first; then, while there are too many lines, those shorter than a growing share of the
    path are joined with their neighbours of the same thread and phase.
    """
    found = list(_joined(_single(segment) for segment in segments))
    if not found:
        return found
    whole = found[-1].end_ns - found[0].start_ns
    least_ns = max(1, whole // 1000)
    while len(found) > lines and least_ns < whole:
        shorter = list(_absorbed(found, least_ns))
        found = shorter
        least_ns *= 2
    return found


def _single(segment: Segment) -> Stretch:
    thread = segment.entities[0] if segment.entities and segment.entities[0].startswith("thread:") else ""
    names = Counter({segment.activity: segment.duration_ns}) if segment.activity else Counter[str]()
    return Stretch(segment.start_ns, segment.end_ns, thread, segment.phase, Counter({segment.category: segment.duration_ns}), names)


def _joined(parts: Iterator[Stretch]) -> Iterator[Stretch]:
    current: Stretch | None = None
    for part in parts:
        if current is not None and _alike(current, part) and current.category == part.category and current.name == part.name:
            current.take(part)
            continue
        if current is not None:
            yield current
        current = part
    if current is not None:
        yield current


def _absorbed(parts: Sequence[Stretch], least_ns: int) -> Iterator[Stretch]:
    current: Stretch | None = None
    for part in parts:
        small = min(part.end_ns - part.start_ns, current.end_ns - current.start_ns if current else 0) < least_ns
        if current is not None and small and _alike(current, part):
            current.take(part)
            continue
        if current is not None:
            yield current
        current = part
    if current is not None:
        yield current


def _alike(left: Stretch, right: Stretch) -> bool:
    return left.thread == right.thread and left.phase == right.phase
