# SPDX-License-Identifier: Apache-2.0
"""Two copies of the runtime library in one process, used in turns; with their paths as arguments.

Each is used only once somebody has put a probe into it, so that whoever looks for libraries that are loaded late has the
time for it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

from plugins.cuda.tests.faults.programs.library import Library

__all__ = ["TURNS"]

TURNS = 23
_BREAKPOINT = 0xCC
_LONGEST_S = 20.0


def await_probe(library: Library) -> bool:
    """Wait for a probe in a function: it begins with another instruction then."""
    at = library.address("cudaStreamCreate")
    end = time.monotonic() + _LONGEST_S
    while ctypes.string_at(at, 1)[0] != _BREAKPOINT:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def use(runtime: Library) -> None:
    """Copy and wait on a stream of its own."""
    stream, memory = runtime.make("cudaStreamCreate"), runtime.make("cudaMalloc", 4096)
    for function, *arguments in (
        ("cudaMemsetAsync", memory, 1, 512, stream),
        ("cudaStreamSynchronize", stream),
        ("cudaFree", memory),
        ("cudaStreamDestroy", stream),
    ):
        assert runtime.call(str(function), *arguments) == 0, function


def main(*paths: str) -> None:
    """Use the copies in turns."""
    copies = [Library(path) for path in paths]
    probed = [await_probe(copy) for copy in copies]
    for _ in range(TURNS):
        for copy in copies:
            use(copy)
    print(json.dumps({"probed": probed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
