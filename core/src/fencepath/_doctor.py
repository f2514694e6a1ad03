# SPDX-License-Identifier: Apache-2.0
"""Checks of this machine, each by trying the thing itself rather than by version."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from fencepath._loader import load_plugins
from fencepath.errors import FencepathError, MachineError
from fencepath.plugin import Check
from fencepath.system import System

__all__ = ["run_checks"]


def run_checks(pid: int | None = None) -> list[tuple[str, Check]]:
    """Run core's and every layer's checks.

    Args:
        pid: also look at this process.

    Returns:
        (layer or ``core``, check), core's first.

    Raises:
        UsageError: `pid` is no running process.
    """
    checks = [
        ("core", check)
        for check in (
            _architecture(),
            _root(),
            _namespaces(),
            _bcc(),
            _tracefs(),
            _btf(),
            _lockdown(),
            _uprobes(),
            _returns(),
            _program(),
        )
    ]
    if pid is not None:
        checks += [("core", check) for check in _process(pid)]
    checks += list(_layers())
    return checks


def _architecture() -> Check:
    machine = platform.machine()
    if machine == "x86_64":
        return Check(name="architecture", verdict="ok", evidence=machine)
    return Check(
        name="architecture",
        verdict="refuse",
        evidence=f"{machine}: the rings' memory is read by x86-64's order, and uprobes that step are not safe on arm64",
        cost="nothing can be recorded here; recordings can be read",
        remedy="record on an x86-64 machine",
    )


def _root() -> Check:
    if os.geteuid() == 0:
        return Check(name="privileges", verdict="ok", evidence="root")
    return Check(
        name="privileges",
        verdict="refuse",
        evidence=f"user {os.geteuid()}",
        cost="nothing can be recorded; recordings can be read",
        remedy="run fencepath record with sudo",
    )


def _namespaces() -> Check:
    def action() -> str:
        from fencepath._bpf.own_view import check_own_view

        check_own_view()
        return "processes and times are the kernel's own here"

    return _tried("namespaces", action, "nothing can be recorded from in here; recordings can be read")


def _tried(name: str, action: Callable[[], str], cost: str) -> Check:
    """A check that does the thing and says what came of it."""
    try:
        return Check(name=name, verdict="ok", evidence=action())
    except MachineError as error:
        return Check(name=name, verdict="refuse", evidence=str(error), cost=cost, remedy=error.remedy)
    except FencepathError as error:
        return Check(name=name, verdict="refuse", evidence=str(error), cost=cost)


def _bcc() -> Check:
    def action() -> str:
        from fencepath._bpf.bcc import import_bcc

        return f"BCC {import_bcc().__version__}"

    return _tried("BCC", action, "nothing can be recorded; recordings can be read")


def _tracefs() -> Check:
    return _tried("tracefs", lambda: f"{System.here().tracepoints.root}", "no tracepoint can be attached")  # type: ignore[attr-defined]  # a live source has a root


def _btf() -> Check:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return Check(name="BTF", verdict="ok", evidence="/sys/kernel/btf/vmlinux")
    return Check(
        name="BTF",
        verdict="degrade",
        evidence="/sys/kernel/btf/vmlinux is not there",
        cost="fields that are only in kernel structures cannot be read",
    )


def _lockdown() -> Check:
    try:
        text = Path("/sys/kernel/security/lockdown").read_text()
    except OSError:
        return Check(name="lockdown", verdict="ok", evidence="the kernel has none, or securityfs is not mounted")
    if "[confidentiality]" in text:
        return Check(
            name="lockdown",
            verdict="refuse",
            evidence=text.strip(),
            cost="BPF programs may not read memory, so nothing useful can be recorded",
            remedy="boot without lockdown=confidentiality",
        )
    return Check(name="lockdown", verdict="ok", evidence=text.strip())


def _uprobes() -> Check:
    def action() -> str:
        from fencepath._bpf.attach import UprobeMethod, uprobe_attach_method

        method = uprobe_attach_method()
        return "all at once (uprobe_multi)" if method is UprobeMethod.MULTI else "one perf event each"

    return _tried("uprobes", action, "no function of a library can be probed: the cuda layer records nothing")


def _returns() -> Check:
    """Whether return probes are safe for programs with seccomp filters."""
    try:
        harmful = _seccomp_ends_returns()
    except FencepathError as error:
        return Check(
            name="return probes", verdict="degrade", evidence=str(error), cost="ends of calls are not recorded"
        )
    if harmful:
        return Check(
            name="return probes",
            verdict="degrade",
            evidence="a seccomp filter that does not know uretprobe(2) ends the program at a return probe (tried)",
            cost="ends of calls are not recorded: return probes are left out",
            remedy="use a kernel of 6.14 or later, or one before 6.11",
        )
    return Check(name="return probes", verdict="ok", evidence="a program with a seccomp filter survives them (tried)")


def _seccomp_ends_returns() -> bool:
    from fencepath._bpf.attach import uprobe_attach_method
    from fencepath._record.return_probes import seccomp_ends_returns

    return seccomp_ends_returns(uprobe_attach_method())


def _program() -> Check:
    def action() -> str:
        from fencepath._bpf.compiler import BpfObject
        from fencepath._bpf.sys import ProgramType

        with BpfObject("int check(void *ctx) { return 0; }") as compiled:
            compiled.load("check", ProgramType.TRACEPOINT)
        return "a program compiles and loads without kernel headers"

    return _tried("BPF", action, "nothing can be recorded; recordings can be read")


def _process(pid: int) -> Iterator[Check]:
    from fencepath._record.targets import check_process

    check_process(pid)
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    filtered = "\nSeccomp:\t2\n" in status
    yield Check(
        name=f"seccomp of {pid}",
        verdict="warn" if filtered else "ok",
        evidence="it has a seccomp filter" if filtered else "no filter",
        cost="if it answers prctl(2) itself, the process's marks are not recorded" if filtered else "",
        remedy="see whether the program says so on standard error, and let prctl(2) pass" if filtered else "",
    )


def _layers() -> Iterator[tuple[str, Check]]:
    from fencepath._record.plan import make_plan

    registry = load_plugins()
    for problem in registry.problems:
        yield (
            problem.plugin,
            Check(name="plugin", verdict="warn", evidence=str(problem), cost="its layer is not recorded"),
        )
    try:
        system = System.here("full")
    except MachineError:
        return
    plan = make_plan(registry, system)
    for planned in plan.sets:
        yield (
            planned.plugin.name,
            Check(name=planned.probe_set.name, verdict="ok", evidence=f"{len(planned.layouts)} kinds can be recorded"),
        )
    for missing in plan.missing:
        yield (
            missing.layer,
            Check(name=missing.probe, verdict="degrade", evidence=missing.why, cost="these events are not recorded"),
        )
    for plugin, checks in registry.collect("fencepath_checks", system=system):
        for check in checks:
            yield plugin.name, check
