# SPDX-License-Identifier: Apache-2.0
"""The program for the common case: when the filter holds, copy fields of the event into a record."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath._tracepoints.accessors import accessor_name
from fencepath._tracepoints.resolve import Resolved
from fencepath._tracepoints.types import Always, CurrentIsTarget, Filter
from fencepath.records import HEADER, RecordLayout

__all__ = ["generate_program", "program_name"]


def program_name(resolved: Resolved) -> str:
    """Return the C name of the generated program of a record."""
    return f"fp_tp_{resolved.kind.replace('.', '_')}"


def generate_program(resolved: Resolved, layout: RecordLayout) -> str:
    """Return C of a BPF program of type TRACEPOINT that fills `layout` from the event.

    Needs before it, in the same source: fencepath.h, the layout's struct and the accessors of `resolved`.

    Args:
        resolved: from :meth:`TracepointRecord.resolve`.
        layout: the record's; every field behind the header must be one of the record's.

    Raises:
        ValueError: if the layout lasts, is of another kind, or has a field that the record does not.
    """
    takes = {take.target: take for take in (*(binding.take for binding in resolved.bindings), *resolved.empty)}
    fields = [field.name for field in layout.fields[len(HEADER) :]]
    if layout.kind != resolved.kind or layout.lasts or set(fields) != set(takes):
        raise ValueError(f"the layout of {layout.kind} is not the one of the record {resolved.kind}")
    number = f"FP_KIND_{layout.kind.replace('.', '_').upper()}"
    copies = (
        f"    flags |= {accessor_name(resolved, name)}(ctx, r->{name});"
        if takes[name].is_array
        else f"    r->{name} = {accessor_name(resolved, name)}(ctx);"
        for name in fields
    )
    lines = [
        f"int {program_name(resolved)}(void *ctx)",
        "{",
        f"    struct {layout.struct_name} *r;",
        f"    u32 flags = {'FP_TASK' if resolved.in_task else '0'};",
        "",
        *_filter(resolved),
        f"    r = FP_RESERVE(struct {layout.struct_name}, {number});",
        "    if (!r)",
        "        return 0;",
        f"    fp_fill(&r->h, {number}, 0);",
        *copies,
        "    r->h.flags = flags;",
        "    fp_submit(r);",
        "    return 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _filter(resolved: Resolved) -> Iterator[str]:
    if any(isinstance(condition, Always) for condition in resolved.when):
        return
    conditions = " || ".join(_condition(resolved, condition) for condition in resolved.when)
    yield f"    if (!({conditions or '0'}))"
    yield "        return 0;"


def _condition(resolved: Resolved, condition: Filter) -> str:
    if isinstance(condition, Always):
        return "1"
    if isinstance(condition, CurrentIsTarget):
        return "fp_is_target()"
    return f"fp_target_tid({accessor_name(resolved, condition.field)}(ctx))"
