# SPDX-License-Identifier: Apache-2.0
"""Whether the recorder keeps up: ``fencepath record`` at default sizes on a program that launches at a fixed rate.

    python -m benchmarks.live [--quick]

The program is the C workload of the simulated CUDA library: two threads, 100,000 launches a second each, on functions
that begin with a push, which the kernel emulates. It and fencepath share two CPUs. The program itself says how many
launches it made and what CPU time its threads took, once recorded and once not. Needs root and a C compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import Recorded, record
from benchmarks.results import Row, row, run_as_script
from fencepath.recording import Recording, open_recording
from fencepath_cuda.simcuda import build

LAUNCH = "cuda.launch"
THREADS, RATE_HZ = 2, 100_000
SECONDS, QUICK_SECONDS = 60, 10
BARE_SECONDS = 3
REQUIRED_RATE = 0.2


def measure(quick: bool) -> Iterator[Row]:
    """Yield rows."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="fencepath-bench-") as folder:
        workload = build(Path(folder, "simcuda")).workload
        before = bare(workload, BARE_SECONDS)
        path = Path(folder, "live.fencepath")
        recorded = record(path, command(workload, seconds))
        after = bare(workload, BARE_SECONDS)
        recording = open_recording(path)
        yield from rows_of(recording, recorded, [before, after])
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        events = sum(len(recording.records(kind)) for kind in recording.kinds)
    cpu_us = recorded.run_cpu_s / events * 1e6
    yield row("fencepath's CPU time for an event, everything included", "us/event", [cpu_us], note=f"{events:,} events")
    yield row("recording on disk", "bytes/event", [size / events])
    yield row("fencepath's peak memory", "MB", [recorded.peak_bytes / 1e6])


def command(workload: Path, seconds: int) -> list[str | Path]:
    """Launch for so long, at the rate, with kernels that take no time."""
    launches, rate = str(RATE_HZ * seconds), str(RATE_HZ)
    return [
        workload,
        "--threads",
        str(THREADS),
        "--launches",
        launches,
        "--rate",
        rate,
        "--kernel-ns",
        "0",
        "--sync-every",
        "1009",
    ]


def bare(workload: Path, seconds: int) -> float:
    """CPU nanoseconds of a launch in the same program when nobody records it."""
    done = subprocess.run(
        [str(word) for word in command(workload, seconds)], check=True, capture_output=True, text=True
    )
    return launch_ns(json.loads(done.stdout))


def launch_ns(said: dict[str, Any]) -> float:
    """CPU nanoseconds of a launch, by what the program said of its threads."""
    threads = said["threads"]
    return float(sum(thread["cpu_ns"] for thread in threads) / sum(thread["launches"] for thread in threads))


def rows_of(recording: Recording, recorded: Recorded, bare_ns: list[float]) -> Iterator[Row]:
    """Yield what was lost, at which rate, and what the program paid."""
    threads = recorded.workload["threads"]
    made = sum(thread["launches"] for thread in threads)
    seconds = max((thread["end_ns"] - thread["begin_ns"]) / 1e9 for thread in threads)
    counts = {kind: len(recording.records(kind)) for kind in recording.kinds}
    lost = max(made - counts[LAUNCH], 0) + sum(loss.count for loss in recording.loss if loss.kind != LAUNCH)
    rate = sum(counts.values()) / seconds / 1e6
    yield row(
        f"events lost in {seconds:.0f} s", "events", [lost], at_most=0,
        note=f"the program made {made:,} launches, {counts[LAUNCH]:,} are recorded",
    )  # fmt: skip
    yield row("events recorded", "M events/s", [rate], at_least=REQUIRED_RATE)
    traced_ns = launch_ns(recorded.workload)
    yield row(
        "CPU time of a launch, recorded", "ns/launch", [traced_ns], note="thread CPU time, simulated driver included"
    )
    yield row("CPU time of a launch, not recorded", "ns/launch", bare_ns, note="before and after")


if __name__ == "__main__":
    run_as_script(measure, __doc__)
