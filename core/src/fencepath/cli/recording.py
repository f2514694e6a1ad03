# SPDX-License-Identifier: Apache-2.0
"""``fencepath record``."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer
from rich.console import Console

from fencepath.cli.exits import Exit
from fencepath.errors import MachineError, UsageError

if TYPE_CHECKING:
    from fencepath._record.recorder import Recorder
    from fencepath.plugin import Detail

__all__ = ["record"]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SIZE = re.compile(r"(\d+)(KiB|MiB|GiB|k|M|G)?")
_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {None: 1, "k": 1000, "M": 10**6, "G": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def record(
    command: Annotated[list[str] | None, typer.Argument(help="Command to run and record, after --.", metavar="-- COMMAND...")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write; default NAME-TIME.fencepath here.")] = None,
    pid: Annotated[int | None, typer.Option("--pid", help="Record this process, its children and all it will create.")] = None,
    layers: Annotated[str | None, typer.Option("--layers", help="Layers to record, separated by commas; default all.")] = None,
    detail: Annotated[str | None, typer.Option("--detail", help="sync, launch or full; default sync with --pid, launch with a COMMAND.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Record the end of hot asynchronous calls too (a return probe each).")] = False,
    duration: Annotated[str | None, typer.Option("--duration", help="Stop after this long: 30s, 5m. A COMMAND goes on running.")] = None,
    keep: Annotated[str | None, typer.Option("--keep", help="Drop segments older than this: 10m.")] = None,
    max_size: Annotated[str | None, typer.Option("--max-size", help="Drop the oldest segments beyond this size: 2GiB.")] = None,
    as_root: Annotated[bool, typer.Option("--as-root", help="Run the COMMAND as root, not as the user who called sudo.")] = False,
    no_returns: Annotated[bool, typer.Option("--no-returns", help="Use no return probes: ends of calls are not recorded.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard error.")] = False,
) -> None:
    """Record a command or a running process.

    Needs root. The command runs as you, in your environment; its output, exit code and signals are its own.
    """
    from fencepath._record.command import invoking_identity

    if (pid is None) == (not command):
        raise UsageError("name what to record: either --pid PID or -- COMMAND")
    asked = _detail(detail, "sync" if pid is not None else "launch")
    identity = invoking_identity(os.environ, as_root=as_root)
    path = output or _default_path(command, pid)
    require_root()
    run = _Run(path=path, as_json=as_json, limit_s=_seconds(duration))
    options: dict[str, Any] = {
        "detail": asked,
        "exact": exact,
        "returns": not no_returns,
        "keep_ns": None if keep is None else int((_seconds(keep) or 0) * 1e9),
        "max_bytes": _size(max_size),
        "owner": identity.owner,
        "targets": (f"pid {pid}",) if pid is not None else (f"command {Path(command[0]).name}",) if command else (),
    }
    chosen = None if layers is None else [name.strip() for name in layers.split(",") if name.strip()]
    if identity.said:
        run.say(identity.said)
    code = run.process(pid, chosen, options) if pid is not None else run.command(command or [], identity, chosen, options)
    raise typer.Exit(code)


def require_root() -> None:
    """Refuse early, in one line, what would fail late in many.

    Raises:
        MachineError: not root.
    """
    if os.geteuid() != 0:
        raise MachineError("recording needs root", "run it with sudo; reading a recording does not")


def _detail(text: str | None, default: Detail) -> Detail:
    if text is None:
        return default
    for known in ("sync", "launch", "full"):
        if text == known:
            return cast("Detail", known)
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


def _default_path(command: list[str] | None, pid: int | None) -> Path:
    name = Path(command[0]).name if command else f"pid{pid}"
    return Path(f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}.fencepath")


class _Run:
    """One recording from the command line."""

    def __init__(self, path: Path, *, as_json: bool, limit_s: float | None) -> None:
        self._path = path
        self._as_json = as_json
        self._limit_s = limit_s
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._stopped = 0

    def say(self, text: str) -> None:
        if not self._as_json:
            self._console.print(f"fencepath: {text}", markup=False)

    def process(self, pid: int, layers: list[str] | None, options: Mapping[str, Any]) -> int:
        """Record a running process until it ends, the time is over or a signal comes."""
        from fencepath._record.targets import descendants, process_exists

        if not process_exists(pid):
            raise UsageError(f"there is no process {pid}; give the pid of a running one")
        with _signals(self._stop), self._recorder(layers, options) as recorder:
            for member in descendants(pid):
                if process_exists(member):
                    recorder.add(member)
            self._started(recorder)
            recorder.run(self._until(lambda: not process_exists(pid)))
        self._result(recorder)
        return int(Exit.DONE)

    def command(self, argv: list[str], identity: object, layers: list[str] | None, options: Mapping[str, Any]) -> int:
        """Record a command until it ends; its exit code is passed on."""
        from fencepath._record.command import HeldCommand, Identity

        assert isinstance(identity, Identity)
        held = HeldCommand(argv, identity)
        code: int | None = None
        try:
            with _signals(self._forward(held)), self._recorder(layers, options) as recorder:
                recorder.expect(argv[0], identity.environ)
                recorder.add(held.pid)
                self._started(recorder)
                code = held.release()
                if code is None:
                    recorder.run(self._until(lambda: held.poll() is not None))
                    code = held.poll()
        except BaseException:
            held.abandon() if code is None and held.held else None
            raise
        self._result(recorder)
        if code in (126, 127):
            self.say(f"cannot run {argv[0]}: {'no such command' if code == 127 else 'it cannot be started'}")
        return held.wait() if code is None else code

    @contextmanager
    def _recorder(self, layers: list[str] | None, options: Mapping[str, Any]) -> Iterator[Recorder]:
        from fencepath._loader import load_plugins
        from fencepath._record.plan import make_plan
        from fencepath._record.recorder import Options, Recorder
        from fencepath.system import System

        settings = msgspec.convert(options, Options)
        system = System.here(settings.detail)
        plan = make_plan(load_plugins(), system, layers)
        with Recorder(self._path, plan, system, settings) as recorder:
            yield recorder

    def _until(self, ended: Callable[[], bool]) -> Callable[[], bool]:
        end_s = None if self._limit_s is None else time.monotonic() + self._limit_s

        def done() -> bool:
            return ended() or self._stopped > 0 or (end_s is not None and time.monotonic() >= end_s)

        return done

    def _stop(self, number: int) -> None:
        del number
        self._stopped += 1

    def _forward(self, held: object) -> Callable[[int], None]:
        """Signals from the terminal reach the command by themselves; one sent to fencepath alone is handed on."""

        def handle(number: int) -> None:
            from fencepath._record.command import HeldCommand

            assert isinstance(held, HeldCommand)
            if held.held:
                self._stopped += 1
                raise KeyboardInterrupt
            if number != signal.SIGINT or not os.isatty(0):
                held.signal(number)

        return handle

    def _started(self, recorder: Recorder) -> None:
        for item in recorder.missing:
            self.say(f"not recorded: {item.layer}: {item.why}")
        self.say(f"recording to {self._path}")

    def _result(self, recorder: Recorder) -> None:
        if self._as_json:
            result = {"recording": str(self._path), "events": recorder.counts, "missing": [msgspec.to_builtins(m) for m in recorder.missing]}
            self._console.file.write(msgspec.json.encode(result).decode() + "\n")
            return
        self.say(f"{sum(recorder.counts.values())} events in {self._path}; next: fencepath report {self._path}")


@contextmanager
def _signals(handle: Callable[[int], None]) -> Iterator[None]:
    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        handle(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
