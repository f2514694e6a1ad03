# SPDX-License-Identifier: Apache-2.0
"""Ids of traces and spans, the same however often a recording is exported.

Both are BLAKE2b of fields as UTF-8 text with a zero byte between them:

- trace: the request's own, else BLAKE2b-128 of (boot id, request id);
- span: BLAKE2b-64 of (trace id as 32 hex digits, boot id, request id, span name, start in ns of CLOCK_MONOTONIC, id of the
  activity or "").

The id 0 is invalid for OpenTelemetry; where a hash gives it, 1 stands for it.
"""

from __future__ import annotations

import hashlib

from fencepath.requests import Request

__all__ = ["span_id", "trace_id"]


def trace_id(boot_id: str, request: Request) -> int:
    """Return the 128-bit trace id of a request."""
    own = int(request.trace_id or "0", 16)
    return own or _hash(16, boot_id, request.id)


def span_id(boot_id: str, request: Request, name: str, start_ns: int, activity_id: str = "") -> int:
    """Return the 64-bit id of a span.

    Args:
        boot_id: of the recorded kernel.
        request: the request the span belongs to.
        name: of the span.
        start_ns: begin, CLOCK_MONOTONIC.
        activity_id: 16 hex digits of the activity that the span shows, "" if none.
    """
    trace = f"{trace_id(boot_id, request):032x}"
    return _hash(8, trace, boot_id, request.id, name, str(start_ns), activity_id)


def _hash(size: int, *fields: str) -> int:
    digest = hashlib.blake2b("\0".join(fields).encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1
