# SPDX-License-Identifier: Apache-2.0
"""CUDA's driver library through ctypes, for programs that call it in ways no sound program would."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["LaunchConfig", "Library", "Out"]


class Out(ctypes.c_uint64):
    """Where a function writes a handle or an address."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint32),
    )


class Library:
    """A loaded library.

    Attributes:
        calls: names of the functions that were called, in order.
    """

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.calls: list[str] = []

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function. A number is a word, an :class:`Out` is passed by its address, bytes and structures too.

        Returns:
            What it returned: CUresult or cudaError_t.
        """
        self.calls.append(name)
        result: int = self._library[name](*map(_word, arguments))
        return result

    def address(self, name: str) -> int:
        """Return where a function begins."""
        return ctypes.cast(self._library[name], ctypes.c_void_p).value or 0

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function that makes something, which must not fail, and return the handle that it wrote."""
        out = Out()
        result = self.call(name, out, *arguments)
        assert result == 0, (name, result)
        return out.value


def _word(argument: Any) -> Any:
    if isinstance(argument, Out | ctypes.Structure):
        return ctypes.byref(argument)
    return ctypes.c_uint64(argument) if isinstance(argument, int) else argument
