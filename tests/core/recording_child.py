# SPDX-License-Identifier: Apache-2.0
"""Writes recordings until it is killed: for each path on stdin, a forked child writes and says what it has flushed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.core.recording_samples import HANDLE, KEPT_KINDS, LAUNCH, SECOND_NS, sample_manifest, sample_records

from fencepath.recording import RecordingWriter

ROWS = 20_011
"""Rows of the sequence that is written over and over, each time 20 ms later."""


def write_for_ever(path: Path) -> None:
    writer = RecordingWriter(path, sample_manifest(), kept_kinds=KEPT_KINDS, segment_bytes=1 << 20)
    launches, handles = sample_records(LAUNCH, ROWS), sample_records(HANDLE, ROWS)
    flushed = 0
    while True:
        for at in range(0, ROWS, 500):
            writer.append(LAUNCH.kind, launches[at : at + 500])
            writer.append(HANDLE.kind, handles[at : at + 500])
            writer.fact("process", {"pid": at})
            writer.tick(flushed * SECOND_NS // 1000)
            writer.flush()
            flushed += len(launches[at : at + 500])
            os.write(1, f"{flushed}\n".encode())


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            write_for_ever(Path(line.strip()))
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main()
