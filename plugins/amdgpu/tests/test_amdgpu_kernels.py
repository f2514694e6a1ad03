# SPDX-License-Identifier: Apache-2.0
"""What the layer ``amdgpu`` takes on which kernel: on saved ones, on one of before 5.5, and where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.kernel_formats import changed, layout, saved_kernel, unpack

from fencepath.plugin import Alternative, ProbeSet, TracepointProbe
from fencepath.system import System
from fencepath.testing import without_events
from fencepath.tracepoints import Missing, Resolved, parse_format
from fencepath_amdgpu import plugin
from fencepath_amdgpu.events import EVENTS
from fencepath_amdgpu.kfd_events import KFD_EVENTS
from fencepath_amdgpu.tracepoints import INTERRUPTS, JOB_STEPS, JOBS, MEMORY, PASIDS, USER_QUEUES

DATA = Path(__file__).with_name("data")
CORE = DATA / "core-6.18.formats"
KERNELS = sorted(path for path in DATA.glob("*.formats") if path != CORE)
NEWEST = DATA / "7.3.4+deb13-amd64.formats"
ALL_SETS = {
    "jobs", "memory", "address spaces", "interrupts", "amdgpu_isolation", "amdgpu_cleaner_shader", "user queues",
    "evictions of ROCm processes", "/dev/kfd",
}  # fmt: skip
LATER = {"amdgpu_isolation", "amdgpu_cleaner_shader", "user queues"}


def possible(system: System) -> dict[str, Alternative]:
    """For each probe set the first alternative that the machine has in full."""
    found: dict[str, Alternative] = {}
    for probe_set in plugin.fencepath_probes(system):
        chosen = next((each for each in probe_set.alternatives if not lacking(each, system)), None)
        if chosen is not None:
            found[probe_set.name] = chosen
    return found


def lacking(alternative: Alternative, system: System) -> list[Missing]:
    probes = [probe for probe in alternative.probes if isinstance(probe, TracepointProbe)]
    found = [probe.record.resolve(system.tracepoints) for probe in probes]
    return [each for each in found if isinstance(each, Missing)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_every_saved_format_is_read(kernel: Path) -> None:
    events = list(unpack(kernel))
    assert len(events) > 20
    for group, event, text in events:
        parsed = parse_format(text, group)
        assert parsed.name == f"{group}:{event}"
        assert len(parsed.own_fields) == text.count("field:") - 4


@pytest.mark.parametrize(
    ("kernel", "absent"),
    [(KERNELS[0], LATER), (KERNELS[1], LATER), (KERNELS[2], {"user queues"}), (KERNELS[3], set[str]())],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_probe_sets_of_saved_kernels(kernel: Path, absent: set[str], tmp_path: Path) -> None:
    found = possible(saved_kernel(tmp_path, kernel, CORE))
    assert set(found) == ALL_SETS - absent
    assert not [alternative.loses for alternative in found.values() if alternative.loses]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_all_fields_are_given_by_saved_kernels(kernel: Path, tmp_path: Path) -> None:
    system = saved_kernel(tmp_path, kernel)
    for records in (JOBS, JOB_STEPS, MEMORY, PASIDS, INTERRUPTS):
        for record in records.values():
            resolved = record.resolve(system.tracepoints)
            assert isinstance(resolved, Resolved)
            assert resolved.absent == ()


def test_kinds_are_given_by_probe_sets(tmp_path: Path) -> None:
    sets: list[ProbeSet] = list(plugin.fencepath_probes(saved_kernel(tmp_path, NEWEST, CORE)))
    given = {kind for probe_set in sets for each in probe_set.alternatives for kind in each.gives}
    assert len(given) == len(EVENTS) + len(KFD_EVENTS)


OLD = {
    "amdgpu_cs_ioctl": "u64 sched_job_id; __data_loc char[] timeline; u32 context; u32 seqno; struct dma_fence * fence; char * ring_name; u32 num_ibs",
    "amdgpu_sched_run_job": "u64 sched_job_id; __data_loc char[] timeline; u32 context; u32 seqno; char * ring_name; u32 num_ibs",
    "amdgpu_vm_flush": "u64 pd_addr; u32 ring; u32 id",
    "amdgpu_ttm_bo_move": "struct amdgpu_bo * bo; u64 bo_size; u32 new_placement; u32 old_placement",
    "amdgpu_bo_create": "struct amdgpu_bo * bo; u32 pages; u32 type; u32 prefer; u32 allow; u32 visible",
    "amdgpu_vm_bo_map": "struct amdgpu_bo * bo; long start; long last; u64 offset; u32 flags",
    "amdgpu_vm_bo_unmap": "struct amdgpu_bo * bo; long start; long last; u64 offset; u32 flags",
    "amdgpu_iv": "unsigned client_id; unsigned src_id; unsigned ring_id; unsigned vm_id; unsigned vm_id_src; u64 timestamp; unsigned timestamp_src; unsigned pas_id; unsigned src_data[4]",
}
"""Fields of 4.16, from drivers/gpu/drm/amd/amdgpu/amdgpu_trace.h."""


def old_kernel(folder: Path) -> System:
    for event, fields in OLD.items():
        path = folder / "4.16" / "amdgpu" / f"{event}.format"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(layout(event, fields))
    return System.from_formats(folder / "4.16", detail="full")


def test_names_of_before(tmp_path: Path) -> None:
    system = old_kernel(tmp_path)
    found = possible(system)
    # there is no ib_pipe_sync and no pasid event yet
    assert set(found) == {"jobs", "memory", "interrupts", "/dev/kfd"}
    assert found["jobs"].loses == "flushes and pipeline waits of jobs"
    assert "other processes'" in found["interrupts"].loses
    cs = JOBS["on_cs"].resolve(system.tracepoints)
    assert isinstance(cs, Resolved)
    names = {binding.take.target: binding.field and (binding.field.name, binding.field.type) for binding in cs.bindings}
    assert names["ring"] == ("ring_name", "char *")
    assert names["fence_context"] == ("context", "u32")
    move = MEMORY["on_bo_move"].resolve(system.tracepoints)
    assert isinstance(move, Resolved)
    assert move.name == "amdgpu:amdgpu_ttm_bo_move"
    interrupt = INTERRUPTS["on_interrupt"].resolve(system.tracepoints)
    assert isinstance(interrupt, Resolved)
    assert interrupt.absent == ("ring",)
    flush = JOB_STEPS["on_flush"].resolve(system.tracepoints)
    assert isinstance(flush, Resolved)
    assert flush.absent == ("hub",)


def with_event(system: System, folder: Path, event: str, text: str) -> System:
    """The machine with another format of one event."""
    group, _, name = event.partition(":")
    (folder / system.kernel / group / f"{name}.format").write_text(text)
    return System.from_formats(folder / system.kernel, detail="full")


def format_of(kernel: Path, event: str) -> str:
    return next(text for group, name, text in unpack(kernel) if f"{group}:{name}" == event)


def test_fields_that_lie_elsewhere_are_found(tmp_path: Path) -> None:
    event = "amdgpu:amdgpu_cs_ioctl"
    # in another order, behind a field that is new; the number of buffers has become wider
    text = changed(format_of(NEWEST, event), fresh="u64 fresh", num_ibs="u16 num_ibs", seqno="u64 seqno")
    system = with_event(saved_kernel(tmp_path, NEWEST, CORE), tmp_path, event, text)
    found = JOBS["on_cs"].resolve(system.tracepoints)
    assert isinstance(found, Resolved)
    places = {
        binding.take.target: binding.field and (binding.field.offset, binding.field.size) for binding in found.bindings
    }
    assert places["ibs"] == (16, 2)
    assert places["fence_seqno"] == (24, 8)
    assert places["fence_context"] == (40, 8)


def test_a_field_that_is_too_wide_is_refused_and_said(tmp_path: Path) -> None:
    event = "amdgpu:amdgpu_cs_ioctl"
    text = changed(format_of(NEWEST, event), num_ibs="u64 num_ibs")
    system = with_event(saved_kernel(tmp_path, NEWEST, CORE), tmp_path, event, text)
    assert "jobs" not in possible(system)
    checks = {check.name: check for check in plugin.fencepath_checks(system)}
    assert checks["tracepoints of amdgpu"].verdict == "degrade"
    assert "num_ibs has 8 bytes" in checks["tracepoints of amdgpu"].evidence


def test_a_field_that_is_missing_costs_its_set_only(tmp_path: Path) -> None:
    event = "amdgpu:amdgpu_vm_bo_map"
    text = changed(format_of(NEWEST, event), bo=None)
    system = with_event(saved_kernel(tmp_path, NEWEST, CORE), tmp_path, event, text)
    assert set(possible(system)) == ALL_SETS - {"memory"}


def test_an_event_that_is_missing_is_said(tmp_path: Path) -> None:
    system = without_events(saved_kernel(tmp_path, NEWEST, CORE), "amdgpu:amdgpu_ib_pipe_sync")
    assert possible(system)["jobs"].gives == ("amdgpu.cs", "amdgpu.run")
    (missing, *_) = [check for check in plugin.fencepath_checks(system) if check.verdict == "degrade"]
    assert "amdgpu_ib_pipe_sync" in missing.evidence


def test_without_the_module_nothing_is_attached_to_fences(tmp_path: Path) -> None:
    """Those of amdkfd are found among all fences, which is no use where there can be none."""
    names = [f"amdgpu:{name}" for group, name, _ in unpack(NEWEST) if group == "amdgpu"]
    system = without_events(saved_kernel(tmp_path, NEWEST, CORE), *names)
    assert set(possible(system)) == {"/dev/kfd"}
    (check,) = plugin.fencepath_checks(system)
    assert "not loaded" in check.evidence


def test_user_queues_are_all_or_nothing(tmp_path: Path) -> None:
    system = without_events(saved_kernel(tmp_path, NEWEST, CORE), "amdgpu:amdgpu_userq_emit_fence")
    assert "user queues" not in possible(system)
    assert len(USER_QUEUES) == 8
