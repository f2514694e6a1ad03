# SPDX-License-Identifier: Apache-2.0
"""The BPF programs in the forms that other kernels' events and type information give them, loaded by this kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath._loader import load_plugins
from fencepath._record.plan import PlannedSet, resolve_alternative
from fencepath._record.programs import load_set
from fencepath.plugin import Alternative, BpfSource, ProbeSet, TracepointProbe
from fencepath.system import System
from fencepath_drm import plugin as drm
from fencepath_drm.layouts import LAYOUTS, PART, WAKE
from fencepath_drm.probes import probe_sets

pytestmark = pytest.mark.bpf

FORMATS = Path(__file__).with_name("formats")
FENCES: dict[str, str | int] = {"DRM_FENCE_CONTEXT": 32, "DRM_FENCE_SEQNO": 40}
SCHEDULER: dict[str, str | int] = {"DRM_FENCE_FINISHED": 64, "DRM_FENCE_TO_SCHEDULER": 80, "DRM_JOB_FENCE": 24}
DEVICE: dict[str, str | int] = {"DRM_SCHEDULER_DEVICE": 504, "DRM_DEVICE_NAME": 16}
WAKES: dict[str, str | int] = {
    "DRM_WAKES": 1,
    "DRM_TASK_PID": 1264,
    "DRM_SIGNAL_RANGES": "IN_RANGE(0xffffffff81000010ULL,0x60)|IN_RANGE(0xffffffff81000090ULL,9)",
}
PARTS: dict[str, str | int] = {
    "DRM_PARTS": 1,
    "DRM_FENCE_OPS": 8,
    "DRM_OPS_NAME": 0,
    "DRM_CHAIN_NAME": "0xffffffff82000000ULL",
    "DRM_CHAIN_FENCE": 80,
    "DRM_CHAIN_PREV": 64,
    "DRM_CHAIN_PREV_SEQNO": 72,
    "DRM_ARRAY_NAME": "0xffffffff82000100ULL",
    "DRM_ARRAY_COUNT": 68,
    "DRM_ARRAY_FENCES": 80,
}
RAW_ONLY = ("on_waking", "on_part", "on_part_again", "on_members")
FENCES_ALONE = 5
"""Of the alternatives of a saved machine: with and without wake-ups each, with blocked jobs and without, then fences alone."""
KNOWN: dict[str, dict[str, str | int]] = {
    "nothing": {},
    "fences": FENCES,
    "schedulers": FENCES | SCHEDULER,
    "devices": FENCES | SCHEDULER | DEVICE,
    "addresses": FENCES | SCHEDULER | DEVICE | WAKES | PARTS,
}


def _by_record(probe: TracepointProbe) -> TracepointProbe:
    """The same on the event's record, where there is such a program."""
    return TracepointProbe(record=probe.record, program=probe.program.removesuffix("_raw"))


def planned(kernel: str, index: int, defines: dict[str, str | int]) -> PlannedSet:
    """An alternative of the jobs as it would be where BTF gives `defines`."""
    registry = load_plugins(extra={"drm": drm}, entry_points=False)
    system = System.from_formats(FORMATS / kernel, detail="full")
    jobs = probe_sets(system)[0]
    way = jobs.alternatives[index]
    assert way.bpf is not None
    switches = {name: way.bpf.defines[name] for name in ("DRM_JOBS", "DRM_BLOCKED", "DRM_INITS")}
    source = BpfSource(
        path=way.bpf.path,
        defines={**switches, "DRM_PARTS": 0, "DRM_WAKES": 0, **defines},
        tracepoints=way.bpf.tracepoints,
    )
    probes = tuple(_by_record(probe) for probe in way.probes if isinstance(probe, TracepointProbe))
    probes = tuple(probe for probe in probes if probe.program not in RAW_ONLY)
    layouts = tuple({layout.kind: layout for layout in (*way.layouts, WAKE, PART)}.values())
    alternative = Alternative(probes=probes, gives=way.gives, layouts=layouts, bpf=source)
    one = ProbeSet(name="jobs", detail="sync", alternatives=(alternative,))
    found = resolve_alternative(registry.plugins["drm"], one, alternative, system)
    assert isinstance(found, PlannedSet), found
    return found


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize(("kernel", "index"), [("6.1", 3), ("6.12", 3), ("6.17", 2), ("7.3", 2), ("7.3", FENCES_ALONE)])
@pytest.mark.parametrize("all_processes", [False, True])
def test_every_program_is_accepted(kernel: str, index: int, known: str, all_processes: bool) -> None:
    one = planned(kernel, index, KNOWN[known])
    numbers = {kind: number for number, kind in enumerate(LAYOUTS, 1)}
    with Shared(numbers, rings=Rings(4 << 20), all_processes=all_processes) as shared:
        loaded = load_set(one, shared.defines(), "full")
        try:
            for program in one.programs:
                loaded.bpf.load(program.program, ProgramType.TRACEPOINT)
            for name in _raw(kernel, index, known):
                loaded.bpf.load(name, ProgramType.RAW_TRACEPOINT)
        finally:
            loaded.close()


def _raw(kernel: str, index: int, known: str) -> list[str]:
    """Programs on the tracepoints themselves that this much knowledge gives."""
    if known == "nothing":
        return []
    jobs = ["on_done_raw"] if index != FENCES_ALONE and known != "fences" else []
    old = ["on_dependency_raw"] if jobs and kernel in ("6.1", "6.12") else []
    addresses = ["on_waking_raw", "on_part_raw", "on_part_again_raw", "on_members_raw"] if known == "addresses" else []
    return ["on_signaled_raw", *jobs, *old, *addresses]


def test_what_interrupts_is_attached_to_the_tracepoint_itself() -> None:
    way = probe_sets(System.here("full"))[0].alternatives[-1]
    raw = {probe.program: probe.raw for probe in way.probes if isinstance(probe, TracepointProbe)}
    assert raw["on_signaled_raw"]
    assert "on_signaled" not in raw
    assert not raw["on_wait_start"]
