# SPDX-License-Identifier: Apache-2.0
"""The hooks of the layer ``cuda``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepath import __version__
from fencepath.calls import CallTable
from fencepath.entities import EntityTracker
from fencepath.events import Event
from fencepath.joins import Derived, GraphRule, JoinRule
from fencepath.plugin import (
    API_VERSION,
    Alternative,
    AttributeValue,
    BpfSource,
    CallProbe,
    Decoder,
    LayerInfo,
    ProbeSet,
    TableRule,
    hookimpl,
)
from fencepath.records import Layouts
from fencepath.system import System
from fencepath_cuda.attributes import span_attributes
from fencepath_cuda.code import code_for
from fencepath_cuda.decoder import CudaDecoder
from fencepath_cuda.demo import SimulatedServer
from fencepath_cuda.entities import CudaEntities
from fencepath_cuda.events import EVENTS
from fencepath_cuda.events.operation import Operation
from fencepath_cuda.functions import TABLE, table_for
from fencepath_cuda.model import CudaModel
from fencepath_cuda.rules import RUNTIME_RULES
from fencepath_cuda.stacks import LINKS
from fencepath_cuda.tables import TABLES

_BPF = Path(__file__).parent / "bpf" / "cuda.c"


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say who the plugin is."""
    return LayerInfo(
        name="cuda",
        title="calls of the CUDA driver and runtime APIs: launches, copies, waits, streams, CUDA events, graphs",
        version=__version__,
        api=API_VERSION,
        seen="on one H200 (driver 580.159.04, CUDA 13.0, PyTorch 2.11), whose calls, kernels and device times agree with CUPTI",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    """Return the event classes."""
    return (*EVENTS, Operation)


@hookimpl
def fencepath_call_tables() -> Sequence[CallTable]:
    """Return the table of all functions."""
    return (TABLE,)


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    """Return one probe set: the functions that are on at the asked detail."""
    table = table_for(system.detail)
    calls = Alternative(
        probes=(CallProbe(table=table, code=code_for(table)),), gives=table.kinds, bpf=BpfSource(path=_BPF)
    )
    return (ProbeSet(name="calls", detail="sync", alternatives=(calls,)),)


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Decoder:
    """Return the decoder of one recording."""
    del layouts
    return CudaDecoder(functions.get("cuda", ()))


@hookimpl
def fencepath_entities() -> EntityTracker:
    """Return a new tracker of streams and CUDA events."""
    return CudaEntities()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    """Return the rules between calls."""
    return RUNTIME_RULES


@hookimpl
def fencepath_derived() -> Derived:
    """Return a new model of what the device had to do."""
    return CudaModel()


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    """Return the layer's tables in the report."""
    return TABLES


@hookimpl
def fencepath_span_attributes(kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Return the attributes of a call's span."""
    del kind
    return span_attributes(row)


@hookimpl
def fencepath_demo() -> SimulatedServer:
    """Return the demo on simulated CUDA."""
    return SimulatedServer()
