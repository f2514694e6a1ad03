# SPDX-License-Identifier: Apache-2.0
"""The functions of CUDA that are recorded, as data, by the headers of CUDA 12 and 13 (cuda.h, cuda_runtime_api.h).

cuda.h renames functions: what a program calls ``cuMemAlloc`` is exported as ``cuMemAlloc_v2``, and compiled for
per-thread default streams ``cuMemcpyHtoD`` is ``cuMemcpyHtoD_v2_ptds`` and ``cuStreamQuery`` is ``cuStreamQuery_ptsz``.
Those mean another stream by handle 0, so they are functions of their own here, with the constant ``per_thread``. Left
out are versions that take 32-bit device pointers (``cuMemAlloc`` without suffix), which no program has been compiled
against since CUDA 3.2, and functions that are called thousands of times a token and say nothing (cuCtxGetDevice).

Which default stream a function without a stream argument works on is a constant too: ``stream_handle=0``.

Which detail a function is on at: ``sync`` has waits and what may wait for the device or load code, and the life of
contexts, streams and CUDA events; ``launch`` what is put on streams, and graphs and kernels by name; ``full`` queries
and the runtime API.
"""

from __future__ import annotations

from functools import cache

from fencepath.calls import CallTable
from fencepath.plugin import Detail
from fencepath_cuda.functions.base import Functions
from fencepath_cuda.functions.context import CONTEXTS
from fencepath_cuda.functions.graph import GRAPHS
from fencepath_cuda.functions.launch import LAUNCHES
from fencepath_cuda.functions.memory import MEMORY
from fencepath_cuda.functions.module import MODULES
from fencepath_cuda.functions.runtime import RUNTIME
from fencepath_cuda.functions.stream import STREAMS
from fencepath_cuda.functions.transfer import TRANSFERS

__all__ = ["DRIVER_LIBRARIES", "RUNTIME_LIBRARIES", "TABLE", "table_for"]

DRIVER_LIBRARIES = ("libcuda.so*",)
RUNTIME_LIBRARIES = ("libcudart.so*", "libcudart-*.so*")
"""The second is what auditwheel makes of the first when a wheel brings its own copy."""

_FUNCTIONS: Functions = (
    *LAUNCHES,
    *STREAMS,
    *TRANSFERS,
    *MEMORY,
    *GRAPHS,
    *CONTEXTS,
    *MODULES,
    *RUNTIME,
)

TABLE = CallTable("cuda", (*DRIVER_LIBRARIES, *RUNTIME_LIBRARIES), _FUNCTIONS)
"""All functions; what decoders and docs use."""


@cache
def table_for(detail: Detail) -> CallTable:
    """Return the table of what is on at `detail`, which is what gets probed.

    A table of its own, so that a recording declares no kind that it cannot have (rules that need one are off and
    say so), and libcudart is not touched where nothing in it is asked for.
    """
    chosen = TABLE.selected(detail)
    apis = {function.api for function in chosen}
    return CallTable("cuda", TABLE.libraries if "runtime" in apis else DRIVER_LIBRARIES, chosen)
