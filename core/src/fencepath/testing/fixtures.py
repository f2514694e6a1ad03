# SPDX-License-Identifier: Apache-2.0
"""Fixtures: recordings made live, recordings made by hand, machines of saved formats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fencepath._loader import Registry
from fencepath.recording import KindInfo, Recording, RecordingWriter, new_manifest, open_recording
from fencepath.records import RecordLayout, Records
from fencepath.system import System

__all__ = [
    "LiveRecording",
    "Recorded",
    "RecordingFrom",
    "SystemFrom",
    "live_recording_in",
    "recording_from_in",
    "write_recording",
]


_LONGEST_S = 120


class Recorded(msgspec.Struct, frozen=True):
    """A finished ``fencepath record`` run.

    Attributes:
        recording: what it wrote, opened.
        code: exit code.
        output: what the command wrote on standard output.
        errors: what it and fencepath wrote on standard error.
    """

    recording: Recording
    code: int
    output: str
    errors: str


class LiveRecording(Protocol):
    """Records a command with live eBPF."""

    def __call__(
        self, command: Sequence[str], *, options: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> Recorded:
        """Run ``fencepath record OPTIONS -- COMMAND`` and open the recording."""
        ...


class RecordingFrom(Protocol):
    """Makes a recording from records, with no machine involved."""

    def __call__(
        self,
        records: Mapping[RecordLayout, Records],
        *,
        functions: Mapping[str, Sequence[str]] | None = None,
        facts: Iterable[tuple[str, Mapping[str, Any]]] = (),
    ) -> Recording:
        """Write the records, each under its layout's kind, and open the recording."""
        ...


SystemFrom = Callable[[Path], System]
"""Gives a machine of which only the tracefs formats were saved."""


def live_recording_in(tmp_path: Path) -> LiveRecording:
    """Return what the fixture ``live_recording`` gives."""
    count = 0

    def run(
        command: Sequence[str], *, options: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> Recorded:
        nonlocal count
        count += 1
        path = tmp_path / f"live{count}.fencepath"
        words = [sys.executable, "-m", "fencepath", "record", "-o", str(path), *options, "--", *command]
        code, output, errors = _run(words, {**os.environ, **(environ or {})})
        assert (path / "manifest.json").exists(), f"nothing was recorded: {errors}"
        return Recorded(open_recording(path), code, output, errors)

    return run


def _run(words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Run to the end; what takes too long is ended with everything that it started."""
    with subprocess.Popen(
        words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=_LONGEST_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, output, errors


def write_recording(
    path: Path,
    records: Mapping[RecordLayout, Records],
    *,
    functions: Mapping[str, Sequence[str]] | None = None,
    facts: Iterable[tuple[str, Mapping[str, Any]]] = (),
    registry: Registry | None = None,
) -> Recording:
    """Write records as a recording and open it. The layer of a kind is what stands before its first dot."""
    numbers = {layout.kind: number for number, layout in enumerate(records, 1)}
    known = registry.kinds if registry is not None else {}
    kinds = {
        layout.kind: KindInfo(
            number=numbers[layout.kind],
            layer=layout.kind.split(".")[0],
            fields=layout.fields,
            version=known[layout.kind].version if layout.kind in known else 1,
        )
        for layout in records
    }
    manifest = new_manifest(kinds, functions={layer: tuple(names) for layer, names in (functions or {}).items()})
    with RecordingWriter(path, manifest) as writer:
        for name, data in facts:
            writer.fact(name, data)
        for layout, rows in records.items():
            if len(rows):
                numbered = rows.copy()
                numbered["kind"] = numbers[layout.kind]
                writer.append(layout.kind, numbered)
    return open_recording(path)


def recording_from_in(tmp_path: Path) -> RecordingFrom:
    """Return what the fixture ``recording_from`` gives."""
    count = 0

    def make(
        records: Mapping[RecordLayout, Records],
        *,
        functions: Mapping[str, Sequence[str]] | None = None,
        facts: Iterable[tuple[str, Mapping[str, Any]]] = (),
    ) -> Recording:
        nonlocal count
        count += 1
        return write_recording(tmp_path / f"made{count}.fencepath", records, functions=functions, facts=facts)

    return make
