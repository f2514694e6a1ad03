# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D103 - hooks are documented where they are specified
"""The layer ``host``: what the Linux scheduler and interrupts did to the threads of targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fencepath import __version__
from fencepath.events import Category, Event
from fencepath.joins import GraphRule, JoinRule, Order, Pick, Relation, Select
from fencepath.kernel_types import KernelTypes
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    BpfSource,
    Check,
    LayerInfo,
    ProbeSet,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.system import System
from fencepath.tracepoints import Missing, Take, TracepointRecord
from fencepath_host.decoder import HostDecoder
from fencepath_host.events import (
    IRQ,
    IRQ_LAYOUT,
    IRQ_NAME_BYTES,
    SWITCH,
    SWITCH_LAYOUT,
    WAKING,
    WAKING_LAYOUT,
    Irq,
    Switch,
    Waking,
)
from fencepath_host.preempt_count import preempt_count_defines
from fencepath_host.stacks import LINKS

_SOURCE = Path(__file__).parent / "bpf" / "host.c"

_SWITCH = TracepointRecord(
    kind=SWITCH,
    group="sched",
    event="sched_switch",
    fields=(
        Take("next_pid", "u32", as_="next_tid"),
        # a long whose highest bit in use is 0x100
        Take("prev_state", "u16", narrow=True),
        Take("prev_prio", "u8", narrow=True),
        Take("next_prio", "u8", narrow=True),
    ),
)
_WAKING = TracepointRecord(
    kind=WAKING,
    group="sched",
    event="sched_waking",
    fields=(Take("pid", "u32", as_="wakee_tid"), Take("target_cpu", "u16", narrow=True)),
)
_IRQ_ENTRY = TracepointRecord(
    kind=IRQ,
    group="irq",
    event="irq_handler_entry",
    fields=(Take("irq", "s32"), Take("name", f"char[{IRQ_NAME_BYTES}]")),
)
_IRQ_EXIT = TracepointRecord(kind=IRQ, group="irq", event="irq_handler_exit", fields=(Take("irq", "s32"),))

_THREADS = {"on_switch": _SWITCH, "on_waking": _WAKING}
_INTERRUPTS = {"on_irq_entry": _IRQ_ENTRY, "on_irq_exit": _IRQ_EXIT}
_IN_INTERRUPTS = ("on_waking", *_INTERRUPTS)
"""Programs that can come in the middle of others, so that they are attached to the tracepoints themselves where that is possible."""
_SKIPPED = "wake-ups and interrupts that come in the middle of another BPF program on their CPU"
_CPU_OF_TASK = (("task_struct.thread_info", "thread_info.cpu"), ("task_struct.cpu",))
"""Where task_cpu() reads, from 5.16 on and before."""


@hookimpl
def fencepath_layer() -> LayerInfo:
    return LayerInfo(
        name="host",
        title="Linux scheduler: threads on CPUs, wake-ups, interrupts",
        version=__version__,
        api=API_VERSION,
        status="reasons of blocking, page faults and system calls are not recorded yet",
        seen="Linux 6.18, and 6.1, 6.12 and 7.3 in emulated machines",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    return (Switch, Waking, Irq)


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    defines = preempt_count_defines() if system.live else {}
    arguments = _argument_offsets() if system.live else {}
    ways = [
        *([_alternative({**defines, **arguments}, interrupts=True, raw=True)] if arguments else []),
        _alternative(defines, interrupts=True, raw=False, loses=_SKIPPED if system.live else ""),
        _alternative(defines, interrupts=False, raw=False, loses="interrupts, and which of them woke a thread"),
    ]
    return (ProbeSet(name="scheduler", detail="sync", alternatives=tuple(ways)),)


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    for record in (_SWITCH, _WAKING, _IRQ_ENTRY, _IRQ_EXIT):
        yield _tracepoint_check(record, system)
    if system.live:
        yield _context_check()


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> HostDecoder:
    del layouts, functions
    return HostDecoder()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    return (
        JoinRule(
            name="host.irq_wake",
            cause=Select(kind=IRQ),
            effect=Select(kind=WAKING),
            on=(("cpu", "interrupt_cpu"),),
            relation=Relation.CONTAINS,
            pick=Pick.INNERMOST,
            order=Order.START_START,
            gap=Category.INTERRUPT,
        ),
    )


def _argument_offsets() -> dict[str, int]:
    """Where what is taken of the tracepoints' own arguments lies; empty if the kernel does not say."""
    types = KernelTypes()
    for cpu in _CPU_OF_TASK:
        wanted = ("task_struct.pid", "irqaction.name", *cpu)
        found = types.offsets(wanted)
        if len(found) == len(wanted):
            return {
                "HOST_TASK_PID": found["task_struct.pid"],
                "HOST_TASK_CPU": sum(found[member] for member in cpu),
                "HOST_ACTION_NAME": found["irqaction.name"],
            }
    return {}


def _alternative(defines: dict[str, int], *, interrupts: bool, raw: bool, loses: str = "") -> Alternative:
    programs = {**_THREADS, **_INTERRUPTS} if interrupts else _THREADS
    layouts = (SWITCH_LAYOUT, WAKING_LAYOUT, IRQ_LAYOUT) if interrupts else (SWITCH_LAYOUT, WAKING_LAYOUT)
    return Alternative(
        probes=tuple(
            TracepointProbe(record=record, program=program, raw=raw and program in _IN_INTERRUPTS)
            for program, record in programs.items()
        ),
        gives=tuple(layout.kind for layout in layouts),
        layouts=layouts,
        bpf=BpfSource(
            path=_SOURCE, defines={**defines, "HOST_INTERRUPTS": int(interrupts)}, tracepoints=tuple(programs.values())
        ),
        loses=loses,
    )


def _tracepoint_check(record: TracepointRecord, system: System) -> Check:
    found = record.resolve(system.tracepoints)
    name = f"tracepoint {record.group}:{record.event}"
    if not isinstance(found, Missing):
        return Check(name=name, verdict="ok", evidence=f"has {', '.join(take.name for take in record.fields)}")
    if record.kind == IRQ:
        return Check(name=name, verdict="degrade", evidence=str(found), cost="interrupts are not recorded")
    return Check(
        name=name,
        verdict="degrade",
        evidence=str(found),
        cost="no thread states and no wake-ups: time on the host is not_observed",
        remedy="use a kernel with CONFIG_TRACEPOINTS and CONFIG_FTRACE",
    )


def _context_check() -> Check:
    name = "context of wake-ups"
    if preempt_count_defines():
        return Check(name=name, verdict="ok", evidence="the kernel's BTF says where the preempt count of a CPU is")
    return Check(
        name=name,
        verdict="degrade",
        evidence="the kernel's BTF does not say where the preempt count of a CPU is",
        cost="who woke a thread is not known: a path ends where the thread was blocked",
        remedy="use a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_FAIR_GROUP_SCHED",
    )
