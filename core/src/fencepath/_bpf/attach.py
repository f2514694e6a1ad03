# SPDX-License-Identifier: Apache-2.0
"""Attach loaded programs to uprobes and tracepoints, and own what that takes.

Uprobes are attached by a uprobe_multi link (6.6+): one system call for any number of probes, one file descriptor, and
no perf event, which since CVE-2025-38466 needs CAP_SYS_ADMIN. Where that link is refused, by a perf event each with
its cookie (5.15+). Which one is found by trying.
"""

from __future__ import annotations

import enum
import errno
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepath._bpf import sys as bpf
from fencepath._bpf.maps import PERMISSION_REMEDY
from fencepath.errors import AttachError, MachineError, UsageError

__all__ = [
    "FORCE_VARIABLE",
    "Link",
    "UprobeMethod",
    "attach_raw_tracepoint",
    "attach_tracepoint",
    "attach_uprobe",
    "attach_uprobe_multi",
    "attach_uprobes",
    "attempt",
    "close_links",
    "link_perf_event",
    "tracefs",
    "uprobe_attach_method",
]

FORCE_VARIABLE = "FENCEPATH_UPROBE_ATTACH"
"""Environment variable that forces one way to attach uprobes (``multi`` or ``perf``), for tests."""

_PERF_TYPE_TRACEPOINT = 2
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_UPROBE_PMU = Path("/sys/bus/event_source/devices/uprobe")
_PERMISSION = f"{PERMISSION_REMEDY} (and CAP_SYS_ADMIN for uprobes by perf event)"
_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")


class UprobeMethod(enum.Enum):
    """How uprobes are attached. The program must have been loaded for it."""

    MULTI = "multi"
    PERF = "perf"

    @property
    def attach_type(self) -> int | None:
        """The attach type to load uprobe programs with."""
        return int(bpf.AttachType.UPROBE_MULTI) if self is UprobeMethod.MULTI else None


class Link:
    """One or more attachments; they last until :meth:`close`, or the end of this process.

    Attributes:
        probe: what it is attached to, for messages.
        fds: the links' file descriptors; empty when closed.
    """

    def __init__(self, probe: str, fds: Sequence[int]) -> None:
        self.probe = probe
        self.fds = list(fds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detach. Doing it twice does nothing."""
        while self.fds:
            os.close(self.fds.pop())


def close_links(links: list[Link]) -> None:
    """Close links and empty the list. All at once: the kernel makes each wait until no program of it can be running."""
    if not links:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(links))) as pool:
        for done in [pool.submit(link.close) for link in links]:
            done.result()
    links.clear()


def attach_uprobe_multi(
    fd: int, path: str | Path, offsets: Sequence[int], cookies: Sequence[int], *, returning: bool
) -> Link:
    """Attach a program to offsets of a file by one uprobe_multi link.

    Args:
        fd: a program loaded with ``UprobeMethod.MULTI.attach_type``.
        path: the library; ``/proc/PID/map_files/...`` works too.
        offsets: in the file, in bytes, each of an instruction's first byte.
        cookies: one an offset; what bpf_get_attach_cookie returns.
        returning: whether to run at the return of the function that begins there.

    Raises:
        AttachError: if the kernel refuses; then none is attached.
    """
    _check_cookies(offsets, cookies)
    probe = f"{path} ({len(offsets)} offsets)"
    link = attempt(
        probe,
        lambda: bpf.link_create_uprobe_multi(fd, str(path), offsets, cookies, returning=returning),
        _uprobe_message,
    )
    return Link(probe, [link])


def attach_uprobe(fd: int, path: str | Path, offset: int, cookie: int, *, returning: bool) -> Link:
    """Attach a program to one offset of a file by a perf event.

    Args:
        fd: a program loaded with ``UprobeMethod.PERF.attach_type``.
        path: the library; ``/proc/PID/map_files/...`` works too.
        offset: in the file, in bytes, of an instruction's first byte.
        cookie: what bpf_get_attach_cookie returns.
        returning: whether to run at the return of the function that begins there.

    Raises:
        AttachError: if the kernel refuses.
        MachineError: if the kernel has no uprobes.
    """
    probe = f"{path}+{offset:#x}"
    link = attempt(probe, lambda: _link_uprobe(fd, str(path), offset, cookie, returning), _uprobe_message)
    return Link(probe, [link])


def attach_uprobes(
    fd: int,
    path: str | Path,
    offsets: Sequence[int],
    cookies: Sequence[int],
    *,
    returning: bool,
    method: UprobeMethod | None = None,
) -> Link:
    """Attach a program to offsets of a file, all or none, by the given method or the one this machine takes.

    Arguments and errors are those of :func:`attach_uprobe_multi`; the program must have been loaded with the
    `attach_type` of the method (:func:`uprobe_attach_method`).
    """
    if (method or uprobe_attach_method()) is UprobeMethod.MULTI:
        return attach_uprobe_multi(fd, path, offsets, cookies, returning=returning)
    _check_cookies(offsets, cookies)
    link = Link(f"{path} ({len(offsets)} offsets)", [])
    try:
        for offset, cookie in zip(offsets, cookies, strict=True):
            link.fds += attach_uprobe(fd, path, offset, cookie, returning=returning).fds
    except BaseException:
        link.close()
        raise
    return link


def uprobe_attach_method() -> UprobeMethod:
    """Return how uprobes are attached on this machine: what :data:`FORCE_VARIABLE` says, else multi, else perf.

    Raises:
        MachineError: if the kernel takes neither, or not the one that is forced.
        UsageError: if the variable has another value.
    """
    forced = os.environ.get(FORCE_VARIABLE)
    if forced and forced not in {method.value for method in UprobeMethod}:
        raise UsageError(f"{FORCE_VARIABLE} is {forced!r}; set it to multi or perf, or unset it")
    candidates = [UprobeMethod(forced)] if forced else list(UprobeMethod)
    refusals: list[str] = []
    for method in candidates:
        refusal = _refusal(method)
        if refusal is None:
            return method
        refusals.append(f"{method.value}: {refusal}")
    remedy = f"{_PERMISSION}, on a kernel of 5.15 or later (6.6 for multi)"
    raise MachineError(f"uprobes cannot be attached here ({'; '.join(refusals)})", remedy)


def attach_tracepoint(fd: int, group: str, event: str) -> Link:
    """Attach a program to a tracepoint, for every process and CPU.

    Args:
        fd: a program of type TRACEPOINT.
        group: such as ``sched``.
        event: such as ``sched_switch``.

    Raises:
        AttachError: if there is no such event, or the kernel refuses.
        MachineError: if tracefs is not mounted.
    """
    probe = f"{group}:{event}"
    try:
        number = int((tracefs() / "events" / group / event / "id").read_text())
    except FileNotFoundError as error:
        remedy = f"load the kernel module that has it, or look in {tracefs()}/events/{group}"
        raise AttachError(probe, "this kernel has no such event", errno.ENOENT, remedy) from error
    except PermissionError as error:
        raise AttachError(probe, "tracefs may not be read", errno.EACCES, _PERMISSION) from error
    return Link(probe, [attempt(probe, lambda: _link_tracepoint(fd, number), _tracepoint_message)])


def attach_raw_tracepoint(fd: int, event: str) -> Link:
    """Attach a program to a tracepoint itself and not to its record, for every process and CPU.

    The kernel runs it also where it interrupts another program of a tracepoint's record, and skips only a program that is
    interrupted by itself.

    Args:
        fd: a program of type RAW_TRACEPOINT.
        event: such as ``sched_switch``; tracepoints of modules are found by their names alone.

    Raises:
        AttachError: if there is no such tracepoint, or the kernel refuses.
    """
    return Link(event, [attempt(event, lambda: bpf.raw_tracepoint_open(fd, event), _raw_tracepoint_message)])


def tracefs() -> Path:
    """Return where tracefs is mounted.

    Raises:
        MachineError: if it is nowhere; the remedy has the command that mounts it.
    """
    for folder in _TRACEFS:
        if Path(folder, "events").is_dir():
            return Path(folder)
    raise MachineError("tracefs is not mounted, or not for this user", f"mount -t tracefs nodev {_TRACEFS[0]}")


def _link_uprobe(fd: int, path: str, offset: int, cookie: int, returning: bool) -> int:
    pmu, return_bit = _uprobe_pmu()
    event = bpf.perf_event_open(pmu, 1 << return_bit if returning else 0, path=path, offset=offset)
    return link_perf_event(fd, event, cookie)


def _link_tracepoint(fd: int, number: int) -> int:
    return link_perf_event(fd, bpf.perf_event_open(_PERF_TYPE_TRACEPOINT, number), 0)


def link_perf_event(fd: int, event: int, cookie: int) -> int:
    """Attach a program to a perf event, switch that on, and return the link, which keeps it. The event's descriptor is closed."""
    try:
        link = bpf.link_create_perf_event(fd, event, cookie)
        try:
            bpf.perf_event_enable(event)
        except BaseException:
            os.close(link)
            raise
        return link
    finally:
        # The link keeps the event: one file descriptor a probe is enough.
        os.close(event)


@functools.cache
def _uprobe_pmu() -> tuple[int, int]:
    try:
        number = int((_UPROBE_PMU / "type").read_text())
        return_bit = int((_UPROBE_PMU / "format" / "retprobe").read_text().strip().removeprefix("config:"))
    except OSError as error:
        raise MachineError("this kernel has no uprobes", "use one built with CONFIG_UPROBE_EVENTS") from error
    return number, return_bit


@functools.cache
def _refusal(method: UprobeMethod) -> str | None:
    """Try a program that does nothing on a file that nobody runs; return why it fails, or None."""
    memory = os.memfd_create("fencepath-uprobe-test", os.MFD_CLOEXEC)
    try:
        os.write(memory, bytes(64))
        program = bpf.prog_load(bpf.ProgramType.UPROBE, "fp_nothing", _RETURN_ZERO, attach_type=method.attach_type)
        try:
            attach_uprobes(program, f"/proc/self/fd/{memory}", [0], [1], returning=False, method=method).close()
        finally:
            os.close(program)
    except AttachError as error:
        return bpf.error_text(error.errno)
    except OSError as error:
        return bpf.error_text(error.errno or 0)
    except MachineError as error:
        return str(error)
    finally:
        os.close(memory)
    return None


def _check_cookies(offsets: Sequence[int], cookies: Sequence[int]) -> None:
    if not offsets or len(offsets) != len(cookies):
        raise ValueError(f"{len(offsets)} offsets need as many cookies, and at least one, not {len(cookies)}")


def attempt(probe: str, create: Callable[[], int], message: Callable[[OSError], str]) -> int:
    """Attach, with more open files if it takes them.

    Args:
        probe: for messages.
        create: attaches and returns a descriptor.
        message: says what an error means.

    Raises:
        AttachError: the kernel refuses.
    """
    try:
        try:
            return create()
        except OSError as error:
            if error.errno != errno.EMFILE or not bpf.raise_file_limit():
                raise
        return create()
    except OSError as error:
        raise AttachError(probe, message(error), error.errno or 0, _remedy(error)) from error


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return _PERMISSION
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -Hn)"
    return ""


def _uprobe_message(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "no such file; it may have been replaced: look it up again in the process's maps"
    if error.errno == errno.EINVAL:
        return "the kernel takes no probe there; check that the offset is in the file and begins an instruction"
    return error.strerror or str(error)


def _raw_tracepoint_message(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "this kernel has no such tracepoint"
    if error.errno == errno.EINVAL:
        return "the kernel refuses this program; it may read more arguments than the tracepoint has"
    return error.strerror or str(error)


def _tracepoint_message(error: OSError) -> str:
    if error.errno == errno.EINVAL:
        return "the kernel refuses this program; it may read past the end of the event's record"
    return error.strerror or str(error)
