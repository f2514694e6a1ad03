# SPDX-License-Identifier: Apache-2.0
"""What the calls say of code: kernels' host functions, and functions of the driver that are handed out by address."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from fencepath.calls import CallTable
from fencepath.modules import CodeAddresses, CodeUse, HandedOut, Registration
from fencepath_cuda.functions import TABLE

__all__ = ["asked_function", "code_for"]

_SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
_PER_THREAD_STREAM = 2
"""CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM of cuda.h."""


def asked_function(row: Mapping[str, Any]) -> str | None:
    """Return the function of the table that a call of cuGetProcAddress asked for.

    None where the table has several versions of it, which take other arguments: cuda.h does not say from which CUDA version
    on an address is which.
    """
    name = row["name"].decode(errors="replace") if isinstance(row["name"], bytes) else str(row["name"])
    versions = _versions().get((name, bool(int(row["lookup_flags"]) & _PER_THREAD_STREAM)), ())
    versions = versions or _versions().get((name, False), ())
    return versions[0] if len(versions) == 1 else None


@cache
def _versions() -> Mapping[tuple[str, bool], tuple[str, ...]]:
    """Functions by the name they are asked by, and whether handle 0 means the thread's default stream to them."""
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for function in TABLE.functions:
        if function.api == "driver":
            per_thread = bool(function.constants.get("per_thread"))
            for symbol in function.symbols:
                asked = _SUFFIX.sub("", symbol), per_thread
                if function.name not in found[asked]:
                    found[asked].append(function.name)
    return {asked: tuple(names) for asked, names in found.items()}


def code_for(table: CallTable) -> CodeUse:
    """Return what the records of a table say of code. A host function's symbol is its kernel's name, as the compiler mangled it.

    Args:
        table: what is recorded; a function that is handed out and not in it is nobody's.
    """
    recorded = {function.name for function in table.functions}

    def handed_out(row: Mapping[str, Any]) -> str | None:
        name = asked_function(row)
        return name if name in recorded else None

    return CodeUse(
        addresses=(
            CodeAddresses("cuda.runtime.call", ("host_function",)),
            CodeAddresses("cuda.module.kernel", ("host_function",)),
        ),
        registrations=(Registration("__cudaRegisterFunction", address=1, name=3),),
        handed_out=(HandedOut("cuda.proc_address", "address", function=handed_out),),
    )
