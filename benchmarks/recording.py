# SPDX-License-Identifier: Apache-2.0
"""What writing and reading a recording costs.

    python benchmarks/recording.py            1 M events a round: ring rows to a compressed folder, and back to arrays

The events are what a decode loop gives: launches and memory copies of four threads and the switches between them, their
rows as the rings hold them. Writing is the CPU time of this process, system included, from those rows to a closed
recording. Reading is elapsed time from the folder to structured arrays, which holds decompression on other cores. For
scale, the same rows are also written to one plain file. Needs no root.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fencepath._bpf.rings import RingBatch
from fencepath._record.rows import RowSplitter
from fencepath.recording import KindInfo, Manifest, RecordingWriter, new_manifest, open_recording
from fencepath.records import CALL_HEAD, HEADER, Field, RecordLayout, Records, ring_class

LAUNCH = RecordLayout("cuda.launch", (*CALL_HEAD, Field("stream", "u64"), Field("grid", "u64")))
COPY = RecordLayout("cuda.memcpy", (*CALL_HEAD, Field("stream", "u64"), Field("bytes", "u64")))
SWITCH = RecordLayout(
    "host.switch", (*HEADER, Field("next_tid", "u32"), Field("state", "u32"), Field("comm", "char[16]"))
)
SHARES = {LAUNCH: 0.70, COPY: 0.05, SWITCH: 0.25}
EVENTS_A_DRAIN = 4000
"""Of a drain every 20 ms at 200 k events/s."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="events a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        result = measure(Path(folder), given.events, given.rounds)
    result["machine"] = f"{platform.machine()}, kernel {platform.release()}, {os.cpu_count()} CPUs"
    print(json.dumps(result) if given.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


def measure(folder: Path, events: int, rounds: int) -> dict[str, Any]:
    kinds = {layout.kind: KindInfo(number, "bench", layout.fields) for number, layout in enumerate(SHARES, start=1)}
    manifest = new_manifest(kinds)
    batches = list(drains(events))
    total = sum(len(batch.rows) for batch in batches)
    write_us: list[float] = []
    plain_us: list[float] = []
    read_rate: list[float] = []
    batch_rate: list[float] = []
    sizes = (0, 0)
    for turn in range(rounds + 1):
        path = folder / str(turn)
        spent = (write(path, manifest, batches), write_plain(folder / "plain", batches))
        arrays = read(path)
        passed = iterate(path)
        sizes = (size_of(path), size_of(folder / "plain"))
        if turn:
            write_us.append(spent[0] / total * 1e6)
            plain_us.append(spent[1] / total * 1e6)
            read_rate.append(total / arrays / 1e6)
            batch_rate.append(total / passed / 1e6)
    ratios = [ours / plain for ours, plain in zip(write_us, plain_us, strict=True)]
    return {
        "ring rows to compressed folder, CPU us/event": spread_of(write_us, "{:.3f}"),
        "ring rows to one plain file, CPU us/event": spread_of(plain_us, "{:.3f}"),
        "ratio to the plain file": spread_of(ratios, "{:.1f}"),
        "recording to arrays of each kind, M events/s": spread_of(read_rate, "{:.2f}"),
        "recording batch by batch, M events/s": spread_of(batch_rate, "{:.2f}"),
        "bytes an event, compressed": round(sizes[0] / total, 1),
        "bytes an event, plain": round(sizes[1] / total, 1),
        "events a round": total,
        "rounds": rounds,
    }


def drains(events: int) -> Iterable[RingBatch]:
    """Yield ring rows as each drain finds them, all kinds of a size class mixed."""
    chance = np.random.default_rng(1)
    made = {layout: records_of(layout, round(events * share), chance) for layout, share in SHARES.items()}
    turns = -(-events // EVENTS_A_DRAIN)
    by_class: dict[int, list[RecordLayout]] = {}
    for layout in SHARES:
        by_class.setdefault(ring_class(layout.size_bytes), []).append(layout)
    for turn in range(turns):
        for class_bytes, layouts in by_class.items():
            parts = [rows_of(np.array_split(made[layout], turns)[turn], class_bytes) for layout in layouts]
            rows = np.concatenate(parts)
            times = np.ndarray((len(rows),), np.uint64, rows, 0, (class_bytes,))
            yield RingBatch(class_bytes, rows[np.argsort(times, kind="stable")])


def records_of(layout: RecordLayout, count: int, chance: np.random.Generator) -> Records:
    numbers = {known.kind: number for number, known in enumerate(SHARES, start=1)}
    records: Records = np.zeros(count, dtype=layout.dtype)
    records["time_ns"] = 10**15 + np.cumsum(chance.integers(500, 20_000, count, dtype=np.uint64))
    records["tgid"] = 4242
    records["tid"] = 4242 + chance.integers(0, 4, count)
    records["kind"] = numbers[layout.kind]
    records["cpu"] = chance.integers(0, 8, count)
    records["flags"] = 16
    if layout is SWITCH:
        records["next_tid"] = 4242 + chance.integers(0, 4, count)
        records["state"] = chance.integers(0, 3, count)
        records["comm"] = b"python3"
        return records
    records["begin_ns"] = records["time_ns"] - chance.integers(900, 9000, count, dtype=np.uint64)
    records["function"] = chance.integers(0, 30, count)
    records["caller_ip"] = 0x7F00_0000_0000 + 0x123 * chance.integers(0, 40, count, dtype=np.uint64)
    records["stream"] = 0x5555_0000 + 4096 * chance.integers(0, 3, count, dtype=np.uint64)
    records[layout.fields[-1].name] = chance.integers(1, 1024, count)
    return records


def rows_of(records: Records, class_bytes: int) -> Any:
    rows = np.zeros((len(records), class_bytes), np.uint8)
    rows[:, : records.dtype.itemsize] = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    return rows


def write(path: Path, manifest: Manifest, batches: list[RingBatch]) -> float:
    begin = time.process_time()
    splitter = RowSplitter(manifest.layouts)
    with RecordingWriter(path, manifest) as writer:
        for turn, batch in enumerate(batches):
            for kind, records in splitter.split(batch):
                writer.append(kind, records)
            writer.tick(turn * 10_000_000)
    return time.process_time() - begin


def write_plain(path: Path, batches: list[RingBatch]) -> float:
    begin = time.process_time()
    with path.open("wb") as file:
        for batch in batches:
            file.write(batch.rows.data)
    return time.process_time() - begin


def read(path: Path) -> float:
    begin = time.perf_counter()
    recording = open_recording(path)
    for kind in recording.kinds:
        recording.records(kind)
    return time.perf_counter() - begin


def iterate(path: Path) -> float:
    begin = time.perf_counter()
    recording = open_recording(path)
    for kind in recording.kinds:
        for _ in recording.iter_records(kind):
            pass
    return time.perf_counter() - begin


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def spread_of(values: list[float], form: str) -> str:
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} (least {low}, most {high})"


if __name__ == "__main__":
    main()
