# SPDX-License-Identifier: Apache-2.0
"""What is taken on which kernel, without being there: from formats saved there, whole and damaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fencepath.plugin import Alternative, Check, Detail, ProbeSet, TracepointProbe
from fencepath.system import System
from fencepath.testing import without_events
from fencepath.tracepoints import Missing, Resolved
from fencepath_drm import tracepoints
from fencepath_drm.checks import checks
from fencepath_drm.ioctls import DRIVERS, Requests, ioctl_table
from fencepath_drm.probes import blocked_is_safe, names_are_old, probe_sets
from fencepath_drm.structures import structure_defines

FORMATS = Path(__file__).with_name("formats")
OLD, NEW = ("6.1", "6.12"), ("6.17", "7.3")
RECORDS = {
    name: record
    for name, record in vars(tracepoints).items()
    if name in tracepoints.__all__ and name not in ("BLOCKED", "WAKE")
}


def machine(kernel: str, *lacking: str, detail: Detail = "full") -> System:
    return without_events(System.from_formats(FORMATS / kernel, detail=detail), *lacking)


def chosen(system: System, name: str = "jobs") -> Alternative | None:
    """The first alternative that a machine has in full."""
    (probe_set,) = (one for one in probe_sets(system) if one.name == name)
    return next((way for way in probe_set.alternatives if not _lacks(way, system)), None)


def _lacks(way: Alternative, system: System) -> bool:
    probes = [probe for probe in way.probes if isinstance(probe, TracepointProbe)]
    return any(isinstance(probe.record.resolve(system.tracepoints), Missing) for probe in probes)


@pytest.mark.parametrize("kernel", [*OLD, *NEW])
@pytest.mark.parametrize("name", sorted(RECORDS))
def test_every_record_is_found_by_what_is_there(kernel: str, name: str) -> None:
    found = RECORDS[name].resolve(machine(kernel).tracepoints)
    assert isinstance(found, Resolved)
    scheduler = found.format.group == "gpu_scheduler"
    assert found.choice == int(scheduler and kernel in OLD)
    if scheduler:
        assert set(found.absent) & {"fence_context", "fence_address", "fence_seqno"} == (
            {"fence_context", "fence_seqno"} if kernel in OLD else {"fence_address"} if name != "DEPENDENCY" else set()
        )


@pytest.mark.parametrize("kernel", [*OLD, *NEW])
def test_both_generations_give_the_same_kinds(kernel: str) -> None:
    way = chosen(machine(kernel))
    assert way is not None
    new = {"drm.job.blocked"} if kernel in NEW else set[str]()
    assert set(way.gives) - new == {
        *("drm.job.queue", "drm.job.run", "drm.job.done", "drm.job.dependency"),
        *("drm.fence.init", "drm.fence.signaled", "drm.fence.wait", "drm.fence.part"),
    }
    assert way.loses == "which signal woke a thread: told by nearness"  # saved without the scheduler's events
    assert names_are_old(machine(kernel)) is (kernel in OLD)


def test_with_the_scheduler_s_events_wakes_are_recorded(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / "7.3", tmp_path / "kernel")
    live = (Path("/sys/kernel/tracing/events/sched/sched_waking/format")).read_text()
    (tmp_path / "kernel/sched").mkdir()
    (tmp_path / "kernel/sched/sched_waking.format").write_text(live)
    way = chosen(System.from_formats(tmp_path / "kernel", detail="full"))
    assert way is not None
    assert "drm.fence.wake" in way.gives
    assert way.loses == ""


def test_the_making_of_fences_is_recorded_at_full_detail_only() -> None:
    for detail, there in (("sync", False), ("launch", False), ("full", True)):
        way = chosen(machine("7.3", detail=detail))  # type: ignore[arg-type]  # one of the literals
        assert way is not None
        assert ("drm.fence.init" in way.gives) is there


def test_without_the_scheduler_there_are_fences_and_the_loss_is_said(tmp_path: Path) -> None:
    for group in ("dma_fence", "drm"):
        shutil.copytree(FORMATS / "7.3" / group, tmp_path / group)
    system = System.from_formats(tmp_path, detail="full")
    way = chosen(system)
    assert way is not None
    assert set(way.gives) == {"drm.fence.init", "drm.fence.signaled", "drm.fence.wait", "drm.fence.part"}
    assert "no driver that uses the GPU scheduler" in way.loses
    verdicts = {check.name: check for check in checks(system)}
    scheduler = verdicts["GPU scheduler"]
    assert scheduler.verdict == "degrade"
    assert "NVIDIA's own do not use" in scheduler.remedy
    assert not [name for name in verdicts if "drm_sched_job_queue" in name], "one cause is said once"


def test_without_any_group_nothing_is_attached_and_every_check_says_so(tmp_path: Path) -> None:
    system = System.from_formats(tmp_path, detail="full")
    assert chosen(system) is None
    assert chosen(system, "vblank") is None
    found = [check for check in checks(system) if check.verdict == "ok"]
    assert [check.name for check in found] == ["tracepoint gpu_scheduler:drm_sched_job_unschedulable"]


def changed(tmp_path: Path, event: str, pattern: str, text: str) -> System:
    """A 7.3 of which one format is another."""
    shutil.copytree(FORMATS / "7.3", tmp_path / "kernel")
    path = tmp_path / "kernel" / f"{event}.format"
    before = path.read_text()
    path.write_text(re.sub(pattern, text, before))
    assert path.read_text() != before
    return System.from_formats(tmp_path / "kernel", detail="full")


def test_a_key_that_is_missing_refuses_the_event_and_names_it(tmp_path: Path) -> None:
    system = changed(tmp_path, "gpu_scheduler/drm_sched_job_done", r"\tfield:u64 fence_seqno;.*\n", "")
    assert isinstance(found := tracepoints.DONE.resolve(system.tracepoints), Missing)
    assert "no field fence_seqno" in str(found)
    way = chosen(system)
    assert way is not None
    assert set(way.gives) == {"drm.fence.init", "drm.fence.signaled", "drm.fence.wait", "drm.fence.part"}


def test_what_can_be_done_without_may_be_missing(tmp_path: Path) -> None:
    system = changed(tmp_path, "gpu_scheduler/drm_sched_job_queue", r"\tfield:u64 client_id;.*\n", "")
    found = tracepoints.QUEUE.resolve(system.tracepoints)
    assert isinstance(found, Resolved)
    assert "client_id" in found.absent


def test_fields_may_stand_elsewhere(tmp_path: Path) -> None:
    order = r"(\tfield:u64 fence_context;.*)offset:24;(.*\n\tfield:u64 fence_seqno;.*)offset:32;"
    system = changed(tmp_path, "gpu_scheduler/drm_sched_job_queue", order, r"\1offset:32;\2offset:24;")
    found = tracepoints.QUEUE.resolve(system.tracepoints)
    assert isinstance(found, Resolved)
    offsets = {one.take.target: one.field.offset for one in found.bindings if one.field is not None}
    assert (offsets["fence_context"], offsets["fence_seqno"]) == (32, 24)


def test_a_fence_that_becomes_wider_gives_its_low_half(tmp_path: Path) -> None:
    wide = r"field:unsigned int context;\toffset:16;\tsize:4;"
    system = changed(tmp_path, "dma_fence/dma_fence_signaled", wide, "field:u64 context;\toffset:16;\tsize:8;")
    assert isinstance(tracepoints.SIGNALED.resolve(system.tracepoints), Resolved)


def test_a_number_that_becomes_wider_is_not_cut(tmp_path: Path) -> None:
    wide = r"field:u64 fence_context;\toffset:8;\tsize:8;"
    system = changed(
        tmp_path, "gpu_scheduler/drm_sched_job_done", wide, "field:u64 fence_context[2];\toffset:8;\tsize:16;"
    )
    assert isinstance(tracepoints.DONE.resolve(system.tracepoints), Missing)


@pytest.mark.parametrize(
    ("release", "safe"),
    [
        ("6.17.0", False),
        ("6.17.13+deb13-amd64", False),
        ("6.18.15+deb13-amd64", True),
        ("7.3.4+deb13-amd64", True),
        ("5.14.0-611.el9", False),
        ("10.0", True),
        ("somebody's", False),
    ],
)
def test_an_event_that_can_crash_early_kernels_is_left_alone_there(release: str, safe: bool) -> None:
    assert blocked_is_safe(release) is safe
    system = machine("7.3")
    live = System(tracepoints=system.tracepoints, architecture="x86_64", kernel=release, detail="full", live=True)
    way = chosen(live)
    assert way is not None
    assert ("drm.job.blocked" in way.gives) is safe
    (check,) = (one for one in checks(live) if one.name.endswith("drm_sched_job_unschedulable"))
    assert check.verdict == ("ok" if safe else "warn")


def test_old_kernels_say_how_jobs_are_named() -> None:
    system = machine("6.1")
    live = System(tracepoints=system.tracepoints, architecture="x86_64", kernel="6.1.0", detail="full", live=True)
    (check,) = (one for one in checks(live) if one.name == "names of jobs")
    # this kernel's BTF has fences, and no module of it the scheduler
    assert isinstance(check, Check)
    assert check.verdict in ("ok", "warn")
    assert check.evidence


def test_waits_are_recorded_always_and_the_rest_from_launch_on() -> None:
    assert ioctl_table("sync").kinds == ("drm.wait",)
    assert set(ioctl_table("launch").kinds) == {"drm.wait", "drm.job.submit", "drm.ioctl"}
    for detail in ("sync", "launch"):
        names = [row.name for row in ioctl_table(detail).rows if row.kind == "drm.wait"]
        # each class of devices has its own, for a device is of one class only
        assert names.count("SYNCOBJ_WAIT") == len(DRIVERS) + 1


def test_requests_of_a_driver_are_its_own_devices_alone() -> None:
    table = ioctl_table("launch", {"mine": Requests({0x40: "MINE_SUBMIT"}, {0x41: "MINE_WAIT"})})
    rows = {
        (entry.kind, getattr(entry, "device", ""), row.name)
        for entry, row in zip(table.entries, table.rows, strict=True)
    }
    assert ("drm.job.submit", "drm-mine", "MINE_SUBMIT") in rows
    assert ("drm.wait", "drm-mine", "MINE_WAIT") in rows
    assert not [row for row in rows if row[1] == "drm" and row[2].startswith("MINE")]
    (device,) = (one for one in table.devices if one.name == "drm-mine")
    assert (device.major, device.kernel_driver) == (226, "mine")


def test_probe_sets_are_three() -> None:
    assert [(one.name, one.detail) for one in probe_sets(machine("7.3"))] == [
        ("jobs", "sync"),
        ("ioctls", "sync"),
        ("vblank", "launch"),
    ]
    assert all(isinstance(one, ProbeSet) for one in probe_sets(machine("7.3")))


def test_this_kernel_says_where_fences_keep_their_names() -> None:
    defines = structure_defines()
    assert {"DRM_FENCE_CONTEXT", "DRM_FENCE_SEQNO"} <= set(defines)
    assert defines["DRM_FENCE_SEQNO"] == defines["DRM_FENCE_CONTEXT"] + 8
