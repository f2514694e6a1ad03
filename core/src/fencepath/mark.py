# SPDX-License-Identifier: Apache-2.0
"""Marks: how a server tells fencepath which request it is working for.

A mark is one system call that every Linux kernel refuses at once, ``prctl(0x46504d4b, 1, &mark, 64, 0)``. A recording
reads it on its way in; without a recording nothing happens. There is nothing to link, to open or to configure, it
works in containers and for any user, and it costs 1 to 2 µs either way::

    from fencepath import mark

    with mark.request("req-1", traceparent=headers.get("traceparent")):
        with mark.phase("prefill"):
            ...
        mark.token(1)

This file is self-contained: standard library only, no other part of fencepath, Python 3.10 or newer. It may be copied
into another project under any name.

**The request a mark is for.** Functions that take ``request=`` accept the id string, its hash or a :class:`Request`.
Left out, it is the current request: the innermost :func:`request` or :func:`bound_thread` block of this thread or
asyncio task (a context variable), else 0, which a recording reads as the request bound to the calling thread.

**Harmless.** Wrong arguments raise ValueError or TypeError, whether marks are on or off. Nothing else raises: elsewhere
than on Linux, with ``FENCEPATH_MARKS=0`` in the environment, or once the kernel has answered anything but EINVAL (a
seccomp filter; warned about once, as :class:`MarkWarning`), marks do nothing. Whether anybody listens cannot be seen.

**Threads.** Every function may be called from any thread, a signal handler or a finalizer: a mark is built in memory of
its own. The call keeps the GIL, so that a mark never hands the interpreter to another thread.

Not seen by a recording: marks made under gVisor or Kata, whose system calls do not reach the host's kernel.
"""

from __future__ import annotations

import contextvars
import errno
import functools
import hashlib
import itertools
import os
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType
    from typing import Self

__all__ = [
    "MarkWarning",
    "Phase",
    "Request",
    "RequestRef",
    "Step",
    "attribute",
    "bind_thread",
    "bound_thread",
    "current_request",
    "enabled",
    "phase",
    "phase_begin",
    "phase_end",
    "receive",
    "request",
    "request_begin",
    "request_end",
    "request_id_hash",
    "send",
    "step",
    "step_begin",
    "step_end",
    "task_factory",
    "token",
    "unbind_thread",
]

_OPTION = 0x46504D4B  # "FPMK"; no kernel has an option of this number
_VERSION = 1
_SIZE = 64
# struct fencepath_mark_v1: op, flags, value, request, step, trace_id, span_id, trace_flags, phase, len, reserved, ptr.
# Native order without padding: the reader is the same machine.
_pack = struct.Struct("=HHIQQ16s8sBBHIQ").pack
_pack_member = struct.Struct("=QIB3x").pack
_MEMBERS_PER_MARK = 512
_TEXT_BYTES = 255  # of an id or an attribute
_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)


class Op(IntEnum):
    """Operations of struct fencepath_mark_v1."""

    REQUEST_BEGIN = 1
    REQUEST_END = 2
    STEP_BEGIN = 3
    STEP_END = 4
    STEP_MEMBERS = 5
    PHASE_BEGIN = 6
    PHASE_END = 7
    TOKEN = 8
    BIND = 9
    UNBIND = 10
    SEND = 11
    RECEIVE = 12
    ATTRIBUTE = 13


class Phase(IntEnum):
    """What is being done for a request; functions take the member or its lower-case name."""

    NONE = 0
    QUEUE = 1
    PREFILL = 2
    DECODE = 3


PhaseRef: TypeAlias = Literal["none", "queue", "prefill", "decode"] | Phase
RequestRef: TypeAlias = "str | int | Request"
"""A request: its id string, its 64-bit hash (see :func:`request_id_hash`) or the :class:`Request` itself."""
Member: TypeAlias = "tuple[RequestRef, int, PhaseRef]"
"""One request's part in a step: the request, its tokens in this step, its phase."""


class MarkWarning(RuntimeWarning):
    """Marks are not recorded in this process, because something other than the kernel answers the call."""


# The system call.

_active = False
_prctl: Callable[..., int]
_get_errno: Callable[[], int]
_address: Callable[[bytes], int]


def _prepare() -> None:
    """Find prctl, or leave marks off where there is none."""
    global _active, _prctl, _get_errno, _address
    if not sys.platform.startswith("linux") or os.environ.get("FENCEPATH_MARKS") == "0":
        return
    try:
        import ctypes

        # PyDLL, not CDLL: giving the GIL up for 0.2 µs invites another thread to take it for milliseconds.
        _prctl = ctypes.PyDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):  # a Python built without ctypes, a static one
        return
    _get_errno = ctypes.get_errno

    def address(data: bytes) -> int:
        return ctypes.c_void_p.from_buffer(ctypes.c_char_p(data)).value or 0

    _address = address
    _active = True


_prepare()


def _send(mark: bytes) -> None:
    # Plain ints and bytes and no argtypes: the fastest form of a ctypes call; every int fits a C int. A bytes object
    # per mark is faster than a buffer kept per thread, and a mark made in a signal handler cannot overwrite it.
    if _active and (_prctl(_OPTION, _VERSION, mark, _SIZE, 0) != -1 or _get_errno() != errno.EINVAL):
        _turn_off(_get_errno())


def _turn_off(error: int) -> None:
    global _active
    _active = False
    message = (
        f"marks are not recorded: prctl(0x{_OPTION:x}) was answered with {errno.errorcode.get(error, error)} instead of"
        " EINVAL, so a seccomp filter hides it; allow prctl in it, or set FENCEPATH_MARKS=0"
    )
    try:
        warnings.warn(message, MarkWarning, stacklevel=4)
    except Exception:  # noqa: BLE001  # -W error, or the program's own showwarning: a mark does not end it
        print(f"fencepath: {message}", file=sys.stderr)


def _emit(op: Op, request: int = 0, *, value: int = 0, step: int = 0, phase: int = 0) -> None:
    _send(_pack(op, 0, value, request, step, _NO_TRACE, _NO_SPAN, 0, phase, 0, 0, 0))


def _emit_pointed(
    op: Op,
    data: bytes,
    request: int = 0,
    *,
    length: int = 0,
    value: int = 0,
    step: int = 0,
    trace: tuple[bytes, bytes, int] = (_NO_TRACE, _NO_SPAN, 0),
) -> None:
    # `data` was written a moment ago, so its pages are present when a BPF program, which cannot wait for them, reads.
    if _active:
        trace_id, span_id, trace_flags = trace
        address = _address(data)
        _send(_pack(op, 0, value, request, step, trace_id, span_id, trace_flags, 0, length, 0, address))


def enabled() -> bool:
    """Return whether marks reach the kernel: not turned off, on Linux, not seen to be refused by a seccomp filter."""
    return _active


# Arguments.


def _unsigned(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} must be from 0 to 2**{bits} - 1, not {value}")
    return value


def _encode(text: str) -> bytes:
    # A lone surrogate (an id taken from undecodable bytes) must not raise from a mark.
    return text.encode("utf-8", "backslashreplace")


def _cut(data: bytes, limit_bytes: int) -> bytes:
    return data if len(data) <= limit_bytes else data[:limit_bytes].decode("utf-8", "ignore").encode()


@functools.lru_cache(maxsize=4096)
def _hash(request_id: str) -> int:
    if not request_id:
        raise ValueError("a request id must not be empty")
    return int.from_bytes(hashlib.blake2b(_encode(request_id), digest_size=8).digest(), "little")


def request_id_hash(request_id: str) -> int:
    """Return the 64 bits that stand for a request in every mark: BLAKE2b-64 of the id, read as little-endian.

    Args:
        request_id: the id; hashed as UTF-8, whole, however long.
    """
    return _hash(request_id)


def _wire_id(request_id: str) -> bytes:
    # An id of more than 255 bytes goes out as a prefix that tells what it is and the hash that tells it from others.
    data = _encode(request_id)
    return data if len(data) <= _TEXT_BYTES else _cut(data, _TEXT_BYTES - 17) + b"~%016x" % _hash(request_id)


def _request_hash(request: RequestRef | None) -> int:
    if request is None:
        return _current.get()
    if isinstance(request, str):
        return _hash(request)
    return _unsigned("request", request, 64) if isinstance(request, int) else request.hash


_PHASES = {item.name.lower(): item for item in Phase}


def _phase(phase: PhaseRef) -> int:
    if isinstance(phase, Phase):
        return phase
    try:
        return _PHASES[phase]
    except (KeyError, TypeError):
        raise ValueError(f"phase must be one of {', '.join(_PHASES)}, not {phase!r}") from None


def _id_bytes(name: str, value: int | str | bytes | None, size_bytes: int) -> bytes:
    if value is None:
        return bytes(size_bytes)
    if isinstance(value, int):
        return _unsigned(name, value, 8 * size_bytes).to_bytes(size_bytes, "big")
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    except ValueError:
        data = b""
    if len(data) != size_bytes:
        raise ValueError(f"{name} must be an int, {size_bytes} bytes or {2 * size_bytes} hex digits, not {value!r}")
    return data


def _parse_traceparent(header: str) -> tuple[bytes, bytes, int]:
    # It comes from the network: a malformed one is no trace at all (W3C Trace Context, 3.2.2.5), never an error.
    fields = header.strip().split("-")
    try:
        version, trace_id, span_id, trace_flags = (bytes.fromhex(field) for field in fields[:4])
    except ValueError:
        return _NO_TRACE, _NO_SPAN, 0
    sizes = (len(version), len(trace_id), len(span_id), len(trace_flags))
    # Later versions may append fields, version 00 may not; all zeros is no id.
    extended = len(fields) > 4 and version == b"\0"
    if sizes != (1, 16, 8, 1) or version == b"\xff" or extended or not any(trace_id) or not any(span_id):
        return _NO_TRACE, _NO_SPAN, 0
    return trace_id, span_id, trace_flags[0]


# Requests and the threads that work for them.

_current: contextvars.ContextVar[int] = contextvars.ContextVar("fencepath_request", default=0)


class _Thread(threading.local):
    bound = 0  # hash of the request this thread is bound to, 0 if none
    follows = False  # inside a task made by task_factory(): the binding follows the current request


_thread = _Thread()


def current_request() -> int:
    """Return the hash of the request that marks without ``request=`` are for here, 0 if there is none."""
    return _current.get()


def _make_current(request: int) -> int:
    outer = _current.get()
    _current.set(request)
    if _thread.follows:
        _rebind(request)
    return outer


def _rebind(request: int) -> int:
    outer = _thread.bound
    if request != outer:
        _thread.bound = request
        _emit(*((Op.BIND, request) if request else (Op.UNBIND, outer)))
    return outer


class Request:
    """A request as a ``with`` block, made by :func:`request`.

    Attributes:
        id: the id string.
        hash: its 64-bit hash; ``request=`` takes it as well as this object.
    """

    __slots__ = ("_bind_thread", "_outer_bound", "_outer_current", "_trace", "hash", "id")

    def __init__(self, request_id: str, trace: tuple[bytes, bytes, int], bind_thread: bool) -> None:
        self.id = request_id
        self.hash = _hash(request_id)
        self._trace = trace
        self._bind_thread = bind_thread
        self._outer_bound = self._outer_current = 0

    def __enter__(self) -> Self:
        _begin(self.id, self.hash, self._trace)
        self._outer_current = _make_current(self.hash)
        if self._bind_thread:
            self._outer_bound = _rebind(self.hash)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bind_thread:
            _rebind(self._outer_bound)
        # Set, not reset by token: the block of an asynchronous generator may be left in another context.
        _make_current(self._outer_current)
        _emit(Op.REQUEST_END, self.hash)

    def __repr__(self) -> str:
        return f"Request({self.id!r}, hash=0x{self.hash:016x})"


def _begin(request_id: str, request: int, trace: tuple[bytes, bytes, int]) -> None:
    data = _wire_id(request_id)
    _emit_pointed(Op.REQUEST_BEGIN, data, request, length=len(data), trace=trace)


def _trace(
    trace_id: int | str | bytes | None,
    span_id: int | str | bytes | None,
    trace_flags: int,
    traceparent: str | None,
) -> tuple[bytes, bytes, int]:
    if traceparent is None:
        flags = _unsigned("trace_flags", trace_flags, 8)
        return _id_bytes("trace_id", trace_id, 16), _id_bytes("span_id", span_id, 8), flags
    if trace_id is not None or span_id is not None or trace_flags:
        raise ValueError("give either traceparent, or trace_id, span_id and trace_flags")
    return _parse_traceparent(traceparent)


def request(
    request_id: str,
    *,
    trace_id: int | str | bytes | None = None,
    span_id: int | str | bytes | None = None,
    trace_flags: int = 0,
    traceparent: str | None = None,
    bind_thread: bool = False,
) -> Request:
    """Mark a request from the beginning to the end of a ``with`` block, and make it the current request inside.

    Args:
        request_id: any non-empty string that is unique while the request lasts. More than 255 bytes of UTF-8 are
            recorded as the first 238 (at a character's end), ``~`` and the 16 hex digits of its hash.
        trace_id: the distributed trace it belongs to: an int (as in OpenTelemetry's API), 16 bytes or 32 hex digits.
        span_id: the span that called: an int, 8 bytes or 16 hex digits.
        trace_flags: W3C trace flags, 1 if sampled.
        traceparent: the three above as one W3C header, as received; a malformed one counts as none.
        bind_thread: also bind the calling thread, as :func:`bound_thread` does. Right for a thread that serves one
            request at a time; wrong in a coroutine, whose thread serves others while it waits.
    """
    return Request(request_id, _trace(trace_id, span_id, trace_flags, traceparent), bind_thread)


def request_begin(
    request_id: str,
    *,
    trace_id: int | str | bytes | None = None,
    span_id: int | str | bytes | None = None,
    trace_flags: int = 0,
    traceparent: str | None = None,
) -> int:
    """Mark the beginning of a request that ends elsewhere, and return its hash; arguments as in :func:`request`.

    It does not become the current request.
    """
    value = _hash(request_id)
    _begin(request_id, value, _trace(trace_id, span_id, trace_flags, traceparent))
    return value


def request_end(request: RequestRef) -> None:
    """Mark the end of a request begun with :func:`request_begin`, from any thread or process."""
    _emit(Op.REQUEST_END, _request_hash(request))


def bind_thread(request: RequestRef) -> None:
    """Say that from now on the calling thread works for this request only, in place of any it was bound to."""
    value = _request_hash(request)
    _current.set(value)
    _rebind(value)


def unbind_thread() -> None:
    """Say that the calling thread works for no request in particular; nothing if it was not bound."""
    _current.set(0)
    _rebind(0)


class _BoundThread:
    __slots__ = ("_hash", "_outer_bound", "_outer_current")

    def __init__(self, request: int) -> None:
        self._hash = request
        self._outer_bound = self._outer_current = 0

    def __enter__(self) -> None:
        self._outer_current = _make_current(self._hash)
        self._outer_bound = _rebind(self._hash)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _rebind(self._outer_bound)
        _make_current(self._outer_current)


def bound_thread(request: RequestRef) -> _BoundThread:
    """Bind the calling thread to a request for a ``with`` block; then what held before holds again."""
    return _BoundThread(_request_hash(request))


# What happens in a request.


class _Pair:
    # Two marks made beforehand, so that entering and leaving cost the system call alone.
    __slots__ = ("_begin", "_end")

    def __init__(self, begin: bytes, end: bytes) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        _send(self._begin)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _send(self._end)


def phase(name: PhaseRef, *, request: RequestRef | None = None) -> _Pair:
    """Mark a phase (``"queue"``, ``"prefill"`` or ``"decode"``) of a request for a ``with`` block."""
    request, number = _request_hash(request), _phase(name)
    begin = _pack(Op.PHASE_BEGIN, 0, 0, request, 0, _NO_TRACE, _NO_SPAN, 0, number, 0, 0, 0)
    return _Pair(begin, _pack(Op.PHASE_END, 0, 0, request, 0, _NO_TRACE, _NO_SPAN, 0, number, 0, 0, 0))


def phase_begin(name: PhaseRef, *, request: RequestRef | None = None) -> None:
    """Mark the beginning of a phase that ends elsewhere."""
    _emit(Op.PHASE_BEGIN, _request_hash(request), phase=_phase(name))


def phase_end(name: PhaseRef, *, request: RequestRef | None = None) -> None:
    """Mark the end of a phase, from any thread."""
    _emit(Op.PHASE_END, _request_hash(request), phase=_phase(name))


def token(index: int, *, request: RequestRef | None = None) -> None:
    """Mark that a token is there for the client.

    Args:
        index: number of the token in the answer, from 1.
        request: whose token it is.
    """
    if not 1 <= index < 1 << 32:
        raise ValueError(f"token index must be from 1 to 2**32 - 1, not {index}")
    _emit(Op.TOKEN, _current.get() if request is None else _request_hash(request), value=index)


def attribute(key: str, value: str | float | bool, *, request: RequestRef | None = None) -> None:
    """Attach ``key=value`` to a request; it is recorded as text, and what goes beyond 255 bytes of UTF-8 is cut off.

    Args:
        key: non-empty, without ``=``, at most 127 bytes.
        value: text as it is, numbers in decimal, booleans as ``true`` and ``false``.
        request: whose attribute it is.
    """
    name = _encode(key)
    if not name or "=" in key or len(name) > 127:
        raise ValueError(f"an attribute's key must have 1 to 127 bytes and no '=', not {key!r}")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    data = _cut(name + b"=" + _encode(text), _TEXT_BYTES)
    _emit_pointed(Op.ATTRIBUTE, data, _request_hash(request), length=len(data))


# Steps.


class Step:
    """One forward pass as a ``with`` block, made by :func:`step`.

    Attributes:
        number: the step's number.
    """

    __slots__ = ("_members", "number")

    def __init__(self, number: int, members: list[bytes]) -> None:
        self.number = number
        self._members = members

    def __enter__(self) -> Self:
        _begin_step(self.number, self._members)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _emit(Op.STEP_END, step=self.number)


def _pack_members(members: Iterable[Member]) -> list[bytes]:
    return [
        _pack_member(_request_hash(request), _unsigned("tokens", tokens, 32), _phase(phase))
        for request, tokens, phase in members
    ]


def _begin_step(number: int, members: list[bytes]) -> None:
    _emit(Op.STEP_BEGIN, step=number)
    for first in range(0, len(members), _MEMBERS_PER_MARK):
        chunk = members[first : first + _MEMBERS_PER_MARK]
        _emit_pointed(Op.STEP_MEMBERS, b"".join(chunk), value=len(chunk), step=number)


def step(number: int, members: Iterable[Member] = ()) -> Step:
    """Mark one forward pass, and which requests it serves, for a ``with`` block.

    Args:
        number: unique in the process while the step lasts, such as a counter; 64 bits, unsigned.
        members: ``(request, tokens, phase)`` of every request in the batch, about 0.3 µs each; more than 512 take
            several marks.
    """
    return Step(_unsigned("step", number, 64), _pack_members(members))


def step_begin(number: int, members: Iterable[Member] = ()) -> None:
    """Mark the beginning of a step that ends elsewhere; arguments as in :func:`step`."""
    packed = _pack_members(members)
    _begin_step(_unsigned("step", number, 64), packed)


def step_end(number: int) -> None:
    """Mark the end of a step, from any thread."""
    _emit(Op.STEP_END, step=_unsigned("step", number, 64))


# Hand-overs between threads and processes.

_handovers = itertools.count()


def _after_fork() -> None:
    # A child must not give out its parent's hand-over ids, and its one thread is a new one that nothing has bound.
    global _handovers
    _handovers = itertools.count(int.from_bytes(os.urandom(7), "little"))
    _thread.bound = 0


_after_fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _handover_id(handover: int | str) -> int:
    return _hash(handover) if isinstance(handover, str) else _unsigned("handover", handover, 64)


def send(handover: int | str | None = None, *, request: RequestRef | None = None) -> int:
    """Mark that work for a request is handed to another thread or process, and return the hand-over's id.

    Call it before the other side can take the work (before ``queue.put``), and pass the id along with it.

    Args:
        handover: an id both sides know anyway (an int of 64 bits, or a string, which is hashed); None makes a new one.
        request: the request whose work is handed over.
    """
    value = next(_handovers) if handover is None else _handover_id(handover)
    _emit(Op.SEND, _request_hash(request), step=value)
    return value


def receive(handover: int | str, *, request: RequestRef | None = None) -> None:
    """Mark that the calling thread took over the work that :func:`send` gave this id."""
    _emit(Op.RECEIVE, _request_hash(request), step=_handover_id(handover))


# asyncio.


class _FollowedCoroutine(Coroutine[Any, Any, Any]):
    # Binds the thread while the coroutine runs. Everything else (names and frames, which task.get_stack, repr and
    # inspect.getcoroutinestate look at) is the coroutine's own.

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        return self._run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._run(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def _run(self, resume: Callable[..., Any], *args: Any) -> Any:
        outer_follows, _thread.follows = _thread.follows, True
        outer_bound = _rebind(_current.get())
        try:
            return resume(*args)
        finally:
            _thread.follows = outer_follows
            _rebind(outer_bound)


def task_factory(
    inner: Callable[..., asyncio.Future[Any]] | None = None,
) -> Callable[..., asyncio.Future[Any]]:
    """Return a factory for ``loop.set_task_factory`` that binds the loop's thread to each task's request while it runs.

    A task belongs to the current request of its own context: one begun in it, or inherited from who created it. Tasks
    without one cost two attribute look-ups a switch, tasks with one two marks.

    Args:
        inner: the factory that makes the tasks, such as ``asyncio.eager_task_factory``; None makes ``asyncio.Task``.
    """
    import asyncio

    def new_task(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return asyncio.Task(coro, loop=loop, **kwargs)

    make = inner or new_task

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Future[Any]:
        # What is not a coroutine is left for asyncio to refuse.
        return make(loop, _FollowedCoroutine(coro) if asyncio.iscoroutine(coro) else coro, **kwargs)

    return factory
