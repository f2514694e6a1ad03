# SPDX-License-Identifier: Apache-2.0
"""``fencepath record``."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from fencepath._text import cut_list
from fencepath.cli.exits import Exit
from fencepath.cli.messages import say, write_error_line
from fencepath.errors import FencepathError, UsageError

if TYPE_CHECKING:
    from fencepath._doctor.gate import Gate
    from fencepath._record.cgroups import Cgroup
    from fencepath._record.command import HeldCommand, Identity
    from fencepath._record.recorder import Recorder
    from fencepath._record.signals import Signals
    from fencepath.plugin import Detail

__all__ = ["record"]

_LOOK_S = 0.02
_MEMBERS_S = 0.25
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SIZE = re.compile(r"(\d+)(KiB|MiB|GiB|k|M|G)?")
_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {None: 1, "k": 1000, "M": 10**6, "G": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def record(
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run and record, after --.", metavar="-- COMMAND...")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write; default NAME-TIME.fencepath here.")
    ] = None,
    pid: Annotated[
        int | None, typer.Option("--pid", help="Record this process, its children and all it will create.")
    ] = None,
    cgroup: Annotated[
        str | None,
        typer.Option(
            "--cgroup",
            help="Record who is, or will be, in this cgroup or below: a folder, or a path as /system.slice/a.service.",
        ),
    ] = None,
    container: Annotated[
        str | None, typer.Option("--container", help="Record this container: its id, or the first 12 digits or more.")
    ] = None,
    pod: Annotated[str | None, typer.Option("--pod", help="Record the Kubernetes pod with this UID.")] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Layers to record, separated by commas; default all.")
    ] = None,
    detail: Annotated[
        str | None,
        typer.Option("--detail", help="sync, launch or full; default launch with a COMMAND, else sync."),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact/--entry-only",
            help="Record the end of frequent asynchronous calls (launches) too, or only their begin: cheaper, and a bound.",
        ),
    ] = True,
    duration: Annotated[
        str | None, typer.Option("--duration", help="Stop after this long: 30s, 5m. A COMMAND goes on running.")
    ] = None,
    keep: Annotated[str | None, typer.Option("--keep", help="Drop segments older than this: 10m.")] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Drop the oldest segments beyond this size: 2GiB.")
    ] = None,
    as_root: Annotated[
        bool, typer.Option("--as-root", help="Run the COMMAND as root, not as the user who called sudo.")
    ] = False,
    no_returns: Annotated[
        bool, typer.Option("--no-returns", help="Use no return probes: ends of calls are not recorded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard error.")] = False,
) -> None:
    """Record a command, a running process, or who is in a cgroup, a container or a pod.

    Needs root, or CAP_BPF and CAP_PERFMON. The command runs as you, in your environment; its output, exit code and signals are its own.
    """
    from fencepath._record.command import invoking_identity, started_environ

    target = _target(command or [], pid, cgroup, container, pod)
    identity = invoking_identity(started_environ(), as_root=as_root)
    path = output or _default_path(target.name)
    run = _Run(path=path, as_json=as_json, limit_s=_seconds(duration))
    options: dict[str, Any] = {
        "detail": _detail(detail, "launch" if command else "sync"),
        "exact": exact,
        "returns": not no_returns,
        "keep_ns": None if keep is None else int((_seconds(keep) or 0) * 1e9),
        "max_bytes": _size(max_size),
        "owner": identity.owner,
        "targets": (target.words,),
        "cgroup": target.cgroup.id if target.cgroup else None,
    }
    chosen = None if layers is None else [name.strip() for name in layers.split(",") if name.strip()]
    if identity.said:
        run.say(identity.said)
    if target.cgroup is not None:
        code = run.members(target.cgroup, chosen, options)
    elif pid is not None:
        code = run.process(pid, chosen, options)
    else:
        code = run.command(command or [], identity, chosen, options)
    raise typer.Exit(code)


class _Target(NamedTuple):
    """What is recorded.

    Attributes:
        name: for the recording's folder.
        words: for the manifest.
        cgroup: if it is one.
    """

    name: str
    words: str
    cgroup: Cgroup | None = None


def _target(command: list[str], pid: int | None, cgroup: str | None, container: str | None, pod: str | None) -> _Target:
    from fencepath._record.cgroups import find_cgroup, find_container, find_pod

    if [bool(command), *(given is not None for given in (pid, cgroup, container, pod))].count(True) != 1:
        raise UsageError(
            "name what to record: one of --pid PID, --cgroup PATH, --container ID, --pod UID or -- COMMAND"
        )
    if container is not None:
        return _Target(f"container-{container[:12]}", f"container {container}", find_container(container))
    if pod is not None:
        return _Target(f"pod-{pod[:8]}", f"pod {pod}", find_pod(pod))
    if cgroup is not None:
        found = find_cgroup(cgroup)
        return _Target(found.folder.name, f"cgroup {found.name}", found)
    if pid is not None:
        return _Target(f"pid{pid}", f"pid {pid}")
    return _Target(Path(command[0]).name, f"command {Path(command[0]).name}")


def check_machine() -> None:
    """Refuse early, in one line, what would fail late in many.

    Raises:
        MachineError: nothing can be recorded here: a capability is missing, or processes have other numbers than the kernel's.
    """
    from fencepath._doctor.gate import open_gate

    open_gate()


def _detail(text: str | None, default: Detail) -> Detail:
    if text is None:
        return default
    for known in ("sync", "launch", "full"):
        if text == known:
            return known
    raise UsageError(f"unknown detail {text!r}; use sync, launch or full")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot read the duration {text!r}; write 500ms, 30s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot read the size {text!r}; write 500MiB or 2GiB")
    return int(match[1]) * _BYTES[match[2]]


def _default_path(name: str) -> Path:
    return Path(f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.fencepath")


class _Run:
    """One recording from the command line."""

    def __init__(self, path: Path, *, as_json: bool, limit_s: float | None) -> None:
        self._path = path
        self._as_json = as_json
        self._limit_s = limit_s
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """Write a line to standard error, once; with ``--json`` the result is all that is written there."""
        if not self._as_json and text not in self._said:
            self._said.add(text)
            say(text)

    def process(self, pid: int, layers: list[str] | None, options: Mapping[str, Any]) -> int:
        """Record a running process until it ends, the time is over or a signal comes."""
        from fencepath._record.signals import ENDING, Signals
        from fencepath._record.targets import check_process, descendants, process_exists

        check_process(pid)
        with Signals(ENDING) as signals:
            with self._recorder(layers, options, signals, pid) as recorder:
                recorder.add(pid)
                for member in descendants(pid):
                    if member != pid and process_exists(member):
                        recorder.add(member)
                self._started(recorder)
                recorder.run(self._until(lambda: signals.take() is not None or not process_exists(pid)))
            self._result(recorder)
        return int(Exit.DONE)

    def members(self, cgroup: Cgroup, layers: list[str] | None, options: Mapping[str, Any]) -> int:
        """Record who is in a cgroup, until it is removed, the time is over or a signal comes."""
        from fencepath._record.signals import ENDING, Signals

        with Signals(ENDING) as signals:
            with self._recorder(layers, options, signals) as recorder:
                joined = _Joined(cgroup, recorder)
                joined.look()
                self._started(recorder)
                recorder.run(self._until(lambda: signals.take() is not None or not joined.look()))
            self._result(recorder)
        return int(Exit.DONE)

    def command(self, argv: list[str], identity: Identity, layers: list[str] | None, options: Mapping[str, Any]) -> int:
        """Record a command until it ends; its exit code is passed on, whatever becomes of the recording."""
        from fencepath._record.command import HeldCommand
        from fencepath._record.signals import PASSED_ON, Signals

        with Signals(PASSED_ON) as signals:
            held = HeldCommand(argv, identity, signals.outer)
            try:
                code = self._record_command(held, identity, layers, options, signals)
            except BaseException as error:
                if held.held:
                    return self._never_started(held, error)
                if isinstance(error, FencepathError):
                    say(f"the recording ended before the command: {error}")
                code = self._outlast(held, signals)
                if not isinstance(error, FencepathError):
                    raise
            return self._outlast(held, signals) if code is None else code

    def _never_started(self, held: HeldCommand, error: BaseException) -> int:
        """Give the command up; return its exit code if somebody has ended it, else raise why."""
        code = held.poll()
        held.abandon()
        if code is None or not isinstance(error, UsageError):
            raise error
        say("the command's process was ended before it was started; nothing was recorded")
        return code

    def _record_command(
        self,
        held: HeldCommand,
        identity: Identity,
        layers: list[str] | None,
        options: Mapping[str, Any],
        signals: Signals,
    ) -> int | None:
        """Return the command's exit code, None if it still runs."""
        with self._recorder(layers, options, signals) as recorder:
            recorder.expect(held.argv[0], identity.environ)
            recorder.add(held.pid)
            self._started(recorder)
            _give_up_if_asked(signals)
            not_started = held.release()
            if not_started is None:
                recorder.run(self._until(lambda: _pass_on(signals, held) is not None))
        if not_started is not None:
            say(not_started.why)
            return not_started.code
        self._result(recorder)
        return held.poll()

    def _outlast(self, held: HeldCommand, signals: Signals) -> int:
        """Wait for the command, of which no more is recorded, and return its exit code."""
        while (code := _pass_on(signals, held, _LOOK_S)) is None:
            pass
        return code

    @contextlib.contextmanager
    def _recorder(
        self, layers: list[str] | None, options: Mapping[str, Any], signals: Signals, pid: int | None = None
    ) -> Generator[Recorder]:
        from fencepath._doctor.gate import check_uprobes
        from fencepath._loader import load_plugins
        from fencepath._record.plan import make_plan
        from fencepath._record.recorder import Options, Recorder
        from fencepath.system import System

        gate = self._open_gate(pid)
        settings = msgspec.convert(
            {**options, "returns": options["returns"] and gate.returns, "checks": gate.checks}, Options
        )
        system = System.here(settings.detail)
        plan = make_plan(load_plugins(), system, layers)
        if any(planned.tables for planned in plan.sets):
            check_uprobes(gate.checks)
        with Recorder(self._path, plan, system, settings, proceed=lambda: _give_up_if_asked(signals)) as recorder:
            yield recorder

    def _open_gate(self, pid: int | None) -> Gate:
        """Look at the machine and say what is left out. Within the signals: it imports what starts threads."""
        from fencepath._doctor.gate import open_gate

        gate = open_gate(pid)
        for check in gate.checks:
            if check.verdict == "degrade":
                self.say(f"{check.name}: {check.evidence}; {check.cost}; {check.remedy}".removesuffix("; "))
        return gate

    def _until(self, ended: Callable[[], bool]) -> Callable[[], bool]:
        end_s = None if self._limit_s is None else time.monotonic() + self._limit_s
        return lambda: ended() or (end_s is not None and time.monotonic() >= end_s)

    def _started(self, recorder: Recorder) -> None:
        self._say_missing(recorder)
        self.say(f"recording to {self._path}")

    def _say_missing(self, recorder: Recorder) -> None:
        for item in recorder.missing:
            self.say(f"not recorded: {item.layer}: {cut_list(item.why)}")

    def _result(self, recorder: Recorder) -> None:
        if self._as_json:
            missing = [msgspec.to_builtins(item) for item in recorder.missing]
            counts = {kind: count for kind, count in recorder.counts.items() if count}
            cost = msgspec.to_builtins(recorder.estimate)
            result = {"recording": str(self._path), "events": counts, "missing": missing, "cost": cost}
            write_error_line(msgspec.json.encode(result).decode())
            return
        self._say_missing(recorder)
        events = sum(recorder.counts.values())
        if recorder.estimate is not None and recorder.estimate.calls:
            self.say(recorder.estimate.text())
        self.say(f"{events} events in {self._path}; next: fencepath report {self._path}")


class _Joined:
    """Keeps up with who is in a cgroup.

    BPF programs take in whoever forks, execs or maps a program there. Who was there before, was moved in since and has done
    nothing of that, and the threads of all of them, are found by looking.
    """

    def __init__(self, cgroup: Cgroup, recorder: Recorder) -> None:
        self._cgroup = cgroup
        self._recorder = recorder
        self._known: frozenset[int] = frozenset({os.getpid()})
        self._next_s = 0.0

    def look(self) -> bool:
        """Take in who is new, now and then; return whether the cgroup is still there."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return True
        self._next_s = now_s + _MEMBERS_S
        present = frozenset(self._cgroup.processes())
        for pid in sorted(present - self._known):
            # it may have ended by now
            with contextlib.suppress(UsageError):
                self._recorder.add(pid)
        self._known = present | {os.getpid()}
        return self._cgroup.exists()


def _give_up_if_asked(signals: Signals) -> None:
    """End if a signal came before there was anything to record."""
    taken = signals.take()
    if taken is not None:
        say("stopped before the recording began; nothing was recorded")
        raise typer.Exit(128 + taken.number)


def _pass_on(signals: Signals, held: HeldCommand, timeout_s: float = 0.0) -> int | None:
    """Hand on signals to the command; return its exit code if it has ended.

    It is in the process group of fencepath. So it has its own of what the terminal sent; and a signal that it sent to
    its whole group itself has reached it.
    """
    from fencepath._record.targets import is_made_by

    while (taken := signals.take(timeout_s)) is not None:
        if taken.sender and not is_made_by(taken.sender, held.pid):
            held.signal(taken.number)
    return held.poll()
