# SPDX-License-Identifier: Apache-2.0
"""From a recording to the path of every request: time and memory of the engine, at two sizes.

    python -m benchmarks.paths [--quick]

The recording is that of :mod:`benchmarks.decode_loop`. Each round is a process of its own, so that its peak memory is
its own; it holds the interpreter, all libraries and the whole recording in columns.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from benchmarks.decode_loop import write_decode_loop
from benchmarks.results import Row, row, run_as_script
from fencepath._engine.load import Loaded, load
from fencepath._loader import Registry
from fencepath.analysis import Analysis
from fencepath.recording import Recording, open_recording

REQUESTS = 100
SIZES, QUICK_SIZES = (1_000_000, 4_000_000), (100_000, 400_000)
ROUNDS, QUICK_ROUNDS = 3, 2


def measure(quick: bool) -> Iterator[Row]:
    """Yield rows."""
    sizes, rounds = (QUICK_SIZES, QUICK_ROUNDS) if quick else (SIZES, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="fencepath-bench-") as folder:
        paths = [Path(folder, f"{size}.fencepath") for size in sizes]
        for path, size in zip(paths, sizes, strict=True):
            write_decode_loop(path, size, REQUESTS)
        turns = [[run_once(path) for path in paths] for _ in range(rounds)]
    for index, size in enumerate(sizes):
        yield from rows_of(size, [turn[index] for turn in turns], budget=index == 0)
    yield row(
        f"rate at {sizes[1]:,} events over that at {sizes[0]:,}", "", [rate(turn[1]) / rate(turn[0]) for turn in turns],
        note="1 is linear; rounds of both sizes in turns",
    )  # fmt: skip


def rate(result: dict[str, float]) -> float:
    """Events a second from columns to paths."""
    return result["events"] / result["paths_s"]


def rows_of(size: int, results: list[dict[str, float]], *, budget: bool) -> Iterator[Row]:
    """Yield the rows of one size; the design's budget is for the smaller one."""
    yield row(
        f"columns to the paths of {REQUESTS} requests, {size:,} events", "M events/s",
        [rate(result) / 1e6 for result in results], at_least=0.3 if budget else None,
        note=f"{results[0]['segments']:,.0f} segments; joins, timelines and walks, elapsed time",
    )  # fmt: skip
    yield row(
        f"peak memory of that, {size:,} events", "GB", [result["peak_bytes"] / 1e9 for result in results],
        at_most=1 if budget else None,
    )  # fmt: skip
    yield row(
        f"recording to decoded, named columns, {size:,} events", "M events/s",
        [result["events"] / result["load_s"] / 1e6 for result in results], note="decoders and entities of all layers",
    )  # fmt: skip


def run_once(path: Path) -> dict[str, float]:
    """Analyse in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.paths", "--analyse", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def analyse(path: Path) -> dict[str, float]:
    """Load a recording and walk every request."""
    load_s = 0.0

    def timed(recording: Recording, registry: Registry, without: Sequence[str] = ()) -> Loaded:
        nonlocal load_s
        began = time.perf_counter()
        loaded = load(recording, registry, without)
        load_s = time.perf_counter() - began
        return loaded

    recording = open_recording(path)
    begin = time.perf_counter()
    with mock.patch("fencepath.analysis.load", timed):
        found = Analysis(recording)
    segments = sum(len(found.path(request).columns.begin) for request in found.requests)
    total_s = time.perf_counter() - begin
    if len(found.requests) != REQUESTS or found.problems:
        sys.exit(f"{len(found.requests)} requests, {found.problems}")
    return {
        "events": sum(count for kind, count in found.table.counts().items() if kind in recording.manifest.kinds),
        "segments": segments,
        "load_s": load_s,
        "paths_s": total_s - load_s,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


if __name__ == "__main__":
    if "--analyse" in sys.argv:
        sys.stdout.write(json.dumps(analyse(Path(sys.argv[-1]))) + "\n")
    else:
        run_as_script(measure, __doc__)
