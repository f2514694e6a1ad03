# SPDX-License-Identifier: Apache-2.0
"""Rules on uprobes: whether they can be attached, and where they would harm."""

from __future__ import annotations

from collections.abc import Iterator

from fencepath._doctor.state import Library, MachineState
from fencepath._doctor.verdicts import Rule, degrade, fine, refuse, warn
from fencepath.plugin import Check

__all__ = ["RETURNS", "RULES", "STACKS"]

RETURNS = "return probes"
STACKS = "private stacks"

_NO_UPROBES = "no function of a library can be probed: layers with call tables record nothing"
_REMEDY = "run as root, or with CAP_BPF and CAP_PERFMON, on a kernel of 5.15 or later"
_NAMED = 6


def uprobes(state: MachineState) -> Iterator[Check]:
    """Attached all at once or by a perf event each; never by the text files of tracefs, which can crash older kernels."""
    if state.uprobes is None:
        return
    if not state.uprobes.works:
        yield refuse("uprobes", state.uprobes.why, _NO_UPROBES, state.uprobes.remedy or _REMEDY)
    elif state.uprobes.why == "multi":
        yield fine("uprobes", "all at once (uprobe_multi), which needs no CAP_SYS_ADMIN")
    else:
        yield warn(
            "uprobes",
            "one perf event each; where CVE-2025-38466 is mended that needs CAP_SYS_ADMIN, which is held or not asked for",
            "attaching to a library with hundreds of functions takes longer, and each probe is an open file",
            "use a kernel of 6.6 or later",
        )


def kernel_functions(state: MachineState) -> Iterator[Check]:
    """An extra: no layer needs them for what it is for."""
    if state.kernel_functions is None:
        return
    if state.kernel_functions.works:
        yield fine("kernel functions", "functions of the kernel and of drivers can be probed (tried)")
    else:
        yield warn(
            "kernel functions",
            state.kernel_functions.why,
            "what happens inside drivers, such as both halves of an interrupt, is not recorded; what layers are for does not need it",
        )


def private_stacks(state: MachineState) -> Iterator[Check]:
    """A uprobe program that is preempted by another run of itself on a stack that both share ends the kernel."""
    if state.private_stacks is None or not state.trials:
        return
    if not state.private_stacks:
        yield fine(STACKS, "uprobe programs run on the stack of the thread that hits them (tried)")
        return
    given = "the kernel gives programs a stack for each CPU (tried)"
    if state.private_stacks_avoided:
        yield fine(STACKS, f"{given}; uprobe programs are kept from it by a tail call that is never taken (tried)")
    elif state.preemption in ("none", "voluntary"):
        yield warn(
            STACKS,
            f"{given} and they cannot be kept from it; preemption is {state.preemption}",
            "none, as long as the kernel does not preempt itself",
            "do not boot with preempt=full or preempt=lazy while recording",
        )
    else:
        yield refuse(
            STACKS,
            f"{given}, they cannot be kept from it, and preemption is {state.preemption or 'not known to be off'}",
            "a preempted uprobe program can end the kernel in a panic: " + _NO_UPROBES,
            "boot with preempt=voluntary",
        )


def return_probes(state: MachineState) -> Iterator[Check]:
    """Filters that refuse uretprobe(2); exceptions never meet one, by the call tables' declarations."""
    if state.returns_end_filtered is None:
        return
    entries, returns = state.functions or (0, 0)
    some = f"; {returns} of {entries} functions have one: those through which no exception leaves" if entries else ""
    if state.returns_end_filtered:
        yield degrade(
            RETURNS,
            "a seccomp filter that does not know uretprobe(2) ends the program at a return probe (tried)",
            "ends of calls are not recorded: return probes are left out",
            "use a kernel of 6.14 or later, or one before 6.11",
        )
    else:
        yield fine(RETURNS, f"a program with a seccomp filter survives them (tried){some}")


def shadow_stacks(state: MachineState) -> Iterator[Check]:
    """Before 6.11 a return probe and a shadow stack end the program; which this kernel does is not tried."""
    process = state.process
    if process is not None and process.shadow_stack:
        yield degrade(
            f"shadow stack of {process.pid}",
            "its threads keep shadow stacks (x86_Thread_features in /proc)",
            "ends of calls are not recorded: kernels before 6.11 end such a program at a return probe",
            "start it without GLIBC_TUNABLES=glibc.cpu.x86_shstk=on",
        )
    elif state.shadow_stacks:
        yield warn(
            "shadow stacks",
            "this machine has them, for programs that ask for one",
            "before 6.11 a return probe ends a program that keeps one",
            "if you run such programs, record with --no-returns, or use a kernel of 6.11 or later",
        )
    elif state.shadow_stacks is not None:
        yield fine("shadow stacks", "this machine has none")


def libraries(state: MachineState) -> Iterator[Check]:
    """Functions of the call tables in each library copy."""
    for library in state.libraries:
        yield _library(library)
    yield from _apis(state)


def _library(library: Library) -> Check:
    name = f"{library.layer} in {library.path}"
    if library.problem:
        return degrade(name, library.problem, "its calls are not recorded")
    build = f", build-id {library.build_id[:12]}" if library.build_id else ""
    stepped = f", {library.stepped} on an instruction that is single-stepped" if library.stepped else ""
    found = f"{library.found} functions{stepped}{build}"
    if library.linked_in:
        return warn(
            name,
            f"{found}: linked in statically",
            "only what its symbol table names is seen there; a stripped copy cannot be seen at all",
            "none is needed where calls of the driver API below are recorded",
        )
    if library.missing:
        more = f" and {len(library.missing) - _NAMED} more" if len(library.missing) > _NAMED else ""
        found += f"; this version has no {', '.join(library.missing[:_NAMED])}{more}"
    return fine(name, found)


def _apis(state: MachineState) -> Iterator[Check]:
    """A process that has one API of a layer mapped and not another has that linked in without symbols, or does without."""
    process = state.process
    if process is None or not process.maps.works:
        return
    lacking: dict[str, frozenset[str]] = {}
    for library in state.libraries:
        absent = frozenset(library.lacks_apis)
        lacking[library.layer] = lacking.get(library.layer, absent) & absent
    for layer, apis in sorted(lacking.items()):
        for api in sorted(apis):
            yield warn(
                f"{layer} {api} API of {process.pid}",
                "no library that is mapped has it: it is linked in statically without symbols, or not used",
                "its calls are not recorded; what they call of the layer's other APIs is",
                "link its library dynamically if you need them",
            )


RULES: tuple[Rule, ...] = (uprobes, kernel_functions, private_stacks, return_probes, shadow_stacks, libraries)
