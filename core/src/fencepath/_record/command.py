# SPDX-License-Identifier: Apache-2.0
"""Starts the command to be recorded: held before its first instruction, as the user who asked, in that user's environment."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from fencepath.errors import UsageError

__all__ = ["HeldCommand", "Identity", "NotStarted", "invoking_identity", "started_environ"]

_LAUNCHER = Path(__file__).with_name("launcher.py")
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a command runs as.

    Attributes:
        uid: user, or None for whoever fencepath runs as.
        gid: group, likewise.
        name: user name, for its further groups; "" if it has none.
        environ: environment.
        said: what the user should be told, "" if nothing.
    """

    uid: int | None
    gid: int | None
    name: str
    environ: Mapping[str, str]
    said: str = ""

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom the recording belongs to, None for whoever fencepath runs as."""
        return (self.uid, self.gid) if self.uid is not None and self.gid is not None else None


def started_environ() -> dict[str, str]:
    """Return the environment that this process was started with; Python changes its own (LC_CTYPE in the C locale)."""
    try:
        return _parse_environ(Path("/proc/self/environ").read_bytes())
    except OSError:
        return dict(os.environ)


def invoking_identity(environ: Mapping[str, str], *, as_root: bool) -> Identity:
    """Return who asked for the recording: with sudo the user before it, else the caller.

    The environment is the one sudo was started with, read from the nearest ancestor that is sudo, because sudo itself cleans
    it.
    """
    uid_text, gid_text = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if as_root or os.geteuid() != 0 or not (uid_text.isdigit() and gid_text.isdigit()) or int(uid_text) == 0:
        return Identity(uid=None, gid=None, name="", environ=dict(environ))
    uid, gid = int(uid_text), int(gid_text)
    before = _sudo_environ()
    said = "" if before is not None else "the environment from before sudo cannot be read; the command gets sudo's"
    given = dict(environ if before is None else before)
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(uid=uid, gid=gid, name="", environ=given, said=said)
    given |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell}
    return Identity(uid=uid, gid=gid, name=entry.pw_name, environ=given, said=said)


def _sudo_environ() -> dict[str, str] | None:
    """Environment of the nearest ancestor named sudo that runs as root; None if there is none or it cannot be read."""
    pid = os.getppid()
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            if "Name:\tsudo\n" in status and re.search(r"^Uid:\t\d+\t0\t", status, re.MULTILINE):
                return _parse_environ(Path(f"/proc/{pid}/environ").read_bytes())
            parent = re.search(r"^PPid:\t(\d+)$", status, re.MULTILINE)
        except OSError:
            return None
        pid = int(parent[1]) if parent else 0
    return None


def _parse_environ(data: bytes) -> dict[str, str]:
    pairs = (item.decode(errors="surrogateescape").partition("=") for item in data.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


class NotStarted(msgspec.Struct, frozen=True):
    """Why a command is not running though it was let go.

    Attributes:
        code: exit code that a shell would give: 127 if there is no such command, 126 if it cannot be started.
        why: for the user.
    """

    code: int
    why: str


class HeldCommand:
    """A command whose process is there and does nothing until :meth:`release`.

    It gets what this process was given: open files, ignored signals (but for SIGPIPE and SIGXFSZ, which Python ignores
    itself: they are at their default), limits, terminal. Signals that are sent to it while it is held reach the command.

    Attributes:
        pid: its process, the same before and after.
        held: whether it still waits.
        argv: what it will become.
    """

    def __init__(self, argv: Sequence[str], identity: Identity, blocked: Collection[int] | None = None) -> None:
        """Start the process, held.

        Args:
            argv: the command and its arguments.
            identity: whom it runs as.
            blocked: signals that the command shall have blocked; None: those that this thread has.

        Raises:
            UsageError: an empty command.
        """
        if not argv or not argv[0]:
            raise UsageError("no command was given after --")
        self.argv = tuple(argv)
        self._identity = identity
        release_read, self._release = os.pipe()
        self._report, report_write = os.pipe()
        own = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        mask = ",".join(str(int(number)) for number in (own if blocked is None else blocked))
        words = [
            sys.executable,
            "-I",
            "-S",
            str(_LAUNCHER),
            str(release_read),
            str(report_write),
            mask,
            *_ids(identity),
        ]
        for fd in (release_read, report_write):
            os.set_inheritable(fd, True)
        try:
            # Held, it must not die of a signal: with all of them blocked they wait until it is the command.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._process = subprocess.Popen([*words, *argv], env=_launcher_environ(), pass_fds=_inheritable_files())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, own)
            os.close(release_read)
            os.close(report_write)
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            # Inherited, and so the command's own; here it would throw the exit code away.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.pid = self._process.pid
        self.held = True

    def release(self) -> NotStarted | None:
        """Let it go and wait until it has become the command; return why it has not, or None if it has."""
        self.held = False
        environ = b"\0".join(os.fsencode(f"{name}={value}") for name, value in self._identity.environ.items())
        try:
            with os.fdopen(self._release, "wb", buffering=0) as pipe:
                pipe.write(b"%d\n" % len(environ) + environ)
        except BrokenPipeError:
            pass  # it was killed while it waited: its exit code says by what
        with os.fdopen(self._report, "rb") as pipe:
            report = pipe.read().decode()
        if not report:
            return None
        self._process.wait()
        return self._explain(*report.split())

    def _explain(self, step: str, number: str) -> NotStarted:
        reason = os.strerror(int(number)).lower()
        if step == "user":
            who = f"cannot become user {self._identity.uid}: {reason}; --as-root runs the command as root"
            return NotStarted(126, f"cannot run {self.argv[0]}: {who}")
        if int(number) in _NOT_FOUND:
            return NotStarted(127, f"cannot run {self.argv[0]}: no such command; give a path or a name in PATH")
        return NotStarted(126, f"cannot run {self.argv[0]}: {reason}")

    def abandon(self) -> None:
        """End it before it became the command."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def poll(self) -> int | None:
        """Return its exit code if it has ended, 128 + n if by signal n, else None."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self) -> int:
        """Wait for its end and return its exit code, as :meth:`poll`."""
        self._process.wait()
        code = self.poll()
        assert code is not None
        return code

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)


def _ids(identity: Identity) -> tuple[str, str, str]:
    uid = -1 if identity.uid is None else identity.uid
    gid = -1 if identity.gid is None else identity.gid
    return str(uid), str(gid), identity.name


def _inheritable_files() -> list[int]:
    """Files that were opened for the command by whoever started this; what is opened here closes on exec.

    Named one by one: without closing any, Popen uses posix_spawn(3), whose children ignore signals 32 and 33.
    """
    fds = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names, of which one is gone by now
    found: list[int] = []
    for fd in fds:
        with contextlib.suppress(OSError):
            if fd > 2 and os.get_inheritable(fd):
                found.append(fd)
    return found


def _launcher_environ() -> dict[str, str]:
    """What the launcher's Python itself may need; anything else (LD_PRELOAD, LD_DEBUG) is meant for the command alone."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
