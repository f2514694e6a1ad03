# SPDX-License-Identifier: Apache-2.0
"""Runs as a process of its own: sets a seccomp filter that refuses uretprobe(2) and calls a function.

Started by :mod:`fencepath._record.return_probes` as ``python -I -S return_probes_child.py CODE_FD BYTES OFFSET``, when a
return probe is on that function. Only the standard library is used.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import resource
import struct
import sys

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_FILTER_MODE = 2
_URETPROBE = 335
_NO_FILTERS = 2

# struct sock_filter: load the number (at 0 of struct seccomp_data); if it is uretprobe(2), answer EPERM; else allow.
_FILTER = struct.pack(
    "HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, _URETPROBE, 0x06, 0, 0, 0x50000 | errno.EPERM, 0x06, 0, 0, 0x7FFF0000
)


def main() -> None:
    """Exit with 0 if the function came back."""
    fd, size, offset = (int(word) for word in sys.argv[1:4])
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    base = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, fd, 0)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(base + offset)
    # an end by signal is one of the answers: nobody is to find a core file of it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    code = ctypes.create_string_buffer(_FILTER, len(_FILTER))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(_FILTER) // 8, ctypes.addressof(code)))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, program, 0, 0):
        sys.exit(_NO_FILTERS)
    function()


main()
