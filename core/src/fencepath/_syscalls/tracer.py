# SPDX-License-Identifier: Apache-2.0
"""System calls of target processes, attached once each, whoever wants them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from fencepath._bpf.attach import Link, attach_tracepoint
from fencepath._bpf.btf import KernelTypes
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.maps import Map
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath._syscalls.devices import Devices
from fencepath._syscalls.table import KEY_BYTES, ROW_BYTES, SyscallTable, syscall_layout
from fencepath._tracepoints.sources import LiveTracepoints, TracepointSource
from fencepath.errors import MachineError
from fencepath.records import Flags, Records
from fencepath.system import LiveSymbols

__all__ = ["SyscallTracer", "is_32_bit"]

_MEMBERS = (
    "task_struct.files",
    "files_struct.fdt",
    "fdtable.max_fds",
    "fdtable.fd",
    "file.f_inode",
    "inode.i_mode",
    "inode.i_rdev",
)
_RECORD_BYTES = 128
_STATE_BYTES = _RECORD_BYTES + 4 + 4 + 8 * 8
_COPIES = 3
_PREEMPTIBLE = "trace_call_bpf_faultable"
"""A function of kernels on which the program of a system call can be preempted, 7.3 among them."""
_DEVICES = 4096
_MAPPINGS = 16384
_SOURCES = {"": "FP_DEVICE_NONE", "fd": "FP_DEVICE_FD", "fds": "FP_DEVICE_FDS", "address": "FP_DEVICE_ADDRESS"}


class SyscallTracer:
    """The programs of a :class:`SyscallTable`, attached, and the maps that they use.

    A process that runs in 32-bit mode raises no ``syscalls`` events at all: see :func:`is_32_bit`.

    Args:
        table: what is wanted.
        shared: rings, counters and targets.
        kinds: kind numbers by event kind.
        devices: where device classes are looked up.
        calls: most calls in progress at a time.
        source: formats of the kernel's events; those of this kernel by default.
        copies: how often each program is attached; by default once, and more often where it can be preempted, since the
            kernel then skips it for other threads. Of a call there is one record however many copies see it.

    Raises:
        MachineError: if the kernel lacks one of the events, or type information (BTF) for device classes.
        LoadError: if the verifier refuses a program.
    """

    def __init__(
        self,
        table: SyscallTable,
        shared: Shared,
        kinds: Mapping[str, int],
        *,
        devices: Devices | None = None,
        calls: int = 16384,
        source: TracepointSource | None = None,
        copies: int | None = None,
    ) -> None:
        self.table = table
        self._copies = copies or (_COPIES if LiveSymbols().has(_PREEMPTIBLE) else 1)
        self._finder = devices or Devices()
        self._links: list[Link] = []
        self._match = Map.hash("fp_sys_match", KEY_BYTES, 4, max(1, len(table.entries)))
        self._rows = Map.array("fp_sys_rows", ROW_BYTES, max(1, len(table.entries)))
        self._devices = Map.hash("fp_sys_devices", 4, 1, _DEVICES)
        self._calls = Map.hash("fp_sys_calls", 4, _STATE_BYTES, calls)
        self._mappings = Map.hash("fp_sys_maps", 16, 4, _MAPPINGS if _follows_mappings(table) else 1)
        self._object: BpfObject | None = None
        try:
            self._fill(kinds)
            self.refresh_devices()
            text = _source(table, source or LiveTracepoints(), self._copies)
            self._object = BpfObject(text, defines=self._defines(shared))
            self._attach(self._object)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def attached(self) -> tuple[str, ...]:
        """Events that programs are attached to."""
        return tuple(link.probe for link in self._links)

    def skipped(self) -> dict[str, int]:
        """How often at the most the kernel skipped all copies of a program because another one ran, by event.

        Of calls of any process; each copy has a count of its own, and the least of these is given.
        """
        misses = self._object.recursion_misses() if self._object is not None else {}
        found: dict[str, int] = {}
        for function, count in misses.items():
            _, way, _, syscall = function.split("_", 3)
            event = f"sys_{way}_{syscall}"
            found[event] = min(count, found.get(event, count))
        return found

    def refresh_devices(self) -> tuple[str, ...]:
        """Look device classes up anew (a module was loaded, a device came) and return the names of those not there."""
        absent: list[str] = []
        current: dict[int, int] = {}
        for device in self.table.devices:
            numbers = self._finder.numbers(device)
            if not numbers:
                absent.append(device.name)
            current.update(dict.fromkeys(numbers, self.table.device_class(device.name)))
        for key in list(self._devices.keys()):
            if struct.unpack("<I", key)[0] not in current:
                self._devices.delete(key)
        for number, class_number in current.items():
            self._devices.update(struct.pack("<I", number), bytes([class_number]))
        return tuple(absent)

    def open_calls(self, now_ns: int) -> Records:
        """Return the calls that have begun and not returned, as records flagged OPEN.

        A call in which its thread is killed does return; only exit and exit_group never do. Whoever knows the threads
        leaves those of dead ones out and calls :meth:`forget`.

        Args:
            now_ns: CLOCK_MONOTONIC at the time of reading, written as ``time_ns``.
        """
        dtype = syscall_layout("open").dtype
        found = np.frombuffer(b"".join(value[:_RECORD_BYTES] for _, value in self._calls.items()), dtype=dtype).copy()
        found["time_ns"] = now_ns
        found["flags"] |= int(Flags.OPEN)
        return found

    def forget(self, tid: int) -> bool:
        """Drop the call of a thread that is gone; return whether there was one."""
        return self._calls.delete(struct.pack("<I", tid))

    def detach(self) -> None:
        """Record no further calls; those that are open stay readable."""
        while self._links:
            self._links.pop().close()

    def close(self) -> None:
        """Detach, and give the maps back."""
        self.detach()
        if self._object is not None:
            self._object.close()
        for each in (self._match, self._rows, self._devices, self._calls, self._mappings):
            each.close()

    def _fill(self, kinds: Mapping[str, int]) -> None:
        for key, value in self.table.matches:
            self._match.update(key, value)
        for index, row in enumerate(self.table.rows):
            self._rows.update(struct.pack("<I", index), self.table.row_bytes(index, kinds[row.kind]))

    def _defines(self, shared: Shared) -> dict[str, str | int]:
        needs_files = any(self.table.sources.values())
        offsets = KernelTypes().require_offsets(_MEMBERS) if needs_files else dict.fromkeys(_MEMBERS, 0)
        return {
            **shared.defines(),
            "FP_SYSCALL_COPIES": self._copies,
            "FP_SYSCALL_MATCH_FD": self._match.fd,
            "FP_SYSCALL_ROWS_FD": self._rows.fd,
            "FP_SYSCALL_DEVICES_FD": self._devices.fd,
            "FP_SYSCALL_CALLS_FD": self._calls.fd,
            "FP_SYSCALL_MAPPINGS_FD": self._mappings.fd,
            **{f"FP_OFFSET_{member.replace('.', '_').upper()}": offset for member, offset in offsets.items()},
        }

    def _attach(self, program: BpfObject) -> None:
        # Returns first: a call that begins between the two is then complete, not open for ever.
        for way in ("exit", "enter"):
            for syscall, copy in product(self.table.syscalls, range(self._copies)):
                fd = program.load(f"fp_{way}_{copy}_{syscall}", ProgramType.TRACEPOINT)
                self._links.append(attach_tracepoint(fd, "syscalls", f"sys_{way}_{syscall}"))


def is_32_bit(pid: int) -> bool | None:
    """Whether a process runs a 32-bit program, whose system calls the kernel's ``syscalls`` events leave out.

    None if it cannot be told (the process is gone, or a kernel thread).
    """
    try:
        with Path(f"/proc/{pid}/exe").open("rb") as file:
            head = file.read(5)
    except OSError:
        return None
    return head == b"\x7fELF\x01" if head.startswith(b"\x7fELF") else None


def _follows_mappings(table: SyscallTable) -> bool:
    return any(source is not None and source[0] == "address" for source in table.sources.values())


def _source(table: SyscallTable, kernel: TracepointSource, copies: int) -> str:
    lines = ['#include "syscalls.h"']
    for index, (syscall, source) in enumerate(table.sources.items()):
        count = _argument_count(syscall, kernel)
        by, argument = source or ("", 0)
        is_ioctl = int(syscall == "ioctl")
        for copy in range(copies):
            lines.append(
                f"FP_SYSCALL_ENTER({syscall}, {copy}, {index}, {count}, {_SOURCES[by]}, {argument}, {is_ioctl})"
            )
            lines.append(f"FP_SYSCALL_EXIT({syscall}, {copy}, {index})")
    return "\n".join([*lines, ""])


def _argument_count(syscall: str, kernel: TracepointSource) -> int:
    """Return how many arguments the event has, having checked that they lie where the programs read them."""
    enter = kernel.format("syscalls", f"sys_enter_{syscall}")
    leave = kernel.format("syscalls", f"sys_exit_{syscall}")
    if enter is None or leave is None:
        raise MachineError(
            f"this kernel has no events for the system call {syscall}", "use one with CONFIG_FTRACE_SYSCALLS"
        )
    arguments = [field for field in enter.own_fields if field.name != "__syscall_nr" and not field.dynamic]
    places = [(field.offset, field.size) for field in arguments]
    (status, *_) = [field.offset for field in leave.own_fields if field.name == "ret"] or [0]
    if places != [(16 + 8 * index, 8) for index in range(len(places))] or status != 16:
        raise MachineError(f"the arguments of {enter.name} do not lie where they are looked for")
    return len(places)
