# SPDX-License-Identifier: Apache-2.0
"""The packaged recording of a real GPU: its calls are those that CUPTI counted, its paths add up and say what they said."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fencepath import Analysis, open_recording
from fencepath.events import Category
from fencepath_cuda.demo import SimulatedServer

CUPTI = {
    "cudaLaunchKernel": 2230, "cuLaunchKernel": 8, "cudaLaunchKernelExC": 56, "cuLaunchKernelEx": 537, "cudaMemcpyAsync": 23,
    "cudaMemsetAsync": 33, "cudaStreamSynchronize": 23, "cudaGraphLaunch": 13,
}  # fmt: skip
"""Callbacks of the marked part, counted by torch's profiler. It lists runtime calls under their own names, and driver calls
only where no runtime call made them."""


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(open_recording(SimulatedServer().packaged))


def calls(analysis: Analysis) -> Counter[str]:
    """Driver calls from the first measured request on."""
    begin = min(request.start_ns for request in analysis.requests if request.key.startswith("req"))
    counts: Counter[str] = Counter()
    for kind in analysis.view.kinds:
        if kind.startswith("cuda."):
            batch = analysis.view.batch(kind)
            for code in batch["label"][np.asarray(batch["begin_ns"]) >= begin].tolist():
                counts[batch.labels[code]] += 1
    return counts


def test_calls_are_those_that_cupti_counted(analysis: Analysis) -> None:
    seen = calls(analysis)
    assert seen["cuLaunchKernel"] == CUPTI["cudaLaunchKernel"] + CUPTI["cuLaunchKernel"]
    assert seen["cuLaunchKernelEx"] == CUPTI["cudaLaunchKernelExC"] + CUPTI["cuLaunchKernelEx"]
    assert seen["cuMemcpyDtoHAsync_v2"] + seen["cuMemcpyHtoDAsync_v2"] == CUPTI["cudaMemcpyAsync"]
    assert seen["cuMemsetD8Async"] == CUPTI["cudaMemsetAsync"]
    assert seen["cuStreamSynchronize"] == CUPTI["cudaStreamSynchronize"]
    assert seen["cuGraphLaunch"] == CUPTI["cudaGraphLaunch"]


def test_nothing_was_lost(analysis: Analysis) -> None:
    assert analysis.problems == ()
    assert not any(row.count for row in analysis.recording.loss)
    assert analysis.recording.damage == []


def test_every_path_adds_up(analysis: Analysis) -> None:
    report = analysis.report()
    assert [request.key for request in report.requests] == [
        "warm",
        "warm-graph",
        "warm-big",
        "req-0",
        "req-1",
        "req-graph",
        "req-big",
    ]
    for request in report.requests:
        assert sum(segment.duration_ns for segment in request.path.segments) == request.end_ns - request.start_ns
        assert request.path.unexplained_ns == request.path.not_observed_ns == 0


def test_what_set_the_latency(analysis: Analysis) -> None:
    """Eager decoding is bound by the host, the graph and the large products by the device."""
    share = {
        request.key: {
            name: time_ns / (request.end_ns - request.start_ns) for name, time_ns in request.path.by_category_ns.items()
        }
        for request in analysis.report().requests
    }
    assert share["req-0"][Category.HOST_COMPUTE] > 0.9
    assert share["req-graph"][Category.DEVICE_WAIT] > 0.8
    assert share["req-big"][Category.DEVICE_WAIT] > 0.95


def test_without_the_scheduler_the_hosts_share_is_not_observed(analysis: Analysis) -> None:
    """What only the host layer could say becomes not_observed; what calls say of themselves stays."""
    bare = Analysis(open_recording(SimulatedServer().packaged), without=["host"])
    for full, less in zip(analysis.report().requests, bare.report().requests, strict=True):
        scheduler = (Category.HOST_COMPUTE, Category.RUNQUEUE, Category.BLOCKED)
        assert not any(category in less.path.by_category_ns for category in scheduler)
        host = sum(full.path.by_category_ns.get(category, 0) for category in scheduler)
        others = (Category.API_CALL, Category.DEVICE_WAIT, Category.MEMORY)
        gained = sum(less.path.by_category_ns.get(c, 0) - full.path.by_category_ns.get(c, 0) for c in others)
        assert less.path.not_observed_ns == host - gained
        # a call during which the thread lost its CPU takes that time back
        assert (
            0
            <= gained
            <= full.path.by_category_ns.get(Category.RUNQUEUE, 0) + full.path.by_category_ns.get(Category.BLOCKED, 0)
        )
