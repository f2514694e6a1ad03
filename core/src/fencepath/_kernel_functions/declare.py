# SPDX-License-Identifier: Apache-2.0
"""What plugins want from functions of the kernel, as data, and which of them a kernel has."""

from __future__ import annotations

import re

import msgspec

from fencepath._text import no_module
from fencepath.records import INTERVAL, Field, RecordLayout
from fencepath.system import KernelSymbols

__all__ = ["FunctionRecord", "FunctionValue", "KernelFunction", "NoFunctions", "ResolvedFunctions"]

_ARGUMENTS = 5
_OWN_FIELDS = ("function", "reserved", "result")
_MEMBER = re.compile(r"[a-z_]\w*\.[a-z_]\w*")


class FunctionValue(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is taken when a function begins.

    Attributes:
        name: of the field and column.
        type: ``u8`` to ``u64``, ``s8`` to ``s64``.
        argument: of the function, from 0; at most 4.
        members: nothing takes the argument itself. Else the argument points to a kernel structure, and these lead on from there, such
            as ``("vm_fault.vma", "vm_area_struct.vm_start")``: each but the last is a pointer. Where they lie the kernel's BTF says.
        identity: it is an address of the kernel, of which only matters whether two are the same: recorded is a number that stands
            for it in this recording, and does not show it.
    """

    name: str
    type: str
    argument: int
    members: tuple[str, ...] = ()
    identity: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.argument < _ARGUMENTS:
            raise ValueError(
                f"{self.name}: argument {self.argument} of a function cannot be taken, only 0 to {_ARGUMENTS - 1}"
            )
        field = Field(self.name, self.type)
        if field.base == "char" or "[" in self.type:
            raise ValueError(f"{self.name}: {self.type} is no number")
        if self.identity and self.type != "u64":
            raise ValueError(f"{self.name}: what stands for an address is a u64")
        for member in self.members:
            if _MEMBER.fullmatch(member) is None:
                raise ValueError(f"{self.name}: {member!r} is not STRUCT.MEMBER")


class KernelFunction(msgspec.Struct, frozen=True):
    """A function of the kernel or a module.

    Attributes:
        names: what versions call it; the first that the kernel has is taken. A function that the compiler put into another one, or
            renamed (``name.isra.0``), is not there.
        module: without which it is not to be expected, as in /proc/modules (``nvidia_uvm``); "" if it is the kernel's own. Where
            it is, the kernel says.
        within: place in the record of a function that calls this one: called from there it is part of that call and makes no event, so
            that a handler that hands on to another one counts once. If the return of the outer one was missed, which happens to kprobes,
            and the stack does not tell, a later call may be taken for part of it.
    """

    names: tuple[str, ...]
    module: str = ""
    within: int | None = None


class FunctionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one or several functions as events with begin and end. Core makes the programs.

    Records have, behind :data:`fencepath.records.INTERVAL`: ``function``: index in `functions`; ``reserved``: 0; ``result``: what
    it returned, sign or zero extended as `result` says, 0 if that is ""; and one field for each value.

    Attributes:
        kind: event kind.
        functions: those that the kernel has are probed; one at least must be there.
        values: taken at the beginning.
        result: type of what they return, such as ``s32``; "" for nothing.
        targets: only calls by threads of targets. Without it, calls by anybody: in interrupts, which happen to whatever thread
            runs, and in threads of the kernel.
        in_task: whether the thread that runs is the caller; False for interrupt handlers.
    """

    kind: str
    functions: tuple[KernelFunction, ...]
    values: tuple[FunctionValue, ...] = ()
    result: str = ""
    targets: bool = True
    in_task: bool = True

    def __post_init__(self) -> None:
        if not self.functions or not all(function.names for function in self.functions):
            raise ValueError(f"{self.kind}: name the functions")
        for place, function in enumerate(self.functions):
            if function.within is not None and not (
                0 <= function.within < len(self.functions) and function.within != place
            ):
                raise ValueError(f"{self.kind}: {function.names[0]} is within none of the record's functions")
        names = [value.name for value in self.values]
        if len({*names, *_OWN_FIELDS}) != len(names) + len(_OWN_FIELDS):
            raise ValueError(f"{self.kind}: two fields have one name")
        if self.result:
            Field("result", self.result)

    @property
    def layout(self) -> RecordLayout:
        """Layout of its records."""
        own = (Field("function", "u32"), Field("reserved", "u32"), Field("result", "s64"))
        values = sorted(self.values, key=lambda value: -int(value.type[1:]))
        return RecordLayout(self.kind, (*INTERVAL, *own, *(Field(value.name, value.type) for value in values)))

    @property
    def members(self) -> tuple[str, ...]:
        """Members of structures that have to be found, each once."""
        return tuple(dict.fromkeys(member for value in self.values for member in value.members))

    def resolve(self, symbols: KernelSymbols) -> ResolvedFunctions | NoFunctions:
        """Choose names by what a kernel has."""
        names = tuple(next((name for name in function.names if symbols.has(name)), "") for function in self.functions)
        if any(names):
            return ResolvedFunctions(self, names, tuple(symbols.module_of(name) for name in names))
        modules = sorted({function.module for function in self.functions if function.module})
        absent = [module for module in modules if not symbols.has_module(module)]
        if modules and absent == modules:
            return NoFunctions(self.kind, "; ".join(no_module(module) for module in absent))
        every = ", ".join(name for function in self.functions for name in function.names)
        return NoFunctions(self.kind, f"this kernel has no function {every}")


class ResolvedFunctions(msgspec.Struct, frozen=True):
    """A record as one kernel can fill it.

    Attributes:
        record: what was asked for.
        names: of its functions here, in order; "" for one that this kernel does not have.
        modules: whose they are.
    """

    record: FunctionRecord
    names: tuple[str, ...]
    modules: tuple[str, ...]

    @property
    def present(self) -> tuple[str, ...]:
        """Names of those that are there."""
        return tuple(name for name in self.names if name)

    @property
    def recorded(self) -> tuple[str, ...]:
        """What a recording's manifest keeps, in the order of ``function``."""
        return tuple(
            name or function.names[0] for name, function in zip(self.names, self.record.functions, strict=True)
        )


class NoFunctions(msgspec.Struct, frozen=True):
    """A record that this kernel cannot fill.

    Attributes:
        kind: event kind.
        why: what it lacks.
    """

    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} cannot be recorded: {self.why}"
