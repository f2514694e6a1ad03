# SPDX-License-Identifier: Apache-2.0
"""The requirement that BPF programs compile and are accepted by the verifier."""

from __future__ import annotations

from fencepath._loader import LoadedPlugin
from fencepath._record.plan import PlannedSet
from fencepath.errors import LoadError
from fencepath.records import Layouts, RecordLayout
from fencepath.system import System
from fencepath.testing._declared import Way, number, ways

__all__ = ["bpf_compiles_and_loads", "load_planned"]

_LOG_LINES = 25


def bpf_compiles_and_loads(plugin: LoadedPlugin, system: System) -> int:
    """Everything that is possible on a machine compiles here, and the verifier of this kernel accepts it. Needs root.

    That is every alternative, not only the first, and every event that a record may come from.

    Returns:
        How many programs were loaded; 0 means that nothing was possible and nothing was tried.
    """
    every = [(way, planned) for way in ways(plugin, system) for planned in way.variants(plugin, system)]
    layouts: dict[str, RecordLayout] = {}
    for way, _ in every:
        layouts.update(way.layouts)
    return sum(_load(way, planned, number(layouts), system) for way, planned in every)


def load_planned(planned: PlannedSet, layouts: Layouts, system: System) -> int:
    """Compile and load a planned set here, and return how many programs it has. Needs root.

    Raises:
        LoadError: something is refused.
    """
    from fencepath._bpf.rings import Rings
    from fencepath._bpf.shared import Shared
    from fencepath.calls import EntryState
    from fencepath.syscalls import SyscallTracer

    numbers = {kind: layouts.number(kind) for kind in layouts}
    with Shared(numbers, rings=Rings(8 << 20)) as shared, EntryState(layouts, 64) as entries:
        if planned.syscalls is not None:
            with SyscallTracer(planned.syscalls, shared, numbers, source=system.tracepoints) as tracer:
                return len(tracer.attached)
        return _load_programs(planned, {**shared.defines(), **entries.defines()})


def _load(way: Way, planned: PlannedSet, layouts: Layouts, system: System) -> int:
    events = ", ".join(program.resolved.name for program in planned.programs)
    try:
        return load_planned(planned, layouts, system)
    except LoadError as error:
        log = "\n".join(error.log.strip().splitlines()[-_LOG_LINES:])
        source = planned.alternative.bpf.path.name if planned.alternative.bpf else "the generated source"
        what = f"the program {error.program} of {source}" if error.program else source
        raise AssertionError(
            f"{way.name}: {what} is refused{f' (for {events})' if events else ''}: {log.splitlines()[-1]}\n{log}"
        ) from error


def _load_programs(planned: PlannedSet, defines: dict[str, str | int]) -> int:
    from fencepath._bpf.attach import uprobe_attach_method
    from fencepath._bpf.sys import ProgramType
    from fencepath._kernel_functions.program import function_programs
    from fencepath._record.programs import load_set
    from fencepath.tracepoints import program_name

    loaded = load_set(planned, defines, "full")
    try:
        for program in planned.programs:
            kind = ProgramType.RAW_TRACEPOINT if program.raw else ProgramType.TRACEPOINT
            loaded.bpf.load(program.program or program_name(program.resolved), kind)
        calls = [call for table in planned.tables for call in table.programs()]
        for call in calls:
            for name in (call.entry, call.exit, call.once):
                loaded.bpf.load(name, ProgramType.UPROBE, uprobe_attach_method().attach_type)
        # for fentry they are loaded where the functions are
        functions = [each for resolved in planned.functions for each in function_programs(resolved)]
        for function in functions:
            for at in (function.begin, function.end):
                loaded.bpf.load(at.kprobe, ProgramType.KPROBE)
        return len(planned.programs) + 3 * len(calls) + 2 * len(functions)
    finally:
        loaded.close()
