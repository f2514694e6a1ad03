# SPDX-License-Identifier: Apache-2.0
"""What recording costs an LLM that decodes on a real GPU, beside torch's profiler in the same run.

    python -m benchmarks.gpu_decode [--rounds N] [--python PYTHON] [--write docs/benchmarks.md]

One process holds a small Llama with random weights. In each round every variant gets its turn, in a new order: the
recorder (or the profiler) starts, some tokens are decoded, it stops. Needs root, a GPU, and a Python with torch and
transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks.page import put_section, section, table
from benchmarks.results import Result, Row, machine, row

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

DECODER = Path(__file__).with_name("gpu_decoder.py")
RECORDERS: Mapping[str, Sequence[str]] = {
    "--detail sync": ("--detail", "sync"),
    "--detail launch --entry-only": ("--detail", "launch", "--entry-only"),
    "--detail launch": ("--detail", "launch"),
    "--detail full": ("--detail", "full"),
}
PROFILERS = ("torch profiler, CUDA", "torch profiler, CPU and CUDA")
LOOPS = {"eager": 32, "graph": 300}
"""Tokens a turn of each loop: one decoded by launches, one by launches of a CUDA graph."""
TITLE = "On a real GPU"


def main() -> int:
    """Measure and print; write the page's section if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="turns of each variant")
    parser.add_argument("--python", default=sys.executable, help="Python with torch and transformers")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures into this page")
    given = parser.parse_args()
    before = os.getloadavg()[0]
    gpu, rows = measure(given.python, given.rounds)
    where = f"{machine()}, {gpu}"
    result = Result(machine=where, quick=False, rows={TITLE: rows}, failed={}, load=(before, os.getloadavg()[0]))
    sys.stdout.write(table(result) + "\n")
    if given.write is not None:
        put_section(
            given.write, TITLE, section(TITLE, rows, f"Machine: {where}. From `python -m benchmarks.gpu_decode`.")
        )
    return 0


def measure(python: str, rounds: int) -> tuple[str, list[Row]]:
    """Return the GPU's name and the rows."""
    environ = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("FENCEPATH_GPU_LIBRARY_PATH", ""), "PYTHONPATH": ""}
    with subprocess.Popen(
        [python, DECODER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as decoder:
        assert decoder.stdin is not None
        assert decoder.stdout is not None
        gpu = json.loads(decoder.stdout.readline())["gpu"]
        took = _rounds(decoder.pid, decoder.stdin, decoder.stdout, rounds)
        decoder.stdin.close()
    return gpu, [each for loop in LOOPS for each in _rows(loop, took)]


def _rounds(pid: int, stdin: IO[str], stdout: IO[str], rounds: int) -> dict[tuple[str, str], list[dict[str, float]]]:
    took: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        variants = ["untraced", *RECORDERS, *PROFILERS]
        random.Random(number).shuffle(variants)
        for variant in variants:
            around: AbstractContextManager[Any] = nullcontext()
            if variant in RECORDERS:
                around = _recording(pid, RECORDERS[variant])
            with around:
                for loop, tokens in LOOPS.items():
                    profiler = variant if variant in PROFILERS else ""
                    stdin.write(json.dumps({"loop": loop, "tokens": tokens, "profiler": profiler}) + "\n")
                    stdin.flush()
                    answer = json.loads(stdout.readline())
                    if number:  # the first round warms everything up
                        took[loop, variant].append(answer)
    return took


@contextmanager
def _recording(pid: int, options: Sequence[str]) -> Generator[None]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "fencepath", "record", "-o", f"{folder}/run.fencepath", "--layers", "cuda"]
        words += ["--pid", str(pid), *options]
        with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as recorder:
            assert recorder.stderr is not None
            said = ""
            while "recording to" not in said:
                line = recorder.stderr.readline()
                said += line
                if not line:
                    raise RuntimeError(f"fencepath record ended: {said.strip()}")
            yield
            recorder.send_signal(signal.SIGINT)
            recorder.stderr.read()


def _rows(loop: str, took: Mapping[tuple[str, str], list[dict[str, float]]]) -> Iterator[Row]:
    plain = took[loop, "untraced"]
    rate = [turn["tokens"] / turn["wall_s"] for turn in plain]
    yield row(f"{loop}: untraced", "tokens/s", rate)
    yield row(f"{loop}: untraced, CPU time of the launching thread", "ms/token", _per_token(plain))
    for variant in (*RECORDERS, *PROFILERS):
        mine = took[loop, variant]
        cpu = [a["cpu_s"] / b["cpu_s"] for a, b in zip(mine, plain, strict=True)]
        wall = [b["wall_s"] / a["wall_s"] for a, b in zip(mine, plain, strict=True)]
        yield row(f"{loop}, {variant}: CPU time of the launching thread over untraced", "", cpu)
        yield row(f"{loop}, {variant}: tokens/s over untraced", "", wall)


def _per_token(turns: Sequence[Mapping[str, float]]) -> list[float]:
    return [1000 * turn["cpu_s"] / turn["tokens"] for turn in turns]


if __name__ == "__main__":
    sys.exit(main())
