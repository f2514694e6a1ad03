# SPDX-License-Identifier: Apache-2.0
"""The `format` file of a tracefs event: what each field is called, where it lies and how wide it is.

The text of a type is for people (it may be an enum, a typedef or hold a macro that was not expanded); offsets and sizes
are the contract. Nothing here guesses a layout from a type.
"""

from __future__ import annotations

import re

import msgspec

from fencepath.errors import FencepathError

__all__ = ["TracepointField", "TracepointFormat", "TracepointFormatError", "parse_format"]

_FIELD = re.compile(
    r"\s*field:(?P<decl>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);(?:\s*signed:(?P<signed>[01]);)?\s*$"
)
_DECL = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)(?P<array>(?:\[[^\]]*\])*)$")
_LOCATED = {"__data_loc": "data_loc", "__rel_loc": "rel_loc"}

# What a C type holds, where the kernel gives the field a wider slot (every system call argument has eight bytes).
_WIDTHS = {
    **dict.fromkeys(
        ("char", "signed char", "unsigned char", "u8", "s8", "__u8", "__s8", "uint8_t", "int8_t", "bool"), 1
    ),
    **dict.fromkeys(("short", "unsigned short", "u16", "s16", "__u16", "__s16", "uint16_t", "int16_t", "umode_t"), 2),
    **dict.fromkeys(
        (
            "int",
            "signed",
            "signed int",
            "unsigned",
            "unsigned int",
            "u32",
            "s32",
            "__u32",
            "__s32",
            "uint",
            "uint32_t",
            "int32_t",
        ),
        4,
    ),
    **dict.fromkeys(
        ("u64", "s64", "__u64", "__s64", "uint64_t", "int64_t", "unsigned long", "long", "unsigned long long"), 8
    ),
    **dict.fromkeys(("long long", "size_t", "ssize_t", "loff_t", "off_t"), 8),
    **dict.fromkeys(("pid_t", "uid_t", "gid_t", "clockid_t", "timer_t", "key_t", "mqd_t", "key_serial_t", "rwf_t"), 4),
}
_SIGNED = frozenset(
    (
        "char",
        "signed char",
        "short",
        "int",
        "signed",
        "signed int",
        "long",
        "long long",
        "pid_t",
        "clockid_t",
        "timer_t",
    )
) | frozenset(
    f"{stem}{bits}{tail}" for bits in (8, 16, 32, 64) for stem, tail in (("s", ""), ("__s", ""), ("int", "_t"))
)


class TracepointFormatError(FencepathError):
    """A `format` file is not of the known shape.

    Attributes:
        event: ``group:event``, as far as it was known.
        line: the line that could not be read.
    """

    def __init__(self, event: str, line: str, what: str) -> None:
        super().__init__(f"the format of {event} cannot be read: {what}: {line.strip()!r}")
        self.event = event
        self.line = line


class TracepointField(msgspec.Struct, frozen=True):
    """One field of an event, at its place in the raw record.

    Attributes:
        name: as the kernel calls it. An event can name a field twice.
        type: C type as text, without the name and array part: ``u32``, ``enum pipe``, ``struct dma_fence *``.
        offset: bytes from the start of the raw record (the BPF context).
        size: bytes of the slot. For a dynamic field, 4: the slot holds where the data lies.
        signed: as the kernel says of the value (of an element, for an array).
        dynamic: ``""``, ``data_loc`` (offset from the record's start) or ``rel_loc`` (from the slot's end).
        array: array part of the declaration, such as ``[16]``, ``[I915_MAX_PIPES]`` or ``[]``; ``""`` for a scalar.
    """

    name: str
    type: str
    offset: int
    size: int
    signed: bool
    dynamic: str = ""
    array: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether the slot holds an address."""
        return self.type.endswith("*") and not self.array

    @property
    def is_array(self) -> bool:
        """Whether the field is a fixed array inside the record."""
        return bool(self.array) and not self.dynamic

    @property
    def is_text(self) -> bool:
        """Whether the elements, or what is pointed to, are characters."""
        words = [word for word in re.split(r"[\s*]+", self.type) if word not in ("", "const", "__user")]
        return words == ["char"] and self.type.count("*") <= 1

    @property
    def element_size(self) -> int:
        """Bytes of one element of an array, by the type's text; 0 if the type is not a known one."""
        return 8 if self.type.endswith("*") else _WIDTHS.get(_plain(self.type), 0)

    @property
    def value_size(self) -> int:
        """Bytes that hold the value of a scalar: of the type where known, at most the slot."""
        return min(self.size, _WIDTHS.get(_plain(self.type), self.size))

    @property
    def value_signed(self) -> bool:
        """Signedness of a scalar. System call arguments are always said to be unsigned, so there the type decides."""
        return self.signed or (self.value_size < self.size and _plain(self.type) in _SIGNED)


class TracepointFormat(msgspec.Struct, frozen=True):
    """The layout of one event's raw record on one kernel.

    Attributes:
        group: subsystem, such as ``sched``.
        event: such as ``sched_switch``.
        id: number of the event on the kernel it was read from; it differs from boot to boot.
        fields: in the file's order, the ``common_`` ones first.
    """

    group: str
    event: str
    id: int
    fields: tuple[TracepointField, ...]

    @property
    def name(self) -> str:
        """``group:event``."""
        return f"{self.group}:{self.event}"

    @property
    def own_fields(self) -> tuple[TracepointField, ...]:
        """Fields of the event itself, without the ``common_`` ones."""
        return tuple(field for field in self.fields if not field.name.startswith("common_"))

    def named(self, name: str) -> tuple[TracepointField, ...]:
        """Return every field called `name`; more than one where the kernel names it twice (amdgpu_vm_grab_id)."""
        return tuple(field for field in self.fields if field.name == name)


def parse_format(text: str, group: str) -> TracepointFormat:
    """Parse the text of a `format` file.

    Args:
        text: the whole file.
        group: name of the event's group, which the file does not hold.

    Raises:
        TracepointFormatError: if a field's line, the name or the id cannot be read. Never skipped: a field that is
            silently lost would be read as absent.
    """
    event, number = "", -1
    fields: list[TracepointField] = []
    for line in text.splitlines():
        if line.startswith("name:"):
            event = line[len("name:") :].strip()
        elif line.startswith("ID:"):
            number = _number(line, group, event)
        elif line.startswith("print fmt:"):
            break
        elif line.lstrip().startswith("field:"):
            fields.append(_parse_field(line, f"{group}:{event}"))
    if not event or number < 0:
        raise TracepointFormatError(f"{group}:{event or '?'}", text[:60], "no name or no ID")
    return TracepointFormat(group, event, number, tuple(fields))


def _number(line: str, group: str, event: str) -> int:
    digits = line[len("ID:") :].strip()
    if not digits.isdigit():
        raise TracepointFormatError(f"{group}:{event}", line, "the ID is not a number")
    return int(digits)


def _parse_field(line: str, event: str) -> TracepointField:
    slot = _FIELD.match(line)
    if slot is None:
        raise TracepointFormatError(event, line, "not a field")
    declaration = slot["decl"].strip()
    located, _, rest = declaration.partition(" ")
    dynamic = _LOCATED.get(located, "")
    if dynamic:
        # `__data_loc char[] name`: the array part stands with the type.
        declared = re.match(r"(?P<type>.*?)(?P<array>\[[^\]]*\])?\s+(?P<name>\w+)$", rest.strip())
    else:
        declared = _DECL.match(declaration)
    if declared is None:
        raise TracepointFormatError(event, line, "no name in the declaration")
    return TracepointField(
        name=declared["name"],
        type=declared["type"].strip(),
        offset=int(slot["offset"]),
        size=int(slot["size"]),
        signed=slot["signed"] == "1",
        dynamic=dynamic,
        array=declared["array"] or "",
    )


def _plain(type_text: str) -> str:
    return type_text.removeprefix("const ").strip()
