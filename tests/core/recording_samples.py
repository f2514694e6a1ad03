# SPDX-License-Identifier: Apache-2.0
"""Recordings with known contents, for the tests of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fencepath.clocks import ClockSample
from fencepath.recording import KindInfo, LossRow, Manifest, RecordingWriter, new_manifest
from fencepath.records import CALL_HEAD, HEADER, INTERVAL, Field, RecordLayout, Records

SECOND_NS = 1_000_000_000

LAUNCH = RecordLayout("cuda.launch", (*CALL_HEAD, Field("stream", "u64"), Field("delta", "s32")))
STEP = RecordLayout(
    "mark.step", (*INTERVAL, Field("name", "char[11]"), Field("requests", "u64[3]"), Field("id", "u8[7]"))
)
HANDLE = RecordLayout("cuda.stream.create", (*HEADER, Field("handle", "u64")))
LAYOUTS = (LAUNCH, STEP, HANDLE)
KEPT_KINDS = frozenset({HANDLE.kind})


def sample_manifest(**more: Any) -> Manifest:
    kinds = {
        layout.kind: KindInfo(number, layout.kind.split(".")[0], layout.fields)
        for number, layout in enumerate(LAYOUTS, start=1)
    }
    return new_manifest(kinds, **({"tool": "test", "detail": "launch"} | more))


def sample_records(layout: RecordLayout, count: int, seed: int = 1, start_ns: int = 0) -> Records:
    """Records of random bytes whose times ascend by 1 µs; ``begin_ns`` is 500 ns earlier."""
    raw = np.random.default_rng(seed).bytes(count * layout.size_bytes)
    records: Records = np.frombuffer(raw, dtype=layout.dtype).copy()
    records["time_ns"] = start_ns + 1000 * np.arange(1, count + 1, dtype=np.uint64)
    if layout.lasts:
        records["begin_ns"] = records["time_ns"] - np.uint64(500)
    return records


def field_bytes(records: Records, name: str) -> bytes:
    """All bytes of a field: comparing ``char[N]`` as strings would pass over trailing zeros."""
    column: npt.NDArray[Any] = np.ascontiguousarray(records[name])
    return column.tobytes()


def same(found: Records, wanted: Records) -> bool:
    """Whether two arrays agree in every byte of every field, padding left out."""
    names = wanted.dtype.names or ()
    return found.dtype == wanted.dtype and all(field_bytes(found, name) == field_bytes(wanted, name) for name in names)


def write_sample(path: Path, batches: int = 5, rows: int = 13) -> dict[str, Records]:
    """Write a recording of two segments, each of `batches` batches a kind, and return its records by kind."""
    total = 2 * batches * rows
    written = {layout.kind: sample_records(layout, total, seed) for seed, layout in enumerate(LAYOUTS)}
    with RecordingWriter(path, sample_manifest(), kept_kinds=KEPT_KINDS) as writer:
        for batch in range(2 * batches):
            writer.tick(batch * 10 * SECOND_NS // batches)
            for kind, records in written.items():
                writer.append(kind, records[batch * rows : (batch + 1) * rows])
            writer.fact("process", {"pid": batch, "name": "python"})
            writer.loss([LossRow("ring", LAUNCH.kind, 1, batch, batch + 1, 17)])
            writer.clock_sample(ClockSample(domain="realtime", before_ns=batch, value_ns=7, after_ns=batch + 1))
            writer.flush()
    return written
