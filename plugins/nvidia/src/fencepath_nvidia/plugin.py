# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D103 - hooks are documented where they are specified
"""The layer ``nvidia``: what NVIDIA's kernel driver does for a process, by interfaces that hold across its versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fencepath import __version__
from fencepath.events import Event
from fencepath.joins import Derived, GraphRule, JoinRule
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    BpfSource,
    Check,
    FindingRule,
    LayerInfo,
    ProbeSet,
    SyscallProbes,
    TableRule,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.syscalls import SyscallTable
from fencepath.system import System
from fencepath.tracepoints import Missing, TracepointRecord
from fencepath_nvidia.decoder import NvidiaDecoder
from fencepath_nvidia.driver import CHECKED, driver_version, find_gpus, version_text
from fencepath_nvidia.errors import ErrorMaker
from fencepath_nvidia.events import EVENTS, LOG_LAYOUT
from fencepath_nvidia.findings import FINDINGS
from fencepath_nvidia.functions import PROBE_SETS
from fencepath_nvidia.kinds import LOG
from fencepath_nvidia.reports import TABLES
from fencepath_nvidia.requests import ioctl_table, mapping_table, wait_table
from fencepath_nvidia.rules import RULES
from fencepath_nvidia.stacks import LINKS
from fencepath_nvidia.tracepoints import CONSOLE, SXID_RECORD, XID_RECORD

_BPF = Path(__file__).parent / "bpf"
_TRACEPOINTS = {"errors of GPUs": XID_RECORD, "errors of switches": SXID_RECORD, "the kernel's log": CONSOLE}


@hookimpl
def fencepath_layer() -> LayerInfo:
    return LayerInfo(
        name="nvidia",
        title="what NVIDIA's kernel driver does for a process: requests, memory, blocking waits, errors",
        version=__version__,
        api=API_VERSION,
        seen="on one H200 (driver 580.159.04): requests equal a counter inside the program, blocking waits are tied to interrupts; "
        "functions inside the driver were not seen on the real driver, only on a stand-in",
        links=LINKS,
        limits=(
            "launches and copies make no system call: a program writes them into queues that it has mapped (the layer cuda sees them)",
            "a wait that spins raises no interrupt",
        ),
    )


@hookimpl
def fencepath_facts(system: System) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Say which GPUs there are and which interrupts are theirs."""
    del system
    return [("gpu", msgspec.to_builtins(gpu)) for gpu in find_gpus()]


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    return EVENTS


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    version = driver_version() if system.live else None
    return (
        ProbeSet(name="requests", detail="sync", alternatives=(_calls(ioctl_table(version)),)),
        ProbeSet(name="waits", detail="sync", alternatives=(_calls(wait_table()),)),
        ProbeSet(name="mappings", detail="launch", alternatives=(_calls(mapping_table()),)),
        ProbeSet(name="errors of GPUs", detail="sync", alternatives=(_generated(XID_RECORD),)),
        ProbeSet(name="errors of switches", detail="sync", alternatives=(_generated(SXID_RECORD),)),
        ProbeSet(name="the kernel's log", detail="sync", alternatives=(_log(),)),
        *PROBE_SETS,
    )


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    for name, record in _TRACEPOINTS.items():
        yield _tracepoint_check(name, record, system)
    if system.live:
        yield _version_check()
        yield from _gpu_checks()
    yield Check(
        name="launches on NVIDIA",
        verdict="warn",
        evidence="work is written to queues in memory that the program maps; the kernel has no event for it",
        cost="launches and their end are not seen by this layer; waits that spin raise no interrupt",
    )


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> NvidiaDecoder:
    del layouts
    return NvidiaDecoder(functions)


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    return RULES


@hookimpl
def fencepath_derived() -> Derived:
    return ErrorMaker()


@hookimpl
def fencepath_findings() -> Sequence[FindingRule]:
    return FINDINGS


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    return TABLES


def _calls(table: SyscallTable) -> Alternative:
    return Alternative(probes=(SyscallProbes(table=table),), gives=table.kinds)


def _generated(record: TracepointRecord) -> Alternative:
    return Alternative(probes=(TracepointProbe(record=record),), gives=(record.kind,))


def _log() -> Alternative:
    return Alternative(
        probes=(TracepointProbe(record=CONSOLE, program="on_console"),),
        gives=(LOG,),
        layouts=(LOG_LAYOUT,),
        bpf=BpfSource(path=_BPF / "log.c", tracepoints=(CONSOLE,)),
    )


def _tracepoint_check(name: str, record: TracepointRecord, system: System) -> Check:
    found = record.resolve(system.tracepoints)
    if not isinstance(found, Missing):
        return Check(name=name, verdict="ok", evidence=f"{record.group}:{record.event} is there")
    if record is CONSOLE:
        return Check(
            name=name, verdict="degrade", evidence=str(found), cost="Xid lines of the kernel's log are not recorded"
        )
    return Check(
        name=name,
        verdict="ok",
        evidence=f"{found}; the open driver has it from 575.51.02 on",
        cost="errors come from the kernel's log alone",
    )


def _version_check() -> Check:
    version = driver_version()
    name = "version of NVIDIA's driver"
    if version is None:
        return Check(
            name=name,
            verdict="degrade",
            evidence="the module nvidia is not loaded, or does not say its version",
            cost="the driver's own status of requests whose layout has changed is not known",
            remedy="load the module before recording",
        )
    said = version_text(version)
    if CHECKED[0] <= version < CHECKED[1]:
        return Check(name=name, verdict="ok", evidence=f"{said}: its layouts are known")
    if version < CHECKED[0]:
        cost = "requests are recorded by name alone"
        return Check(name=name, verdict="degrade", evidence=f"{said} is older than 515", cost=cost)
    return Check(
        name=name,
        verdict="warn",
        evidence=f"{said} is newer than what was checked; structures of another size are recorded by name alone",
        cost="status and addresses of requests to nvidia-uvm may be wrong if their layouts have changed",
    )


def _gpu_checks() -> Iterator[Check]:
    for gpu in find_gpus():
        vectors = ", ".join(map(str, gpu.vectors)) or "none"
        evidence = f"{gpu.name or 'no name'}, /dev/nvidia{gpu.minor}, {gpu.uuid}, interrupts {vectors}"
        yield Check(name=f"GPU {gpu.bdf}", verdict="ok", evidence=evidence)
