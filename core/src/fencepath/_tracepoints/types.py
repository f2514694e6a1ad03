# SPDX-License-Identifier: Apache-2.0
"""The parts of a declaration: one field, one event it may come from."""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

__all__ = ["Always", "CurrentIsTarget", "FieldIsTarget", "Filter", "From", "Take"]

_TYPE = re.compile(r"(?P<base>[us](?P<bits>8|16|32|64)|char)(?:\[(?P<count>[1-9]\d*)\])?$")


class Take(msgspec.Struct, frozen=True):
    """One field to be copied out of an event.

    Attributes:
        name: as the kernel calls it.
        type: type in the record: ``u8`` to ``u64``, ``s8`` to ``s64``, ``char[N]``, or an array of numbers such as
            ``u64[4]``. ``char[N]`` takes an array, a ``__data_loc`` string, or what a ``char *`` points to.
        as_: name in the record; by default `name`.
        other_names: what other kernels call it, tried in order.
        optional: go on without it; it is then 0 and listed as absent.
        narrow: take the low bytes of a wider field on purpose. Otherwise a field that is wider than `type` counts as
            missing.
        identity: it is an address of the kernel, of which only matters whether two are the same: taken is a number that stands for it
            in this recording, and does not show it. 0 stays 0.
    """

    name: str
    type: str
    as_: str = ""
    other_names: tuple[str, ...] = ()
    optional: bool = False
    narrow: bool = False
    identity: bool = False

    def __post_init__(self) -> None:
        if self.identity and self.type != "u64":
            raise ValueError(f"{self.name}: what stands for an address is a u64")
        if _TYPE.match(self.type) is None or self.type == "char":
            raise ValueError(f"{self.name}: {self.type!r} is not a record type (u32, s64, char[16], u64[4])")

    @property
    def target(self) -> str:
        """Name of the field in the record."""
        return self.as_ or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it may have in the event, in order."""
        return (self.name, *self.other_names)

    @property
    def is_text(self) -> bool:
        """Whether it is ``char[N]``."""
        return self.type.startswith("char")

    @property
    def is_array(self) -> bool:
        """Whether it has a length."""
        return "[" in self.type

    @property
    def element_size(self) -> int:
        """Bytes of one element, or of the scalar."""
        return 1 if self.is_text else int(self.type.split("[")[0][1:]) // 8

    @property
    def count(self) -> int:
        """Number of elements; 1 for a scalar."""
        return int(self.type[:-1].split("[")[1]) if self.is_array else 1

    @property
    def size(self) -> int:
        """Bytes in the record."""
        return self.element_size * self.count


class From(msgspec.Struct, frozen=True):
    """One event that a record may be filled from.

    Attributes:
        group: such as ``gpu_scheduler``.
        event: such as ``drm_run_job``.
        fields: what is taken.
        needs: what else must be there, all of it: ``group:event`` or ``group:event.field``.
        without: what must not be there, in the same form.
    """

    group: str
    event: str
    fields: tuple[Take, ...]
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``group:event``."""
        return f"{self.group}:{self.event}"


class Always(msgspec.Struct, frozen=True, tag=True):
    """Record every event of the machine, whoever runs.

    For events that interrupts and workers raise for somebody else, where no field names a thread of a target.
    """


class CurrentIsTarget(msgspec.Struct, frozen=True, tag=True):
    """Record if the current task is a target's: what a :class:`TracepointRecord` does unless its ``when`` says otherwise.

    In interrupt context that is whoever was interrupted.
    """


class FieldIsTarget(msgspec.Struct, frozen=True, tag=True):
    """Record if a field holds the tid (initial pid namespace) of a target's thread, whoever runs: a wake-up of a target.

    Attributes:
        field: its name in the record. Every alternative must take it.
    """

    field: str


Filter: TypeAlias = Always | CurrentIsTarget | FieldIsTarget
"""When a generated program records."""
