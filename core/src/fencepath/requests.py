# SPDX-License-Identifier: Apache-2.0
"""Requests: windows of time with an identity, found in events by request sources (marks, and plugins' own)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

import msgspec

from fencepath.entities import NO_ENTITY
from fencepath.joins import View

__all__ = ["PhaseSpan", "Request", "RequestSource", "RequestState"]


class RequestState(enum.StrEnum):
    """Whether both ends of a request were seen."""

    COMPLETE = "complete"
    OPEN = "open"
    """The end was not seen; ``end_ns`` is the end of the recording."""
    BEGIN_UNKNOWN = "begin_unknown"
    """The begin was not seen; ``start_ns`` is the begin of the recording."""


class PhaseSpan(msgspec.Struct, frozen=True):
    """A phase of a request: queue, prefill or decode. Times are CLOCK_MONOTONIC in ns."""

    begin_ns: int
    end_ns: int
    phase: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Times are CLOCK_MONOTONIC in ns.

    Attributes:
        key: the program's own id, or 16 hex digits if that was not seen.
        number: 64-bit identity that marks carry.
        start_ns: begin.
        end_ns: end.
        state: see :class:`RequestState`.
        start_thread: entity id of the thread that began it.
        end_thread: entity id of the thread that ended it; the path walk starts there.
        trace_id: 32 hex digits of the distributed trace it belongs to, "" if it brought none.
        parent_span_id: 16 hex digits of the span that caused it, "" if none.
        trace_flags: W3C trace flags.
        first_token_ns: when the first token was there; None if not known.
        token_ns: when each known token was there, by its index from 1.
        phases: as marked, ascending, without overlap.
        attributes: what the program said of it.
    """

    key: str
    number: int
    start_ns: int
    end_ns: int
    state: RequestState = RequestState.COMPLETE
    start_thread: int = NO_ENTITY
    end_thread: int = NO_ENTITY
    trace_id: str = ""
    parent_span_id: str = ""
    trace_flags: int = 0
    first_token_ns: int | None = None
    token_ns: dict[int, int] = {}
    phases: tuple[PhaseSpan, ...] = ()
    attributes: dict[str, str] = {}

    @property
    def id(self) -> str:
        """``<key>@<start_ns>``: unique within a recording."""
        return f"{self.key}@{self.start_ns}"


class RequestSource(Protocol):
    """Finds requests. Called once with everything, offline."""

    def requests(self, view: View) -> Iterable[Request]:
        """Return the requests, in any order. An exception isolates the source; the report says so."""
        ...
