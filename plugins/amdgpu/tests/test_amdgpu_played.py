# SPDX-License-Identifier: Apache-2.0
"""The BPF programs of the layer ``amdgpu``, run in this kernel by events that a process makes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.kernel_formats import saved_kernel
from tests.core.played import Theatre, played

from fencepath.records import Flags
from fencepath.system import System
from fencepath_amdgpu.kinds import BO_CREATE, BO_MOVE, CS, FLUSH, KFD_EVICT, KFD_EVICTED, KFD_RESIDENT, PIPE_SYNC, RUN

pytestmark = pytest.mark.bpf

DATA = Path(__file__).with_name("data")
OLD, NEW = "6.12.95+deb12-amd64", "7.3.4+deb13-amd64"
TASK = int(Flags.TASK)


def kernel(name: str, folder: Path) -> System:
    return saved_kernel(folder, DATA / f"{name}.formats", DATA / "core-6.18.formats")


JOB = ("context", "seqno", "ring", "num_ibs")
JOB_EVENTS = {
    "amdgpu:amdgpu_cs_ioctl": JOB,
    "amdgpu:amdgpu_sched_run_job": JOB,
    "amdgpu:amdgpu_vm_flush": ("vmid", "vm_hub", "pd_addr"),
    "amdgpu:amdgpu_ib_pipe_sync": ("ctx", "seqno"),
}


@pytest.fixture(params=[OLD, NEW])
def jobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Theatre]:
    with played("amdgpu", "jobs", kernel(request.param, tmp_path), JOB_EVENTS) as theatre:
        yield theatre


def test_jobs_of_targets_are_known_by_their_fence_context(jobs: Theatre) -> None:
    """The other process plays the scheduler's thread, and a stranger with jobs of its own."""
    jobs.target.play("amdgpu:amdgpu_cs_ioctl", context=71, seqno=5, ring="gfx_0.0.0", num_ibs=3)
    jobs.other.play("amdgpu:amdgpu_cs_ioctl", context=73, seqno=5, ring="gfx_0.0.0", num_ibs=1)
    jobs.other.play("amdgpu:amdgpu_sched_run_job", context=71, seqno=5, ring="gfx_0.0.0", num_ibs=3)
    jobs.other.play("amdgpu:amdgpu_vm_flush", vmid=4, vm_hub=1, pd_addr=0x1000)
    jobs.other.play("amdgpu:amdgpu_ib_pipe_sync", ctx=79, seqno=11)
    jobs.other.play("amdgpu:amdgpu_sched_run_job", context=73, seqno=5, ring="gfx_0.0.0", num_ibs=1)
    # for the stranger's job
    jobs.other.play("amdgpu:amdgpu_vm_flush", vmid=5)
    jobs.other.play("amdgpu:amdgpu_ib_pipe_sync", ctx=79, seqno=12)
    columns = ("tgid", "fence_context", "fence_seqno", "ring", "ibs", "flags")
    assert jobs.rows(CS, *columns) == [(jobs.target.pid, 71, 5, "gfx_0.0.0", 3, TASK)]
    # the scheduler's thread is no key
    assert jobs.rows(RUN, *columns) == [(jobs.other.pid, 71, 5, "gfx_0.0.0", 3, 0)]
    assert jobs.rows(FLUSH, "fence_seqno", "vmid", "hub", "page_directory", "flags") == [(5, 4, 1, 0x1000, 0)]
    assert jobs.rows(PIPE_SYNC, "fence_context", "dependency_context", "dependency_seqno") == [(71, 79, 11)]


def test_a_long_name_of_a_ring_is_cut_and_flagged(jobs: Theatre) -> None:
    jobs.target.play("amdgpu:amdgpu_cs_ioctl", context=1, seqno=1, ring="a_ring_with_a_long_name")
    assert jobs.rows(CS, "ring", "flags") == [("a_ring_with_a_l", TASK | int(Flags.TRUNCATED))]


def test_new_keys_have_64_bits_and_old_ones_32(jobs: Theatre) -> None:
    context = 0x7_0000_0003
    jobs.target.play("amdgpu:amdgpu_cs_ioctl", context=context, seqno=9)
    ((found, seqno),) = jobs.rows(CS, "fence_context", "fence_seqno")
    assert found in (context, context & 0xFFFFFFFF)
    assert seqno == 9


MEMORY_EVENTS = {
    "amdgpu:amdgpu_bo_create": ("bo", "pages", "type", "prefer", "allow", "visible"),
    "amdgpu:amdgpu_bo_move": ("bo", "bo_size", "new_placement", "old_placement"),
    "amdgpu:amdgpu_vm_bo_map": ("bo", "start", "last", "offset", "flags"),
    "amdgpu:amdgpu_vm_bo_unmap": ("bo", "start", "last", "offset", "flags"),
}
MOVED = ("bo", "size_bytes", "source", "target", "owner_tgid", "tgid", "flags")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Theatre]:
    with played("amdgpu", "memory", kernel(NEW, tmp_path), MEMORY_EVENTS) as theatre:
        yield theatre


def test_a_buffer_is_followed_whoever_moves_it(memory: Theatre) -> None:
    target, other = memory.target, memory.other
    target.play("amdgpu:amdgpu_bo_create", bo=0xB0, pages=3, type=2, prefer=4, allow=6, visible=1)
    other.play("amdgpu:amdgpu_bo_create", bo=0xB1, pages=5, type=2)
    other.play("amdgpu:amdgpu_bo_move", bo=0xB0, bo_size=12288, old_placement=2, new_placement=1)
    other.play("amdgpu:amdgpu_bo_move", bo=0xB1, bo_size=20480, old_placement=2, new_placement=1)
    target.play("amdgpu:amdgpu_bo_move", bo=0xB1, bo_size=20480, old_placement=1, new_placement=0)
    other.play("amdgpu:amdgpu_bo_move", bo=0xB0, bo_size=12288, old_placement=1, new_placement=-1)
    # its address is nobody's any more
    other.play("amdgpu:amdgpu_bo_move", bo=0xB0, bo_size=4096, old_placement=2, new_placement=1)
    assert memory.rows(BO_CREATE, "bo", "size_bytes", "placement", "tgid", "flags") == [
        (0xB0, 12288, "vram", target.pid, TASK)
    ]
    assert memory.rows(BO_MOVE, *MOVED) == [
        (0xB0, 12288, "vram", "gtt", target.pid, other.pid, 0),
        (0xB1, 20480, "gtt", "system", 0, target.pid, TASK),
        (0xB0, 12288, "gtt", "none", target.pid, other.pid, 0),
    ]


def test_a_buffer_that_was_there_before_is_learnt_when_it_is_mapped(memory: Theatre) -> None:
    target, other = memory.target, memory.other
    other.play("amdgpu:amdgpu_vm_bo_map", bo=0xB7, start=0x10, last=0x1F, offset=0)
    other.play("amdgpu:amdgpu_bo_move", bo=0xB7, bo_size=65536, old_placement=2, new_placement=1)
    target.play("amdgpu:amdgpu_vm_bo_map", bo=0xB7, start=0x10, last=0x1F, offset=4096, flags=1 << 40)
    other.play("amdgpu:amdgpu_bo_move", bo=0xB7, bo_size=65536, old_placement=1, new_placement=2)
    target.play("amdgpu:amdgpu_vm_bo_unmap", bo=0, start=0x10, last=0x10)
    columns = ("bo", "address", "size_bytes", "offset_bytes", "mapping_flags")
    assert memory.rows("amdgpu.vm.map", *columns) == [(0xB7, 0x10000, 65536, 4096, 1 << 40)]
    assert memory.rows("amdgpu.vm.unmap", *columns) == [(0, 0x10000, 4096, 0, 0)]
    assert memory.rows(BO_MOVE, *MOVED) == [(0xB7, 65536, "gtt", "vram", target.pid, other.pid, 0)]


def test_address_spaces(tmp_path: Path) -> None:
    events = {
        "amdgpu:amdgpu_pasid_allocated": ("pasid",),
        "amdgpu:amdgpu_pasid_freed": ("pasid",),
        "amdgpu:amdgpu_vm_grab_id": ("pasid", "ring", "vmid", "vm_hub", "pd_addr", "needs_flush"),
    }
    with played("amdgpu", "address spaces", kernel(NEW, tmp_path), events) as theatre:
        theatre.target.play("amdgpu:amdgpu_pasid_allocated", pasid=0x8001)
        theatre.other.play("amdgpu:amdgpu_pasid_allocated", pasid=0x8002)
        for pasid in (0x8001, 0x8002, 0x8003):
            theatre.other.play("amdgpu:amdgpu_vm_grab_id", pasid=pasid, vmid=pasid & 15, ring="sdma0", needs_flush=1)
        theatre.other.play("amdgpu:amdgpu_pasid_freed", pasid=0x8001)
        theatre.other.play("amdgpu:amdgpu_pasid_freed", pasid=0x8002)
        theatre.other.play("amdgpu:amdgpu_pasid_allocated", pasid=0x8001)
        theatre.other.play("amdgpu:amdgpu_vm_grab_id", pasid=0x8001)
        assert theatre.rows("amdgpu.pasid.allocate", "pasid", "tgid", "flags") == [(0x8001, theatre.target.pid, TASK)]
        assert theatre.rows("amdgpu.pasid.free", "pasid", "flags") == [(0x8001, 0)]
        # the third was allocated before: it may be a target's
        assert theatre.rows("amdgpu.vm.grab_id", "pasid", "vmid", "ring", "needs_flush", "flags") == [
            (0x8001, 1, "sdma0", 1, 0),
            (0x8003, 3, "sdma0", 1, 0),
        ]


def test_interrupts_of_others_are_left_out(tmp_path: Path) -> None:
    names = (
        "timestamp", "client_id", "src_id", "ring_id", "vmid", "vmid_src", "timestamp_src", "pasid", "src_data",
    )  # fmt: skip
    events = {"amdgpu:amdgpu_iv": names, "amdgpu:amdgpu_pasid_allocated": ("pasid",)}
    with played("amdgpu", "interrupts", kernel(NEW, tmp_path), events) as theatre:
        theatre.target.play("amdgpu:amdgpu_pasid_allocated", pasid=7)
        theatre.other.play("amdgpu:amdgpu_pasid_allocated", pasid=8)
        theatre.other.play("amdgpu:amdgpu_iv", timestamp=1 << 40, client_id=0x1B, pasid=7, vmid=3, src_data=0xABCD)
        theatre.other.play("amdgpu:amdgpu_iv", timestamp=(1 << 40) + 1, client_id=0x1B, pasid=8)
        theatre.other.play("amdgpu:amdgpu_iv", timestamp=(1 << 40) + 2, client_id=0x14, src_id=181, ring_id=4)
        columns = ("gpu_ticks", "client", "source", "client_ring", "pasid", "vmid", "data0", "page_fault", "flags")
        assert theatre.rows("amdgpu.interrupt", *columns) == [
            (1 << 40, 0x1B, 0, 0, 7, 3, 0xABCD, True, 0),
            ((1 << 40) + 2, 0x14, 181, 4, 0, 0, 0, False, 0),
        ]


USERQ_EVENTS = {
    "amdgpu:amdgpu_userq_create_start": ("queue",),
    "amdgpu:amdgpu_userq_create_end": ("queue", "doorbell_index", "queue_type", "state", "xcp_id", "result"),
    "amdgpu:amdgpu_userq_destroy_start": ("queue",),
    "amdgpu:amdgpu_userq_destroy_end": ("queue", "doorbell_index", "queue_type", "state", "xcp_id", "result"),
    "amdgpu:amdgpu_userq_state_start": ("doorbell_index", "from"),
    "amdgpu:amdgpu_userq_state_changed": ("doorbell_index", "client_id", "queue_type", "to"),
    "amdgpu:amdgpu_userq_emit_fence": ("fence_context", "fence_seqno", "dev", "doorbell_index", "client_id", "queue_type"),
}  # fmt: skip


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Theatre]:
    with played("amdgpu", "user queues", kernel(NEW, tmp_path), USERQ_EVENTS) as theatre:
        yield theatre


def test_a_user_queue_from_creation_to_end(queues: Theatre) -> None:
    target, other = queues.target, queues.other
    target.play("amdgpu:amdgpu_userq_create_start", queue=0xA0)
    target.play("amdgpu:amdgpu_userq_create_end", queue=0xA0, doorbell_index=17, queue_type=1, state=1, xcp_id=2)
    target.play(
        "amdgpu:amdgpu_userq_emit_fence",
        fence_context=5,
        fence_seqno=6,
        dev="0000:03:00.0",
        doorbell_index=17,
        client_id=9,
    )
    other.play("amdgpu:amdgpu_userq_state_start", **{"doorbell_index": 17, "from": 1})
    other.play("amdgpu:amdgpu_userq_state_changed", doorbell_index=17, client_id=9, queue_type=1, to=2)
    other.play("amdgpu:amdgpu_userq_state_start", **{"doorbell_index": 19, "from": 1})
    other.play("amdgpu:amdgpu_userq_state_changed", doorbell_index=19, client_id=10, to=2)
    other.play("amdgpu:amdgpu_userq_destroy_start", queue=0xA0)
    other.play("amdgpu:amdgpu_userq_destroy_end", queue=0xA0, doorbell_index=17, queue_type=1, result=-22)
    ((queue, doorbell, state, flags, begin, end),) = queues.rows(
        "amdgpu.userq.create", "queue", "doorbell", "state", "flags", "begin_ns", "time_ns"
    )
    assert (queue, doorbell, state, flags) == (0xA0, 17, 1, TASK)
    assert begin < end
    columns = ("fence_context", "fence_seqno", "device", "doorbell", "client_id")
    assert queues.rows("amdgpu.userq.signal", *columns) == [(5, 6, "0000:03:00.0", 17, 9)]
    assert queues.rows("amdgpu.userq.state", "doorbell", "from_state", "to_state", "flags") == [(17, 1, 2, 0)]
    assert queues.rows("amdgpu.userq.destroy", "queue", "result", "flags") == [(0xA0, -22, 0)]


def test_an_end_without_a_begin_is_counted(queues: Theatre) -> None:
    queues.target.play("amdgpu:amdgpu_userq_create_start", queue=0xA0)
    queues.target.play("amdgpu:amdgpu_userq_create_end", queue=0xA1, doorbell_index=17)
    assert not queues.rows("amdgpu.userq.create", "queue")
    assert queues.lost("amdgpu.userq.create") == {"NO_ENTRY": 1}


def test_evictions_of_rocm_processes(tmp_path: Path) -> None:
    fields = ("driver", "timeline", "context", "seqno")
    names = ("dma_fence_enable_signal", "dma_fence_signaled", "dma_fence_init")
    events = {f"dma_fence:{name}": fields for name in names}
    with played("amdgpu", "evictions of ROCm processes", kernel(NEW, tmp_path), events) as theatre:
        driver = "amdgpu_amdkfd_fence"
        target, other = theatre.target, theatre.other
        target.play("dma_fence:dma_fence_init", driver=driver, timeline="python", context=31, seqno=1)
        target.play("dma_fence:dma_fence_init", driver="amdgpu_amdkfd_fences", timeline="x", context=37, seqno=1)
        other.play("dma_fence:dma_fence_enable_signal", driver="amdgpu", timeline="sdma0", context=31, seqno=1)
        other.play("dma_fence:dma_fence_enable_signal", driver=driver, timeline="python", context=31, seqno=1)
        other.play("dma_fence:dma_fence_signaled", driver=driver, timeline="python", context=31, seqno=1)
        other.play("dma_fence:dma_fence_init", driver=driver, timeline="kworker/3:1", context=31, seqno=2)
        columns = ("context", "seqno", "owner_tgid", "timeline", "flags")
        first = (31, 1, target.pid, "python", 0)
        assert theatre.rows(KFD_EVICT, *columns) == [first]
        assert theatre.rows(KFD_EVICTED, *columns) == [first]
        assert theatre.rows(KFD_RESIDENT, *columns) == [first, (31, 2, target.pid, "kworker/3:1", 0)]
