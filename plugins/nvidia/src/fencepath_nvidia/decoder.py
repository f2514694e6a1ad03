# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``nvidia``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fencepath.events import Batch, Column, Event, columns_of, kind_of
from fencepath.kernel_functions import decode_functions
from fencepath.records import Flags, Records
from fencepath.syscalls import decode_syscalls
from fencepath_nvidia.events import EVENTS
from fencepath_nvidia.functions import FUNCTION_RECORDS
from fencepath_nvidia.kinds import (
    ALLOC,
    CONTROL,
    DRIVER_MMAP,
    IOCTL,
    LOG,
    MEMORY_ALLOC,
    MMAP,
    POLL,
    RECORDED_CALLS,
    UVM_CALL,
    UVM_MIGRATION,
    VERSION,
)
from fencepath_nvidia.requests import OTHER
from fencepath_nvidia.tables import class_names, control_names

__all__ = ["NOT_KNOWN", "NvidiaDecoder"]

NOT_KNOWN = -1
"""``rm_status`` that was not read, and other numbers that an event does not have."""

_OWN_COLUMNS = {
    kind_of(event): {name: dtype for name, dtype in columns_of(event).items() if name not in columns_of(Event)}
    for event in EVENTS
}
_OPTIONAL = ("rm_status", "device_id", "engine")
_ERRNO = -4095
# NV_PROCESSOR_UUID_CPU_DEFAULT: kernel-open/nvidia-uvm/nvCpuUuid.c of NVIDIA/open-gpu-kernel-modules, 515.43.04 to 595.45.04
_CPU = uuid.UUID("73772a14-2c41-4750-a27b-d4d74e0f5ea6").bytes[::-1]
_FUNCTIONS = frozenset(record.kind for record in FUNCTION_RECORDS)
_PAGE_BYTES = 4096
_SECOND_NS = 1_000_000_000
_MILLISECOND_NS = 1_000_000


class NvidiaDecoder:
    """Values become columns by the names that the recording keeps, and numbers get names from the package's tables.

    Args:
        functions: of the recording, by kind: what its system calls were.
    """

    def __init__(self, functions: Mapping[str, Sequence[str]]) -> None:
        self._functions = functions

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; text that is not UTF-8 is shown with replacement characters."""
        if kind in RECORDED_CALLS:
            return _Calls(kind, records, self._functions.get(kind, ())).batch()
        if kind in _FUNCTIONS:
            return _function(decode_functions(kind, records, self._functions.get(kind, ())))
        batch = Batch.from_records(kind, records)
        columns = batch.columns
        for name in ("dev", "message") if kind != LOG else ("text",):
            columns[name] = _texts(columns[name], _decoded)
        return batch


def _function(batch: Batch) -> Batch:
    columns = batch.columns
    if batch.kind == DRIVER_MMAP:
        columns["length_bytes"] = columns.pop("end_address") - columns["address"]
        columns["offset"] = columns.pop("page_offset") * np.uint64(_PAGE_BYTES)
    elif batch.kind == UVM_MIGRATION:
        # uvm_va_block_region_t: the first page and the one behind the last, 16 bits each
        region = columns.pop("region")
        columns["first_page"] = region & np.uint32(0xFFFF)
        columns["pages"] = np.maximum(region >> np.uint32(16), columns["first_page"]) - columns["first_page"]
    return batch


class _Calls:
    """Records of system calls of one kind."""

    def __init__(self, kind: str, records: Records, recorded: Sequence[str]) -> None:
        self._kind = kind
        self._records = records
        self._found, self._names = decode_syscalls(records, recorded)
        self._returned = [text.split(" ")[-1].split(",") for text in recorded]
        self._entry = [[*text.split(" "), "", ""][1].split(",") for text in recorded]

    def batch(self) -> Batch:
        self._complete()
        columns = {
            name: self._column(name, dtype) for name, dtype in _OWN_COLUMNS[self._kind].items() if name != "label"
        }
        columns["label"], labels = self._labels()
        return Batch.from_records(self._kind, self._records, columns, labels)

    def _column(self, name: str, dtype: np.dtype[np.generic]) -> Column:
        column = self._found.get(name)
        if column is None:
            column = np.zeros(len(self._records), np.uint64)
        if name in _OPTIONAL:
            known = self._given(name) & (self._returned_well() if name == "rm_status" else self._readable())
            return np.where(known, column.astype(np.int64), NOT_KNOWN).astype(dtype)
        return column if dtype == np.dtype("O") else column.astype(dtype)

    def _given(self, name: str) -> npt.NDArray[np.bool_]:
        """Rows whose request has a value."""
        rows = np.array([name in (*before, *after) for before, after in zip(self._entry, self._returned, strict=True)])
        label = self._found["label"].astype(np.int64)
        if not len(rows):
            return np.zeros(len(label), np.bool_)
        given: npt.NDArray[np.bool_] = (label >= 0) & rows[label]
        return given

    def _readable(self) -> npt.NDArray[np.bool_]:
        """Rows whose values can be relied on."""
        good: npt.NDArray[np.bool_] = (self._records["flags"] & np.uint32(Flags.READ_FAULT)) == 0
        return good

    def _returned_well(self) -> npt.NDArray[np.bool_]:
        """Rows in whose structure the driver has written: it does so only if the call does not fail."""
        returned: npt.NDArray[np.bool_] = (self._records["flags"] & np.uint32(Flags.OPEN)) == 0
        return self._readable() & returned & (self._records["status"] >= 0)

    def _complete(self) -> None:
        """Columns that follow from several values, or from what the call returned."""
        found = self._found
        if self._kind == MEMORY_ALLOC and "limit" in found:
            limited = self._given("limit")
            size = found.get("size_bytes", np.zeros(len(self._records), np.uint64))
            # the last byte's offset; wraps to 0 for one that makes no sense
            found["size_bytes"] = np.where(limited, found["limit"] + np.uint64(1), size)
        elif self._kind == MMAP:
            status = self._records["status"].astype(np.int64)
            found["address"] = np.where((status >= _ERRNO) & (status < 0), 0, status).astype(np.uint64)
        elif self._kind == POLL:
            found["timeout_ns"] = self._timeouts()
        elif self._kind == VERSION:
            found["version"] = _words(found.get("text0"), found.get("text1"), len(self._records), _text)
        if "gpu" in _OWN_COLUMNS[self._kind]:
            found["gpu"] = _words(found.get("gpu0"), found.get("gpu1"), len(self._records), _uuid)

    def _timeouts(self) -> npt.NDArray[np.int64]:
        zero = np.zeros(len(self._records), np.uint64)
        # an int argument: the upper half of its register is nobody's
        short = self._found.get("timeout_ms", zero).astype(np.uint32).view(np.int32).astype(np.int64)
        seconds, rest = (self._found.get(name, zero).astype(np.int64) for name in ("timeout_s", "timeout_ns"))
        for_ever = self._found.get("timeout_at", zero) == 0
        by_time = np.where(for_ever, NOT_KNOWN, seconds * _SECOND_NS + rest)
        by_milliseconds = np.where(short < 0, NOT_KNOWN, short * _MILLISECOND_NS)
        result: npt.NDArray[np.int64] = np.where(self._given("timeout_ms"), by_milliseconds, by_time)
        return result

    def _labels(self) -> tuple[Column, tuple[str, ...]]:
        if self._kind in (ALLOC, MEMORY_ALLOC):
            numbers = self._column("object_class", np.dtype(np.uint32))
            has_class = self._given("object_class") & self._readable()
            return _labelled(numbers, has_class, _class_label, self._found["label"], self._names)
        if self._kind == CONTROL:
            numbers = self._column("control", np.dtype(np.uint32))
            readable = self._given("control") & self._readable()
            return _labelled(numbers, readable, _control_label, self._found["label"], self._names)
        label = self._found["label"]
        named = np.array([name != OTHER for name in self._names], np.bool_)
        unknown = ~((label >= 0) & named[label]) if len(named) else np.ones(len(label), np.bool_)
        say = _uvm_label if self._kind == UVM_CALL else _ioctl_label
        numbers = self._records["command"] & np.uint32(0xFFFF) if self._kind == IOCTL else self._records["command"]
        return _labelled(numbers, unknown, say, label, self._names)


def _labelled(
    numbers: Column, numbered: npt.NDArray[np.bool_], say: Callable[[int], str], label: Column, names: Sequence[str]
) -> tuple[Column, tuple[str, ...]]:
    """Labels of rows: what is said of a number where there is one, else the name of the request."""
    different, code = np.unique(numbers, return_inverse=True)
    labels = (*names, *(say(number) for number in different.tolist()))
    # a row that the manifest does not know has no name
    by_number = numbered | (label < 0)
    return np.where(by_number, code + len(names), label).astype(np.int32), labels


def _class_label(number: int) -> str:
    return class_names().get(number, f"class {number:#06x}")


def _control_label(number: int) -> str:
    known = control_names().get(number)
    return known or f"class {number >> 16:#06x} category {number >> 8 & 0x3F:#04x} command {number & 0xFF:#04x}"


def _ioctl_label(number: int) -> str:
    return f"ioctl type {number >> 8:#04x} number {number & 0xFF:#04x}"


def _uvm_label(number: int) -> str:
    return f"uvm ioctl {number}"


def _words(low: Column | None, high: Column | None, rows: int, say: Callable[[bytes], str]) -> Column:
    """Texts from 16 bytes a row; there are few different ones."""
    if low is None or high is None:
        return np.array([""] * rows, object)
    pairs = np.stack([low, high], axis=1)
    different, inverse = np.unique(pairs, axis=0, return_inverse=True)
    texts = np.array([say(pair.astype("<u8").tobytes()) for pair in different], object)
    return texts[inverse.reshape(-1)] if len(different) else np.empty(0, object)


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")


def _uuid(raw: bytes) -> str:
    if raw == _CPU:
        return "CPU"
    return f"GPU-{uuid.UUID(bytes=raw)}" if any(raw) else ""


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _texts(column: Column, say: Callable[[bytes], str]) -> Column:
    """Bytes as text; there are few different ones."""
    different, inverse = np.unique(column, return_inverse=True)
    texts = np.array([say(value) for value in different.tolist()], object)
    return texts[inverse] if len(different) else np.empty(0, object)
