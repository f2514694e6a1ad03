# SPDX-License-Identifier: Apache-2.0
"""Finds the cgroup of a path, a container or a pod, and who is in it.

Only the unified hierarchy (cgroup2) counts: its ids are what BPF programs see. The id of a cgroup is the inode number of its
folder (``cgroup_id()`` in include/linux/cgroup.h, on 64-bit machines).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fencepath.errors import MachineError, UsageError

__all__ = ["Cgroup", "find_cgroup", "find_container", "find_pod", "unified_mount"]

_MOUNT = re.compile(r"^\S+ (?P<where>\S+) (?P<type>cgroup2?) ", re.MULTILINE)
_CONTAINER = re.compile(r"[0-9a-f]{12,64}")
_POD = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT = 1
"""Id of the hierarchy's root."""
_NAMED = 5
_V1_REMEDY = "boot with systemd.unified_cgroup_hierarchy=1, or record by --pid"


class Cgroup(msgspec.Struct, frozen=True):
    """A cgroup.

    Attributes:
        folder: below the mount of cgroup2.
        id: as BPF programs see it.
        name: its path in the hierarchy, as far as it can be seen from here.
    """

    folder: Path
    id: int
    name: str

    def exists(self) -> bool:
        """Whether it is still there, and not another one of the same name."""
        return _id(self.folder) == self.id

    def processes(self) -> list[int]:
        """Processes in it and in all cgroups below it now, by their numbers here; none if it is gone."""
        found: list[int] = []
        for folder in (self.folder, *_below(self.folder)):
            try:
                found += [int(word) for word in (folder / "cgroup.procs").read_text().split()]
            except OSError:  # it went away, or it is threaded and its processes are listed above it
                continue
        # one of another pid namespace has no number here and is shown as 0
        return sorted({pid for pid in found if pid})


def find_cgroup(path: str) -> Cgroup:
    """Find a cgroup by its folder, or by its path in the hierarchy such as ``/system.slice/vllm.service``.

    Raises:
        UsageError: there is none.
        MachineError: there is no cgroup2 here.
    """
    mount = unified_mount()
    for folder in (Path(path), mount / path.lstrip("/")):
        resolved = Path(os.path.normpath(folder.absolute()))
        if resolved.is_relative_to(mount) and (resolved / "cgroup.procs").exists():
            return _cgroup(mount, resolved)
    every = [_name(mount, folder) for folder in _below(mount)]
    close = difflib.get_close_matches("/" + path.strip("/"), every, _NAMED, 0.6)
    hint = f"; there is {', '.join(close)}" if close else f"; look below {mount}"
    raise UsageError(f"there is no cgroup {path}{hint}")


def find_container(container: str) -> Cgroup:
    """Find the cgroup of a container by its id or the first 12 digits or more of it.

    Raises:
        UsageError: that is no id, no container has it, or several begin like that.
        MachineError: it has a cgroup only where BPF programs do not see it.
    """
    if not _CONTAINER.fullmatch(container):
        raise UsageError(f"{container!r} is no container id; give at least 12 of its hexadecimal digits")
    pattern = re.compile(rf"(?:^|[^0-9a-f]){container}[0-9a-f]{{{64 - len(container)}}}(?:$|[^0-9a-f])")
    return _find(f"container {container}", pattern, container)


def find_pod(uid: str) -> Cgroup:
    """Find the cgroup of a Kubernetes pod by its UID.

    Raises:
        UsageError: that is no UID, or no pod has it here.
        MachineError: it has a cgroup only where BPF programs do not see it.
    """
    if not _POD.fullmatch(uid):
        raise UsageError(f"{uid!r} is no pod UID; kubectl get pod NAME -o jsonpath='{{.metadata.uid}}' prints it")
    pattern = re.compile(rf"pod({uid}|{uid.replace('-', '_')})(?:$|[^0-9a-f])")
    return _find(f"pod {uid}", pattern, uid)


def unified_mount() -> Path:
    """Return where cgroup2 is mounted.

    Raises:
        MachineError: it is nowhere.
    """
    mounts = [(match["type"], match["where"]) for match in _MOUNT.finditer(Path("/proc/self/mounts").read_text())]
    unified = [where for kind, where in mounts if kind == "cgroup2"]
    if unified:
        # in a container there may be its own part of the hierarchy, and the whole one of the host
        return next((place for place in map(Path, unified) if _id(place) == _ROOT), Path(unified[0]))
    if mounts:
        raise MachineError("this machine has cgroups of version 1 only, which bpf programs do not see", _V1_REMEDY)
    raise MachineError(
        "cgroup2 is not mounted", "mount -t cgroup2 none /sys/fs/cgroup; in a container mount the host's"
    )


def _find(what: str, pattern: re.Pattern[str], text: str) -> Cgroup:
    mount = unified_mount()
    found = [folder for folder in _below(mount) if pattern.search(folder.name)]
    # a container may have cgroups of its own, and a pod has its containers', below
    outer = [folder for folder in found if not any(other in folder.parents for other in found)]
    if len(outer) == 1:
        return _cgroup(mount, outer[0])
    if outer:
        names = ", ".join(_name(mount, folder) for folder in outer[:_NAMED])
        raise UsageError(f"{what} could be {names}; name one by --cgroup PATH")
    older = _version_one(text)
    if older:
        raise MachineError(
            f"{what} has a cgroup of version 1 only ({older}), which bpf programs do not see", _V1_REMEDY
        )
    raise UsageError(f"there is no {what} here; see that it runs on this machine, or record by --pid")


def _version_one(text: str, proc: Path = Path("/proc")) -> str:
    """A line of some process's /proc/PID/cgroup that names `text` in a hierarchy of version 1; "" if there is none."""
    alike = (text, text.replace("-", "_"))
    for file in proc.glob("[0-9]*/cgroup"):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if not line.startswith("0::") and any(name in line for name in alike):
                return line
    return ""


def _below(folder: Path) -> Iterator[Path]:
    for name, inside, _ in os.walk(folder):
        yield from (Path(name, entry) for entry in inside)


def _id(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _cgroup(mount: Path, folder: Path) -> Cgroup:
    return Cgroup(folder, folder.stat().st_ino, _name(mount, folder))


def _name(mount: Path, folder: Path) -> str:
    return "/" if folder == mount else f"/{folder.relative_to(mount)}"
