# SPDX-License-Identifier: Apache-2.0
"""Choosing, among the declared places of a record, the first that a kernel has in full."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from fencepath._text import no_group
from fencepath._tracepoints.format import TracepointField, TracepointFormat
from fencepath._tracepoints.sources import TracepointSource
from fencepath._tracepoints.types import Filter, From, Take

__all__ = ["Binding", "Missing", "Resolved", "resolve"]


class Binding(msgspec.Struct, frozen=True):
    """A field of the record and the field of the event it comes from.

    Attributes:
        take: what was asked for.
        field: where it is, or None if this kernel does not give it and it was optional.
    """

    take: Take
    field: TracepointField | None


class Resolved(msgspec.Struct, frozen=True):
    """A record as one kernel can fill it.

    Attributes:
        kind: event kind.
        format: the event to attach to.
        bindings: one for each field that the chosen alternative takes.
        empty: what the record has and this kernel does not give.
        when: as declared.
        in_task: as declared.
        prefix: name of the preferred event: accessors are named after it, whichever alternative was chosen.
        choice: index of the chosen alternative; 0 is the preferred one.
        why_not: for every alternative before the chosen one, what it lacked.
    """

    kind: str
    format: TracepointFormat
    bindings: tuple[Binding, ...]
    empty: tuple[Take, ...]
    when: tuple[Filter, ...]
    in_task: bool
    prefix: str
    choice: int = 0
    why_not: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``group:event`` to attach to."""
        return self.format.name

    @property
    def absent(self) -> tuple[str, ...]:
        """Names of the record's fields that stay 0 on this kernel."""
        return tuple(take.target for take in self.empty)


class Missing(msgspec.Struct, frozen=True):
    """A record that this kernel cannot fill.

    Attributes:
        kind: event kind.
        why: for every alternative, what it lacked.
        closest: names on this kernel that resemble what was looked for, best first.
    """

    kind: str
    why: tuple[str, ...]
    closest: tuple[str, ...]

    def __str__(self) -> str:
        hint = f" (closest: {', '.join(self.closest)})" if self.closest else ""
        return f"{self.kind} cannot be recorded: {'; '.join(self.why)}{hint}"


def resolve(
    kind: str, sources: Sequence[From], kernel: TracepointSource, *, when: tuple[Filter, ...], in_task: bool
) -> Resolved | Missing:
    """Return the first of `sources` that `kernel` has in full, or why none is."""
    targets: dict[str, Take] = {}
    for take in (take for source in sources for take in source.fields):
        targets.setdefault(take.target, take)
    why: list[str] = []
    for choice, source in enumerate(sources):
        form, lacks = _match(source, kernel)
        if form is None or lacks:
            why.append(f"{source.name}: {lacks}")
            continue
        bindings = tuple(Binding(take, _find(take, form)) for take in source.fields)
        given = {binding.take.target for binding in bindings if binding.field is not None}
        empty = tuple(take for name, take in targets.items() if name not in given)
        return Resolved(kind, form, bindings, empty, when, in_task, sources[0].event, choice, tuple(why))
    return Missing(kind, tuple(why), _closest(sources, kernel))


def _match(source: From, kernel: TracepointSource) -> tuple[TracepointFormat | None, str]:
    """Return the event's format and what is lacking ("" if nothing)."""
    form = kernel.format(source.group, source.event)
    if form is None:
        return None, _no_group(source.group, kernel) or "no such event"
    absent = [item for item in source.needs if not _is_there(item, kernel)]
    if absent:
        groups = (_no_group(item.partition(":")[0], kernel) for item in absent)
        return form, next(filter(None, groups), f"needs {', '.join(absent)}")
    present = [item for item in source.without if _is_there(item, kernel)]
    if present:
        return form, f"not used where {', '.join(present)} is there"
    reasons = (_lacking(take, form) for take in source.fields if not take.optional)
    return form, ", ".join(reason for reason in reasons if reason)


def _no_group(group: str, kernel: TracepointSource) -> str:
    return "" if kernel.events(group) else no_group(group)


def _is_there(item: str, kernel: TracepointSource) -> bool:
    group, _, rest = item.partition(":")
    event, _, field = rest.partition(".")
    form = kernel.format(group, event)
    return form is not None and (not field or bool(form.named(field)))


def _lacking(take: Take, form: TracepointFormat) -> str:
    if _find(take, form) is not None:
        return ""
    candidates = [field for name in take.names for field in form.named(name)]
    if not candidates:
        return f"no field {' or '.join(take.names)}"
    return f"field {candidates[0].name} {_unfit(take, candidates[0])}"


def _find(take: Take, form: TracepointFormat) -> TracepointField | None:
    """Return the first field with one of the names that fits; a name used twice is told apart by what fits."""
    for name in take.names:
        for field in form.named(name):
            if not _unfit(take, field):
                return field
    return None


def _unfit(take: Take, field: TracepointField) -> str:
    """Return why `field` cannot fill `take`, or ""."""
    declared = f"{field.type}{field.array}"
    if take.is_text:
        points = field.is_pointer and field.is_text
        return "" if points or (field.is_text and field.array) else f"is {declared}, not text"
    if take.is_array:
        return _unfit_array(take, field)
    if field.array:
        return f"is an array ({declared}), {take.type} was asked for"
    if field.value_size > take.element_size and not take.narrow:
        return f"has {field.value_size} bytes ({declared}), {take.type} was asked for"
    if field.value_size not in (1, 2, 4, 8):
        return f"has {field.value_size} bytes ({declared}), which is no number"
    return ""


def _unfit_array(take: Take, field: TracepointField) -> str:
    declared = f"{field.type}{field.array}"
    if not field.array:
        return f"is {declared}, not an array"
    if field.dynamic:
        # The elements' size is not in the file; the text of the type is all there is.
        return "" if field.element_size == take.element_size else f"has elements of another size ({declared})"
    if field.size % take.element_size or field.element_size not in (0, take.element_size):
        return f"has elements of another size ({declared})"
    return (
        ""
        if field.size <= take.size or take.narrow
        else f"has {field.size} bytes ({declared}), {take.size} were asked for"
    )


def _closest(sources: Sequence[From], kernel: TracepointSource) -> tuple[str, ...]:
    groups = kernel.groups()
    near: dict[str, None] = {}
    for source in sources:
        form = kernel.format(source.group, source.event)
        if form is not None:
            names = [field.name for field in form.own_fields]
            lacking = (take for take in source.fields if _lacking(take, form))
            near.update(
                (f"{form.name}.{name}", None)
                for take in lacking
                for name in difflib.get_close_matches(take.name, names, 3, 0.5)
            )
            continue
        for group in dict.fromkeys((source.group, *difflib.get_close_matches(source.group, groups, 2, 0.6))):
            found = difflib.get_close_matches(source.event, kernel.events(group), 3, 0.6)
            near.update((f"{group}:{event}", None) for event in found)
    return tuple(near)
