# SPDX-License-Identifier: Apache-2.0
"""The mock GPU driver on this kernel, and fencepath's tracepoint service on the events that it makes the kernel raise."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.kernel.jobs import DEPENDENCY, DONE, QUEUE, RUN, SIGNALED, JobRecorder
from tests.kernel.mockgpu_client import Gpu, Job, Point, Submitted, truth, wait_sync_file

pytestmark = [pytest.mark.kernel, pytest.mark.bpf]

MS = 1_000_000
TIMEOUT_MS = 1500
"""After which the scheduler takes a job for hung; an emulated machine makes none of these jobs so late."""
PARAMETERS = ("gpus=2", "rings=2", "hw_limit=1", f"timeout_ms={TIMEOUT_MS}")


@pytest.fixture(scope="module")
def driver() -> Iterator[None]:
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    subprocess.run(["insmod", os.environ["FENCEPATH_VM_MOCKGPU"], *PARAMETERS], check=True)
    yield
    subprocess.run(["rmmod", "mockgpu"], check=True)


@pytest.fixture(scope="module")
def attached(driver: None) -> Iterator[JobRecorder]:
    with JobRecorder() as recorder:
        yield recorder


@pytest.fixture
def recorder(attached: JobRecorder) -> JobRecorder:
    attached.take()
    return attached


def jobs_of(*submitted: Submitted) -> list[Job]:
    """The driver's account of jobs."""
    numbers = {job.number for job in submitted}
    return [job for job in truth() if job.number in numbers]


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_names_are_those_expected_of_this_kernel(recorder: JobRecorder) -> None:
    assert recorder.old is (os.environ["FENCEPATH_VM_EVENTS"] == "old")
    assert {one.format.group for one in recorder.resolved.values()} == {"gpu_scheduler", "dma_fence"}


def test_one_job(recorder: JobRecorder) -> None:
    with Gpu() as gpu:
        out = gpu.syncobj()
        submitted = gpu.submit(0, 3 * MS, out=Point(out))
        gpu.fence_wait(out)
    (job,) = jobs_of(submitted)
    assert (job.gpu, job.ring, job.pid, job.asked_ns) == (0, "ring0", os.getpid(), 3 * MS)
    assert job.push_ns < job.run_ns <= job.start_ns < job.start_ns + 3 * MS <= job.done_ns
    records = recorder.take()
    for record in (QUEUE, RUN, DONE):
        assert recorder.identities(records[record.kind]) == [recorder.identity(job)]
    (queued,), (run,), (done,) = (records[record.kind]["time_ns"] for record in (QUEUE, RUN, DONE))
    assert job.push_ns <= queued <= run <= job.run_ns <= job.done_ns <= done
    assert records[QUEUE.kind]["tid"][0] == os.getpid()


def test_jobs_of_two_gpus_with_rings_of_one_name(recorder: JobRecorder) -> None:
    counts = {(0, 0): 7, (0, 1): 5, (1, 0): 11, (1, 1): 3}
    submitted: list[Submitted] = []
    with Gpu(0) as first, Gpu(1) as second:
        gpus = (first, second)
        for (gpu, ring), count in counts.items():
            outs = [Point(gpus[gpu].syncobj()) for _ in range(count)]
            submitted += [gpus[gpu].submit(ring, MS, out=out) for out in outs]
            gpus[gpu].wait(outs[-1])
    jobs = jobs_of(*submitted)
    assert Counter((job.gpu, job.ring) for job in jobs) == {(g, f"ring{r}"): n for (g, r), n in counts.items()}
    records = recorder.take()
    for record in (QUEUE, RUN, DONE):
        assert recorder.counts(records[record.kind]) == recorder.expected(jobs)
    assert Counter(records[RUN.kind]["ring"].tolist()) == {b"ring0": 18, b"ring1": 8}
    if not recorder.old:
        assert Counter(records[RUN.kind]["dev"].tolist()) == {b"mockgpu.0": 12, b"mockgpu.1": 14}
        assert set(records[QUEUE.kind]["client_id"].tolist()) == {job.client for job in jobs} - {0}


def test_a_job_waits_for_its_dependency(recorder: JobRecorder) -> None:
    with Gpu() as gpu:
        before, after = Point(gpu.syncobj()), Point(gpu.syncobj())
        submitted = [gpu.submit(0, 50 * MS, out=before), gpu.submit(1, MS, after=[before], out=after)]
        gpu.wait(after)
    first, second = jobs_of(*submitted)
    assert second.dependencies == (first.finished,)
    assert second.run_ns > first.done_ns
    records = recorder.take()
    waited = records[DEPENDENCY.kind]
    assert [(r["ctx"], r["seqno"]) for r in waited] == [first.finished]
    signaled = records[SIGNALED.kind]
    (end_ns,) = signaled["time_ns"][signaled["context"] == first.finished.context & 0xFFFFFFFF]
    assert first.done_ns <= end_ns <= second.run_ns


def test_jobs_of_a_killed_process_never_run(recorder: JobRecorder) -> None:
    before = len(truth())
    child = os.fork()
    if not child:
        with Gpu() as gpu:
            for _ in range(5):
                gpu.submit(0, 300 * MS)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: all(job.done_ns or job.cancelled_ns for job in truth()[before:]))
    jobs = truth()[before:]
    ran, cancelled = ([job for job in jobs if bool(job.run_ns) is kind] for kind in (True, False))
    assert len(jobs) == 5
    assert {job.pid for job in jobs} == {child}
    assert cancelled
    time.sleep(0.1)  # an end is in the truth just before its events
    records = recorder.take()
    assert recorder.counts(records[QUEUE.kind]) == recorder.expected(jobs)
    assert recorder.counts(records[RUN.kind]) == recorder.counts(records[DONE.kind]) == recorder.expected(ran)
    ended = Counter(
        zip(records[SIGNALED.kind]["context"].tolist(), records[SIGNALED.kind]["seqno"].tolist(), strict=True)
    )
    for job in cancelled:
        assert ended[job.finished.context & 0xFFFFFFFF, job.finished.seqno & 0xFFFFFFFF] == 1


def test_a_hung_job_is_ended_by_the_timeout_of_its_ring(recorder: JobRecorder) -> None:
    with Gpu() as gpu:
        outs = [Point(gpu.syncobj()) for _ in range(3)]
        submitted = [
            gpu.submit(0, 0, out=outs[0], hangs=True),
            gpu.submit(0, MS, out=outs[1]),
            gpu.submit(1, MS, out=outs[2]),
        ]
        for out in outs:
            gpu.wait(out)
    hung, behind, elsewhere = jobs_of(*submitted)
    assert (hung.done_ns, behind.timedout_ns, elsewhere.timedout_ns) == (0, 0, 0)
    # The scheduler counts in jiffies of 4 ms, and may begin with the next one.
    assert hung.timedout_ns - hung.run_ns > (TIMEOUT_MS - 10) * MS
    assert behind.run_ns > hung.timedout_ns
    assert elsewhere.done_ns < hung.timedout_ns
    records = recorder.take()
    for record in (QUEUE, RUN, DONE):
        assert recorder.counts(records[record.kind]) == recorder.expected([hung, behind, elsewhere])
    at = dict(zip(recorder.identities(records[DONE.kind]), records[DONE.kind]["time_ns"].tolist(), strict=True))
    assert at[recorder.identity(hung)] >= hung.timedout_ns


def test_points_of_a_timeline(recorder: JobRecorder) -> None:
    with Gpu() as gpu:
        line = gpu.syncobj()
        submitted = [
            gpu.submit(0, 20 * MS, out=Point(line, 3)),
            gpu.submit(1, MS, after=[Point(line, 3)], out=Point(line, 7)),
        ]
        gpu.wait(Point(line, 3))
        gpu.wait(Point(line, 7))
    first, second = jobs_of(*submitted)
    assert second.run_ns > first.done_ns
    # What it waits for is the timeline's fence, which has a context of its own.
    assert len(second.dependencies) == 1
    assert second.dependencies != (first.finished,)
    records = recorder.take()
    assert recorder.counts(records[DONE.kind]) == recorder.expected([first, second])


def test_a_sync_file_carries_a_fence_to_another_gpu(recorder: JobRecorder) -> None:
    with Gpu(0) as producer, Gpu(1) as consumer:
        out, here, end = producer.syncobj(), consumer.syncobj(), Point(consumer.syncobj())
        first = producer.submit(0, 20 * MS, out=Point(out))
        fd = producer.export_sync_file(out)
        consumer.import_sync_file(fd, here)
        second = consumer.submit(0, MS, after=[Point(here)], out=end)
        assert wait_sync_file(fd)
        consumer.wait(end)
        os.close(fd)
    before, after = jobs_of(first, second)
    assert (before.gpu, after.gpu) == (0, 1)
    assert after.dependencies == (before.finished,)
    assert after.run_ns > before.done_ns
    assert recorder.counts(recorder.take()[DONE.kind]) == recorder.expected([before, after])
