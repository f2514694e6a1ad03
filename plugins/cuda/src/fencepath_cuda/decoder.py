# SPDX-License-Identifier: Apache-2.0
"""From call records to batches with the columns of :mod:`fencepath_cuda.events`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fencepath.calls import DecodedCalls
from fencepath.events import Batch, Column, Event, columns_of, kind_of
from fencepath.records import Records
from fencepath_cuda.events import EVENTS, Direction, NodeKind, StreamKind
from fencepath_cuda.functions import TABLE

__all__ = ["LABELS", "CudaDecoder"]

Mask = npt.NDArray[np.bool_]

LABELS = tuple(function.name for function in TABLE.functions)
"""What the column ``label`` indexes."""

_HEAD = columns_of(Event)
_COLUMNS = {
    kind_of(event): {name: dtype for name, dtype in columns_of(event).items() if name not in _HEAD} for event in EVENTS
}

LEGACY_HANDLE = 0x1
PER_THREAD_HANDLE = 0x2
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h."""

HOST, DEVICE, ARRAY = 1, 2, 3
"""CUmemorytype of cuda.h; 4 is unified, which says nothing of where."""


class CudaDecoder:
    """Decodes one recording; see :class:`fencepath.plugin.Decoder`.

    Args:
        functions: what the recording's manifest keeps of the call table that wrote it.
    """

    def __init__(self, functions: Sequence[str]) -> None:
        self._functions = tuple(functions)

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode the calls of one kind; those of functions that today's table does not know are left out."""
        calls = TABLE.decode(kind, records, self._functions)
        columns = {name: _column(name, dtype, calls) for name, dtype in _COLUMNS[kind].items()}
        return Batch.from_records(kind, calls.records, columns, LABELS)


def _column(name: str, dtype: np.dtype[np.generic], calls: DecodedCalls) -> Column:
    derive = _DERIVED.get(name)
    return np.ascontiguousarray(derive(calls) if derive else _plain(calls, name), dtype)


def _plain(calls: DecodedCalls, name: str) -> Column:
    found = calls.get(name)
    return np.zeros(len(calls.records), np.uint64) if found is None else found


def _has(calls: DecodedCalls, name: str) -> Mask:
    return calls.has(name) if name in calls else np.zeros(len(calls.records), np.bool_)


def _stream_kind(calls: DecodedCalls) -> Column:
    """What the stream argument named. A handle that could not be read is not handle 0."""
    handle = _plain(calls, "stream_handle")
    default = np.where(_plain(calls, "per_thread") != 0, StreamKind.PER_THREAD, StreamKind.LEGACY)
    kind = np.select(
        [handle == 0, handle == LEGACY_HANDLE, handle == PER_THREAD_HANDLE],
        [default, StreamKind.LEGACY, StreamKind.PER_THREAD],
        StreamKind.CREATED,
    )
    return np.where(_has(calls, "stream_handle"), kind, StreamKind.NONE)


def _stream_handle(calls: DecodedCalls) -> Column:
    """Default streams by their own handles, however they were named."""
    kind = _stream_kind(calls)
    fixed = [kind == StreamKind.LEGACY, kind == StreamKind.PER_THREAD]
    return np.select(fixed, [np.uint64(LEGACY_HANDLE), np.uint64(PER_THREAD_HANDLE)], _plain(calls, "stream_handle"))


def _bytes(calls: DecodedCalls) -> Column:
    """Bytes, or their factors where the arguments have those; a product too large for 64 bits wraps."""
    total: Column = _plain(calls, "bytes").astype(np.uint64)
    for first, *others in (
        ("width_bytes", "height", "depth"),
        ("pitch_bytes", "height"),
        ("count", "unit_bytes", "height"),
    ):
        known = _has(calls, first)
        product = _plain(calls, first).astype(np.uint64)
        for other in others:
            product = product * np.where(_has(calls, other), _plain(calls, other).astype(np.uint64), np.uint64(1))
        total = np.where(known, product, total)
    return total


def _direction(calls: DecodedCalls) -> Column:
    """As the function or its argument says, else by the memory types of both ends."""
    stated = np.where(_has(calls, "direction"), _plain(calls, "direction"), Direction.UNKNOWN)
    typed = _has(calls, "source_type") & _has(calls, "destination_type")
    source, destination = _plain(calls, "source_type"), _plain(calls, "destination_type")
    from_host, to_host = source == HOST, destination == HOST
    from_device, to_device = np.isin(source, (DEVICE, ARRAY)), np.isin(destination, (DEVICE, ARRAY))
    by_type = np.select(
        [from_host & to_host, from_host & to_device, from_device & to_host, from_device & to_device],
        [Direction.HOST_TO_HOST, Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST, Direction.DEVICE_TO_DEVICE],
        Direction.UNKNOWN,
    )
    known: Column = np.where(typed & (stated == Direction.UNKNOWN), by_type, stated)
    return np.where(known > Direction.UNKNOWN, Direction.UNKNOWN, known)


def _device(calls: DecodedCalls) -> Column:
    """0 is a device, so that of calls that name none is -1."""
    return np.where(_has(calls, "device"), _plain(calls, "device").astype(np.int64), -1)


def _node_kind(calls: DecodedCalls) -> Column:
    kind = np.where(_has(calls, "node_kind"), _plain(calls, "node_kind"), NodeKind.OTHER)
    known: Column = np.where(np.isin(kind, list(NodeKind)), kind, NodeKind.OTHER)
    return known


def _of_node(name: str, *kinds: NodeKind) -> Callable[[DecodedCalls], Column]:
    """Return how to find a column that functions for any type of node have in the first word of what it is to do."""

    def derive(calls: DecodedCalls) -> Column:
        stated = _plain(calls, name)
        if "node_word" not in calls:
            return stated
        first = _has(calls, "node_word") & np.isin(_node_kind(calls), kinds)
        return np.where(first, _plain(calls, "node_word"), stated)

    return derive


def _kernel(calls: DecodedCalls) -> Column:
    """A node of a graph has a CUfunction or, if that is null, a CUkernel."""
    kernel = _of_node("kernel", NodeKind.KERNEL)(calls)
    if "library_kernel" not in calls:
        return kernel
    instead = (kernel == 0) & (_node_kind(calls) == NodeKind.KERNEL)
    return np.where(instead, _plain(calls, "library_kernel"), kernel)


def _elapsed_ns(calls: DecodedCalls) -> Column:
    """From the float of milliseconds whose bits were recorded. A call that failed leaves there what was there before."""
    bits = np.ascontiguousarray(_plain(calls, "elapsed_float"), np.uint32)
    milliseconds = bits.view(np.float32).astype(np.float64)
    # A day and more is not what was measured.
    sound = (calls["result"] == 0) & (milliseconds > 0) & (milliseconds < 86_400_000)
    return np.rint(np.where(sound, milliseconds, 0) * 1e6).astype(np.uint64)


def _name(calls: DecodedCalls) -> Column:
    """Any bytes as one line of text: those that are not UTF-8, and what cannot be printed, are written out."""
    texts = calls["name"].tolist() if "name" in calls else [b""] * len(calls.records)
    return np.array([_printable(text.decode(errors="backslashreplace")) for text in texts], object)


def _printable(text: str) -> str:
    """Control characters would reach terminals, and no XML may have them."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


_DERIVED: Mapping[str, Callable[[DecodedCalls], Column]] = {
    "label": lambda calls: calls["function"],
    "stream_kind": _stream_kind,
    "stream_handle": _stream_handle,
    "bytes": _bytes,
    "direction": _direction,
    "device": _device,
    "node_kind": _node_kind,
    "kernel": _kernel,
    "child_graph": _of_node("child_graph", NodeKind.CHILD_GRAPH),
    "event_handle": _of_node("event_handle", NodeKind.EVENT_RECORD, NodeKind.EVENT_WAIT),
    "elapsed_ns": _elapsed_ns,
    "name": _name,
}
