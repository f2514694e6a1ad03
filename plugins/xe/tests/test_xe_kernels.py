# SPDX-License-Identifier: Apache-2.0
"""What the layer ``xe`` takes on which kernel: on saved ones, on one of 6.8, and where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.kernel_formats import changed, layout, saved_kernel, unpack

from fencepath.plugin import Alternative, TracepointProbe
from fencepath.system import System
from fencepath.testing import without_events
from fencepath.tracepoints import Resolved, TracepointRecord, parse_format
from fencepath_xe import plugin
from fencepath_xe.events import EVENTS
from fencepath_xe.kinds import ACTIONS, QUEUE_ERROR
from fencepath_xe.tracepoints import EXTRA_JOBS, EXTRA_QUEUES, EXTRA_VMS, JOBS, MOVES, QUEUES, TLB, VMS

KERNELS = sorted(Path(__file__).with_name("data").glob("*.formats"))
V6_12, V6_17, V7_3 = KERNELS
MAIN = {"jobs", "queues", "moves", "address spaces"}
TLB_SETS = {"tlb.send", "tlb.recv", "tlb.signal", "tlb.timeout"}
ALL_SETS = MAIN | TLB_SETS | {"bo.create", "bo.validate", "bo.fault"}


def possible(system: System) -> dict[str, Alternative]:
    """For each probe set the first alternative that the machine has in full."""
    found: dict[str, Alternative] = {}
    for probe_set in plugin.fencepath_probes(system):
        for alternative in probe_set.alternatives:
            probes = [probe for probe in alternative.probes if isinstance(probe, TracepointProbe)]
            if all(isinstance(probe.record.resolve(system.tracepoints), Resolved) for probe in probes):
                found.setdefault(probe_set.name, alternative)
    return found


def resolved(record: TracepointRecord, system: System) -> Resolved:
    found = record.resolve(system.tracepoints)
    assert isinstance(found, Resolved), found
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_every_saved_format_is_read(kernel: Path) -> None:
    events = list(unpack(kernel))
    assert len(events) >= 74
    for group, event, text in events:
        parsed = parse_format(text, group)
        assert parsed.name == f"{group}:{event}"
        assert len(parsed.own_fields) == text.count("field:") - 4


@pytest.mark.parametrize(
    ("kernel", "absent", "queues", "vms"),
    [
        (V6_12, {"bo.create", "bo.validate"}, 18, 23),
        (V6_17, set[str](), 18, 23),
        (V7_3, set[str](), 21, 23),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_probe_sets_of_saved_kernels(kernel: Path, absent: set[str], queues: int, vms: int, tmp_path: Path) -> None:
    found = possible(saved_kernel(tmp_path, kernel))
    assert set(found) == ALL_SETS - absent
    assert len(found["jobs"].probes) == len(JOBS) + len(EXTRA_JOBS)
    assert len(found["queues"].probes) == queues
    assert len(found["address spaces"].probes) == vms


def test_what_a_kernel_has_not_is_said(tmp_path: Path) -> None:
    old, new = (possible(saved_kernel(tmp_path, kernel)) for kernel in (V6_12, V7_3))
    assert "xe_exec_queue_create_multi_queue" in old["queues"].loses
    assert "xe_guc_uncorrectable_error" in old["queues"].loses
    assert new["queues"].loses == "this kernel has no xe_exec_queue_lr_cleanup"
    assert not new["jobs"].loses


def test_fields_that_came_later(tmp_path: Path) -> None:
    old, new = (saved_kernel(tmp_path, kernel) for kernel in (V6_12, V7_3))
    assert resolved(JOBS["on_sched_job_run"], old).absent == ("gt",)
    assert resolved(JOBS["on_sched_job_run"], new).absent == ()
    assert resolved(VMS["on_vma_bind"], old).absent == ("vm",)
    assert resolved(VMS["on_vm_create"], old).absent == ("vm_flags",)
    assert resolved(VMS["on_vma_bind"], new).absent == resolved(VMS["on_vm_create"], new).absent == ()
    assert resolved(MOVES["on_bo_move"], old).absent == resolved(MOVES["on_bo_move"], new).absent == ()


def test_an_engine_class_is_an_enum(tmp_path: Path) -> None:
    found = resolved(QUEUES["on_exec_queue_create"], saved_kernel(tmp_path, V7_3))
    (field,) = (binding.field for binding in found.bindings if binding.take.target == "engine_class")
    assert field is not None
    assert (field.type, field.size, field.offset) == ("enum xe_engine_class", 4, 12)


@pytest.mark.parametrize(
    ("kernel", "name"), [(V6_12, "xe_gt_tlb_invalidation_fence"), (V6_17, "xe_gt_tlb_invalidation_fence"), (V7_3, "xe_tlb_inval_fence")]
)  # fmt: skip
def test_invalidations_have_two_names(kernel: Path, name: str, tmp_path: Path) -> None:
    system = saved_kernel(tmp_path, kernel)
    found = [resolved(record, system) for record in TLB]
    assert [each.name for each in found] == [f"xe:{name}_{verb}" for verb in ("send", "recv", "signal", "timeout")]
    assert {each.prefix for each in found} == {
        f"xe_tlb_inval_fence_{verb}" for verb in ("send", "recv", "signal", "timeout")
    }


def test_kinds_are_given(tmp_path: Path) -> None:
    found = possible(saved_kernel(tmp_path, V7_3))
    given = {kind for alternative in found.values() for kind in alternative.gives}
    assert given == {str(event.__struct_config__.tag) for event in EVENTS}


def test_without_the_module_everything_is_declared_and_nothing_possible(tmp_path: Path) -> None:
    names = [f"{group}:{event}" for group, event, _ in unpack(V7_3)]
    system = without_events(saved_kernel(tmp_path, V7_3), *names)
    assert possible(system) == {}
    queues = next(each for each in plugin.fencepath_probes(system) if each.name == "queues")
    assert len(queues.alternatives[0].probes) == len(QUEUES) + len(EXTRA_QUEUES)
    (check,) = plugin.fencepath_checks(system)
    assert (check.verdict, check.evidence) == ("ok", "the module xe is not loaded")


def test_the_actions_of_programs_have_their_names() -> None:
    """What BPF writes as a number is the place of the event's name in the table."""
    assert ACTIONS[QUEUE_ERROR].index("uncorrectable_error") == 5
    for kind, names in ACTIONS.items():
        records = (*JOBS.values(), *EXTRA_JOBS.values(), *QUEUES.values(), *EXTRA_QUEUES.values())
        events = [record.event for record in (*records, *VMS.values(), *EXTRA_VMS.values()) if record.kind == kind]
        assert len(events) == len(names)
        assert all(any(event.endswith(f"_{name}") for event in events) for name in names)


def replaced(folder: Path, event: str, **fields: str | None) -> System:
    """The newest kernel with fields of one event laid out anew."""
    system = saved_kernel(folder, V7_3)
    path = folder / V7_3.stem / "xe" / f"{event}.format"
    path.write_text(changed(path.read_text(), **fields))
    return System.from_formats(folder / V7_3.stem, detail=system.detail)


def test_fields_that_lie_elsewhere_are_found(tmp_path: Path) -> None:
    system = replaced(
        tmp_path, "xe_sched_job_run", fresh="u64 fresh", guc_id="u16 guc_id", fence="struct dma_fence * fence"
    )
    found = resolved(JOBS["on_sched_job_run"], system)
    places = {binding.take.target: binding.field and binding.field.offset for binding in found.bindings}
    assert (places["guc_id"], places["fence_address"]) == (16, 24)


def test_a_field_that_is_wider_or_missing_costs_its_set_and_is_said(tmp_path: Path) -> None:
    wide = replaced(tmp_path / "wide", "xe_sched_job_run", guc_id="u32 guc_id")
    assert set(possible(wide)) == ALL_SETS - {"jobs"}
    (check,) = plugin.fencepath_checks(wide)
    assert check.verdict == "degrade"
    assert "guc_id has 4 bytes" in check.evidence
    less = replaced(tmp_path / "less", "xe_vma_unbind", start=None)
    assert set(possible(less)) == ALL_SETS - {"address spaces"}


def test_a_further_event_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    system = replaced(tmp_path, "xe_exec_queue_submit", guc_id=None)
    assert "xe_exec_queue_submit" in possible(system)["queues"].loses


OLD = {
    "xe_sched_job_exec": "u32 seqno; u32 lrc_seqno; u16 guc_id; u32 guc_state; u32 flags; int error; struct dma_fence * fence; u64 batch_addr",
    "xe_hw_fence_signal": "u64 ctx; u32 seqno; struct xe_hw_fence * fence",
    "xe_exec_queue_create": "enum xe_engine_class class; u32 logical_mask; u8 gt_id; u16 width; u16 guc_id; u32 guc_state; u32 flags",
}
"""Fields of 6.8 to 6.10, from drivers/gpu/drm/xe/xe_trace.h: without the device."""


def test_before_6_11_there_is_no_device(tmp_path: Path) -> None:
    for event, fields in OLD.items():
        path = tmp_path / "6.9" / "xe" / f"{event}.format"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(layout(event, fields))
    system = System.from_formats(tmp_path / "6.9", detail="full")
    assert resolved(JOBS["on_sched_job_exec"], system).absent == ("device", "gt")
    assert resolved(JOBS["on_hw_fence_signal"], system).absent == ("device",)
    assert resolved(QUEUES["on_exec_queue_create"], system).absent == ("device",)
