# SPDX-License-Identifier: Apache-2.0
"""Recordings on disk: write one, open one, repair one.

A recording is a folder, ``NAME.fencepath/``::

    manifest.json                 what it says about itself: record layouts, host, what was attached and what not
    facts.jsonl                   what only the live machine knew, one JSON object a line
    loss.jsonl  clocks.jsonl      what is known to be lost; readings of other clocks
    kept/<kind>.arrows            records that are never dropped
    segments/000001/<kind>.arrows records, a column a field; with index.json once the segment is closed

``.arrows`` files are plain Arrow IPC streams, compressed with zstd: ``polars.read_ipc_stream`` and
``pyarrow.ipc.open_stream`` read them. Folders are private to their owner (0700, files 0600).
"""

from __future__ import annotations

from fencepath._recording.manifest import (
    FORMAT,
    KindInfo,
    LayerInfo,
    Machine,
    Manifest,
    MissingProbe,
    new_manifest,
)
from fencepath._recording.reader import Recording, Segment, open_recording
from fencepath._recording.repair import RepairReport, repair_recording
from fencepath._recording.rows import ALL_CPUS, Damage, Fact, LossRow
from fencepath._recording.writer import RecordingWriter

__all__ = [
    "ALL_CPUS",
    "FORMAT",
    "Damage",
    "Fact",
    "KindInfo",
    "LayerInfo",
    "LossRow",
    "Machine",
    "Manifest",
    "MissingProbe",
    "Recording",
    "RecordingWriter",
    "RepairReport",
    "Segment",
    "new_manifest",
    "open_recording",
    "repair_recording",
]
