# SPDX-License-Identifier: Apache-2.0
"""What only the live machine knows of processes and threads, read from /proc for the recording."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["process_fact", "thread_fact"]

_CONTAINER = re.compile(r"([0-9a-f]{64})")
_POD = re.compile(r"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})")


def _stat(path: Path) -> tuple[str, list[str]]:
    """Name and the fields after it of a stat file; the name may hold spaces and parentheses."""
    text = path.read_bytes().decode(errors="replace")
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()


def thread_fact(pid: int, tid: int, time_ns: int) -> dict[str, Any] | None:
    """Identity and name of a thread, None if it is gone.

    ``start_ticks`` is field 22 of /proc/PID/task/TID/stat: ticks of 1/CLK_TCK since boot (BOOTTIME).
    """
    try:
        name, rest = _stat(Path(f"/proc/{pid}/task/{tid}/stat"))
        return {"pid": pid, "tid": tid, "start_ticks": int(rest[19]), "time_ns": time_ns, "name": name}
    except (OSError, ValueError, IndexError):
        return None


def process_fact(pid: int, time_ns: int) -> dict[str, Any] | None:
    """Identity of a process and where it belongs, None if it is gone. The command line is not read."""
    root = Path(f"/proc/{pid}")
    try:
        name, rest = _stat(root / "stat")
        start = int(rest[19])
        status = (root / "status").read_text(errors="replace")
    except (OSError, ValueError, IndexError):
        return None
    ns_pids = re.search(r"^NSpid:\s*(.*)$", status, re.MULTILINE)
    cgroup = _read(root / "cgroup").rpartition("::")[2].strip() or _read(root / "cgroup").split("\n", 1)[0]
    container = _CONTAINER.search(cgroup)
    pod = _POD.search(cgroup)
    return {
        "pid": pid,
        "parent_pid": int(rest[1]),
        "start_ticks": start,
        "time_ns": time_ns,
        "name": name,
        "namespace_pid": int(ns_pids[1].split()[-1]) if ns_pids and ns_pids[1] else pid,
        "executable": _link(root / "exe"),
        "cgroup": cgroup,
        "container": container[1] if container else "",
        "pod": pod[1].replace("_", "-") if pod else "",
        "pid_namespace": _link(root / "ns/pid"),
        "mount_namespace": _link(root / "ns/mnt"),
        "time_namespace": _link(root / "ns/time"),
        "monotonic_offset_ns": _monotonic_offset(root),
    }


def _monotonic_offset(root: Path) -> int | None:
    """What the process's own CLOCK_MONOTONIC is ahead of the host's, ns; None if that cannot be told.

    The file is of the namespace that its children will be in, which is its own unless it has just asked for a new one.
    """
    own = _link(root / "ns/time")
    if own == _link(Path("/proc/self/ns/time")):
        return 0
    if own != _link(root / "ns/time_for_children"):
        return None
    for line in _read(root / "timens_offsets").splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in ("monotonic", "1"):
            return int(words[1]) * 1_000_000_000 + int(words[2])
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.fsencode(path.readlink()).decode(errors="backslashreplace")
    except OSError:
        return ""
