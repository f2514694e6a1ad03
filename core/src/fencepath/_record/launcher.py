# SPDX-License-Identifier: Apache-2.0
"""Runs as a process of its own: waits to be released, gives up privileges, and becomes the command.

Started by :mod:`fencepath._record.command` as ``python -I -S launcher.py RELEASE_FD REPORT_FD UID GID HAS_USER NAME COMMAND...``. The
pid stays the same, so that the recorder can make it a target before the command's first instruction. Only the standard
library is used, and everything that Python set up for itself and that exec would hand on is put back.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Wait, drop privileges, exec. An exec that fails is reported as its errno on the report descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    release, report, uid, gid = (int(word) for word in sys.argv[1:5])
    name, command = sys.argv[5], sys.argv[6:]
    os.set_inheritable(release, False)
    os.set_inheritable(report, False)
    if os.read(release, 1) != b"g":
        os._exit(125)
    try:
        if uid >= 0:
            os.initgroups(name, gid) if name else os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        # Python ignores these and exec would keep them ignored
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        os.write(report, str(error.errno or 0).encode())
        os._exit(126)


main()
