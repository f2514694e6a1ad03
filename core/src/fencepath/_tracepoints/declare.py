# SPDX-License-Identifier: Apache-2.0
"""What a plugin says it wants from tracepoints. Pure data: nothing is looked up until it is resolved."""

from __future__ import annotations

import msgspec

from fencepath._tracepoints.resolve import Missing, Resolved, resolve
from fencepath._tracepoints.sources import TracepointSource
from fencepath._tracepoints.types import CurrentIsTarget, FieldIsTarget, Filter, From, Take
from fencepath.records import HEADER, Field, RecordLayout

__all__ = ["TracepointRecord"]


class TracepointRecord(msgspec.Struct, frozen=True):
    """A record kind filled from one tracepoint, with every place it can come from.

    The layout is the union of what the alternatives take, so it is the same on every kernel; a field that the chosen
    alternative does not give is 0 and is listed in :attr:`Resolved.absent`.

    Attributes:
        kind: event kind, such as ``host.waking``.
        group: group of the preferred event.
        event: the preferred event; accessors are named after it on every kernel.
        fields: what is taken from it.
        alternatives: other places, in order of preference, tried when the preferred one is not there.
        needs: conditions on the preferred event, as in :class:`From`.
        without: likewise.
        when: the generated program records if any of these holds; by default :class:`CurrentIsTarget`, alone. A program of
            the plugin's own decides itself.
        in_task: the event is only ever raised by the task it is about, in task context, so that the record's tgid and
            tid are keys (sched_switch: the thread that leaves the CPU).
    """

    kind: str
    group: str
    event: str
    fields: tuple[Take, ...]
    alternatives: tuple[From, ...] = ()
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    when: tuple[Filter, ...] = (CurrentIsTarget(),)
    in_task: bool = False

    def __post_init__(self) -> None:
        types: dict[str, str] = {}
        for source in self.sources:
            names = [take.target for take in source.fields]
            if len(set(names)) != len(names):
                raise ValueError(f"{self.kind}: {source.name} fills one field twice")
            for take in source.fields:
                if types.setdefault(take.target, take.type) != take.type:
                    raise ValueError(f"{self.kind}: {take.target} is both {types[take.target]} and {take.type}")
            self._check_filters(source)
        # Refuses a field that is called like one of the header's.
        _ = self.layout

    def _check_filters(self, source: From) -> None:
        certain = {take.target for take in source.fields if not take.optional and not take.is_array}
        for condition in self.when:
            if isinstance(condition, FieldIsTarget) and condition.field not in certain:
                raise ValueError(
                    f"{self.kind}: {source.name} does not always give {condition.field}, which is filtered by"
                )

    @property
    def sources(self) -> tuple[From, ...]:
        """Every alternative in order, the preferred one first."""
        return (From(self.group, self.event, self.fields, self.needs, self.without), *self.alternatives)

    @property
    def layout(self) -> RecordLayout:
        """The record's layout: the header, then each field in the order of its first appearance."""
        types = {take.target: take.type for source in self.sources for take in source.fields}
        return RecordLayout(self.kind, (*HEADER, *(Field(name, type_) for name, type_ in types.items())))

    def resolve(self, source: TracepointSource) -> Resolved | Missing:
        """Choose the first alternative that `source` has in full, by what is there and never by version."""
        return resolve(self.kind, self.sources, source, when=self.when, in_task=self.in_task)
