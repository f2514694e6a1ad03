# SPDX-License-Identifier: Apache-2.0
"""A program that uses libacme is recorded with eBPF; what it says it did is the truth the recording is held against."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import fencepath
import numpy as np
import pytest
from fencepath import Analysis
from fencepath.events import Category
from fencepath.testing import LiveRecording, Recorded

from fencepath_acme.events import DOORBELL, STREAM_CREATE, SUBMIT, WAIT

SOURCES = Path(__file__).parent / "libacme"
MARKS = Path(fencepath.__file__).parent / "include"
ROUNDS, BURST, BYTES = 7, 3, 5_000_011
"""Primes, so that a wrong count cannot look like a right one. A job runs for a nanosecond a byte."""
JOBS_NS = BURST * BYTES
"""Time of a request's jobs. A sleep is seen from leaving the CPU, so some microseconds of it may be missing."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libacme")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{MARKS}"]
    library, built = folder / "libacme.so", folder / "program"
    subprocess.run(["cc", *flags, "-shared", "-fPIC", "-o", library, SOURCES / "libacme.c"], check=True)
    linking = [f"-L{folder}", "-lacme", f"-Wl,-rpath,{folder}"]
    subprocess.run(["cc", *flags, "-o", built, SOURCES / "program.c", *linking], check=True)
    return built


def said(recorded: Recorded) -> dict[str, list[list[str]]]:
    """Facts that the program printed, by name."""
    facts: dict[str, list[list[str]]] = defaultdict(list)
    for line in recorded.output.splitlines():
        name, *values = line.split()
        facts[name].append(values)
    return facts


@pytest.mark.bpf
def test_calls_doorbells_and_the_path_through_the_device(program: Path, live_recording: LiveRecording) -> None:
    recorded = live_recording([str(program), str(ROUNDS), str(BURST), str(BYTES)])
    assert recorded.code == 0, recorded.errors
    analysis = Analysis(recorded.recording)
    assert analysis.problems == ()
    assert not recorded.recording.loss
    facts = said(recorded)
    check_calls(analysis, facts)
    check_doorbells(analysis)
    check_waits(analysis, facts)
    check_paths(analysis)


def check_calls(analysis: Analysis, facts: dict[str, list[list[str]]]) -> None:
    creates, submits = analysis.view.batch(STREAM_CREATE), analysis.view.batch(SUBMIT)
    assert [f"{handle:x}" for handle in creates["stream_handle"].tolist()] == [handle for (handle,) in facts["create"]]
    assert len(set(creates["stream"].tolist())) == ROUNDS + 1
    taken = submits.take(submits["result"] == 0)
    assert [str(size) for size in taken["bytes"].tolist()] == [size for (size,) in facts["submit"]]
    assert submits["result"][submits["kernel"] == 0].tolist() == [int(result) for (result,) in facts["refused"]]
    (thread,) = facts["thread"]
    assert set(submits["tid"].tolist()) == {int(thread[0])}
    # a stream for each request, and its jobs are on it
    assert taken["stream"].tolist() == np.repeat(creates["stream"][:ROUNDS], BURST).tolist()


def check_doorbells(analysis: Analysis) -> None:
    """One for each job, inside its call, and one for each stream that ends."""
    counts = {count.rule: count for count in analysis.joins}
    assert (counts["acme.ring"].matched, counts["acme.ring"].unmatched) == (ROUNDS * BURST, ROUNDS + 1)
    assert len(set(analysis.view.batch(DOORBELL)["device_tid"].tolist())) == ROUNDS + 1


def check_waits(analysis: Analysis, facts: dict[str, list[list[str]]]) -> None:
    waits = analysis.view.batch(WAIT)
    truth = np.array(facts["wait"], np.int64)
    assert len(waits) == ROUNDS
    assert (waits["begin_ns"] >= truth[:, 0]).all()
    assert (waits["time_ns"] <= truth[:, 1]).all()
    (woken,) = (count for count in analysis.joins if count.rule == "acme.woken")
    assert (woken.matched, woken.unmatched, woken.off) == (ROUNDS, 0, "")


def check_paths(analysis: Analysis) -> None:
    """Nearly all of a request is its jobs' time: the path leaves the wait by its wake-up and goes on in the device."""
    assert [request.key for request in analysis.requests] == [f"request-{number}" for number in range(ROUNDS)]
    devices = [f"/{tid}@" for tid in analysis.view.batch(DOORBELL)["device_tid"].tolist()]
    for request in analysis.report().requests:
        segments = request.path.segments
        assert sum(segment.duration_ns for segment in segments) == request.end_ns - request.start_ns
        assert request.path.unexplained_ns == 0
        assert "acme.woken" in {segment.rule for segment in segments}
        on_device = [segment for segment in segments if any(device in segment.entities[0] for device in devices)]
        assert (
            sum(segment.duration_ns for segment in on_device if segment.category is Category.BLOCKED) > 0.99 * JOBS_NS
        )
        in_wait = request.path.by_category_ns.get(Category.DEVICE_WAIT, 0)
        assert in_wait < request.end_ns - request.start_ns - 0.99 * JOBS_NS
