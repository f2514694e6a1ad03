# SPDX-License-Identifier: Apache-2.0
"""Runs ``fencepath record`` on the simulated CUDA library and watches it from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

__all__ = ["Recorded", "cpu_seconds", "record"]

_LOOK_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording went.

    Attributes:
        attached_s: from the start of the process until everything was attached and the command could start.
        attach_cpu_s: CPU time of fencepath until then.
        run_cpu_s: CPU time of fencepath from then until the command had ended.
        peak_bytes: most memory of fencepath.
        workload: what the command wrote to its standard output.
    """

    attached_s: float
    attach_cpu_s: float
    run_cpu_s: float
    peak_bytes: int
    workload: dict[str, Any]


def record(output: Path, command: Sequence[str | Path]) -> Recorded:
    """Record a command that writes one JSON object, with the layers cuda and host.

    Raises:
        RuntimeError: it failed.
    """
    words = [
        sys.executable,
        "-m",
        "fencepath",
        "record",
        "--layers",
        "cuda,host",
        "-o",
        str(output),
        "--",
        *map(str, command),
    ]
    begin = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = _until_attached(process.stderr)
        attached_s, attach_cpu_s = time.perf_counter() - begin, cpu_seconds(process.pid)
        last_cpu_s, peak_bytes = attach_cpu_s, 0
        while process.poll() is None:
            last_cpu_s = cpu_seconds(process.pid) or last_cpu_s
            peak_bytes = _peak_bytes(process.pid) or peak_bytes
            time.sleep(_LOOK_S)
        output_text, said = process.stdout.read(), said + process.stderr.read()
    if process.returncode:
        raise RuntimeError(f"fencepath record ended with {process.returncode}: {said}")
    return Recorded(
        attached_s=attached_s,
        attach_cpu_s=attach_cpu_s,
        run_cpu_s=last_cpu_s - attach_cpu_s,
        peak_bytes=peak_bytes,
        workload=json.loads(output_text),
    )


def _until_attached(stderr: IO[str]) -> str:
    """Read what fencepath says until it has attached everything."""
    said = ""
    while "recording to" not in said:
        line = stderr.readline()
        said += line
        if not line:
            raise RuntimeError(f"fencepath record ended: {said.strip()}")
    return said


def cpu_seconds(pid: int) -> float:
    """CPU time of a process itself, user and system, to 10 ms; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 if found else 0
