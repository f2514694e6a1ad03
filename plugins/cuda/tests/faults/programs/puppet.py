# SPDX-License-Identifier: Apache-2.0
"""Calls CUDA as it is told to: reads calls as JSON from standard input, one a line, and prints what becomes of each.

``{"call": NAME, "arguments": [...]}``: an argument is a number, ``{"out": VARIABLE}`` to have something written to a
variable, ``{"value": VARIABLE}`` for what it has, ``{"text": ...}``, or ``{"reader": FILE}``: a host function that comes back once it has read a file to its end. It says ``{"calling": NAME}`` before the call and
``{"result": N}`` after it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from plugins.cuda.tests.faults.programs.library import Library, Out

__all__: list[str] = []


_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def read(path: str, data: int) -> None:
    """A host function: waits for the end of a file."""
    del data
    Path(path).read_bytes()


def say(**what: Any) -> None:
    """Print."""
    print(json.dumps(what), flush=True)


def main(path: str) -> None:
    """Serve until standard input ends."""
    cuda = Library(path)
    variables: dict[str, Out] = {}
    functions: list[Any] = []

    def meant(argument: Any) -> Any:
        if isinstance(argument, int):
            return argument
        ((kind, value),) = argument.items()
        if kind == "text":
            return str(value).encode()
        if kind == "reader":
            functions.append(_HostFunction(partial(read, value)))
            return ctypes.cast(functions[-1], ctypes.c_void_p).value
        return variables.setdefault(value, Out()) if kind == "out" else variables[value].value

    say(pid=os.getpid())
    for line in sys.stdin:
        asked = json.loads(line)
        say(calling=asked["call"])
        say(result=cuda.call(asked["call"], *map(meant, asked["arguments"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
