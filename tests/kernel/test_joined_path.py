# SPDX-License-Identifier: Apache-2.0
"""One request from its first CUDA call through the GPU driver's jobs and fences and back to the thread that waited.

The simulated CUDA library hands its operations to the mock driver, and both write down what they did: calls, operations and
the jobs that they were on one side, jobs and their dependencies on the other. The recorded path is held against both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from tests.kernel.joined_request import REQUEST
from tests.kernel.mockgpu_client import TRUTH, Fence, Job, truth

from fencepath.analysis import Analysis
from fencepath.joins import Confidence
from fencepath.recording import open_recording
from fencepath.report import RequestReport
from fencepath_cuda.simcuda.truth import Call, Op, Truth, read_truth

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(200)]

PARAMETERS = ("gpus=1", "rings=4", "hw_limit=2")
OPERATIONS = 5
CALLS = ["cuLaunchKernel", "cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemcpyDtoHAsync_v2"]
"""Of the request, whose jobs have to wait for each other."""
KINDS = ("drm.job.queue", "drm.job.run", "drm.job.done", "drm.fence.signaled")
SUBMIT = "ioctl 0x40"


class Step(NamedTuple):
    """An activity.

    Attributes:
        kind: of the event.
        row: in the kind's batch.
    """

    kind: str
    row: int


class Joined:
    """A recording of the workload with the truth of both sides.

    Attributes:
        cuda: what the simulated CUDA library says.
        jobs: what the driver says, by finished fence.
    """

    def __init__(self, analysis: Analysis, cuda: Truth, jobs: list[Job]) -> None:
        self.analysis = analysis
        self.cuda = cuda
        self.jobs = {job.finished: job for job in jobs}

    @cached_property
    def report(self) -> RequestReport:
        return self.analysis.report([self.analysis.request(REQUEST)]).requests[0]

    @cached_property
    def steps(self) -> list[Step]:
        """Activities on the request's path in order of time, each once for as long as it lasts."""
        activities = self.analysis.path(self.analysis.request(REQUEST)).columns.activity
        return [
            Step(*self.analysis.table.locate(activity)) for activity, _ in groupby(activities[activities >= 0].tolist())
        ]

    @cached_property
    def wait(self) -> Call:
        """The wait at the end of the request."""
        return self.cuda.named("cuStreamSynchronize")[-1]

    @cached_property
    def chain(self) -> list[Job]:
        """What the wait had to wait for, by both truths: at each step back the last job that had to be done before."""
        (op,) = self.wait.waited_for
        chain = [self.job_of(self.cuda.ops[op])]
        while before := self._held_by(chain[0]):
            chain.insert(0, before)
        return chain

    def _held_by(self, job: Job) -> Job | None:
        on_ring = (one for one in self.jobs.values() if (one.gpu, one.ring) == (job.gpu, job.ring))
        before = [one for one in on_ring if one.start_ns < job.start_ns] + [self.jobs[on] for on in job.dependencies]
        last = max(before, key=lambda one: one.done_ns, default=None)
        return last if last and last.done_ns > job.push_ns else None

    def job_of(self, op: Op) -> Job:
        assert op.job is not None
        return self.jobs[Fence(op.job.context, op.job.seqno)]

    def call_of(self, job: Job) -> Call:
        """The call that submitted a job, as the library tells it."""
        (op,) = (op for op in self.cuda.ops.values() if self.job_of(op) is job)
        return next(call for call in self.cuda.calls if call.number == op.call)

    def told(self, step: Step) -> Call:
        """The same of a recorded call: a probe on a function sees the call before the function itself."""
        tid, begin_ns = self.value(step, "tid"), self.value(step, "begin_ns")
        call = next(call for call in self.cuda.calls if call.tid == tid and call.begin_ns >= begin_ns)
        assert self.name(step) == call.name
        return call

    def value(self, step: Step, column: str) -> int:
        return int(self.analysis.view.batch(step.kind)[column][step.row])

    def name(self, step: Step) -> str:
        return self.analysis.table.name(self._activity(step))

    def id(self, step: Step) -> str:
        return self.analysis.table.id(self._activity(step))

    def _activity(self, step: Step) -> int:
        return int(self.analysis.view.activities(step.kind)[step.row])

    def fence(self, step: Step) -> Fence:
        return Fence(self.value(step, "fence_context"), self.value(step, "fence_seqno"))

    def step_of(self, kind: str, fence: Fence) -> Step:
        """The one event of a kind that is about a job."""
        batch = self.analysis.view.batch(kind)
        context, seqno = (
            batch[name]
            for name in (("fence_context", "fence_seqno") if "fence_context" in batch else ("context", "seqno"))
        )
        (row,) = np.flatnonzero((context == fence.context) & (seqno == fence.seqno)).tolist()
        return Step(kind, row)

    def edges(self, *rules: str) -> Iterator[tuple[Step, Step, Confidence]]:
        """Cause, effect and confidence of the rules' edges."""
        edges, table = self.analysis.edges, self.analysis.table
        for edge in range(len(edges)):
            if edges.rules[edges.rule[edge]] in rules:
                cause, effect = (Step(*table.locate(int(end[edge]))) for end in (edges.cause, edges.effect))
                yield cause, effect, list(Confidence)[int(edges.confidence[edge])]


@pytest.fixture(scope="module")
def driver() -> Iterator[None]:
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    subprocess.run(["insmod", os.environ["FENCEPATH_VM_MOCKGPU"], *PARAMETERS], check=True)
    yield
    subprocess.run(["rmmod", "mockgpu"], check=True)


def record(how: str, folder: Path) -> Joined:
    """Record the workload; what comes of it stays with the results, to look at."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    library = Path(os.environ["FENCEPATH_VM_DEMO"]).parent / "libcuda.so.1"
    simulated = {
        "SIMCUDA_BACKEND": "mockgpu",
        "SIMCUDA_TRUTH": str(folder / "cuda"),
        "LD_LIBRARY_PATH": str(library.parent),
    }
    recording = folder / "joined.fencepath"
    options: list[str | Path] = [
        "-o",
        recording,
        "--layers",
        "cuda,drm,host",
        "--detail",
        "launch",
        f"--{how}",
        "--as-root",
    ]
    workload: list[str | Path] = [sys.executable, "-m", "tests.kernel.joined_request", library]
    command = [sys.executable, "-m", "fencepath", "record", *options, "--", *workload]
    done = subprocess.run(command, env={**os.environ, **simulated}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "driver").write_bytes(TRUTH.read_bytes())
    return read(folder)


def read(folder: Path) -> Joined:
    """Read what :func:`record` left."""
    return Joined(
        Analysis(open_recording(folder / "joined.fencepath")), read_truth(folder / "cuda"), truth(folder / "driver")
    )


@pytest.fixture(scope="module")
def exact(driver: None) -> Joined:
    return record("exact", Path(os.environ["FENCEPATH_VM_OUT"], "joined-exact"))


@pytest.fixture(scope="module")
def entry_only(driver: None) -> Joined:
    return record("entry-only", Path(os.environ["FENCEPATH_VM_OUT"], "joined-entry-only"))


def test_each_operation_is_a_job_that_was_submitted_within_its_call(exact: Joined) -> None:
    """Of the two truths themselves."""
    ops = exact.cuda.ops
    assert len({op.job for op in ops.values()}) == len(ops) == 2 * OPERATIONS
    for op in ops.values():
        job, call = exact.job_of(op), exact.call_of(exact.job_of(op))
        assert op.job is not None
        assert (op.job.number, op.job.gpu, f"ring{op.job.ring}", op.job.gathering) == (
            job.number,
            job.gpu,
            job.ring,
            (),
        )
        assert job.pid == call.tid
        assert call.begin_ns <= op.submit_ns <= job.push_ns <= call.end_ns
        assert set(job.dependencies) <= {exact.job_of(ops[edge.op]).finished for edge in op.after}
        assert job.push_ns < job.run_ns <= job.start_ns <= job.done_ns <= op.end_ns <= op.done_ns
        assert all(exact.jobs[on].done_ns <= job.start_ns for on in job.dependencies)
    assert exact.cuda.calls[-1] is exact.wait
    assert [exact.call_of(job).name for job in exact.chain] == CALLS


def test_calls_are_joined_with_the_jobs_that_they_submit(exact: Joined) -> None:
    found = {exact.fence(queue): exact.told(call) for call, queue, _ in exact.edges("drm.submit")}
    assert found == {fence: exact.call_of(exact.jobs[fence]) for fence in found}
    ours = [exact.job_of(op).finished for op in exact.cuda.ops.values() if not op.kind.startswith("memcpy")]
    assert found.keys() >= set(ours)
    assert {confidence for *_, confidence in exact.edges("drm.submit")} == {Confidence.EXACT}


def test_the_request_is_one_path_from_the_launch_to_the_wait(exact: Joined) -> None:
    check_path(exact)
    launch = next(segment for segment in exact.report.path.segments if segment.activity == "cuLaunchKernel")
    assert launch.confidence is Confidence.EXACT


def test_with_entries_alone_the_launch_is_bounded(entry_only: Joined) -> None:
    check_path(entry_only)
    launch = next(segment for segment in entry_only.report.path.segments if segment.activity == "cuLaunchKernel")
    assert launch.confidence is Confidence.BOUNDED


def check_path(joined: Joined) -> None:
    """Hold a path against both truths: who is on it, in which order, and when."""
    assert joined.analysis.problems == ()
    path = joined.report.path
    assert path.violations == ()
    assert path.unexplained_ns <= 0.01 * (path.end_ns - path.start_ns)
    ran = [step for step in joined.steps if step.kind == "drm.job.execute"]
    assert [joined.fence(step) for step in ran] == [job.finished for job in joined.chain]
    check_begin(joined, joined.steps[: joined.steps.index(ran[0])])
    check_jobs(joined)
    check_end(joined, joined.steps[joined.steps.index(ran[-1]) + 1 :])
    check_graph(joined)


def check_begin(joined: Joined, before: list[Step]) -> None:
    """On the thread, up to the queueing of the first job: the call that launched it, and in it the system call."""
    first = joined.chain[0]
    launch = next(step for step in reversed(before) if step.kind == "cuda.launch")
    assert joined.told(launch) is joined.call_of(first)
    submits = [step for step in before if joined.name(step) == SUBMIT]
    assert [
        step for step in submits if joined.value(step, "begin_ns") <= first.push_ns <= joined.value(step, "time_ns")
    ]


def check_jobs(joined: Joined) -> None:
    """Each job was queued, ran, was done and signalled, and in this order; what held up the one on the other ring."""
    for job in joined.chain:
        queue, run, done, signaled = (joined.value(joined.step_of(kind, job.finished), "time_ns") for kind in KINDS)
        assert job.push_ns <= queue < run <= job.run_ns <= job.done_ns <= done < signaled
    held = next(step for step in joined.steps if step.kind == "drm.job.hold")
    (op,) = (op for op in joined.cuda.ops.values() if op.kind == "wait_event" and joined.job_of(op) in joined.chain)
    assert joined.value(held, "fence") == joined.value(
        joined.step_of("drm.job.execute", joined.job_of(op).finished), "fence"
    )
    recorded = next(edge.op for edge in op.after if edge.why == "event")
    (cause,) = (cause for cause, effect, _ in joined.edges("drm.dependency") if effect == held)
    assert joined.fence(cause) == joined.job_of(joined.cuda.ops[recorded]).finished


def check_end(joined: Joined, after: list[Step]) -> None:
    """The signal of the last fence wakes the thread, in the system call in which it waits, and its CUDA call returns."""
    sleep = after[0]
    last = joined.chain[-1]
    assert sleep.kind == "drm.fence.sleep"
    assert joined.value(sleep, "tid") == joined.wait.tid
    assert joined.value(sleep, "fence") == joined.value(joined.step_of("drm.job.done", last.finished), "fence")
    assert joined.value(joined.step_of("drm.fence.signaled", last.finished), "time_ns") <= joined.value(
        sleep, "time_ns"
    )
    kinds = [step.kind for step in after[1:]]
    assert kinds == ["drm.wait", "cuda.stream.synchronize"]
    assert joined.told(after[-1]) is joined.wait
    assert joined.value(after[-1], "time_ns") >= joined.wait.end_ns


def check_graph(joined: Joined) -> None:
    """Edges alone, without what a thread did one after the other, lead from the queueing of the first job to the sleeping thread."""
    graph = joined.analysis.graph(joined.analysis.request(REQUEST))
    edges = [(cause, effect) for cause, effect, rule in graph.edges(keys=True) if rule != "core.program_order"]
    queue = joined.step_of("drm.job.queue", joined.chain[0].finished)
    sleep = next(step for step in joined.steps if step.kind == "drm.fence.sleep")
    assert nx.has_path(nx.DiGraph(edges), joined.id(queue), joined.id(sleep))
