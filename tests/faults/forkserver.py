# SPDX-License-Identifier: Apache-2.0
"""Runs the command line many times without loading Python and fencepath's modules each time.

Started by :class:`tests.faults.commandline.ForkServer`. Each line on standard input is a JSON object with ``argv``,
``stdout`` and ``stderr`` (files); a child is made of it that calls the command line's ``main``, and a line with its pid
is printed. When one has ended, a line with its pid and wait status is printed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import sys
from typing import Any

from fencepath._bpf.bcc import import_bcc
from fencepath._loader import load_plugins
from fencepath._record.plan import make_plan
from fencepath.cli import main
from fencepath.system import System

__all__: list[str] = []


def preload() -> None:
    """Load what else would be loaded when it is needed first."""
    for name in ("analysis", "cli.application", "_record.command", "_record.recorder"):
        importlib.import_module(f"fencepath.{name}")
    registry = load_plugins()
    if os.geteuid() == 0:
        import_bcc()
        make_plan(registry, System.here("launch"))


def run(request: dict[str, Any]) -> None:
    """Become a process that was started with this command line."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    error = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, fd in enumerate((null, out, error)):
        os.dup2(fd, number)
    sys.argv = ["fencepath", *request["argv"]]
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - they live as long as this
    try:
        main()
    except SystemExit as end:
        # Python's own end would touch, and so copy, all memory that is shared with the parent.
        atexit._run_exitfuncs()
        sys.stderr.flush()
        with contextlib.suppress(AttributeError):  # None after a broken pipe
            sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1 if end.code else 0)


def say(**what: Any) -> None:
    """Answer."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def reap() -> None:
    """Tell which children have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say(pid=pid, status=status)


def serve() -> None:
    """Serve until standard input ends."""
    ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(ended, selectors.EVENT_READ)
    pending = b""
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if ended in ready:
            os.read(ended, 4096)
            reap()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                selector.close()
                run(json.loads(line))
            say(pid=pid)


if __name__ == "__main__":
    preload()
    gc.collect()
    gc.freeze()
    serve()
