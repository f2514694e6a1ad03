# SPDX-License-Identifier: Apache-2.0
"""The mappings of each process, put together from the facts of a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from fencepath._modules.intervals import ALWAYS_NS, Row
from fencepath.recording import Fact

__all__ = ["History"]


class _Mapping(msgspec.Struct, frozen=True):
    pid: int
    module: int
    start: int
    end: int
    offset: int
    from_ns: int


class _Unmapped(msgspec.Struct, frozen=True):
    pid: int
    start: int | None
    until_ns: int


class _Copied(msgspec.Struct, frozen=True):
    pid: int
    parent: int
    time_ns: int


_Fact: TypeAlias = _Mapping | _Unmapped | _Copied
_Numbered: TypeAlias = tuple[int, _Fact]
_There: TypeAlias = dict[int, Row]

_TYPES: dict[str, type[_Fact]] = {
    "mapping": _Mapping,
    "unmapped": _Unmapped,
    "mappings_copied": _Copied,
}


class History:
    """What is known of mappings, by process.

    Facts that are not of their form are passed over: a recording may come from anywhere.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._facts: dict[int, list[_Numbered]] = defaultdict(list)
        for number, fact in enumerate(facts):
            form = _TYPES.get(fact.type)
            if form is not None:
                found = _converted(fact.data, form)
                if found is not None:
                    self._facts[found.pid].append((number, found))

    def rows(self, pid: int) -> list[Row]:
        """Return every mapping that a process, or others of its number, had."""
        closed: list[Row] = []
        there: _There = {}
        for number, fact in self._facts.get(pid, ()):
            if isinstance(fact, _Copied):
                _close(there, closed, None, fact.time_ns)
                there = _copy(self._there(fact.parent, number), fact.time_ns)
            else:
                _apply(fact, there, closed)
        return [*closed, *there.values()]

    def _there(self, pid: int, before: int) -> _There:
        """Mappings that a process has when the fact of a number was found out.

        Step by step, as a process may be the end of any number of forks.
        """
        chain: list[list[_Numbered]] = []
        while True:
            facts = self._latest(pid, before)
            chain.append(facts)
            number, first = facts[0] if facts else (0, None)
            if not isinstance(first, _Copied):
                break
            pid, before = first.parent, number
        there: _There = {}
        for facts in reversed(chain):
            for _, fact in facts:
                if isinstance(fact, _Copied):
                    there = _copy(there, fact.time_ns)
                else:
                    _apply(fact, there, [])
        return there

    def _latest(self, pid: int, before: int) -> list[_Numbered]:
        """Facts of a process before a number, from the last on that makes those before it matter no more."""
        facts = [pair for pair in self._facts.get(pid, ()) if pair[0] < before]
        news = (at for at, (_, fact) in enumerate(facts) if not isinstance(fact, _Mapping) and _is_new(fact))
        return facts[max(news, default=0) :]


def _is_new(fact: _Unmapped | _Copied) -> bool:
    return isinstance(fact, _Copied) or fact.start is None


def _copy(there: _There, time_ns: int) -> _There:
    return {start: row._replace(from_ns=time_ns) for start, row in there.items()}


def _apply(fact: _Mapping | _Unmapped, there: _There, closed: list[Row]) -> None:
    if isinstance(fact, _Unmapped):
        _close(there, closed, fact.start, fact.until_ns)
    else:
        _close(there, closed, fact.start, fact.from_ns)
        there[fact.start] = Row(fact.start, fact.end, fact.offset, fact.module, fact.from_ns, ALWAYS_NS)


def _close(there: _There, closed: list[Row], start: int | None, until_ns: int) -> None:
    """End the mapping at an address, or all of them."""
    for at in [*there] if start is None else [start]:
        row = there.pop(at, None)
        if row is not None and until_ns > row.from_ns:
            closed.append(row._replace(until_ns=until_ns))


def _converted(data: dict[str, Any], form: type[_Fact]) -> _Fact | None:
    try:
        return msgspec.convert(data, form)
    except msgspec.ValidationError:
        return None
