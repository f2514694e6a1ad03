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
from fencepath_drm.layouts import LAYOUTS
from fencepath_drm.probes import RAW_OFFERED, probe_sets

pytestmark = pytest.mark.bpf

FORMATS = Path(__file__).with_name("formats")
FENCES = {"DRM_FENCE_CONTEXT": 32, "DRM_FENCE_SEQNO": 40}
SCHEDULER = {"DRM_FENCE_FINISHED": 64, "DRM_FENCE_TO_SCHEDULER": 80, "DRM_JOB_FENCE": 24}
DEVICE = {"DRM_SCHEDULER_DEVICE": 504, "DRM_DEVICE_NAME": 16}
KNOWN = {"nothing": {}, "fences": FENCES, "schedulers": FENCES | SCHEDULER, "devices": FENCES | SCHEDULER | DEVICE}


def planned(kernel: str, index: int, defines: dict[str, int]) -> PlannedSet:
    """An alternative of the jobs as it would be where BTF gives `defines`."""
    registry = load_plugins(extra={"drm": drm}, entry_points=False)
    system = System.from_formats(FORMATS / kernel, detail="full")
    jobs = probe_sets(system)[0]
    way = jobs.alternatives[index]
    assert way.bpf is not None
    source = BpfSource(path=way.bpf.path, defines={**way.bpf.defines, **defines}, tracepoints=way.bpf.tracepoints)
    alternative = Alternative(probes=way.probes, gives=way.gives, layouts=way.layouts, bpf=source)
    one = ProbeSet(name="jobs", detail="sync", alternatives=(alternative,))
    found = resolve_alternative(registry.plugins["drm"], one, alternative, system)
    assert isinstance(found, PlannedSet), found
    return found


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize(("kernel", "index"), [("6.1", 1), ("6.12", 1), ("6.17", 0), ("7.3", 0), ("7.3", 2)])
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
    if not RAW_OFFERED or known == "nothing":
        return []
    jobs = ["on_done_raw"] if index < 2 and known != "fences" else []
    old = ["on_dependency_raw"] if jobs and kernel in ("6.1", "6.12") else []
    return ["on_signaled_raw", *jobs, *old]


def test_programs_are_attached_raw_only_where_it_is_offered() -> None:
    way = probe_sets(System.here("full"))[0].alternatives[-1]
    names = {probe.program for probe in way.probes if isinstance(probe, TracepointProbe)}
    assert ("on_signaled_raw" in names) is RAW_OFFERED
    assert ("on_signaled" in names) is not RAW_OFFERED
