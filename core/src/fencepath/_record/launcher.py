# SPDX-License-Identifier: Apache-2.0
"""Runs as a process of its own: waits to be released, gives up privileges, and becomes the command.

Started by :mod:`fencepath._record.command` as ``python -I -S launcher.py RELEASE_FD REPORT_FD BLOCKED UID GID USER COMMAND...``
with all signals blocked. The pid stays the same, so that the recorder can make it a target before the command's first
instruction. Only the standard library is used, and everything that Python set up for itself and that exec would hand on is
put back.

On RELEASE_FD comes the length of the command's environment and the environment, as in /proc/PID/environ; its end without
them means that the recorder is gone. On REPORT_FD goes the step that failed and its errno; its end means that none did.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

_GONE = 125


def main() -> None:
    """Wait, drop privileges, exec."""
    release, report, uid, gid = (int(sys.argv[index]) for index in (1, 2, 4, 5))
    blocked, user, command = sys.argv[3], sys.argv[6], sys.argv[7:]
    os.set_inheritable(release, False)
    os.set_inheritable(report, False)
    environ = _wait(release)
    step = "user"
    try:
        if uid >= 0:
            os.initgroups(user, gid) if user else os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        # Python ignores the first two, which exec would keep, and handles the third, which must not happen any more
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        step = "exec"
        signal.pthread_sigmask(signal.SIG_SETMASK, {int(text) for text in blocked.split(",") if text})
        _become(command, environ)
    except OSError as error:
        os.write(report, f"{step} {error.errno or 0}".encode())
    os._exit(126)


def _wait(release: int) -> dict[bytes, bytes]:
    """Wait for the command's environment; end if the recorder went away without giving it."""
    with open(release, "rb") as pipe:
        size, data = pipe.readline(), pipe.read()
    if not size or len(data) != int(size):
        os._exit(_GONE)
    return dict(item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)


def _become(command: list[str], environ: dict[bytes, bytes]) -> None:
    """Exec as execvp(3) does: past what may not be executed, and by the shell what has no format of its own."""
    folders = os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath))).split(os.pathsep)
    paths = [command[0]] if "/" in command[0] else [f"{folder or '.'}/{command[0]}" for folder in folders]
    refused: OSError | None = None
    for path in paths:
        try:
            os.execve(path, command, environ)  # noqa: S606 - what this is for
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], environ)  # noqa: S606 - likewise
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise
            if error.errno == errno.EACCES or refused is None:
                refused = error
    if refused is not None:
        raise refused


main()
