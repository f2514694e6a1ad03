# SPDX-License-Identifier: Apache-2.0
"""The layer ``drm`` on this kernel: every job of the mock driver is recorded, joined and held against the driver's truth."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.core.live import live_layers
from tests.kernel.mock_jobs import DOOMED, FRAMES, HUNG, TOTAL, WAYS, Waited, read_log
from tests.kernel.mockgpu_client import TRUTH, Fence, Gpu, Job, Point, truth

from fencepath._engine.activities import CONFIDENCES
from fencepath.analysis import Analysis
from fencepath.events import Batch
from fencepath.recording import open_recording
from fencepath_drm import plugin as drm
from fencepath_drm import probes

pytestmark = [pytest.mark.kernel, pytest.mark.bpf, pytest.mark.timeout(200)]

TIMEOUT_MS = 1500
PARAMETERS = ("gpus=2", "rings=2", "hw_limit=2", f"timeout_ms={TIMEOUT_MS}")
MS = 1_000_000
LATE_NS = 500 * MS
"""More than an emulated machine ever stands still between an end and its event."""
NEAR_NS = 2 * MS
"""What it needs at most in half of all cases."""


class Seen:
    """One recording of the workload, and what the driver and the workload say of it."""

    def __init__(self, analysis: Analysis, jobs: list[Job], waits: list[Waited]) -> None:
        self.analysis = analysis
        self.jobs = {job.finished: job for job in jobs}
        self.waits = waits

    def batch(self, kind: str) -> Batch:
        return self.analysis.view.batch(kind)

    def times(self, kind: str) -> dict[Fence, int]:
        """When each job's event came."""
        batch = self.batch(kind)
        names = ("fence_context", "fence_seqno") if "fence_context" in batch else ("context", "seqno")
        fences = map(Fence, batch[names[0]].tolist(), batch[names[1]].tolist())
        found = list(zip(fences, batch["time_ns"].tolist(), strict=True))
        assert len(dict(found)) == len(found)
        return dict(found)

    def sleeps(self) -> Callable[[Waited], bool]:
        """Return what tells whether a thread slept in a wait and was seen to be woken."""
        switches, wakings = self.batch("host.switch"), self.batch("host.waking")

        def slept(wait: Waited) -> bool:
            inside = [
                (batch["time_ns"] > wait.begin_ns) & (batch["time_ns"] < wait.end_ns) for batch in (switches, wakings)
            ]
            left = switches["time_ns"][inside[0] & (switches["prev_tid"] == wait.tid) & (switches["prev_state"] != 0)]
            woken = wakings["time_ns"][inside[1] & (wakings["wakee_tid"] == wait.tid)]
            # it may be woken while it is about to sleep, and sleep for something else later
            return len(left) > 0 and bool((woken > left.min()).any())

        return slept

    def matched(self, rule: str) -> int:
        return next(count.matched for count in self.analysis.joins if count.rule == rule)

    def edges(self, rule: str) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Cause and effect of a rule's edges, as kind and row."""
        edges, table = self.analysis.edges, self.analysis.table
        if rule not in edges.rules:
            return []
        mine = np.flatnonzero(edges.rule == edges.rules.index(rule))
        pairs = zip(edges.cause[mine].tolist(), edges.effect[mine].tolist(), strict=True)
        return [(table.locate(cause), table.locate(effect)) for cause, effect in pairs]

    def confidences(self, rule: str) -> set[str]:
        """What is said of how sure a rule's edges are."""
        edges = self.analysis.edges
        return {CONFIDENCES[code] for code in edges.confidence[edges.rule == edges.rules.index(rule)].tolist()}


@pytest.fixture(scope="module")
def driver() -> Iterator[None]:
    subprocess.run(["modprobe", "gpu-sched"], check=True)
    subprocess.run(["insmod", os.environ["FENCEPATH_VM_MOCKGPU"], *PARAMETERS], check=True)
    yield
    subprocess.run(["rmmod", "mockgpu"], check=True)


@pytest.fixture(scope="module")
def seen(driver: None) -> Seen:
    """What was recorded stays with the results, to look at."""
    folder = Path(os.environ["FENCEPATH_VM_OUT"], "drm")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    options: list[str] = [
        "-o",
        str(folder / "drm.fencepath"),
        "--layers",
        "drm,host",
        "--detail",
        "launch",
        "--as-root",
    ]
    workload = [sys.executable, "-m", "tests.kernel.mock_jobs", str(folder / "log")]
    command = [sys.executable, "-m", "fencepath", "record", *options, "--", *workload]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "truth").write_bytes(TRUTH.read_bytes())
    return Seen(Analysis(open_recording(folder / "drm.fencepath")), truth(), read_log(folder / "log"))


def test_nothing_is_lost_and_nothing_fails(seen: Seen) -> None:
    assert len(seen.jobs) == TOTAL + DOOMED + HUNG
    assert seen.analysis.problems == ()
    lost = {row.kind for row in seen.analysis.recording.loss if row.kind.startswith("drm.") and row.count}
    assert lost == set()
    missing = seen.analysis.recording.manifest.layers["drm"].missing
    assert [(one.probe, one.why) for one in missing] == []


def test_every_job_is_queued_run_and_done_in_order_and_time(seen: Seen) -> None:
    queued, run, done = (seen.times(f"drm.job.{name}") for name in ("queue", "run", "done"))
    signaled = seen.times("drm.fence.signaled")
    assert queued.keys() == seen.jobs.keys()
    ran = {fence: job for fence, job in seen.jobs.items() if job.run_ns}
    assert run.keys() == ran.keys() >= done.keys()
    # a job whose hardware is done at once is done in the worker, and the kernel skips another one's that interrupts that
    assert len(ran) - len(done) <= int(seen.analysis.recording.manifest.extra["skipped_runs"].get("drm.job.done", 0))
    assert len(ran) >= TOTAL + HUNG
    for fence, job in seen.jobs.items():
        assert 0 <= queued[fence] - job.push_ns < LATE_NS
        assert signaled[fence] > queued[fence]
    for fence, job in ran.items():
        assert queued[fence] < run[fence] <= job.run_ns <= done.get(fence, signaled[fence]) <= signaled[fence]
        if job.done_ns:
            assert 0 <= signaled[fence] - job.done_ns < LATE_NS


def test_jobs_are_named_with_their_device_and_ring(seen: Seen) -> None:
    batch = seen.batch("drm.job.queue")
    fences = map(Fence, batch["fence_context"].tolist(), batch["fence_seqno"].tolist())
    places = zip(*(batch[name].tolist() for name in ("dev", "ring_name", "tid")), strict=True)
    found = dict(zip(fences, places, strict=True))
    assert found == {fence: (f"mockgpu.{job.gpu}", job.ring, job.pid) for fence, job in seen.jobs.items()}
    rings = {seen.analysis.entity_text(ring) for ring in set(batch["ring"].tolist())}
    assert rings == {f"drm.ring:mockgpu.{gpu}/ring{ring}" for gpu in (0, 1) for ring in (0, 1)}


def test_every_submission_is_in_its_ioctl(seen: Seen) -> None:
    assert seen.matched("drm.submit_ioctl") == len(seen.jobs)
    ioctls = seen.batch("drm.ioctl")
    submits = Counter(ioctls.labels[label] for label in ioctls["label"].tolist())
    assert submits["ioctl 0x40"] == len(seen.jobs)
    assert set(ioctls["device"].tolist()) <= {226 << 20 | minor for minor in range(128, 132)}


def test_dependencies_are_those_of_the_driver(seen: Seen) -> None:
    batch = seen.batch("drm.job.dependency")
    assert len(batch) > TOTAL // 10
    assert set(batch["candidates"].tolist()) == {1}
    pairs = zip(
        map(Fence, batch["fence_context"].tolist(), batch["fence_seqno"].tolist()),
        map(Fence, batch["dependency_context"].tolist(), batch["dependency_seqno"].tolist()),
        strict=True,
    )
    for fence, on in pairs:
        assert on in seen.jobs[fence].dependencies or on.context == 0
    for (_, cause), (_, effect) in seen.edges("drm.dependency"):
        executes, holds = seen.batch("drm.job.execute"), seen.batch("drm.job.hold")
        on = Fence(int(executes["fence_context"][cause]), int(executes["fence_seqno"][cause]))
        held = seen.analysis.entity_text(int(holds["fence"][effect])).split("/")[-2:]
        assert on in seen.jobs[Fence(int(held[0]), int(held[1]))].dependencies
    assert len(seen.edges("drm.dependency")) > TOTAL // 20


def test_time_on_the_ring_is_that_of_the_driver(seen: Seen) -> None:
    batch = seen.batch("drm.job.execute")
    fences = list(map(Fence, batch["fence_context"].tolist(), batch["fence_seqno"].tolist()))
    assert set(fences) == {fence for fence, job in seen.jobs.items() if job.run_ns}
    errors: list[int] = []
    for fence, begin, end in zip(fences, batch["begin_ns"].tolist(), batch["time_ns"].tolist(), strict=True):
        job = seen.jobs[fence]
        if job.done_ns:
            errors += [abs(begin - job.start_ns), abs(end - job.done_ns)]
    assert max(errors) < LATE_NS
    assert float(np.median(errors)) < NEAR_NS


def test_cancelled_jobs_end(seen: Seen) -> None:
    cancelled = {fence for fence, job in seen.jobs.items() if job.cancelled_ns}
    assert cancelled
    (rows,) = (table.rows for name, table in seen.analysis.tables(()).get("drm", {}).items() if name == "unmatched")
    counts = {str(row["what"]): row["count"] for row in rows}
    assert counts["jobs that were cancelled before they ran"] == len(cancelled)
    assert not [what for what in counts if "ended" in what or "queueing" in what or "dependencies" in what], counts


def test_every_waiter_is_joined_to_its_job(seen: Seen) -> None:
    jobs = {job.number: job for job in seen.jobs.values()}
    executes = seen.batch("drm.job.execute")
    found: dict[tuple[int, Fence], list[tuple[int, int]]] = {}
    for rule in ("drm.fence_wait", "drm.fence_sleep"):
        for (_, cause), (kind, effect) in seen.edges(rule):
            batch = seen.batch(kind)
            fence = Fence(int(executes["fence_context"][cause]), int(executes["fence_seqno"][cause]))
            span = int(batch["begin_ns"][effect]), int(batch["time_ns"][effect])
            found.setdefault((int(batch["tid"][effect]), fence), []).append(span)
    slept = seen.sleeps()
    waited, joined = Counter[str](), Counter[str]()
    for wait in seen.waits:
        job = max((jobs[number] for number in (wait.number, wait.other) if number >= 0), key=lambda each: each.done_ns)
        if job.done_ns <= wait.begin_ns or (wait.way != "fence" and not slept(wait)):
            continue  # it did not have to wait, or the scheduler's events do not say that it slept
        waited[wait.way] += 1
        spans = found.get((wait.tid, job.finished), [])
        joined[wait.way] += any(begin < wait.end_ns and end > wait.begin_ns for begin, end in spans)
    assert set(waited) == set(WAYS)
    assert min(waited.values()) > 5
    assert joined == waited
    assert seen.confidences("drm.fence_wait") == {"exact"}
    assert seen.confidences("drm.fence_sleep") == {"exact"}


def test_frames_are_delivered_to_who_asked(seen: Seen) -> None:
    assert len(seen.batch("drm.vblank.queued")) == len(seen.batch("drm.vblank.delivered")) == FRAMES
    assert seen.matched("drm.vblank") == FRAMES
    (row,) = seen.analysis.tables(())["drm"]["vblank"].rows
    assert (row["crtc"], row["delivered"], row["with_hardware_time"]) == (0, FRAMES, FRAMES)
    assert int(row["delivery_most_ns"] or 0) < LATE_NS


def test_without_type_information_jobs_are_named_by_what_their_thread_made(
    driver: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On kernels whose events have the fence's address; on others the events name it, with or without."""
    monkeypatch.setattr(probes, "structure_defines", dict)
    before = len(truth())
    missing = [("jobs", "by its second best way: which signal woke a thread: told by nearness")]
    with live_layers({"drm": drm}, missing=missing) as live, Gpu(0) as first, Gpu(1) as second:
        live.targets.add(os.getpid())
        for index in range(11):
            gpu = (first, second)[index % 2]
            out = gpu.syncobj()
            gpu.submit(index // 2 % 2, MS // 2, out=Point(out))
            gpu.wait(Point(out))
        queued, run = live.records("drm.job.queue"), live.records("drm.job.run")
    expected = [job.finished for job in truth()[before:]]
    assert len(expected) == 11
    for records in (queued, run):
        assert [Fence(int(r["fence_context"]), int(r["fence_seqno"])) for r in records] == expected
