# SPDX-License-Identifier: Apache-2.0
"""Attach programs to the begin and the return of functions of the kernel and its modules.

Two ways, neither of which sees everything:

- fentry, where the kernel has types of the function (5.5+, and 5.11+ for modules that were built with BTF). The kernel runs it also
  where an interrupt comes in the middle of another program, but a program that is preempted is skipped for other threads of its CPU.
- A kprobe, as a perf event, and not by the text files of tracefs: nothing of it is left behind, whatever ends the recorder. It cannot be
  preempted, but is missed where an interrupt comes in the middle of another kprobe or program, and a return is where more threads are in
  the function than the kernel has room for (10 at least, and twice the CPUs). How often, kernels from 6.7 on say.

So interrupt handlers are had by fentry first, and what threads call by kprobes.

A module cannot be unloaded while fentry programs are loaded for it; a kprobe does not hold it, and is gone with it.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fencepath._bpf import sys as bpf
from fencepath._bpf.attach import Link, attempt, link_perf_event
from fencepath._bpf.btf import KernelTypes
from fencepath.errors import AttachError, LoadError, MachineError, UsageError

__all__ = ["FORCE_VARIABLE", "FunctionLink", "FunctionProgram", "attach_function", "functions_refused"]

FORCE_VARIABLE = "FENCEPATH_FUNCTION_ATTACH"
"""Environment variable that forces one way to attach to kernel functions (``fentry`` or ``kprobe``), for tests."""

_WAYS = ("fentry", "kprobe")
_PMU = Path("/sys/bus/event_source/devices/kprobe")
_TRIED = "kernel_restart"
"""Exported in every kernel, and called when all is over."""
_RETURN_ZERO = bytes.fromhex("b7000000000000009500000000000000")
_ASK_RESULT = bytes.fromhex("bfa200000000000007020000f8ffffff85000000b8000000")
"""bpf_get_func_ret(ctx, a place on the stack), which came with 5.17."""


class FunctionProgram(NamedTuple):
    """A program at the begin or return of a function.

    Attributes:
        fentry: its C function for fentry or fexit.
        kprobe: its C function for a kprobe.
        returning: whether it is for the return.
    """

    fentry: str
    kprobe: str
    returning: bool


class FunctionLink(Link):
    """An attachment to a function.

    Attributes:
        way: ``fentry`` or ``kprobe``.
        returning: whether it is for the return.
    """

    def __init__(self, function: str, way: str, fd: int, *, returning: bool) -> None:
        super().__init__(f"{function}() by {way}", [fd])
        self.way = way
        self.returning = returning

    def missed(self) -> int | None:
        """How often at the most the kernel did not run the program of a kprobe; None where it does not say. Of fentry the program says it."""
        return 0 if self.way == "fentry" else bpf.link_missed(self.fds[0])


Load = Callable[[str, bpf.ProgramType, int | None, bpf.BtfFunction | None], int]
"""Loads a program: name, type, attach type, function."""


def attach_function(program: FunctionProgram, function: str, module: str, load: Load, *, in_task: bool) -> FunctionLink:
    """Attach to a function, for every process and CPU.

    Args:
        program: what is to run.
        function: its name, as in kallsyms; of a loaded module too.
        module: whose it is; "" for the kernel itself.
        load: loads one of the programs.
        in_task: whether threads call it, and not interrupts.

    Raises:
        AttachError: if there is no such function, the kernel lets nobody probe it, or refuses.
        LoadError: the verifier refuses the program.
        MachineError: if the kernel has no kprobes, or no types.
    """
    ways = _ways()
    first, *others = reversed(ways) if in_task else ways
    try:
        return _attach(first, program, function, module, load)
    except (AttachError, LoadError, MachineError):
        if not others:
            raise
        return _attach(others[0], program, function, module, load)


@functools.cache
def functions_refused() -> str:
    """Why this process can attach to no function of this kernel, found by trying; "" if it can."""
    whys: list[str] = []
    for way in _ways():
        try:
            _try_fentry() if way == "fentry" else _try_kprobe()
        except (AttachError, MachineError, OSError) as error:
            whys.append(f"by {way}: {_reason(error)}")
        else:
            return ""
    return f"functions of the kernel cannot be probed ({'; '.join(whys)})"


def _ways() -> tuple[str, ...]:
    forced = os.environ.get(FORCE_VARIABLE)
    if forced and forced not in _WAYS:
        raise UsageError(f"{FORCE_VARIABLE} is {forced!r}; set it to {' or '.join(_WAYS)}, or unset it")
    return (forced,) if forced else _WAYS


def _try_fentry() -> None:
    program = bpf.prog_load(
        bpf.ProgramType.TRACING,
        "fp_nothing",
        _ASK_RESULT + _RETURN_ZERO,
        attach_type=bpf.AttachType.TRACE_FEXIT,
        function=bpf.BtfFunction(_number(_TRIED)),
    )
    try:
        os.close(bpf.tracing_open(program))
    finally:
        os.close(program)


def _try_kprobe() -> None:
    program = bpf.prog_load(bpf.ProgramType.KPROBE, "fp_nothing", _RETURN_ZERO)
    try:
        os.close(attempt(_TRIED, lambda: _link(program, _TRIED, returning=False), _message))
    finally:
        os.close(program)


def _reason(error: Exception) -> str:
    if isinstance(error, AttachError):
        return bpf.error_text(error.errno).lower()
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def _attach(way: str, program: FunctionProgram, function: str, module: str, load: Load) -> FunctionLink:
    probe = f"{function}() by {way}"
    if way == "fentry":
        traced = _load_traced(program, function, module, load)
        fd = attempt(probe, lambda: bpf.tracing_open(traced), _message)
    else:
        loaded = load(program.kprobe, bpf.ProgramType.KPROBE, None, None)
        fd = attempt(probe, lambda: _link(loaded, function, program.returning), _message)
    return FunctionLink(function, way, fd, returning=program.returning)


def _load_traced(program: FunctionProgram, function: str, module: str, load: Load) -> int:
    number = _number(function, module)
    types = bpf.module_btf(module) if module else 0
    if types is None:
        raise MachineError(f"there are no types of {module}")
    attach_type = bpf.AttachType.TRACE_FEXIT if program.returning else bpf.AttachType.TRACE_FENTRY
    try:
        return load(program.fentry, bpf.ProgramType.TRACING, attach_type, bpf.BtfFunction(number, types))
    finally:
        if types:
            os.close(types)


def _number(function: str, module: str = "") -> int:
    types = KernelTypes(module)
    number = types.function(function)
    if number is None:
        raise types.problem or MachineError(f"there is no type of {function}")
    return number


def _link(fd: int, function: str, returning: bool) -> int:
    pmu, return_bit = _pmu()
    return link_perf_event(fd, bpf.perf_event_open(pmu, 1 << return_bit if returning else 0, path=function), 0)


def _pmu() -> tuple[int, int]:
    try:
        number = int((_PMU / "type").read_text())
        return number, int((_PMU / "format" / "retprobe").read_text().strip().removeprefix("config:"))
    except OSError as error:
        raise MachineError("this kernel was built without them (CONFIG_KPROBE_EVENTS)") from error


def _message(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "this kernel has no such function"
    if error.errno == errno.EADDRNOTAVAIL:
        return "several functions have that name"
    if error.errno == errno.EINVAL:
        return "the kernel takes no probe there"
    return error.strerror or str(error)
