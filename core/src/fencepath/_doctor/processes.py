# SPDX-License-Identifier: Apache-2.0
"""Reads what a process is like."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fencepath._doctor.capture import attempt
from fencepath._doctor.state import ProcessState, Trial
from fencepath._libraries import executable_mappings, first_of_each
from fencepath._record.targets import check_process
from fencepath.errors import MachineError

__all__ = ["capture_process"]

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user")
_IO_URING = "anon_inode:[io_uring]"
_SWITCHERS = re.compile(r"(_greenlet|libboost_(context|fiber|coroutine)|libco\b|libtask)", re.ASCII)
_ELF_CLASS = {1: 32, 2: 64}


def capture_process(pid: int) -> ProcessState:
    """Return what a process is like.

    Raises:
        UsageError: `pid` is no running process.
    """
    check_process(pid)
    root = Path(f"/proc/{pid}")
    fields = _fields(root)
    return ProcessState(
        pid=pid,
        name=fields.get("Name", ""),
        uid=int((fields.get("Uid", "").split() or ["0", "0"])[1]),
        seccomp=int(fields.get("Seccomp", "0") or 0),
        shadow_stack="shstk" in fields.get("x86_Thread_features", "").split(),
        io_urings=_io_urings(root),
        bits=_bits(root),
        namespaces=tuple(name for name in _NAMESPACES if _other(root, name)),
        maps=_maps(pid),
        switches_stacks=_switchers(pid),
    )


def _fields(root: Path) -> dict[str, str]:
    try:
        text = (root / "status").read_text(errors="replace")
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _io_urings(root: Path) -> int | None:
    try:
        return sum(str(file.readlink()) == _IO_URING for file in (root / "fd").iterdir())
    except OSError:
        return None


def _bits(root: Path) -> int | None:
    try:
        with (root / "exe").open("rb") as file:
            head = file.read(5)
    except OSError:
        return None
    return _ELF_CLASS.get(head[4]) if head[:4] == b"\x7fELF" else None


def _other(root: Path, name: str) -> bool:
    try:
        return (root / "ns" / name).readlink() != Path("/proc/self/ns", name).readlink()
    except OSError:
        return False


def _maps(pid: int) -> Trial:
    def look() -> str:
        found = executable_mappings(pid)
        if not found:
            # what the kernel shows to somebody who may not look; nobody runs without code
            raise MachineError("they may not be read")
        files = first_of_each(found)
        # newer kernels show the maps to CAP_PERFMON, and not the files behind them
        for library in files[:1]:
            os.close(library.open())
        return f"{len(files)} files mapped executable"

    tried = attempt(look)
    return (
        tried if tried.works else Trial(works=False, why=tried.why, remedy="add CAP_SYS_PTRACE, or record as its user")
    )


def _switchers(pid: int) -> tuple[str, ...]:
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ()
    names = {Path(line.split(maxsplit=5)[-1]).name for line in text.splitlines() if _SWITCHERS.search(line)}
    return tuple(sorted(names))
