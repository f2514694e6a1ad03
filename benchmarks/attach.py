# SPDX-License-Identifier: Apache-2.0
"""How long ``fencepath record`` takes until a program may start: import, plan, compile, calibrate, attach.

    python -m benchmarks.attach [--quick]

The layers are cuda, host and core's own; the functions are those of a simulated CUDA library at detail launch. For
scale, an empty program compiled by BCC in a process of its own is timed in the same rounds. Needs root and a C compiler.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command import Recorded, record
from benchmarks.results import Row, row, run_as_script
from fencepath.recording import open_recording
from fencepath_cuda.simcuda import build

ROUNDS, QUICK_ROUNDS = 7, 2
MOST_SECONDS = 3
COMPILE = """
from fencepath._bpf.compiler import BpfObject
BpfObject("int empty(void *ctx) { return 0; }").close()
"""


def measure(quick: bool) -> Iterator[Row]:
    """Yield rows."""
    recorded: list[Recorded] = []
    compiled_s: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fencepath-bench-") as folder:
        workload = build(Path(folder, "simcuda")).workload
        path = Path(folder, "first.fencepath")
        for turn in range((QUICK_ROUNDS if quick else ROUNDS) + 1):
            path = path.with_name(f"{turn}.fencepath")
            once = record(path, [workload, "--launches", "1"])
            empty_s = compile_empty()
            # the first round reads files from disk
            if turn:
                recorded.append(once)
                compiled_s.append(empty_s)
        functions = sum(int(fact.data["functions"]) for fact in open_recording(path).facts("image"))
    yield row(
        "start to all probes attached, cuda and host", "s", [once.attached_s for once in recorded],
        at_most=MOST_SECONDS, note=f"{functions} functions; elapsed time",
    )  # fmt: skip
    yield row("CPU time of that", "s", [once.attach_cpu_s for once in recorded])
    yield row("an empty program compiled by BCC, process included", "s", compiled_s)


def compile_empty() -> float:
    """Elapsed seconds of a Python process that compiles nothing."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMPILE], check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    run_as_script(measure, __doc__)
