# SPDX-License-Identifier: Apache-2.0
"""C accessors for a resolved record: macro invocations from bpf/tracepoints.h, one for each field.

``FP_FIELD_<event>_<field>(ctx)`` gives a number. For text and arrays ``FP_FIELD_<event>_<field>(ctx, dst)`` fills the
whole of `dst` and returns the record flags to add. ``FP_HAS_<event>_<field>`` is 1 or 0. `<event>` is the preferred
event and `<field>` the record's name for it, so that BPF source is the same on every kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepath._tracepoints.format import TracepointField
from fencepath._tracepoints.resolve import Binding, Resolved
from fencepath._tracepoints.types import Take
from fencepath.records import Flags

__all__ = ["accessor_name", "accessors", "accessors_header"]


def accessor_name(resolved: Resolved, field: str) -> str:
    """Return the C name of the accessor of the record's field `field`."""
    return f"FP_FIELD_{resolved.prefix}_{field}"


def accessors(resolved: Resolved) -> str:
    """Return C that defines an accessor for every field of the record; needs bpf/tracepoints.h before it."""
    return "\n".join([f"/* {resolved.kind} from {resolved.name} */", *_lines(resolved), ""])


def accessors_header(records: Iterable[Resolved]) -> str:
    """Return the header ``fp_tracepoints.h`` with the accessors of every record.

    Two records that prefer the same event and take a field under the same name share its accessor; they have to agree.

    Raises:
        ValueError: if they do not.
    """
    text = ["// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0", "#pragma once", '#include "tracepoints.h"', ""]
    seen: dict[str, str] = {}
    for record in records:
        text.append(f"/* {record.kind} from {record.name} */")
        lines = list(_lines(record))
        for has, accessor in zip(lines[::2], lines[1::2], strict=True):
            if seen.setdefault(has.split()[1], accessor) != accessor:
                raise ValueError(
                    f"{record.kind}: {has.split()[1].removeprefix('FP_HAS_')} is read differently by another record"
                )
            if accessor not in text:
                text += [has, accessor]
    return "\n".join([*text, ""])


def _lines(resolved: Resolved) -> Iterator[str]:
    user = resolved.format.group == "syscalls"
    for binding in resolved.bindings:
        if binding.field is not None:
            yield from _present(resolved, binding, binding.field, user)
    for take in resolved.empty:
        name = accessor_name(resolved, take.target)
        yield f"#define FP_HAS_{resolved.prefix}_{take.target} 0"
        yield (
            f"FP_TP_ABSENT_BYTES({name}, {take.size})" if take.is_array else f"FP_TP_ABSENT_SCALAR({name}, {take.type})"
        )


def _present(resolved: Resolved, binding: Binding, field: TracepointField, user: bool) -> Iterator[str]:
    take = binding.take
    name = accessor_name(resolved, take.target)
    yield f"#define FP_HAS_{resolved.prefix}_{take.target} 1"
    if take.is_text:
        yield _text(name, take, field, user)
    elif take.is_array:
        yield _numbers(name, take, field)
    elif take.identity:
        yield f"{_scalar(f'{name}_AS_IT_IS', take, field)}\nFP_TP_IDENTITY({name}, {name}_AS_IT_IS)"
    else:
        yield _scalar(name, take, field)


def _scalar(name: str, take: Take, field: TracepointField) -> str:
    bits = 8 * field.value_size
    own = f"{'s' if field.value_signed else 'u'}{bits}"
    if field.offset % field.value_size:
        return f"FP_TP_SCALAR_UNALIGNED({name}, {take.type}, {own}, {field.offset})"
    return f"FP_TP_SCALAR({name}, {take.type}, {own}, u{bits}, {field.offset})"


def _text(name: str, take: Take, field: TracepointField, user: bool) -> str:
    if field.dynamic:
        return f"FP_TP_TEXT_LOC({name}, {take.size}, {field.offset}, {_base(field)})"
    if field.is_pointer:
        return f"FP_TP_TEXT_POINTER({name}, {take.size}, {field.offset}, {'user' if user else 'kernel'})"
    return f"FP_TP_TEXT_ARRAY({name}, {take.size}, {field.offset}, {min(take.size, field.size)})"


def _numbers(name: str, take: Take, field: TracepointField) -> str:
    if field.dynamic:
        return f"FP_TP_NUMBERS_LOC({name}, {take.size}, {field.offset}, {_base(field)})"
    given = min(take.size, field.size)
    flags = int(Flags.TRUNCATED) if field.size > take.size else 0
    return f"FP_TP_NUMBERS_ARRAY({name}, {take.size}, {given}, {flags}u, {field.offset})"


def _base(field: TracepointField) -> int:
    return field.offset + field.size if field.dynamic == "rel_loc" else 0
