# SPDX-License-Identifier: Apache-2.0
"""Events that real kernels raised for 40 jobs of a driver without hardware, against what that driver says of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from plugins.drm.tests.story import Jobs, Told

DATA = Path(__file__).with_name("data")
KERNELS = ("6.1", "7.3")
NEAR_NS = 2_500_000
"""What an emulated machine was late with an event at most."""

Fence = tuple[int, int]


class Truth:
    """What the driver says of a job."""

    def __init__(self, words: list[str]) -> None:
        self.fence: Fence = (int(words[0]), int(words[1]))
        self.ring = words[2]
        self.run, self.start, self.done = map(int, words[4:7])
        self.on: Fence | None = (int(words[7]), int(words[8])) if len(words) > 7 else None


def read(kernel: str) -> tuple[Jobs, dict[Fence, Truth]]:
    lines = (DATA / f"captured-{kernel}.txt").read_text().splitlines()
    story, truth = Jobs(), {}
    numbers: dict[Fence, int] = {}
    for kind, *words in (line.split() for line in lines if not line.startswith("#")):
        if kind == "truth":
            job = Truth(words)
            truth[job.fence] = job
            continue
        time_ns, tid, *fences = map(int, words[:6] if kind in ("dependency", "blocked") else words[:4])
        fence = (fences[0], fences[1])
        if kind == "queue":
            numbers[fence] = len(numbers) + 1
            story.name(numbers[fence], *fence)
            story.queue(time_ns, numbers[fence], tid, ring=words[4])
        elif kind == "run":
            story.run(time_ns, numbers[fence])
        elif kind == "done":
            story.done(time_ns, numbers[fence], signaled=False)
        elif kind == "signaled":
            story.signal_other(time_ns, *fence, tid)
        else:
            add = story.depends if kind == "dependency" else story.blocked
            # of a dependency on the same ring the kernel names the scheduled fence
            on = (fences[2], fences[3])
            add(time_ns, numbers[fence], numbers[on])
    return story, truth


@pytest.fixture(params=KERNELS)
def told(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Told, dict[int, Truth]]:
    story, truth = read(request.param)
    return story.analysed(tmp_path), {job: truth[story.fence(job)] for job in range(1, len(truth) + 1)}


def test_every_job_is_joined(told: tuple[Told, dict[int, Truth]]) -> None:
    seen, truth = told
    assert len(truth) == 40
    for rule in ("drm.run", "drm.done"):
        assert seen.count(rule) == (40, 0, 0)
    assert seen.edges("drm.signal") == {(job, job) for job in truth}
    assert seen.edges("drm.execute") == {(job, job) for job in truth}
    assert seen.unmatched() == {}


def test_times_on_the_ring_are_those_of_the_hardware(told: tuple[Told, dict[int, Truth]]) -> None:
    seen, truth = told
    spans = seen.spans("drm.job.execute")
    assert spans.keys() == truth.keys()
    for job, (begin, end) in spans.items():
        assert abs(begin - truth[job].start) < NEAR_NS
        assert 0 <= end - truth[job].done < NEAR_NS


def test_the_ring_is_what_keeps_jobs_of_a_deep_ring(told: tuple[Told, dict[int, Truth]]) -> None:
    seen, truth = told
    order = {
        ring: sorted((job for job in truth if truth[job].ring == ring), key=lambda job: truth[job].start)
        for ring in ("ring0", "ring1")
    }
    pairs = {pair for jobs in order.values() for pair in pairwise(jobs)}
    assert seen.edges("drm.ring") == pairs


def test_dependencies_are_those_of_the_driver(told: tuple[Told, dict[int, Truth]]) -> None:
    seen, truth = told
    by_fence = {job.fence: number for number, job in truth.items()}
    asked = {(by_fence[job.on], number) for number, job in truth.items() if job.on is not None}
    assert len(asked) == 20
    held = seen.edges("drm.dependency")
    assert held <= asked
    # a job was held up if and only if what it depends on ended after it was queued
    queued = {job: begin for job, (begin, _) in seen.spans("drm.job.queue").items()}
    ended = {job: end for job, (_, end) in seen.spans("drm.fence.signaled").items() if job}
    assert held == {(on, job) for on, job in asked if ended[on] > queued[job]}
