# SPDX-License-Identifier: Apache-2.0
"""The layers ``process`` and ``mark`` as plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepath._builtin.decoder import BuiltinDecoder
from fencepath._builtin.events import (
    MARK_LAYOUTS,
    PROCESS_LAYOUTS,
    Exec,
    Exit,
    Fork,
    Map,
    MarkMembers,
    MarkPoint,
    MarkText,
)
from fencepath._builtin.marks import MarkRequests
from fencepath._version import __version__
from fencepath.events import Event
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    BpfSource,
    LayerInfo,
    ProbeSet,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts, RecordLayout
from fencepath.requests import RequestSource
from fencepath.system import System
from fencepath.tracepoints import Take, TracepointRecord

__all__ = ["LAYERS"]

_BPF = Path(__file__).parent / "bpf"


class _ProcessLayer:
    """Creation, exec and end of processes and threads; core keeps its set of targets by the same programs."""

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(name="process", title="life of processes and threads", version=__version__, api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (Fork, Exec, Exit, Map)

    @hookimpl
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        del system
        fork = TracepointRecord(
            kind="process.fork",
            group="task",
            event="task_newtask",
            fields=(Take("pid", "u32", as_="child_tid"), Take("clone_flags", "u32", narrow=True)),
        )
        execve = TracepointRecord(
            kind="process.exec",
            group="sched",
            event="sched_process_exec",
            fields=(Take("old_pid", "u32", as_="old_tid"),),
        )
        end = TracepointRecord(
            kind="process.exit",
            group="sched",
            event="sched_process_exit",
            fields=(Take("group_dead", "u8", optional=True),),
        )
        mapped = TracepointRecord(
            kind="process.map",
            group="syscalls",
            event="sys_enter_mmap",
            fields=(Take("prot", "u64"), Take("flags", "u64", as_="map_flags")),
            in_task=True,
        )
        done = TracepointRecord(kind="process.map", group="syscalls", event="sys_exit_mmap", fields=(), in_task=True)
        programs = {"on_fork": fork, "on_exec": execve, "on_exit": end, "on_map": mapped, "on_mapped": done}
        return (_probe_set("life", "process.c", PROCESS_LAYOUTS, programs),)

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> BuiltinDecoder:
        del layouts, functions
        return BuiltinDecoder()


class _MarkLayer:
    """Marks that programs send by prctl."""

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(
            name="mark",
            title="requests, steps and phases as the program marks them",
            version=__version__,
            api=API_VERSION,
        )

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (MarkPoint, MarkText, MarkMembers)

    @hookimpl
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        del system
        prctl = TracepointRecord(
            kind="mark.point",
            group="syscalls",
            event="sys_enter_prctl",
            fields=(Take("option", "u32"), Take("arg2", "u64"), Take("arg3", "u64"), Take("arg4", "u64")),
        )
        return (_probe_set("marks", "marks.c", MARK_LAYOUTS, {"on_prctl": prctl}),)

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> BuiltinDecoder:
        del layouts, functions
        return BuiltinDecoder()

    @hookimpl
    def fencepath_requests(self) -> Sequence[RequestSource]:
        return (MarkRequests(),)


def _probe_set(
    name: str, source: str, layouts: Sequence[RecordLayout], programs: dict[str, TracepointRecord]
) -> ProbeSet:
    return ProbeSet(
        name=name,
        detail="sync",
        alternatives=(
            Alternative(
                probes=tuple(TracepointProbe(record=record, program=program) for program, record in programs.items()),
                gives=tuple(layout.kind for layout in layouts),
                layouts=tuple(layouts),
                bpf=BpfSource(path=_BPF / source, tracepoints=tuple(programs.values())),
            ),
        ),
    )


LAYERS: dict[str, object] = {"process": _ProcessLayer(), "mark": _MarkLayer()}
"""Core's own layers by name."""
