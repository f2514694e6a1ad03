# SPDX-License-Identifier: Apache-2.0
"""What calls name, told with nothing but loops: contexts, streams and CUDA events, and what of the calls is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from plugins.cuda.tests.story import LEGACY, PER_THREAD, Call, Loss

NEVER = 1 << 62
SUBMITTING = (
    "cuda.launch",
    "cuda.graph.launch",
    "cuda.host_func",
    "cuda.memcpy",
    "cuda.memcpy.async",
    "cuda.memset",
    "cuda.malloc",
    "cuda.free",
    "cuda.memory.prefetch",
    "cuda.stream.value",
    "cuda.stream.semaphore",
    "cuda.event.record",
    "cuda.stream.wait_event",
)
SYNCHRONIZING = ("cuda.stream.synchronize", "cuda.event.synchronize", "cuda.context.synchronize")
HANDLES = (
    "cuda.context.create",
    "cuda.context.set",
    "cuda.context.destroy",
    "cuda.stream.create",
    "cuda.event.create",
    "cuda.graph.capture_begin",
    "cuda.graph.capture_end",
    "cuda.graph.instantiate",
)
_CHANGING = ("cuda.context.create", "cuda.context.set", "cuda.context.destroy")
_NAMING = ("cuda.context.create", "cuda.context.set", "cuda.context.synchronize")
SET, PUSH, POP = range(3)

Handle = tuple[int, ...]
T = TypeVar("T")


def last(found: Iterable[T]) -> T | None:
    """The last of several, None of none."""
    return ([None, *found])[-1]


class Names:
    """Everything that a call names, and what is known of it."""

    def __init__(self, calls: Sequence[Call], losses: Sequence[Loss]) -> None:
        self.calls = sorted(calls, key=lambda call: call.begin)
        self._by_end = sorted(calls, key=lambda call: call.end)
        self._losses = losses
        self._known: dict[tuple[str, int], Handle | None] = {}

    def _remember(self, what: str, call: Call, make: Callable[[Call], Handle | None]) -> Handle | None:
        key = what, call.number
        if key not in self._known:
            self._known[key] = make(call)
        return self._known[key]

    def of(self, *kinds: str) -> list[Call]:
        """Calls of some kinds by begin."""
        return [call for call in self.calls if call.kind in kinds]

    def done(self, *kinds: str) -> list[Call]:
        """Calls of some kinds that came back with success, by end."""
        return [call for call in self._by_end if call.kind in kinds and call.done]

    def returned(self, call: Call, kinds: Sequence[str] = (*SUBMITTING, *SYNCHRONIZING)) -> int:
        """When a call is known to have come back: its end, or when its thread made the next call of some kinds."""
        if call.returned:
            return call.end
        return min(
            (each.begin for each in self.of(*kinds) if each.tid == call.tid and each.begin > call.begin), default=NEVER
        )

    def is_sure(self, cause: Call, effect: Call) -> bool:
        return cause.tid == effect.tid or self.returned(cause) <= effect.begin

    def lost(self, begin: int, end: int, *kinds: str) -> bool:
        """Whether records of some kinds may be missing between two times."""
        return any(one.kind in ("", *kinds) and one.from_ns <= end and one.to_ns >= begin for one in self._losses)

    def known_contexts(self, pid: int) -> set[int]:
        """Handles of the contexts that a process made or gave to a thread."""
        made = self.done("cuda.context.create", "cuda.context.set")
        return {call.get("context_handle") for call in made if call.pid == pid} - {0}

    def named_contexts(self, pid: int) -> dict[int, Handle | None]:
        """The contexts that calls of a process name, by handle."""
        calls = (call for kind in _NAMING for call in self._by_end if call.kind == kind)
        naming = [call for call in calls if call.ok and call.pid == pid and call.get("context_handle")]
        return {call.get("context_handle"): self.context(call) for call in naming}

    def current(self, call: Call) -> int:
        """Handle of the context that was current in a call's thread when it began, 0 if it is not known."""
        stack, told = [0], 0
        for change in self.done(*_CHANGING):
            if change.tid == call.tid and change.end <= call.begin and not change.get("primary"):
                if self.lost(told, change.end, *_CHANGING):
                    stack = [0]
                _change(stack, change)
                told = change.end
        if stack[-1] and not self.lost(told, call.begin, *_CHANGING):
            return stack[-1]
        known = self.known_contexts(call.pid)
        return known.pop() if len(known) == 1 and not self._may_have_missed(call) else 0

    def _may_have_missed(self, call: Call) -> bool:
        """Whether a context may have been made or become current before a call, and nothing told so."""
        return self.lost(0, call.begin, *_CHANGING)

    def _births(self, kind: str, pid: int, column: str, handle: int, by: int) -> list[Call]:
        def value(call: Call) -> int:
            return int(call.value(column))

        return [call for call in self.done(kind) if (call.pid, value(call)) == (pid, handle) and call.end <= by]

    def stream_births(self, call: Call) -> list[Call]:
        """Creations of the stream's handle so far."""
        by = call.end if call.kind == "cuda.stream.create" else call.begin
        return self._births("cuda.stream.create", call.pid, "stream_handle", call.stream, by)

    def owner(self, call: Call) -> int:
        """Handle of the context of the call's stream, 0 if it is not known."""
        if call.stream in (LEGACY, PER_THREAD):
            return self.current(call)
        made = last(self.stream_births(call))
        return self.current(made) if made else 0

    def stream(self, call: Call) -> Handle | None:
        """Process, context, handle, generation, and the thread of a stream that is a thread's own; None for none."""
        return self._remember("stream", call, self._stream)

    def _stream(self, call: Call) -> Handle | None:
        if not call.stream:
            return None
        owner, generation, tid = self.owner(call), 0, 0
        if call.stream == PER_THREAD or (call.stream == LEGACY and not owner and self.has_several(call)):
            tid = call.tid
        if call.stream not in (LEGACY, PER_THREAD):
            generation = len(self.stream_births(call))
        return call.pid, owner, call.stream, generation, tid

    def has_several(self, call: Call) -> bool:
        """Whether the call's process may have made several contexts, or given them to threads."""
        return len(self.known_contexts(call.pid)) > 1 or self._may_have_missed(call)

    def place(self, call: Call) -> Handle:
        """What stands for a call's context: where that is not known, the only one that its process names, or none."""
        named = [*self.named_contexts(call.pid).values()]
        return self.context(call) or ((named[0] if len(named) == 1 else None) or (call.pid,))

    def context(self, call: Call) -> Handle | None:
        """Process, handle and generation of a call's context; None if it is not known."""
        return self._remember("context", call, self._context)

    def _context(self, call: Call) -> Handle | None:
        handle = (self.owner(call) if call.stream else 0) or self.current(call)
        if call.kind in _NAMING:
            handle = call.get("context_handle") or handle
        if not handle:
            return None
        births = self._births("cuda.context.create", call.pid, "context_handle", handle, call.end)
        first = [birth for birth in births if birth.get("primary")][:1]
        return call.pid, handle, len([birth for birth in births if not birth.get("primary")]) + len(first)

    def knows_context(self, call: Call) -> bool:
        made = last(self.stream_births(call))
        guessed = self.context(call) is None or (
            call.stream not in (0, LEGACY, PER_THREAD) and (not made or self._is_renewed(made, call))
        )
        return not (guessed and (len(self.named_contexts(call.pid)) > 1 or self._may_have_missed(call)))

    def event(self, call: Call) -> Handle | None:
        """Process, handle and generation of a call's CUDA event; None for none."""
        return self._remember("event", call, lambda call: self._event(call, call.event))

    def end_event(self, call: Call) -> Handle | None:
        """Likewise the second CUDA event of a call."""
        return self._event(call, call.get("end_event_handle"))

    def _event(self, call: Call, handle: int) -> Handle | None:
        if not handle:
            return None
        by = call.end if call.kind == "cuda.event.create" else call.begin
        return call.pid, handle, len(self._births("cuda.event.create", call.pid, "event_handle", handle, by))

    def is_blocking(self, call: Call) -> bool | None:
        """Whether the legacy stream orders the call's stream; None if it is not known."""
        if call.stream in (LEGACY, PER_THREAD):
            return call.stream == PER_THREAD
        made = last(self.stream_births(call))
        return not made.get("stream_flags") & 1 if made and not self._is_renewed(made, call) else None

    def _is_renewed(self, made: Call, call: Call) -> bool:
        """Whether a stream may have been made again between its creation and a call, and nothing told so."""
        return self.lost(made.end, call.begin, "cuda.stream.create")

    def may_be_shared(self, event: Handle | None, call: Call) -> bool:
        """Whether a CUDA event may have been made, or made again, before a call, and nothing told so."""
        births = [each for each in self.done("cuda.event.create") if self.event(each) == event]
        return self.lost(births[-1].end if births else 0, call.begin, "cuda.event.create")


def _change(stack: list[int], change: Call) -> None:
    """What a call does to a thread's stack of contexts, of which the lowest are not known."""
    handle, how = change.get("context_handle"), change.get("how")
    pops = change.kind == "cuda.context.destroy" and stack[-1] == handle
    if change.kind == "cuda.context.set":
        pops = how == POP or (how == SET and not handle)
    if change.kind == "cuda.context.create" or (change.kind == "cuda.context.set" and how == PUSH):
        stack.append(handle)
    elif change.kind == "cuda.context.set" and how == SET and handle:
        stack[-1] = handle
    elif pops:
        stack.pop()
        stack[:] = stack or [0]
