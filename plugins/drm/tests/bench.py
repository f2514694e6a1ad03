# SPDX-License-Identifier: Apache-2.0
"""How long it takes to join many jobs, offline: ``python -m plugins.drm.tests.bench [JOBS]``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fencepath._loader import load_plugins
from fencepath.analysis import Analysis
from fencepath.records import Flags, RecordLayout, Records
from fencepath.testing import write_recording
from fencepath_drm import plugin as drm
from fencepath_drm.layouts import DEPENDENCY, DONE, FENCE_WAIT, QUEUE, RUN, SIGNALED

__all__ = ["measure", "records"]

RINGS, CONTEXTS, STEP_NS = 4, 20, 10_000


def records(jobs: int) -> dict[RecordLayout, Records]:
    """Jobs of 20 contexts on 4 rings, each depending on the one before of another ring, and a wait for every seventh."""
    number = np.arange(jobs)
    context, seqno = 5 + 2 * (number % CONTEXTS), 1 + number // CONTEXTS
    queued = 1_000_000 + number * STEP_NS
    done = queued + 45_000
    rings = np.array([f"ring{ring}".encode() for ring in range(RINGS)])
    job = {"fence_context": context, "fence_seqno": seqno}
    short = {"context": context, "seqno": seqno}
    task = {"tgid": 100, "tid": 101 + context, "flags": int(Flags.TASK)}
    ring = rings[context // 2 % RINGS]
    on = {"dependency_context": np.roll(context, 1), "dependency_seqno": np.roll(seqno, 1), "candidates": 1}
    waits = np.arange(0, jobs, 7)
    return {
        QUEUE: _made(QUEUE, jobs, time_ns=queued, ring=ring, dev=b"0000:03:00.0", **job, **task),
        RUN: _made(RUN, jobs, time_ns=queued + 5_000, **job),
        DONE: _made(DONE, jobs, time_ns=done, **job),
        DEPENDENCY: _made(DEPENDENCY, jobs, time_ns=queued + 100, **job, **on)[1:],
        SIGNALED: _made(SIGNALED, jobs, time_ns=done + 1_000, **short),
        FENCE_WAIT: _made(FENCE_WAIT, jobs, time_ns=done + 3_000, begin_ns=queued + 200, **short, **task)[waits],
    }


def _made(layout: RecordLayout, rows: int, **fields: object) -> Records:
    made = np.zeros(rows, layout.dtype)
    for name, value in fields.items():
        made[name] = value
    return made


def measure(jobs: int = 100_000) -> dict[str, float]:
    """Return seconds by stage: reading and naming of everything with what is derived, and all joins."""
    registry = load_plugins(extra={"drm": drm}, entry_points=False)
    with tempfile.TemporaryDirectory() as folder:
        recording = write_recording(Path(folder, "jobs.fencepath"), records(jobs), registry=registry)
        begin = time.perf_counter()
        analysis = Analysis(recording, registry)
        loaded = time.perf_counter()
        matched = {count.rule: count.matched for count in analysis.joins}
        joined = time.perf_counter()
        assert analysis.problems == ()
        assert matched["drm.execute"] == matched["drm.done"] == jobs
        tables = analysis.tables(())
        assert tables
        return {
            "load and derive": loaded - begin,
            "join": joined - loaded,
            "tables": time.perf_counter() - joined,
        }


if __name__ == "__main__":
    for stage, seconds in measure(*map(int, sys.argv[1:])).items():
        print(f"{stage}: {seconds:.2f} s")
