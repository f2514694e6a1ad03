# SPDX-License-Identifier: Apache-2.0
"""What a machine is like, as far as recording depends on it: read once, judged by rules, kept as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fencepath.errors import NewerFormatError, UsageError

__all__ = [
    "SCHEMA",
    "Bcc",
    "Costs",
    "Library",
    "MachineState",
    "ProcessState",
    "Tracepoints",
    "Trial",
    "load_state",
    "save_state",
]

SCHEMA = "fencepath.machine/1"


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that was tried on the machine.

    Attributes:
        works: whether it did.
        why: what the kernel said if it did not, or what was seen if it did.
        remedy: how to mend it, "" if nothing is known.
    """

    works: bool
    why: str = ""
    remedy: str = ""


class Bcc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The compiler.

    Attributes:
        version: of BCC, "" if it cannot be used.
        llvm: of the clang in it, "" if it did not say.
        compiles: a program without kernel headers; None if it was not tried.
    """

    version: str = ""
    llvm: str = ""
    compiles: Trial | None = None


class Tracepoints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kernel tracepoints, as far as anybody asked for them.

    Attributes:
        root: where the events are, "" if they cannot be read.
        problem: why not.
        formats: texts of `format` files by ``group:event``; "" for an event that is not there.
        groups: names of the events of a group.
    """

    root: str = ""
    problem: Trial | None = None
    formats: dict[str, str] = {}
    groups: dict[str, tuple[str, ...]] = {}


class Costs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a probe costs a call, median CPU time in ns.

    Attributes:
        method: ``multi`` or ``perf``.
        emulated_ns: entry on an instruction that the kernel emulates.
        emulated_pair_ns: entry and return.
        stepped_ns: entry on an instruction that it single-steps.
        stepped_pair_ns: entry and return.
        problem: why it could not be measured, "" if it could.
    """

    method: str = ""
    emulated_ns: float = 0.0
    emulated_pair_ns: float = 0.0
    stepped_ns: float = 0.0
    stepped_pair_ns: float = 0.0
    problem: str = ""


class Library(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in which functions of a layer were looked up.

    Attributes:
        layer: whose call table.
        path: as the process, or the search, calls it.
        build_id: hex, "" if it has none.
        found: how many of the layer's functions it has.
        missing: names of those that it has not, of the APIs of which it has some.
        lacks_apis: APIs of the layer of which it has nothing.
        stepped: how many of its probes would be on an instruction that the kernel single-steps.
        linked_in: it is a program, or a library of another name, with the functions linked into it.
        problem: why it could not be looked at, "" if it could.
    """

    layer: str
    path: str
    build_id: str = ""
    found: int = 0
    missing: tuple[str, ...] = ()
    lacks_apis: tuple[str, ...] = ()
    stepped: int = 0
    linked_in: bool = False
    problem: str = ""


class ProcessState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process.

    Attributes:
        pid: its number in the initial pid namespace.
        name: of the process.
        uid: its effective user.
        seccomp: 0 none, 1 strict, 2 filters.
        shadow_stack: whether its threads keep a shadow stack.
        io_urings: how many rings of io_uring it has open; None if that could not be seen.
        bits: 64 or 32; None if that could not be seen.
        namespaces: those it does not share with fencepath, such as ``mnt``.
        maps: whether its mappings can be read, and why not.
        switches_stacks: mapped libraries that switch stacks in user space.
    """

    pid: int
    name: str = ""
    uid: int = 0
    seccomp: int = 0
    shadow_stack: bool = False
    io_urings: int | None = None
    bits: int | None = None
    namespaces: tuple[str, ...] = ()
    maps: Trial = Trial(works=True)
    switches_stacks: tuple[str, ...] = ()


class MachineState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine and whoever records on it. None, or an absent key, means that it was not looked at.

    Attributes:
        architecture: ``uname -m``.
        kernel: ``uname -r``; shown, and compared only where nothing else tells a hazard.
        build: ``uname -v``.
        uid: effective user.
        capabilities: effective ones, such as ``CAP_BPF``.
        view: whether pids and times here are the kernel's own.
        trials: what was tried: ``program X``, ``map X``, ``helper X in Y``, ``perf event``.
        uprobes: whether they can be attached, and how.
        bcc: the compiler.
        btf: whether the kernel's types can be read.
        lockdown: mode, "" where the kernel has none or does not say.
        tracepoints: the kernel's.
        kernel_functions: whether functions of the kernel can be probed.
        symbols: of the kernel, by name: whether it has them.
        modules: of the kernel, by name: whether they are loaded.
        traceable: functions of the kernel, by name: whether ftrace lists them.
        symbols_readable: whether kallsyms shows addresses.
        sysctls: by name, as text.
        memlock: soft and hard limit of locked memory, bytes; -1 is unlimited.
        files: soft and hard limit of open files.
        preemption: ``none``, ``voluntary``, ``full``, ``lazy``, ``rt``; "" if it could not be told.
        private_stacks: whether uprobe programs get a stack of each CPU's own.
        private_stacks_avoided: whether they can be kept from them.
        returns_end_filtered: whether a return probe ends a process whose seccomp filter does not know uretprobe(2).
        shadow_stacks: whether processes can have shadow stacks.
        clocksource: in use.
        clocksources: available.
        cgroup2: where the unified hierarchy is mounted, "" if nowhere.
        costs: of probes.
        functions: how many functions the call tables have at the asked detail, and how many of them get a return probe.
        libraries: files in which they were looked up.
        process: the one asked about.
    """

    architecture: str = ""
    kernel: str = ""
    build: str = ""
    uid: int = 0
    capabilities: tuple[str, ...] = ()
    view: Trial = Trial(works=True)
    trials: dict[str, Trial] = {}
    uprobes: Trial | None = None
    bcc: Bcc = Bcc()
    btf: bool = False
    lockdown: str = ""
    tracepoints: Tracepoints = Tracepoints()
    kernel_functions: Trial | None = None
    symbols: dict[str, bool] = {}
    modules: dict[str, bool] = {}
    traceable: dict[str, bool] = {}
    symbols_readable: bool | None = None
    sysctls: dict[str, str] = {}
    memlock: tuple[int, int] | None = None
    files: tuple[int, int] | None = None
    preemption: str = ""
    private_stacks: bool | None = None
    private_stacks_avoided: bool | None = None
    returns_end_filtered: bool | None = None
    shadow_stacks: bool | None = None
    clocksource: str = ""
    clocksources: tuple[str, ...] = ()
    cgroup2: str | None = None
    costs: Costs | None = None
    functions: tuple[int, int] | None = None
    libraries: tuple[Library, ...] = ()
    process: ProcessState | None = None

    def has(self, *capabilities: str) -> bool:
        """Whether one of the capabilities is there, or CAP_SYS_ADMIN for those that were once part of it."""
        split = {"CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE", "CAP_SYSLOG"}
        held = set(self.capabilities)
        return any(name in held or (name in split and "CAP_SYS_ADMIN" in held) for name in capabilities)


def save_state(state: MachineState, path: Path) -> None:
    """Write a state as JSON.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        data = msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(state)})
        path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def load_state(path: Path) -> MachineState:
    """Read a state.

    Raises:
        UsageError: it cannot be read or is something else.
        NewerFormatError: a newer fencepath wrote it.
    """
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        name = msgspec.json.decode(schema.get("schema", b'""'), type=str)
        if name != SCHEMA and name.startswith("fencepath.machine/"):
            raise NewerFormatError(f"{path} is {name}, this fencepath reads {SCHEMA}; upgrade fencepath to read it")
        if name != SCHEMA:
            raise UsageError(f"{path} is no captured state of a machine; make one with fencepath doctor --save FILE")
        return msgspec.json.decode(data, type=MachineState)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no captured state of a machine: {error}") from error
