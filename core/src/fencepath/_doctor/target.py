# SPDX-License-Identifier: Apache-2.0
"""Rules on the process that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath._doctor.state import MachineState, ProcessState
from fencepath._doctor.verdicts import Rule, degrade, fine, warn
from fencepath.plugin import Check

__all__ = ["RULES"]

_FILTERS = 2


def seccomp(state: MachineState) -> Iterator[Check]:
    """A filter may answer the mark's system call itself."""
    if state.process is None:
        return
    name = f"seccomp of {state.process.pid}"
    if state.process.seccomp == _FILTERS:
        yield warn(
            name,
            "it has a seccomp filter",
            "if it answers prctl(2) itself, the process's marks are not recorded",
            "see whether the program says so on standard error, and let prctl(2) pass",
        )
    else:
        yield fine(name, "no filter")


def io_uring(state: MachineState) -> Iterator[Check]:
    """What goes through a ring makes no system call that could be recorded."""
    process = state.process
    if process is None:
        return
    name = f"io_uring of {process.pid}"
    if state.sysctls.get("kernel.io_uring_disabled") == "2":
        yield fine(name, "kernel.io_uring_disabled is 2: nobody uses it")
    elif process.io_urings is None:
        yield warn(
            name, "its open files may not be seen", "it is not known whether its I/O can be", "add CAP_SYS_PTRACE"
        )
    elif process.io_urings:
        yield warn(
            name,
            f"it has {process.io_urings} ring{'s' if process.io_urings > 1 else ''} open",
            "I/O by io_uring makes no read or write that a system call's tracepoint sees: such waits have no reason",
        )
    else:
        yield fine(name, "it has no ring open")


def mappings(state: MachineState) -> Iterator[Check]:
    """Without its mappings no library of a running process is found."""
    process = state.process
    if process is None:
        return
    name = f"libraries of {process.pid}"
    if process.maps.works:
        yield fine(name, process.maps.why or "its mappings can be read")
    else:
        yield degrade(
            name, process.maps.why, "its libraries are not found, so its calls are not recorded", process.maps.remedy
        )


def kind_of_process(state: MachineState) -> Iterator[Check]:
    """32-bit programs have another calling convention; namespaces are followed."""
    process = state.process
    if process is None:
        return
    if process.bits == 32:
        yield degrade(
            f"program of {process.pid}",
            "it is a 32-bit program",
            "its calls are not recorded, and of its system calls only those that are decoded for 32 bits",
            "record a 64-bit build",
        )
    yield from _namespaces(process)


def _namespaces(process: ProcessState) -> Iterator[Check]:
    if process.namespaces:
        yield fine(
            f"namespaces of {process.pid}",
            f"{', '.join(process.namespaces)} of its own; it is recorded by the host's numbers and times",
        )


def coroutines(state: MachineState) -> Iterator[Check]:
    """A return probe on a function that is left by a switch of stacks is not met when it is expected."""
    process = state.process
    if process is not None and process.switches_stacks:
        yield warn(
            f"coroutines of {process.pid}",
            f"it has {', '.join(process.switches_stacks)} mapped, which switch stacks",
            "a coroutine that is switched away inside a call with a return probe can be ended (SIGILL) when it goes on",
            "record with --no-returns if its coroutines can be switched by callbacks from the probed libraries",
        )


RULES: tuple[Rule, ...] = (kind_of_process, mappings, seccomp, io_uring, coroutines)
