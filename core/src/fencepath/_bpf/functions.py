# SPDX-License-Identifier: Apache-2.0
"""Attach programs to the begin and the return of functions of the kernel and its modules.

By fentry where the kernel has types of the function (5.5+, and 5.11+ for modules that were built with BTF): the kernel runs it also
where an interrupt comes in the middle of another program. Else by a kprobe as a perf event, and not by the text files of tracefs: nothing
of it is left behind, whatever ends the recorder. A kprobe is missed where it interrupts another one, or a program, on its CPU, and
a return where more threads are in the function than the kernel has room for; how often, kernels from 6.7 on say.

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

__all__ = ["FORCE_VARIABLE", "FunctionProgram", "attach_function", "attach_kprobe", "functions_refused", "missed"]

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


Load = Callable[[str, bpf.ProgramType, int | None, bpf.BtfFunction | None], int]
"""Loads a program: name, type, attach type, function."""


def attach_function(program: FunctionProgram, function: str, module: str, load: Load) -> Link:
    """Attach to a function, for every process and CPU.

    Args:
        program: what is to run.
        function: its name, as in kallsyms; of a loaded module too.
        module: whose it is; "" for the kernel itself.
        load: loads one of the programs.

    Raises:
        AttachError: if there is no such function, the kernel lets nobody probe it, or refuses.
        LoadError: the verifier refuses the program.
        MachineError: if the kernel has no kprobes, and the function cannot be had by fentry.
    """
    ways = _ways()
    if "fentry" in ways:
        try:
            return _attach_fentry(program, function, module, load)
        except (AttachError, LoadError, MachineError):
            if "kprobe" not in ways:
                raise
    return attach_kprobe(
        load(program.kprobe, bpf.ProgramType.KPROBE, None, None), function, returning=program.returning
    )


def attach_kprobe(fd: int, function: str, *, returning: bool) -> Link:
    """Attach a program of type KPROBE by a perf event; else as :func:`attach_function`."""
    probe = f"{function}() by kprobe"
    return Link(probe, [attempt(probe, lambda: _link(fd, function, returning), _message)])


def missed(link: Link) -> int:
    """How often at the most the kernel did not run the program of a kprobe; 0 where it does not say, and for fentry."""
    return sum(bpf.link_missed(fd) or 0 for fd in link.fds)


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
        attach_kprobe(program, _TRIED, returning=False).close()
    finally:
        os.close(program)


def _reason(error: Exception) -> str:
    if isinstance(error, AttachError):
        return bpf.error_text(error.errno).lower()
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def _attach_fentry(program: FunctionProgram, function: str, module: str, load: Load) -> Link:
    number = _number(function, module)
    types = bpf.module_btf(module) if module else 0
    if types is None:
        raise MachineError(f"there are no types of {module}")
    attach_type = bpf.AttachType.TRACE_FEXIT if program.returning else bpf.AttachType.TRACE_FENTRY
    try:
        fd = load(program.fentry, bpf.ProgramType.TRACING, attach_type, bpf.BtfFunction(number, types))
    finally:
        if types:
            os.close(types)
    probe = f"{function}() by fentry"
    return Link(probe, [attempt(probe, lambda: bpf.tracing_open(fd), _message)])


def _number(function: str, module: str = "") -> int:
    types = KernelTypes(module)
    number = types.function(function)
    if number is None:
        raise types.problem or MachineError(f"there is no type of {function}")
    return number


def _link(fd: int, function: str, returning: bool) -> int:
    pmu, return_bit = _numbers()
    return link_perf_event(fd, bpf.perf_event_open(pmu, 1 << return_bit if returning else 0, path=function), 0)


def _numbers() -> tuple[int, int]:
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
