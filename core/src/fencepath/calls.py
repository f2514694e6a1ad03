# SPDX-License-Identifier: Apache-2.0
"""Functions of user-space APIs (CUDA, HIP, Level Zero), declared as data.

A plugin lists its functions in a :class:`CallTable`. From it come the BPF programs that record the calls, the record
layouts, the decoder and the docs::

    TABLE = CallTable(
        "hip",
        ("libamdhip64.so.6", "libamdhip64.so"),
        [
            Function("hipStreamSynchronize", "hip.stream.synchronize", (Arg("stream", 0),), detail="sync"),
            Function("hipMalloc", "hip.malloc", (Arg("bytes", 1),), out=(Out("address", 0),), detail="launch"),
        ],
    )
    columns = TABLE.decode("hip.malloc", records, functions)
    columns["bytes"], columns["address"], columns.has("address")

:class:`EntryState` reads the calls that have not returned.
"""

from fencepath._calls.captures import Capture, Shape
from fencepath._calls.decode import DecodedCalls
from fencepath._calls.docs import FunctionRow
from fencepath._calls.entries import Abandoned, End, EntryState
from fencepath._calls.functions import TEXT_BYTES, Arg, Detail, Function, Out, Read, Text
from fencepath._calls.programs import Program
from fencepath._calls.table import CallTable

__all__ = [
    "TEXT_BYTES",
    "Abandoned",
    "Arg",
    "CallTable",
    "Capture",
    "DecodedCalls",
    "Detail",
    "End",
    "EntryState",
    "Function",
    "FunctionRow",
    "Out",
    "Program",
    "Read",
    "Shape",
    "Text",
]
