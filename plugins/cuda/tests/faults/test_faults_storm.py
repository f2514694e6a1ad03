# SPDX-License-Identifier: Apache-2.0
"""200,000 calls a second from eight threads: each is in the recording, or counted as lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from plugins.cuda.tests.faults.workbench import Bench
from tests.faults.commandline import until

from fencepath.recording import Recording, open_recording

pytestmark = pytest.mark.bpf

THREADS, RATE, EACH, SYNC_EVERY = 8, 25_000, 25_013, 1009

WAIT = 'echo $$ > "$0/started"; while [ ! -e "$0/go" ]; do sleep 0.02; done; exec "$@" > "$0/said"'
"""A command that begins when it is told to."""


class Storm(NamedTuple):
    """What threads say that they called, and a recording of it."""

    threads: list[dict[str, Any]]
    recording: Recording

    def made(self) -> Counter[str]:
        """Calls by kind."""
        launches = sum(int(thread["launches"]) for thread in self.threads)
        waits = sum(int(thread["launches"]) // SYNC_EVERY + 1 for thread in self.threads)
        streams = len(self.threads)
        names = ("cuda.launch", "cuda.stream.synchronize", "cuda.stream.create", "cuda.stream.destroy")
        return Counter(dict(zip(names, (launches, waits, streams, streams), strict=True)))

    def recorded(self) -> Counter[str]:
        """Records by kind."""
        return Counter({kind: len(self.recording.records(kind)) for kind in self.made()})

    def lost(self) -> Counter[str]:
        """CUDA calls that are counted as lost, by kind."""
        found: Counter[str] = Counter()
        for row in self.recording.loss:
            if row.kind.startswith("cuda."):
                found[row.kind] += row.count
        return found


def storm(bench: Bench, rate: int, *, stop: bool) -> Storm:
    """Record the storm, with the recorder stopped for all of it or not."""
    folder: Path = bench.folder()
    command = [
        bench.library.workload,
        "--threads",
        THREADS,
        "--launches",
        EACH,
        "--sync-every",
        SYNC_EVERY,
        "--rate",
        rate,
    ]
    running = bench.start(folder, "--", "sh", "-c", WAIT, folder, *map(str, command))
    until((folder / "started").exists, "the command to start")
    if stop:
        running.kill(signal.SIGSTOP)
    (folder / "go").touch()
    if stop:
        until(lambda: (folder / "said").exists() and (folder / "said").stat().st_size, "the storm to end")
        running.kill(signal.SIGCONT)
    done = running.wait()
    assert done.code == 0, done.errors
    said = json.loads((folder / "said").read_text())
    return Storm(said["threads"], open_recording(folder / "run.fencepath"))


def check(found: Storm) -> None:
    """Recorded and lost are what was called, of each kind; and of no thread more is recorded than it called."""
    made, lost = found.made(), found.lost()
    assert found.recorded() + lost == made
    assert made["cuda.launch"] == THREADS * EACH
    launches = Counter(found.recording.records("cuda.launch")["tid"].tolist())
    assert set(launches) <= {thread["tid"] for thread in found.threads}
    assert max(launches.values()) <= EACH
    begin = min(int(thread["begin_ns"]) for thread in found.threads)
    end = max(int(thread["end_ns"]) for thread in found.threads)
    print(f"{sum(made.values()) * 1e9 / (end - begin):.0f} calls/s, {sum(lost.values())} lost")


@pytest.mark.parametrize("rate", [RATE, 0], ids=["200k-per-s", "as-fast-as-possible"])
def test_each_call_is_recorded_or_counted(bench: Bench, rate: int) -> None:
    check(storm(bench, rate, stop=False))


def test_what_does_not_fit_is_counted(bench: Bench) -> None:
    """While nobody empties the rings; the rows of the loss table say when."""
    found = storm(bench, 0, stop=True)
    check(found)
    assert found.lost()["cuda.launch"] > 0
    begin = min(int(thread["begin_ns"]) for thread in found.threads)
    end = max(int(thread["end_ns"]) for thread in found.threads)
    for row in found.recording.loss:
        if row.kind.startswith("cuda."):
            assert row.stage == "ring_full"
            assert row.from_ns < end
            assert begin < row.to_ns
