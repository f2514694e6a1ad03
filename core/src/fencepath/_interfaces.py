# SPDX-License-Identifier: Apache-2.0
"""What each way of recording needs of a machine and what it gives, as the plugins' probe sets declare it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fencepath._loader import Registry
from fencepath.plugin import Alternative, CallProbe, FunctionProbe, Probe, SyscallProbes, TracepointProbe
from fencepath.system import System

__all__ = ["Interface", "interfaces"]


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One way of one probe set.

    Attributes:
        layer: whose it is.
        probe_set: its name.
        way: 1 for the best, 2 for the next.
        detail: from which detail of a recording on.
        needs: what the machine has to have, each as a text.
        gives: kinds of events.
        loses: what the better way has, "" if nothing.
    """

    layer: str
    probe_set: str
    way: int
    detail: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    loses: str


def interfaces(registry: Registry, system: System) -> Iterator[Interface]:
    """Yield every way of every probe set that plugins declare for a machine, in their order."""
    for plugin, probe_sets in registry.collect("fencepath_probes", system=system):
        for probe_set in probe_sets:
            for way, alternative in enumerate(probe_set.alternatives, 1):
                yield Interface(
                    layer=plugin.name,
                    probe_set=probe_set.name,
                    way=way,
                    detail=probe_set.detail,
                    needs=_needs(alternative),
                    gives=alternative.gives,
                    loses=alternative.loses,
                )


def _needs(alternative: Alternative) -> tuple[str, ...]:
    events = dict.fromkeys(event for probe in alternative.probes for event in _tracepoints(probe))
    others = dict.fromkeys(need for probe in alternative.probes for need in _others(probe))
    return (f"tracepoints {', '.join(events)}", *others) if events else tuple(others)


def _tracepoints(probe: Probe) -> Iterator[str]:
    if isinstance(probe, TracepointProbe):
        record = probe.record
        names = (f"{record.group}:{record.event}", *(f"{one.group}:{one.event}" for one in record.alternatives))
        yield " or ".join(dict.fromkeys(names))


def _others(probe: Probe) -> Iterator[str]:
    if isinstance(probe, CallProbe):
        yield f"uprobes on {' or '.join(probe.table.libraries)}"
    elif isinstance(probe, SyscallProbes):
        table = probe.table
        yield f"tracepoints of {', '.join(f'{syscall}(2)' for syscall in table.syscalls)}"
        if table.devices:
            yield "BTF, by which the device behind a file descriptor is read"
    elif isinstance(probe, FunctionProbe):
        names = (" or ".join(function.names) for function in probe.record.functions)
        yield f"kprobes or fentry on one at least of {', '.join(names)}"
        if probe.record.members:
            yield "BTF, by which structures of the kernel are read"
    elif probe.raw:
        yield "BTF, by which arguments of tracepoints are read"
