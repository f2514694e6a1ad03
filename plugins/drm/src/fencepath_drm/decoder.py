# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``drm``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fencepath.events import Batch, Column
from fencepath.records import Records
from fencepath.syscalls import decode_syscalls
from fencepath_drm.ioctls import OTHER

__all__ = ["DrmDecoder"]

_SYSCALLS = frozenset({"drm.job.submit", "drm.ioctl", "drm.wait"})
_TEXTS = {"dev": "dev", "ring": "ring_name", "driver": "driver", "timeline": "timeline"}
_VALUES = ("handle", "point", "count")
_NUMBER = 0xFF


class DrmDecoder:
    """Fields become columns, bytes become text, and requests without a name are called by their number.

    Args:
        functions: of the recording, by kind: what its system calls were.
    """

    def __init__(self, functions: Mapping[str, Sequence[str]]) -> None:
        self._functions = functions

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; text that is not UTF-8 is shown with replacement characters."""
        if kind in _SYSCALLS:
            return self._syscalls(kind, records)
        batch = Batch.from_records(kind, records)
        columns = batch.columns
        columns.pop("reserved", None)
        for field, column in _TEXTS.items():
            if field in columns:
                columns[column] = _texts(columns.pop(field))
        if kind == "drm.job.blocked":
            columns["pipelined"] = np.zeros(len(batch), np.bool_)
        elif kind == "drm.fence.part":
            columns["is_point"] = columns["is_point"] != 0
        elif kind == "drm.vblank.event":
            columns["high_precision"] = columns["high_precision"] != 0
        return batch

    def _syscalls(self, kind: str, records: Records) -> Batch:
        columns, names = decode_syscalls(records, self._functions.get(kind, ()))
        del columns["argument"]
        if kind == "drm.wait":
            for name in _VALUES:
                columns.setdefault(name, np.zeros(len(records), np.uint64))
        columns["label"], labels = _labels(columns["label"], columns["command"], names)
        return Batch.from_records(kind, records, columns, labels)


def _labels(label: Column, command: Column, names: Sequence[str]) -> tuple[Column, tuple[str, ...]]:
    """Give every request a label: its name, else ``ioctl 0x..`` with its number."""
    named = np.array([name != OTHER for name in names], np.bool_)
    known = (label >= 0) & (named[label] if len(named) else False)
    numbers, code = np.unique(command & _NUMBER, return_inverse=True)
    labels = (*names, *(f"ioctl {number:#04x}" for number in numbers.tolist()))
    return np.where(known, label, code + len(names)).astype(np.int32), labels


def _texts(column: Column) -> Column:
    """Bytes as text; there are few different ones."""
    unique, inverse = np.unique(column, return_inverse=True)
    texts = np.array([text.decode(errors="replace") for text in unique.tolist()], object)
    return texts[inverse] if len(unique) else np.empty(0, object)
