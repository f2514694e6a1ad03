# SPDX-License-Identifier: Apache-2.0
"""The simulated CUDA library on the mock GPU driver: what it says of its operations is what the driver says of its jobs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel.mockgpu_client import Fence, Job, truth
from tests.simcuda.truths import check_truth

from fencepath_cuda.simcuda import SimCuda
from fencepath_cuda.simcuda.programs import run_programs
from fencepath_cuda.simcuda.truth import Op, Truth

pytestmark = [pytest.mark.kernel, pytest.mark.bpf]

PARAMETERS = ("gpus=2", "rings=4", "hw_limit=2")
START = """
ctx_create c0 0 0
stream_create s0 1 0
stream_create s1 1 0
event_create e0 2
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[None]:
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    subprocess.run(["insmod", os.environ["FENCEPATH_VM_MOCKGPU"], *PARAMETERS], check=True)
    yield
    subprocess.run(["rmmod", "mockgpu"], check=True)


@pytest.fixture
def library() -> SimCuda:
    """The library as it was compiled outside."""
    folder = Path(os.environ["FENCEPATH_VM_DEMO"]).parent
    return SimCuda(
        folder=folder,
        libcuda=folder / "libcuda.so.1",
        libcudart=folder / "libcudart.so.13",
        workload=folder / "simcuda-workload",
        program=folder / "simcuda-program",
        batching_server=folder / "simcuda-server",
        server=folder,
    )


def run(library: SimCuda, folder: Path, steps: str) -> tuple[Truth, dict[Fence, Job]]:
    """Run a program whose steps all succeed, and hold the library's truth against the driver's."""
    environment = {"SIMCUDA_BACKEND": "mockgpu", "SIMCUDA_WAIT": "block"}
    (done,) = run_programs(library, [steps], folder, results=True, environment=environment)
    assert done.status == 0
    assert not [step for step in done.steps if step.result]
    assert done.truth is not None
    check_truth(done.truth)
    jobs = {job.finished: job for job in truth()}
    for op in done.truth.ops.values():
        check_op(done.truth, jobs, op)
    return done.truth, jobs


def check_op(told: Truth, jobs: dict[Fence, Job], op: Op) -> None:
    job = jobs[fence(op)]
    assert op.job is not None
    assert (job.number, job.gpu, job.ring) == (op.job.number, op.job.gpu, f"ring{op.job.ring}")
    assert job.start_ns < job.done_ns <= op.done_ns
    before = [told.ops[edge.op] for edge in op.after if edge.why != "value"]
    assert all(jobs[fence(other)].done_ns <= job.start_ns for other in before)
    assert dependencies(jobs, job, op.job.gathering) <= {fence(other) for other in before}


def dependencies(jobs: dict[Fence, Job], job: Job, gathering: tuple[int, ...]) -> set[Fence]:
    """What a job depends on, through the empty jobs that gather dependencies."""
    found: set[Fence] = set()
    for on in job.dependencies:
        found |= dependencies(jobs, jobs[on], gathering) if jobs[on].number in gathering else {on}
    return found


def fence(op: Op) -> Fence:
    assert op.job is not None
    return Fence(op.job.context, op.job.seqno)


def job(jobs: dict[Fence, Job], op: Op) -> Job:
    return jobs[fence(op)]


def test_streams_wait_for_each_other_by_the_driver(driver: None, library: SimCuda, tmp_path: Path) -> None:
    steps = "launch s0 30000000\nrecord e0 s0\nwait s1 e0 0\nlaunch s1 1000000\nstream_sync s1"
    told, jobs = run(library, tmp_path, START + steps)
    kernel, record, wait, after = told.ops.values()
    assert job(jobs, kernel).asked_ns == 30_000_000
    assert [job(jobs, op).dependencies for op in (record, wait, after)] == [
        (fence(kernel),),
        (fence(record),),
        (fence(wait),),
    ]
    assert job(jobs, kernel).ring != job(jobs, wait).ring


def test_more_dependencies_than_the_driver_takes_are_gathered(driver: None, library: SimCuda, tmp_path: Path) -> None:
    blocking = "".join(f"stream_create s{n} 0 0\n" for n in range(2, 6))
    launches = "".join(f"launch s{n} 40000000\n" for n in range(2, 6))
    told, jobs = run(library, tmp_path, START + blocking + launches + "launch null 1000000\nctx_sync")
    *before, last = told.ops.values()
    assert last.job is not None
    assert len(last.job.gathering) == 2
    assert dependencies(jobs, job(jobs, last), last.job.gathering) == {fence(op) for op in before}


def test_what_follows_the_host_s_work_is_submitted_after_it(driver: None, library: SimCuda, tmp_path: Path) -> None:
    values = "alloc b0 64\nwait_value s1 b0 1\nlaunch s1 1000000\n"
    host = "launch s0 1000000\nhost s0 2000000\nlaunch s0 1000000\nwrite_value s0 b0 1\nctx_sync"
    told, jobs = run(library, tmp_path, START + values + host)
    waits, writes, hosts = (only(told, kind) for kind in ("wait_value", "write_value", "host_func"))
    after_wait, _, after_host = (op for op in told.ops.values() if op.kind == "kernel")
    assert job(jobs, after_host).push_ns >= hosts.end_ns
    assert job(jobs, after_wait).push_ns >= waits.end_ns >= writes.end_ns
    assert [edge.op for edge in waits.after if edge.why == "value"] == [writes.id]


def test_a_graph_that_branches_is_on_several_rings(driver: None, library: SimCuda, tmp_path: Path) -> None:
    nodes = "graph_create g0\ngraph_kernel g0 n0 1000000\n" + "".join(
        f"graph_kernel g0 n{n} 20000000 n0\n" for n in (1, 2, 3)
    )
    told, jobs = run(
        library,
        tmp_path,
        START + nodes + "graph_empty g0 n4 n1 n2 n3\ninstantiate x0 g0 0\ngraph_launch x0 s0\nstream_sync s0",
    )
    root, *branches, end = told.ops.values()
    assert len({job(jobs, op).ring for op in branches}) == 3
    assert all(job(jobs, op).dependencies == (fence(root),) for op in branches)
    assert end.job is not None
    assert dependencies(jobs, job(jobs, end), end.job.gathering) == {fence(op) for op in branches}


def test_a_stream_waits_for_another_device(driver: None, library: SimCuda, tmp_path: Path) -> None:
    other = "ctx_create c1 1 0\nstream_create s2 1 0\n"
    steps = "ctx_set c0\nlaunch s0 30000000\nrecord e0 s0\nctx_set c1\nwait s2 e0 0\nlaunch s2 1000000\nstream_sync s2"
    told, jobs = run(library, tmp_path, START + other + steps)
    kernel, record, wait, after = told.ops.values()
    assert [job(jobs, op).gpu for op in (kernel, record, wait, after)] == [0, 0, 1, 1]
    assert job(jobs, wait).dependencies == (fence(record),)


def only(told: Truth, kind: str) -> Op:
    (op,) = (op for op in told.ops.values() if op.kind == kind)
    return op
