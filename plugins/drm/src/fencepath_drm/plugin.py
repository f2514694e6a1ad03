# SPDX-License-Identifier: Apache-2.0
"""The hooks of the layer ``drm``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepath import __version__
from fencepath.entities import EntityTracker
from fencepath.events import Event
from fencepath.joins import Derived, GraphRule, JoinRule
from fencepath.plugin import API_VERSION, AttributeValue, Check, Decoder, LayerInfo, ProbeSet, TableRule, hookimpl
from fencepath.records import Layouts
from fencepath.system import System
from fencepath_drm.checks import checks
from fencepath_drm.clients import ClientWatch
from fencepath_drm.decoder import DrmDecoder
from fencepath_drm.derived import DrmDerived
from fencepath_drm.entities import DrmEntities
from fencepath_drm.events import EVENTS
from fencepath_drm.probes import probe_sets
from fencepath_drm.rules import RULES
from fencepath_drm.stacks import LINKS
from fencepath_drm.tables import tables


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say who the plugin is."""
    return LayerInfo(
        name="drm",
        title="jobs, fences and vblank of the kernel's GPU scheduler, on any DRM driver",
        version=__version__,
        api=API_VERSION,
        seen="on a driver without hardware in emulated machines (Linux 6.1, 6.12, 7.3), whose truth it equals",
        links=LINKS,
    )


@hookimpl
def fencepath_event_kinds() -> Sequence[type[Event]]:
    """Return the event classes."""
    return EVENTS


@hookimpl
def fencepath_probes(system: System) -> Sequence[ProbeSet]:
    """Return jobs with fences, system calls and vertical blanks."""
    return probe_sets(system)


@hookimpl
def fencepath_checks(system: System) -> Iterable[Check]:
    """Check which events there are and how jobs are named."""
    return checks(system)


@hookimpl
def fencepath_process_facts(system: System) -> ClientWatch:
    """Return what reads the fdinfo of the targets' open DRM devices."""
    del system
    return ClientWatch()


@hookimpl
def fencepath_decoder(layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> Decoder:
    """Return the decoder of one recording."""
    del layouts
    return DrmDecoder(functions)


@hookimpl
def fencepath_entities() -> EntityTracker:
    """Return a new tracker of fences, rings and GPUs."""
    return DrmEntities()


@hookimpl
def fencepath_rules() -> Sequence[JoinRule | GraphRule]:
    """Return the rules over recorded events."""
    return RULES


@hookimpl
def fencepath_derived() -> Derived:
    """Return what makes jobs and sleeps of the events."""
    return DrmDerived()


@hookimpl
def fencepath_tables() -> Sequence[TableRule]:
    """Return the tables of a report."""
    return tables()


@hookimpl
def fencepath_span_attributes(kind: str, row: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Return which fence, and which device's ring, a span is about."""
    del kind
    names = {"fence_context": "drm.fence.context", "fence_seqno": "drm.fence.seqno", "command": "drm.ioctl.command"}
    texts = {"dev": "drm.device", "ring_name": "drm.ring"}
    numbers: dict[str, AttributeValue] = {name: int(row[column]) for column, name in names.items() if column in row}
    return numbers | {name: str(row[column]) for column, name in texts.items() if row.get(column)}
