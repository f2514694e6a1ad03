# SPDX-License-Identifier: Apache-2.0
"""The functions of libacme that are recorded, as data, by acme.h.

Slots count the arguments from 0. ``detail`` is the least at which a function is probed: what a thread can block in is
worth it always (``sync``), what hands work over where paths are wanted (``launch``).
"""

from __future__ import annotations

from fencepath.calls import Arg, CallTable, Function, Out

from fencepath_acme.events import STREAM_CREATE, STREAM_DESTROY, SUBMIT, WAIT

__all__ = ["TABLE"]

_STREAM = Arg("stream_handle", 0)

TABLE = CallTable(
    "acme",
    ("libacme.so", "libacme.so.*"),
    (
        Function("acme_stream_create", STREAM_CREATE, out=(Out("stream_handle", 0),), group="streams", detail="sync"),
        Function("acme_stream_destroy", STREAM_DESTROY, (_STREAM,), group="streams", detail="sync"),
        Function(
            "acme_submit", SUBMIT, (_STREAM, Arg("kernel", 1, "u32"), Arg("bytes", 2)), group="jobs", detail="launch"
        ),
        Function("acme_wait", WAIT, (_STREAM,), group="jobs", detail="sync"),
    ),
)
