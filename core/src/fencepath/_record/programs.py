# SPDX-License-Identifier: Apache-2.0
"""Compiles and loads the BPF programs of a planned set and attaches those on tracepoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fencepath._bpf.attach import Link, attach_raw_tracepoint, attach_tracepoint, close_links
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.sys import ProgramType
from fencepath._record.plan import PlannedSet
from fencepath.plugin import Detail
from fencepath.tracepoints import accessors_header, generate_program, program_name

__all__ = ["LoadedSet", "load_set", "recorded_functions", "records_header"]


def records_header(planned: PlannedSet) -> str:
    """``fp_records.h``: the structs of the set's records. Those of calls are in ``calls.h``."""
    in_calls = {kind for table in planned.tables for kind in table.kinds}
    structs = [layout.c_struct() for layout in planned.layouts if layout.kind not in in_calls]
    return "\n".join(["#pragma once", '#include "fencepath.h"', "", *structs])


def recorded_functions(sets: Iterable[PlannedSet]) -> dict[str, tuple[str, ...]]:
    """What the manifest keeps of call tables, by layer, and of system calls, by kind."""
    functions: dict[str, tuple[str, ...]] = {}
    for planned in sets:
        for table in planned.tables:
            # make_plan takes at most one table a layer
            functions[planned.plugin.name] = table.recorded
        if planned.syscalls is not None:
            functions.update({kind: planned.syscalls.recorded(kind) for kind in planned.syscalls.kinds})
    return functions


class LoadedSet:
    """A compiled set.

    Attributes:
        planned: what it was made from.
        bpf: the compiled object, with the call programs still to be loaded.
        links: attachments.
    """

    def __init__(self, planned: PlannedSet, bpf: BpfObject) -> None:
        self.planned = planned
        self.bpf = bpf
        self.links: list[Link] = []

    def attach_tracepoints(self) -> None:
        """Load and attach the programs on tracepoints.

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

    def detach(self) -> None:
        """Take all attachments away; records in the rings stay."""
        close_links(self.links)

    def close(self) -> None:
        """Detach and unload."""
        self.detach()
        self.bpf.close()


def load_set(planned: PlannedSet, defines: Mapping[str, str | int], detail: Detail) -> LoadedSet:
    """Compile a set.

    Args:
        planned: the set.
        defines: macros of core's maps and rings.
        detail: which functions of call tables are on.

    Raises:
        LoadError: it does not compile.
    """
    headers = {
        "fp_records.h": records_header(planned),
        "fp_tracepoints.h": accessors_header(planned.accessors),
    }
    if planned.tables:
        headers["fp_calls.h"] = "\n".join(table.bpf_header(detail) for table in planned.tables)
    generated = _generated(planned)
    source = planned.alternative.bpf
    if source is None:
        return LoadedSet(planned, BpfObject(_PRELUDE + generated, defines=defines, headers=headers))
    if generated:
        headers["fp_generated.h"] = generated
    bpf = BpfObject(source.path, defines={**defines, **source.defines}, headers=headers)
    return LoadedSet(planned, bpf)


_PRELUDE = '#include "fp_records.h"\n#include "fp_tracepoints.h"\n'


def _generated(planned: PlannedSet) -> str:
    layouts = {layout.kind: layout for layout in planned.layouts}
    return "\n".join(
        generate_program(program.resolved, layouts[program.resolved.kind])
        for program in planned.programs
        if not program.program
    )
