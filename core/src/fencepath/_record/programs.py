# SPDX-License-Identifier: Apache-2.0
"""Compiles and loads the BPF programs of a planned set and attaches those on tracepoints and kernel functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fencepath._bpf.attach import Link, attach_raw_tracepoint, attach_tracepoint, close_links
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.kernel_functions import FunctionLink, attach_function
from fencepath._bpf.sys import ProgramType
from fencepath._kernel_functions.program import FunctionCalls, function_programs, generate_programs, member_defines
from fencepath._record.plan import PlannedSet
from fencepath.plugin import Detail
from fencepath.records import Records
from fencepath.tracepoints import accessors_header, generate_program, program_name

__all__ = ["LoadedSet", "load_set", "recorded_functions", "records_header"]


def records_header(planned: PlannedSet) -> str:
    """``fp_records.h``: the structs of the set's records. Those of calls are in ``calls.h``."""
    in_calls = {kind for table in planned.tables for kind in table.kinds}
    structs = [layout.c_struct() for layout in planned.layouts if layout.kind not in in_calls]
    return "\n".join(["#pragma once", '#include "fencepath.h"', "", *structs])


def recorded_functions(sets: Iterable[PlannedSet]) -> dict[str, tuple[str, ...]]:
    """What the manifest keeps of call tables, by layer, and of system calls and kernel functions, by kind."""
    functions: dict[str, tuple[str, ...]] = {}
    for planned in sets:
        for table in planned.tables:
            # make_plan takes at most one table a layer
            functions[planned.plugin.name] = table.recorded
        if planned.syscalls is not None:
            functions.update({kind: planned.syscalls.recorded(kind) for kind in planned.syscalls.kinds})
        functions.update({one.record.kind: one.recorded for one in planned.functions})
    return functions


class LoadedSet:
    """A compiled set.

    Attributes:
        planned: what it was made from.
        bpf: the compiled object, with the call programs still to be loaded.
        calls: of kernel functions.
        links: attachments.
    """

    def __init__(self, planned: PlannedSet, bpf: BpfObject, calls: FunctionCalls) -> None:
        self.planned = planned
        self.bpf = bpf
        self.calls = calls
        self.links: list[Link] = []
        self._of_functions: list[tuple[str, FunctionLink]] = []
        self._missed: Counter[str] = Counter()

    def attach(self) -> None:
        """Load and attach the programs on tracepoints and kernel functions.

        Raises:
            LoadError: the verifier refuses one.
            AttachError: the kernel refuses one.
        """
        for planned in self.planned.programs:
            function = planned.program or program_name(planned.resolved)
            event = planned.resolved.format
            if planned.raw:
                raw = self.bpf.load(function, ProgramType.RAW_TRACEPOINT)
                self.links.append(attach_raw_tracepoint(raw, event.event))
            else:
                fd = self.bpf.load(function, ProgramType.TRACEPOINT)
                self.links.append(attach_tracepoint(fd, event.group, event.event))
        for resolved in self.planned.functions:
            for probed in function_programs(resolved):
                # Returns first: a call that begins between the two is then complete, not open for ever.
                for program in (probed.end, probed.begin):
                    link = attach_function(
                        program, probed.function, probed.module, self.bpf.load, in_task=resolved.record.in_task
                    )
                    self.links.append(link)
                    self._of_functions.append((resolved.record.kind, link))

    @property
    def functions(self) -> tuple[str, ...]:
        """Kernel functions that are probed, and how."""
        return tuple(dict.fromkeys(link.probe for _, link in self._of_functions))

    def skipped(self) -> dict[str, int]:
        """How often at the most the kernel did not run a program, by kind, or by the set's name if a program is of several.

        For events of any process, mostly of the recorder, which runs while its own programs do, and of functions within others of a
        record: no loss of a target's events can be told from it, only that there were at most so many.
        """
        kinds = {program.program: program.resolved.kind for program in self.planned.programs}
        for resolved in self.planned.functions:
            for probed in function_programs(resolved):
                for program in (probed.begin, probed.end):
                    kinds |= dict.fromkeys((program.fentry, program.kprobe), resolved.record.kind)
        counts = Counter(self._missed)
        for function, count in self.bpf.recursion_misses().items():
            counts[kinds.get(function, self.planned.name)] += count
        return counts

    def open_calls(self, now_ns: int) -> Iterator[tuple[str, Records, bool]]:
        """Yield, by kind, the calls of kernel functions that have begun and whose return was not seen.

        To be asked once, before detaching: what only the links tell of skipped programs is noted too.

        Args:
            now_ns: CLOCK_MONOTONIC, written as ``time_ns``.

        Returns:
            Kind, records with :attr:`Flags.OPEN`, and whether it is sure that they are open: of a kprobe a return may have been missed.
        """
        unsure: set[str] = set()
        for kind, link in self._of_functions:
            missed = link.missed()
            self._missed[kind] += missed or 0
            if link.returning and missed != 0:
                unsure.add(kind)
        for kind, records in self.calls.open_calls(now_ns):
            yield kind, records, kind not in unsure

    def detach(self) -> None:
        """Take all attachments away; records in the rings stay."""
        close_links(self.links)

    def close(self) -> None:
        """Detach and unload."""
        self.detach()
        self.bpf.close()
        self.calls.close()


def load_set(planned: PlannedSet, defines: Mapping[str, str | int], detail: Detail) -> LoadedSet:
    """Compile a set.

    Args:
        planned: the set.
        defines: macros of core's maps and rings.
        detail: which functions of call tables are on.

    Raises:
        LoadError: it does not compile.
        MachineError: members of structures are not where it looks, or there is no memory for maps.
    """
    calls = FunctionCalls(planned.functions)
    try:
        return LoadedSet(planned, _compile(planned, {**defines, **calls.defines()}, detail), calls)
    except BaseException:
        calls.close()
        raise


def _compile(planned: PlannedSet, defines: Mapping[str, str | int], detail: Detail) -> BpfObject:
    members = [member_defines(resolved.record) for resolved in planned.functions]
    defines = {**defines, **{name: value for each in members for name, value in each.items()}}
    headers = {
        "fp_records.h": records_header(planned),
        "fp_tracepoints.h": accessors_header(planned.accessors),
    }
    if planned.tables:
        headers["fp_calls.h"] = "\n".join(table.bpf_header(detail) for table in planned.tables)
    generated = _generated(planned)
    source = planned.alternative.bpf
    if source is None:
        return BpfObject(_PRELUDE + generated, defines=defines, headers=headers)
    if generated:
        headers["fp_generated.h"] = generated
    return BpfObject(source.path, defines={**defines, **source.defines}, headers=headers)


_PRELUDE = '#include "fp_records.h"\n#include "fp_tracepoints.h"\n'


def _generated(planned: PlannedSet) -> str:
    layouts = {layout.kind: layout for layout in planned.layouts}
    programs = [
        generate_program(program.resolved, layouts[program.resolved.kind])
        for program in planned.programs
        if not program.program
    ]
    if planned.functions:
        programs += ['#include "kernel_functions.h"', *map(generate_programs, planned.functions)]
    return "\n".join(programs)
