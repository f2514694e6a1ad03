# SPDX-License-Identifier: Apache-2.0
"""The programs at the begin and the return of kernel functions, and where their calls are kept meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fencepath._bpf.btf import KernelTypes
from fencepath._bpf.kernel_functions import FunctionProgram
from fencepath._bpf.maps import Map
from fencepath._kernel_functions.declare import FunctionRecord, FunctionValue, ResolvedFunctions
from fencepath.records import Flags, Records

__all__ = ["FunctionCalls", "FunctionPrograms", "function_programs", "generate_programs", "member_defines"]

_CALLS = 4096
"""Calls that can be open at a time, of one record's functions."""


class FunctionPrograms(NamedTuple):
    """The programs of one function of a record.

    Attributes:
        function: the kernel's name.
        module: whose it is.
        end: at its return.
        begin: at its begin.
    """

    function: str
    module: str
    end: FunctionProgram
    begin: FunctionProgram


def function_programs(resolved: ResolvedFunctions) -> list[FunctionPrograms]:
    """Return the programs of each function that is there."""
    stem = resolved.record.kind.replace(".", "_")
    return [
        FunctionPrograms(
            name,
            module,
            FunctionProgram(f"fp_fexit_{stem}_{index}", f"fp_kretprobe_{stem}_{index}", returning=True),
            FunctionProgram(f"fp_fentry_{stem}_{index}", f"fp_kprobe_{stem}_{index}", returning=False),
        )
        for index, (name, module) in enumerate(zip(resolved.names, resolved.modules, strict=True))
        if name
    ]


def member_defines(record: FunctionRecord) -> dict[str, str | int]:
    """Return where the members lie that a record takes.

    Raises:
        MachineError: the kernel has no BTF, or no such member.
    """
    if not record.members:
        return {}
    return {_offset_macro(member): at for member, at in KernelTypes().require_offsets(record.members).items()}


def generate_programs(resolved: ResolvedFunctions) -> str:
    """Return C of the programs of a record. Needs before it, in the same source: the layout's struct and ``kernel_functions.h``."""
    record = resolved.record
    kind = record.kind.replace(".", "_")
    name = record.layout.struct_name
    wanted = f"{int(record.targets)}, FP_KIND_{kind.upper()}, {_map_macro(record)}"
    lines = [
        f"static __always_inline u32 fp_take_{kind}(const u64 *arguments, struct {name} *r)",
        "{",
        f"    u32 flags = {'FP_TASK' if record.in_task else '0'};",
        *(line for value in record.values for line in _take(value)),
        "    return flags;",
        "}",
    ]
    result = record.result or "u8"
    count = max((value.argument for value in record.values), default=-1) + 1
    for index, (present, function) in enumerate(zip(resolved.names, record.functions, strict=True)):
        if present:
            within = -1 if function.within is None else function.within
            lines.append(f"FP_FUNCTION({kind}, {name}, {index}, {within}, {count}, {result}, {wanted})")
    return "\n".join([*lines, ""])


class FunctionCalls:
    """The calls of records' functions that have begun and not returned: one map each.

    Args:
        resolved: the records.
    """

    def __init__(self, resolved: tuple[ResolvedFunctions, ...]) -> None:
        self._records = [one.record for one in resolved]
        self._maps: list[Map] = []
        try:
            for record in self._records:
                self._maps.append(Map.hash("fp_functions", 8, record.layout.size_bytes, _CALLS))
        except BaseException:
            self.close()
            raise

    def defines(self) -> dict[str, str | int]:
        """Return the macros that the generated programs ask for."""
        return {_map_macro(record): each.fd for record, each in zip(self._records, self._maps, strict=True)}

    def open_calls(self, now_ns: int) -> Iterator[tuple[str, Records]]:
        """Yield, by kind, the calls that have not returned, as records with :attr:`Flags.OPEN`.

        Args:
            now_ns: CLOCK_MONOTONIC, written as ``time_ns``.
        """
        for record, each in zip(self._records, self._maps, strict=True):
            found = np.frombuffer(b"".join(value for _, value in each.items()), record.layout.dtype).copy()
            if len(found):
                found["reserved"] = 0
                found["time_ns"] = np.maximum(np.uint64(now_ns), found["begin_ns"])
                found["flags"] |= np.uint32(Flags.OPEN)
                yield record.kind, found

    def close(self) -> None:
        """Let go of the maps; loaded programs keep them."""
        while self._maps:
            self._maps.pop().close()


def _take(value: FunctionValue) -> Iterator[str]:
    argument = f"arguments[{value.argument}]"
    if not value.members:
        yield f"    r->{value.name} = {f'fp_identity({argument})' if value.identity else argument};"
        return
    *pointers, last = value.members
    yield "    {"
    yield f"        u64 at = {argument};"
    for member in pointers:
        yield f"        flags |= fp_kernel_read(&at, 8, at + {_offset_macro(member)});"
    yield f"        flags |= fp_kernel_read(&r->{value.name}, sizeof(r->{value.name}), at + {_offset_macro(last)});"
    if value.identity:
        yield f"        r->{value.name} = fp_identity(r->{value.name});"
    yield "    }"


def _offset_macro(member: str) -> str:
    return f"FP_OFFSET_{member.replace('.', '_').upper()}"


def _map_macro(record: FunctionRecord) -> str:
    return f"FP_CALLS_OF_{record.kind.replace('.', '_').upper()}_FD"
