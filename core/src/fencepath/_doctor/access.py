# SPDX-License-Identifier: Apache-2.0
"""Rules on who records: capabilities, namespaces, limits, settings of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath._doctor.state import MachineState
from fencepath._doctor.verdicts import Rule, degrade, fine, refuse, warn
from fencepath.plugin import Check

__all__ = ["NOTHING", "RULES"]

NOTHING = "nothing can be recorded; recordings can be read"

_BOTH = "run as root, or with CAP_BPF and CAP_PERFMON"
_SMALL_FILES = 256
"""Descriptors of a recording without perf events: maps, programs, links, files of the recording."""
_UNLIMITED = -1


def privileges(state: MachineState) -> Iterator[Check]:
    """CAP_BPF for maps and programs, CAP_PERFMON for programs that trace."""
    lacking = [name for name in ("CAP_BPF", "CAP_PERFMON") if not state.has(name)]
    who = "root" if state.uid == 0 else f"user {state.uid}"
    if not lacking:
        yield fine("privileges", f"{who} with CAP_BPF and CAP_PERFMON")
        return
    if state.uid:
        remedy = f"run it with sudo, or with {' and '.join(lacking)} and CAP_DAC_READ_SEARCH"
    else:
        remedy = f"{_BOTH} (docker: --cap-add; Kubernetes: securityContext.capabilities.add)"
    what = {
        "CAP_BPF": "may not create bpf maps (no CAP_BPF)",
        "CAP_PERFMON": "is not permitted to trace (no CAP_PERFMON)",
    }
    yield refuse("privileges", f"{who} {', '.join(what[name] for name in lacking)}", NOTHING, remedy)


_OPTIONAL = {
    "CAP_SYS_PTRACE": (
        "libraries of processes of other users that have them already when recording begins are not found",
        "add CAP_SYS_PTRACE, or record as the user of the process",
    ),
    "CAP_DAC_READ_SEARCH": (
        "files and folders that only others may read (libraries, tracefs) are not seen",
        "add CAP_DAC_READ_SEARCH",
    ),
    "CAP_SETUID": (
        "a COMMAND cannot be run as the user who called sudo",
        "add CAP_SETUID and CAP_SETGID, or use --as-root",
    ),
    "CAP_KILL": ("signals to fencepath are not passed on to a COMMAND of another user", "add CAP_KILL"),
    "CAP_CHOWN": ("the recording stays root's instead of the user's who called sudo", "add CAP_CHOWN"),
    "CAP_SYS_NICE": (
        "the recorder runs at everybody's priority: on a busy machine rings fill earlier, which is counted as loss",
        "add CAP_SYS_NICE",
    ),
    "CAP_SYSLOG": ("addresses of kernel symbols are not shown, if kernel.kptr_restrict is 1", "add CAP_SYSLOG"),
}


def optional_capabilities(state: MachineState) -> Iterator[Check]:
    """What each further capability is good for; those that are there in one line."""
    there = [name for name in _OPTIONAL if state.has(name)]
    if there:
        yield fine("capabilities", ", ".join(there))
    for name, (cost, remedy) in _OPTIONAL.items():
        if name not in there:
            yield warn(name, "it is not held", cost, remedy)


def namespaces(state: MachineState) -> Iterator[Check]:
    """Pids and times must be the kernel's own, as BPF programs know no others."""
    if state.view.works:
        yield fine("namespaces", "processes and times are the kernel's own here")
    else:
        yield refuse(
            "namespaces",
            state.view.why,
            "nothing can be recorded from in here; recordings can be read",
            state.view.remedy,
        )


def locked_memory(state: MachineState) -> Iterator[Check]:
    """Before 5.11 maps count against RLIMIT_MEMLOCK; whether they do is known by having made some."""
    if state.memlock is None:
        return
    soft, hard = state.memlock
    made = state.trials.get("map hash")
    shown = "unlimited" if _UNLIMITED in (soft, hard) else f"{hard >> 10} KiB"
    if made is None or made.works or not state.has("CAP_BPF"):
        yield fine("RLIMIT_MEMLOCK", f"{shown}, and maps can be made")
    else:
        yield refuse("RLIMIT_MEMLOCK", f"{shown}; {made.why}", NOTHING, "ulimit -l unlimited, or add CAP_SYS_RESOURCE")


def open_files(state: MachineState) -> Iterator[Check]:
    """With perf events each probe is an open file; BCC's limit of probes does not count, as it attaches none."""
    if state.files is None:
        return
    hard = state.files[1]
    by_perf = state.uprobes is not None and state.uprobes.why == "perf"
    entries, returns = state.functions or (0, 0)
    needed = _SMALL_FILES + (entries + returns if by_perf else 0)
    how = "one for each probe of each library" if by_perf else "uprobes need none of their own"
    if hard in (_UNLIMITED,) or hard >= needed:
        yield fine("open files", f"limit {hard}, about {needed} needed ({how}); BCC_PROBE_LIMIT does not matter")
    else:
        yield degrade(
            "open files",
            f"limit {hard}, about {needed} needed ({how})",
            "the last libraries get no probes",
            f"ulimit -Hn {2 * needed}",
        )


def settings(state: MachineState) -> Iterator[Check]:
    """Settings that some distributions make stricter than the kernel knows."""
    paranoid = state.sysctls.get("kernel.perf_event_paranoid", "")
    event = state.trials.get("perf event")
    if event is not None and not event.works and state.has("CAP_PERFMON") and state.tracepoints.problem is None:
        yield refuse(
            "perf events",
            f"{event.why}; kernel.perf_event_paranoid is {paranoid or 'not known'}",
            "no tracepoint can be attached: " + NOTHING,
            "sysctl kernel.perf_event_paranoid=2, or run with CAP_SYS_ADMIN: kernels patched for levels above 2 ask for it",
        )
    elif paranoid:
        yield fine("perf events", f"can be opened (kernel.perf_event_paranoid is {paranoid})")
    disabled = state.sysctls.get("kernel.unprivileged_bpf_disabled", "")
    if disabled:
        yield fine(
            "unprivileged BPF",
            f"kernel.unprivileged_bpf_disabled is {disabled}; CAP_BPF is used, so it does not matter",
        )


def kernel_addresses(state: MachineState) -> Iterator[Check]:
    """Whether kallsyms shows addresses."""
    if state.symbols_readable is None:
        return
    restrict = state.sysctls.get("kernel.kptr_restrict", "?")
    if state.symbols_readable:
        yield fine("kernel symbols", f"names and addresses can be read (kernel.kptr_restrict is {restrict})")
    else:
        yield warn(
            "kernel symbols",
            f"names can be read, addresses not (kernel.kptr_restrict is {restrict})",
            "probes on kernel functions, which no layer needs, cannot be placed",
            "sysctl kernel.kptr_restrict=1, and CAP_SYSLOG",
        )


RULES: tuple[Rule, ...] = (
    privileges,
    optional_capabilities,
    namespaces,
    locked_memory,
    open_files,
    settings,
    kernel_addresses,
)
