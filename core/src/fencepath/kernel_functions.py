# SPDX-License-Identifier: Apache-2.0
"""Functions inside the kernel and its drivers, where kernel probes (kprobes) may be attached.

A plugin declares :class:`FunctionRecord` as data: which functions, by all the names they have had, and which of their arguments.
Core makes the programs at their begin and return, and one event of each call. Functions are no interface: they come, go and
change with every version, and the kernel of many a machine lets nobody probe them. So what a layer is for must never depend on them;
they add what no tracepoint tells.
"""

from __future__ import annotations

from fencepath._kernel_functions.declare import (
    FunctionRecord,
    FunctionValue,
    KernelFunction,
    NoFunctions,
    ResolvedFunctions,
)
from fencepath._kernel_functions.decode import decode_functions

__all__ = [
    "FunctionRecord",
    "FunctionValue",
    "KernelFunction",
    "NoFunctions",
    "ResolvedFunctions",
    "decode_functions",
]
