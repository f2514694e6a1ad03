# SPDX-License-Identifier: Apache-2.0
"""Reads and tries everything that rules judge, once. Nothing is attached to anybody's code."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Callable
from pathlib import Path

from fencepath._bpf.attach import uprobe_attach_method
from fencepath._bpf.kernel_functions import functions_refused
from fencepath._bpf.own_view import check_own_view
from fencepath._bpf.private_stacks import gives_private_stacks, tail_call_prevents
from fencepath._doctor.state import Bcc, Costs, MachineState, Tracepoints, Trial
from fencepath._doctor.trials import try_all
from fencepath.errors import FencepathError, MachineError
from fencepath.tracepoints import LiveTracepoints

__all__ = ["attempt", "capabilities", "capture_compiler", "capture_costs", "capture_machine"]

_CAPABILITIES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
]
"""By number: include/uapi/linux/capability.h."""

_SYSCTLS = (
    "kernel.perf_event_paranoid",
    "kernel.kptr_restrict",
    "kernel.unprivileged_bpf_disabled",
    "kernel.io_uring_disabled",
    "kernel.yama.ptrace_scope",
    "net.core.bpf_jit_enable",
)
_CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0")
_PREEMPT = Path("/sys/kernel/debug/sched/preempt")
_CGROUP2 = re.compile(r"^\S+ (?P<where>\S+) cgroup2 ", re.MULTILINE)


def capture_machine() -> MachineState:
    """Return what this machine is like, but for what a compiler, plugins, costs and processes add."""
    sources = _words(_CLOCKSOURCE / "available_clocksource")
    return MachineState(
        architecture=platform.machine(),
        kernel=os.uname().release,
        build=os.uname().version,
        uid=os.geteuid(),
        capabilities=capabilities(),
        view=attempt(check_own_view),
        trials=try_all(),
        uprobes=attempt(lambda: uprobe_attach_method().value),
        kernel_functions=Trial(works=not functions_refused(), why=functions_refused()),
        btf=os.access("/sys/kernel/btf/vmlinux", os.R_OK),
        lockdown=_chosen(_text(Path("/sys/kernel/security/lockdown"))),
        tracepoints=_tracefs(),
        symbols_readable=_symbols_readable(),
        sysctls={name: value for name in _SYSCTLS if (value := _sysctl(name))},
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK),
        files=resource.getrlimit(resource.RLIMIT_NOFILE),
        preemption=_preemption(),
        private_stacks=gives_private_stacks(),
        private_stacks_avoided=tail_call_prevents(),
        returns_end_filtered=_returns_end_filtered(),
        shadow_stacks=" user_shstk" in _text(Path("/proc/cpuinfo")),
        clocksource="".join(_words(_CLOCKSOURCE / "current_clocksource")[:1]),
        clocksources=sources,
        cgroup2=_cgroup2(),
    )


def capture_compiler() -> Bcc:
    """Find BCC and compile a program with it."""
    from fencepath._bpf.bcc import import_bcc
    from fencepath._bpf.compiler import BpfObject

    try:
        version = str(import_bcc().__version__)
    except MachineError as error:
        return Bcc(compiles=Trial(works=False, why=_reason(error), remedy=error.remedy))
    try:
        with BpfObject("#pragma message(__clang_version__)\nint check(void *ctx) { return 0; }") as compiled:
            said = re.search(r"(?:warning|note|message): ([0-9]\S*)", compiled.warnings)
    except FencepathError as error:
        return Bcc(version=version, compiles=Trial(works=False, why=str(error), remedy=getattr(error, "remedy", "")))
    return Bcc(version=version, llvm=said[1] if said else "", compiles=Trial(works=True))


def capture_costs() -> Costs:
    """Measure what a probe with an empty program costs, by the class of the instruction under it: some 0.3 s."""
    from fencepath._record.calibration import calibrate

    try:
        measured = calibrate()
    except MachineError as error:
        return Costs(problem=str(error))
    return Costs(
        method=measured.method,
        emulated_ns=measured.emulated_entry.median_ns,
        emulated_pair_ns=measured.emulated_pair.median_ns,
        stepped_ns=measured.stepped_entry.median_ns,
        stepped_pair_ns=measured.stepped_pair.median_ns,
    )


def capabilities(status: str | None = None) -> tuple[str, ...]:
    """Return the effective capabilities of this process, or those of the text of a /proc/PID/status."""
    text = _text(Path("/proc/self/status")) if status is None else status
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    mask = int(match[1], 16) if match else 0
    return tuple(f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if mask >> number & 1)


def attempt(action: Callable[[], str | None]) -> Trial:
    """Do something and say what came of it."""
    try:
        return Trial(works=True, why=action() or "")
    except MachineError as error:
        return Trial(works=False, why=_reason(error), remedy=error.remedy)
    except FencepathError as error:
        return Trial(works=False, why=str(error))


def _reason(error: MachineError) -> str:
    """The message without the remedy, which it ends in."""
    return str(error).removesuffix(f"; {error.remedy}") if error.remedy else str(error)


def _tracefs() -> Tracepoints:
    try:
        return Tracepoints(root=str(LiveTracepoints().root))
    except MachineError as error:
        return Tracepoints(problem=Trial(works=False, why=_reason(error), remedy=error.remedy))


def _returns_end_filtered() -> bool | None:
    from fencepath._record.return_probes import seccomp_ends_returns

    try:
        return seccomp_ends_returns(uprobe_attach_method())
    except FencepathError:
        return None


def _symbols_readable() -> bool | None:
    try:
        with Path("/proc/kallsyms").open(encoding="ascii", errors="replace") as file:
            return int(file.readline().split()[0], 16) != 0
    except (OSError, ValueError, IndexError):
        return None


def _preemption() -> str:
    """How the kernel preempts itself now, by what it says of it, else of how it was built; "" if that leaves it open."""
    chosen = _chosen(_text(_PREEMPT).replace("(", "[").replace(")", "]"))
    if chosen:
        return chosen
    asked = re.search(r"\bpreempt=(\w+)", _text(Path("/proc/cmdline")))
    if asked:
        return asked[1]
    words = os.uname().version.split()
    for word, mode in (("PREEMPT_RT", "rt"), ("PREEMPT_LAZY", "lazy"), ("PREEMPT", "full")):
        if word in words:
            return mode
    # with PREEMPT_DYNAMIC it is whatever was the default when it was built
    return "" if "PREEMPT_DYNAMIC" in words else "none"


def _cgroup2() -> str:
    match = _CGROUP2.search(_text(Path("/proc/self/mounts")))
    return match["where"] if match else ""


def _chosen(text: str) -> str:
    """The one of several words that is in brackets."""
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else ""


def _sysctl(name: str) -> str:
    return _text(Path("/proc/sys", *name.split("."))).strip()


def _words(path: Path) -> tuple[str, ...]:
    return tuple(_text(path).split())


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
