# SPDX-License-Identifier: Apache-2.0
"""The hooks of the layer ``acme``. They only return data: fencepath attaches, records and joins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fencepath.calls import CallTable
from fencepath.entities import EntityTracker
from fencepath.events import Event
from fencepath.joins import GraphRule, JoinRule
from fencepath.plugin import (
    Alternative,
    AttributeValue,
    BpfSource,
    CallProbe,
    Check,
    Decoder,
    LayerInfo,
    ProbeSet,
    StackLink,
    TracepointProbe,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.system import System
from fencepath.tracepoints import From, Missing, Take, TracepointRecord

from fencepath_acme import __version__
from fencepath_acme.decoder import LABELS, LayerDecoder
from fencepath_acme.entities import Streams
from fencepath_acme.events import DOORBELL, DOORBELL_LAYOUT, DOORBELL_SIGNAL, EVENTS
from fencepath_acme.functions import TABLE
from fencepath_acme.rules import RULES

_BPF = Path(__file__).parent / "bpf"

RING = TracepointRecord(
    kind=DOORBELL,
    group="signal",
    event="signal_generate",
    fields=(
        Take("sig", "s32", as_="signal"),
        Take("code", "s32"),
        Take("pid", "u32", as_="device_tid"),
        Take("result", "s32", as_="delivery", optional=True),
    ),
    alternatives=(
        # what was asked for, not what became of it
        From("syscalls", "sys_enter_tgkill", (Take("sig", "s32", as_="signal"), Take("pid", "u32", as_="device_tid"))),
    ),
    in_task=True,
)
"""A doorbell, with everything it may come from, best first. What a kernel has decides, never its version."""

_STACK = "libacme on its device"
LINKS = (
    StackLink(stack=_STACK, link="call", state="seen"),
    StackLink(stack=_STACK, link="submit", state="seen", text="doorbells"),
    StackLink(stack=_STACK, link="queue", state="no", text="the library keeps its queue to itself"),
)
"""Which links of a request's path there are. ``seen`` is what a test compares with what the device says it did."""


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say who the plugin is, and for which API it was written."""
    return LayerInfo(
        name="acme", title="libacme: streams, jobs and waits", version=__version__, api=(1, 0), links=LINKS
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    """Return the event classes."""
    return EVENTS


@hookimpl
def fencepath_call_tables() -> Sequence[CallTable]:
    """Return the functions, for docs and checks."""
    return (TABLE,)


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    """Return what to attach: the runtime's functions, and the doorbells behind them."""
    del system
    calls = Alternative(probes=(CallProbe(table=TABLE),), gives=TABLE.kinds, bpf=BpfSource(path=_BPF / "calls.c"))
    doorbells = Alternative(
        probes=(TracepointProbe(record=RING, program="on_doorbell"),),
        gives=(DOORBELL,),
        layouts=(DOORBELL_LAYOUT,),
        bpf=BpfSource(path=_BPF / "doorbell.c", defines={"ACME_DOORBELL": DOORBELL_SIGNAL}, tracepoints=(RING,)),
    )
    return (
        ProbeSet(name="calls", detail="sync", alternatives=(calls,)),
        ProbeSet(name="doorbells", detail="launch", alternatives=(doorbells,)),
    )


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    """Say what this machine lacks, what is lost by that and what to do about it."""
    found = RING.resolve(system.tracepoints)
    if isinstance(found, Missing):
        yield Check(
            name="doorbells",
            verdict="degrade",
            evidence=str(found),
            cost="it is not seen when a device is told of a job",
            remedy="use a kernel with CONFIG_FTRACE",
        )
    else:
        yield Check(name="doorbells", verdict="ok", evidence=found.name)


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Decoder:
    """Return the decoder of one recording."""
    del layouts
    return LayerDecoder(functions.get("acme", ()))


@hookimpl
def fencepath_entities() -> EntityTracker:
    """Return a new tracker of streams."""
    return Streams()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    """Return the join rules."""
    return RULES


@hookimpl
def fencepath_span_attributes(kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Say in an exported span what a call was about."""
    del kind
    label = int(row.get("label", -1))
    found: dict[str, AttributeValue] = {"acme.function": LABELS[label]} if 0 <= label < len(LABELS) else {}
    return found | {f"acme.{name}": row[name] for name in ("kernel", "bytes") if row.get(name)}
