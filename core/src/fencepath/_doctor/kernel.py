# SPDX-License-Identifier: Apache-2.0
"""Rules on what the kernel and the compiler can do."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath._doctor.access import NOTHING
from fencepath._doctor.state import MachineState, Trial
from fencepath._doctor.trials import HELPERS
from fencepath._doctor.verdicts import Rule, degrade, fine, refuse, warn
from fencepath.plugin import Check

__all__ = ["RULES"]

_COSTS = {
    "bpf_get_attach_cookie": "no function of a library can be probed",
    "bpf_probe_read_user": "arguments in memory, texts and marks are not recorded",
    "bpf_probe_read_user_str": "texts, such as names of kernels, are not recorded",
    "bpf_probe_read_kernel": "records of events cannot be read",
    "bpf_probe_read_kernel_str": "texts of events, such as names of rings, are not recorded",
    "bpf_get_current_cgroup_id": "--cgroup, --container and --pod do not work",
    "bpf_get_current_ancestor_cgroup_id": "--cgroup, --container and --pod do not see into cgroups below theirs",
}
_OPTIONAL = frozenset({"bpf_get_current_cgroup_id", "bpf_get_current_ancestor_cgroup_id", "bpf_get_attach_cookie"})
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "xen"})


def architecture(state: MachineState) -> Iterator[Check]:
    """Rings are read in x86-64's memory order; on arm64 a probed instruction that is single-stepped can resume wrongly."""
    if state.architecture == "x86_64":
        yield fine("architecture", state.architecture)
        return
    also = (
        ", and a process that is interrupted while it steps over a probed instruction can go on at the wrong one"
        if state.architecture == "aarch64"
        else ""
    )
    yield refuse(
        "architecture",
        f"{state.architecture}: the rings' memory is read by x86-64's order{also}",
        "nothing can be recorded here; recordings can be read",
        "record on an x86-64 machine",
    )


def compiler(state: MachineState) -> Iterator[Check]:
    """BCC is there, and compiles without kernel headers."""
    bcc, compiled = state.bcc, state.bcc.compiles
    if compiled is None:
        return
    with_clang = f" with clang {bcc.llvm}" if bcc.llvm else ""
    if not bcc.version:
        yield refuse("BCC", compiled.why, NOTHING, compiled.remedy)
    elif not compiled.works:
        yield refuse(
            "BCC",
            f"BCC {bcc.version}{with_clang}: {compiled.why}",
            NOTHING,
            compiled.remedy or "install another version of python3-bpfcc",
        )
    else:
        yield fine("BCC", f"BCC {bcc.version}{with_clang} compiles without kernel headers")


def programs(state: MachineState) -> Iterator[Check]:
    """Program types, maps and helpers, each loaded for trial; those that work in one line each."""
    if not state.trials:
        return
    for what in ("program", "map"):
        tried = {
            name.removeprefix(f"{what} "): trial for name, trial in state.trials.items() if name.startswith(f"{what} ")
        }
        works = [name for name, trial in tried.items() if trial.works]
        if works:
            yield fine(f"BPF {what}s", f"{', '.join(works)} (tried)")
        if state.has("CAP_BPF") and (state.has("CAP_PERFMON") or what == "map"):
            for name, trial in tried.items():
                if not trial.works:
                    yield refuse(f"BPF {what} {name}", trial.why, NOTHING, trial.remedy or _kernel_remedy(state))


def helpers(state: MachineState) -> Iterator[Check]:
    """Every helper that fencepath's programs call, in the types of programs that call it."""
    tried = {name: trial for name, trial in state.trials.items() if name.startswith("helper ")}
    works = sum(trial.works for trial in tried.values())
    if works:
        yield fine(
            "BPF helpers", f"{works} of {len(tried)} work: {len(HELPERS)} helpers, in each type that calls them (tried)"
        )
    for name, trial in tried.items():
        if not trial.works:
            yield _missing_helper(name, trial, state)


def _missing_helper(name: str, trial: Trial, state: MachineState) -> Check:
    helper = name.split()[1]
    cost = _COSTS.get(helper, NOTHING)
    make = degrade if helper in _OPTIONAL else refuse
    return make(name.removeprefix("helper "), trial.why, cost, _kernel_remedy(state))


def _kernel_remedy(state: MachineState) -> str:
    if state.lockdown == "confidentiality":
        return "boot without lockdown=confidentiality"
    return "use a kernel of 5.15 or later, built with CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS and CONFIG_UPROBE_EVENTS"


def types(state: MachineState) -> Iterator[Check]:
    """The kernel's type information."""
    if state.btf:
        yield fine("BTF", "/sys/kernel/btf/vmlinux")
    else:
        yield degrade(
            "BTF",
            "/sys/kernel/btf/vmlinux is not there, or may not be read",
            "fields that are only in kernel structures are not read: who woke a thread, which device a system call goes to",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF; in a container mount /sys of the host",
        )


def tracefs(state: MachineState) -> Iterator[Check]:
    """Where tracepoints are described."""
    if state.tracepoints.root:
        yield fine("tracefs", state.tracepoints.root)
    elif state.tracepoints.problem is not None:
        problem = state.tracepoints.problem
        yield refuse("tracefs", problem.why, "no tracepoint can be attached: " + NOTHING, problem.remedy)


def lockdown(state: MachineState) -> Iterator[Check]:
    """In confidentiality mode programs may not read kernel memory, and tracefs does not open."""
    if state.lockdown == "confidentiality":
        yield refuse(
            "lockdown",
            "the kernel is locked down for confidentiality",
            "BPF programs may not read memory and tracefs does not open, so nothing useful can be recorded",
            "boot without lockdown=confidentiality",
        )
    elif state.lockdown in ("", "none"):
        yield fine("lockdown", state.lockdown or "the kernel has none, or securityfs is not mounted")
    else:
        yield fine("lockdown", f"{state.lockdown}: what is needed here is left")


def clock(state: MachineState) -> Iterator[Check]:
    """Every record reads the clock."""
    if not state.clocksource:
        return
    others = [name for name in state.clocksources if name != state.clocksource]
    shown = f"{state.clocksource}{f' (there are also {chr(44).join(others)})' if others else ''}"
    if state.clocksource in _SLOW_CLOCKS:
        yield warn(
            "clock source",
            shown,
            "reading the time takes up to microseconds, and each record and each mark does so",
            "boot with tsc=reliable if the machine's TSC is sound; see dmesg for why the kernel gave it up",
        )
    else:
        yield fine("clock source", shown)


def costs(state: MachineState) -> Iterator[Check]:
    """What a probe costs a call here."""
    if state.costs is None:
        return
    if state.costs.problem:
        yield warn("cost of a probe", state.costs.problem, "what a recording costs is not estimated")
        return
    cost = state.costs
    yield fine(
        "cost of a probe",
        f"a call's entry takes {cost.emulated_ns / 1000:.1f} µs more, entry and return {cost.emulated_pair_ns / 1000:.1f} µs; "
        f"on an instruction that the kernel single-steps {cost.stepped_ns / 1000:.1f} and "
        f"{cost.stepped_pair_ns / 1000:.1f} µs (measured, empty programs, {cost.method})",
    )


RULES: tuple[Rule, ...] = (architecture, compiler, programs, helpers, types, tracefs, lockdown, clock, costs)
