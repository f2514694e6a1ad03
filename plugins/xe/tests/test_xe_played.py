# SPDX-License-Identifier: Apache-2.0
"""The BPF programs of the layer ``xe``, run in this kernel by events that a process makes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.kernel_formats import saved_kernel
from tests.core.played import Theatre, played

from fencepath.records import Flags
from fencepath.system import System
from fencepath_xe.kinds import (
    BO_MOVE,
    FENCE_CREATE,
    FENCE_SIGNAL,
    JOB_CREATE,
    JOB_ERROR,
    JOB_EXEC,
    JOB_FREE,
    JOB_RUN,
    QUEUE_CREATE,
    QUEUE_DESTROY,
    QUEUE_ERROR,
    QUEUE_STATE,
    VM_CREATE,
    VM_ERROR,
    VM_FREE,
    VM_REBIND,
    VM_UPDATE,
    VMA_BIND,
    VMA_EVICT,
    VMA_FAULT,
    VMA_UNBIND,
)

pytestmark = pytest.mark.bpf

DATA = Path(__file__).with_name("data")
TASK = int(Flags.TASK)
Fields = dict[str, int | str]
OLD, NEW = "6.12.95+deb12-amd64", "7.3.4+deb13-amd64"


def kernel(folder: Path, name: str = NEW) -> System:
    return saved_kernel(folder, DATA / f"{name}.formats")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Theatre]:
    job = ("fence", "batch_addr", "seqno", "guc_state", "flags", "error", "guc_id", "dev")
    names = ("create", "exec", "run", "free", "timedout", "set_error", "ban")
    events: dict[str, tuple[str, ...]] = {f"xe:xe_sched_job_{name}": job for name in names}
    events |= {f"xe:xe_hw_fence_{name}": ("fence", "ctx", "seqno", "dev") for name in ("create", "signal")}
    with played("xe", "jobs", kernel(tmp_path), events) as theatre:
        yield theatre


def test_a_job_from_its_creation_to_its_end(jobs: Theatre) -> None:
    """The other process plays the scheduler and interrupts, and a stranger with jobs of its own."""
    target, other = jobs.target, jobs.other
    job: Fields = {"batch_addr": 1 << 40, "seqno": 5, "guc_id": 3, "guc_state": 6, "flags": 8, "dev": "0000:03:00.0"}
    target.play("xe:xe_sched_job_create", fence=0, **job)
    target.play("xe:xe_hw_fence_create", fence=0xFE0, ctx=71, seqno=5, dev="0000:03:00.0")
    target.play("xe:xe_sched_job_exec", fence=0xFE0, **job)
    other.play("xe:xe_hw_fence_create", fence=0xFE1, ctx=73, seqno=5)
    other.play("xe:xe_sched_job_exec", fence=0xFE1, **job)
    for fence in (0xFE0, 0xFE1):
        other.play("xe:xe_sched_job_run", fence=fence, **job)
        other.play("xe:xe_sched_job_timedout", fence=fence, **job)
        other.play("xe:xe_sched_job_ban", fence=fence, **job)
        other.play("xe:xe_sched_job_set_error", fence=fence, error=-125, **job)
        other.play("xe:xe_hw_fence_signal", fence=fence, ctx=71, seqno=5)
        other.play("xe:xe_sched_job_free", fence=fence, **job)
    # the address may be of another job now
    other.play("xe:xe_sched_job_run", fence=0xFE0, **job)
    columns = ("fence_address", "batch_address", "seqno", "guc_id", "guc_state", "job_flags", "device", "flags")
    rest = (1 << 40, 5, 3, 6, 8, "0000:03:00.0")
    assert jobs.rows(JOB_CREATE, *columns) == [(0, *rest, TASK)]
    assert jobs.rows(JOB_EXEC, *columns) == [(0xFE0, *rest, TASK)]
    assert jobs.rows(JOB_RUN, *columns) == jobs.rows(JOB_FREE, *columns) == [(0xFE0, *rest, 0)]
    assert jobs.rows(JOB_ERROR, "action", "fence_address", "error") == [
        ("timedout", 0xFE0, 0),
        ("ban", 0xFE0, 0),
        ("set_error", 0xFE0, -125),
    ]
    fences = ("fence_address", "fence_context", "fence_seqno", "device", "flags")
    assert jobs.rows(FENCE_CREATE, *fences) == [(0xFE0, 71, 5, "0000:03:00.0", TASK)]
    assert jobs.rows(FENCE_SIGNAL, *fences) == [(0xFE0, 71, 5, "", 0)]


def test_an_address_that_a_stranger_gets_is_nobodys(jobs: Theatre) -> None:
    jobs.target.play("xe:xe_sched_job_exec", fence=0xFE0)
    jobs.other.play("xe:xe_sched_job_exec", fence=0xFE0)
    jobs.other.play("xe:xe_sched_job_run", fence=0xFE0)
    assert jobs.rows(JOB_RUN, "fence_address") == []


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Theatre]:
    fields = ("dev", "class", "logical_mask", "gt_id", "width", "guc_id", "guc_state", "flags")
    names = (
        "create", "create_multi_queue", "destroy", "register", "submit", "cleanup_entity", "reset", "reach_max_job_count",
    )  # fmt: skip
    events = {
        f"xe:xe_exec_queue_{name}": ("dev", "class", "logical_mask", "guc_id") if name.startswith("reach") else fields
        for name in names
    }
    with played("xe", "queues", kernel(tmp_path), {**events, "xe:xe_guc_uncorrectable_error": fields}) as theatre:
        yield theatre


def test_a_queue_is_named_by_device_gt_and_number(queues: Theatre) -> None:
    target, other = queues.target, queues.other
    one, two = "0000:03:00.0", "0000:04:00.0"
    made: Fields = {"dev": one, "class": 5, "logical_mask": 15, "gt_id": 1, "width": 2, "guc_id": 7}
    target.play("xe:xe_exec_queue_create", **made)
    other.play("xe:xe_exec_queue_create", dev=two, gt_id=1, guc_id=7)
    other.play("xe:xe_exec_queue_register", dev=two, gt_id=1, guc_id=7)
    other.play("xe:xe_exec_queue_register", dev=one, gt_id=0, guc_id=7)
    other.play("xe:xe_exec_queue_register", dev=one, gt_id=1, guc_id=8)
    other.play("xe:xe_exec_queue_register", dev=one, gt_id=1, guc_id=7, guc_state=3, flags=9)
    other.play("xe:xe_exec_queue_reset", dev=one, gt_id=1, guc_id=7)
    other.play("xe:xe_exec_queue_destroy", dev=one, gt_id=1, guc_id=7)
    # its clean-up comes after that
    other.play("xe:xe_exec_queue_cleanup_entity", dev=one, gt_id=1, guc_id=7)
    other.play("xe:xe_exec_queue_create", dev=one, gt_id=1, guc_id=7)
    other.play("xe:xe_exec_queue_submit", dev=one, gt_id=1, guc_id=7)
    assert queues.rows(
        QUEUE_CREATE, "action", "device", "engine_class", "logical_mask", "gt", "width", "guc_id", "flags"
    ) == [("create", one, 5, 15, 1, 2, 7, TASK)]
    assert queues.rows(QUEUE_STATE, "action", "device", "gt", "guc_id", "guc_state", "queue_flags", "flags") == [
        ("register", one, 1, 7, 3, 9, 0),
        ("cleanup_entity", one, 1, 7, 0, 0, 0),
    ]
    assert queues.rows(QUEUE_ERROR, "action", "flags") == [("reset", 0)]
    assert queues.rows(QUEUE_DESTROY, "guc_id", "flags") == [(7, 0)]


def test_actions_of_later_kernels(queues: Theatre) -> None:
    queues.target.play("xe:xe_exec_queue_create_multi_queue", guc_id=70000 & 0xFFFF)
    queues.target.play("xe:xe_exec_queue_reach_max_job_count", guc_id=7)
    queues.target.play("xe:xe_guc_uncorrectable_error", guc_id=7)
    assert queues.rows(QUEUE_CREATE, "action") == [("create_multi_queue",)]
    assert queues.rows(QUEUE_ERROR, "action") == [("reach_max_job_count",), ("uncorrectable_error",)]


def test_buffers_are_followed_whoever_moves_them(tmp_path: Path) -> None:
    fields = ("bo", "size", "new_placement_name", "old_placement_name", "device_id", "move_lacks_source")
    event = "xe:xe_bo_move"
    with played("xe", "moves", kernel(tmp_path), {event: fields}) as theatre:
        target, other = theatre.target, theatre.other
        new: Fields = {
            "size": 8192,
            "old_placement_name": "System",
            "new_placement_name": "VRAM0",
            "move_lacks_source": 1,
        }
        out: Fields = {
            "size": 8192,
            "old_placement_name": "VRAM0",
            "new_placement_name": "TT",
            "device_id": "0000:03:00.0",
        }
        target.play(event, bo=0xB0, **new)
        other.play(event, bo=0xB1, **new)
        for bo in (0xB0, 0xB1):
            other.play(event, bo=bo, **out)
        # a stranger's buffer at this address
        other.play(event, bo=0xB0, **new)
        other.play(event, bo=0xB0, **out)
        columns = ("bo", "size_bytes", "source", "target", "lacks_source", "owner_tgid", "device", "flags")
        assert theatre.rows(BO_MOVE, *columns) == [
            (0xB0, 8192, "System", "VRAM0", 1, target.pid, "", TASK),
            (0xB0, 8192, "VRAM0", "TT", 0, target.pid, "0000:03:00.0", 0),
        ]


VM = ("vm", "asid")


def test_an_address_space_from_its_creation_to_its_end(tmp_path: Path) -> None:
    names = ("create", "free", "rebind_worker_enter", "rebind_worker_exit", "rebind_worker_retry", "kill", "ops_fail")
    events = {f"xe:xe_vm_{name}": (*VM, "flags", "dev") for name in names}
    with played("xe", "address spaces", kernel(tmp_path), events) as theatre:
        target, other = theatre.target, theatre.other
        target.play("xe:xe_vm_create", vm=0xF0, flags=3, dev="0000:03:00.0")
        other.play("xe:xe_vm_create", vm=0xF1)
        for vm in (0xF1, 0xF0):
            for name in names[2:]:
                other.play(f"xe:xe_vm_{name}", vm=vm, asid=vm - 0xE0)
            other.play("xe:xe_vm_free", vm=vm, asid=vm - 0xE0)
        other.play("xe:xe_vm_kill", vm=0xF0)
        assert theatre.rows(VM_CREATE, "vm", "vm_flags", "device", "flags") == [(0xF0, 3, "0000:03:00.0", TASK)]
        ((vm, asid, begin, end, flags),) = theatre.rows(VM_REBIND, "vm", "asid", "begin_ns", "time_ns", "flags")
        assert (vm, asid, flags) == (0xF0, 0x10, 0)
        assert begin < end
        assert theatre.rows(VM_UPDATE, "action", "vm") == [("rebind_worker_retry", 0xF0)]
        assert theatre.rows(VM_ERROR, "action", "vm") == [("kill", 0xF0), ("ops_fail", 0xF0)]
        assert theatre.rows(VM_FREE, "vm", "flags") == [(0xF0, 0)]


RANGE = ("vma", "asid", "start", "end", "ptr")
RANGES = {
    "xe:xe_vma_bind": VMA_BIND, "xe:xe_vma_rebind_worker": VMA_BIND, "xe:xe_vma_unbind": VMA_UNBIND,
    "xe:xe_vma_pagefault": VMA_FAULT, "xe:xe_vma_evict": VMA_EVICT, "xe:xe_vma_userptr_invalidate": VMA_EVICT,
}  # fmt: skip


def test_ranges_by_the_address_of_their_address_space(tmp_path: Path) -> None:
    events = {**dict.fromkeys(RANGES, (*RANGE, "vm")), "xe:xe_vm_create": VM}
    with played("xe", "address spaces", kernel(tmp_path), events) as theatre:
        theatre.target.play("xe:xe_vm_create", vm=0xF0)
        for event in RANGES:
            theatre.other.play(event, vma=0xA0, vm=0xF0, asid=9, start=1 << 32, end=(1 << 32) + 8191, ptr=4096)
            # the same number, on another GPU
            theatre.other.play(event, vma=0xA1, vm=0xF1, asid=9)
        columns = ("vma", "vm", "asid", "address", "size_bytes", "user_address", "flags")
        row = (0xA0, 0xF0, 9, 1 << 32, 8192, 4096, 0)
        for kind, times in ((VMA_BIND, 2), (VMA_UNBIND, 1), (VMA_FAULT, 1), (VMA_EVICT, 2)):
            assert theatre.rows(kind, *columns) == [row] * times
        assert theatre.rows(VMA_BIND, "action") == [("bind",), ("rebind_worker",)]
        assert theatre.rows(VMA_FAULT, "action") == [("pagefault",)]
        assert theatre.rows(VMA_EVICT, "action") == [("evict",), ("userptr_invalidate",)]


def test_ranges_by_number_where_there_is_no_address(tmp_path: Path) -> None:
    """On 6.12 the number is learnt from the first range that a target binds."""
    events = dict.fromkeys(RANGES, RANGE)
    with played("xe", "address spaces", kernel(tmp_path, OLD), events) as theatre:
        theatre.other.play("xe:xe_vma_pagefault", vma=0xA0, asid=9)
        theatre.target.play("xe:xe_vma_bind", vma=0xA0, asid=9, start=0, end=4095)
        theatre.other.play("xe:xe_vma_pagefault", vma=0xA0, asid=9)
        theatre.other.play("xe:xe_vma_pagefault", vma=0xA1, asid=10)
        theatre.other.play("xe:xe_vma_pagefault", vma=0xA2, asid=0)
        assert theatre.rows(VMA_FAULT, "vma", "vm", "asid") == [(0xA0, 0, 9)]
        assert theatre.rows(VMA_BIND, "size_bytes", "flags") == [(4096, TASK)]
