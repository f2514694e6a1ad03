# SPDX-License-Identifier: Apache-2.0
"""Decodes the records of the layer ``amdgpu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fencepath.events import Batch, Column, Event, columns_of, kind_of
from fencepath.records import Records
from fencepath.syscalls import decode_syscalls
from fencepath_amdgpu.kfd import TABLE
from fencepath_amdgpu.kfd_events import KFD_EVENTS
from fencepath_amdgpu.kinds import BO_CREATE, BO_MOVE, INTERRUPT

__all__ = ["NO_PLACEMENT", "PLACEMENTS", "AmdgpuDecoder"]

PLACEMENTS = ("system", "gtt", "vram", "gds", "gws", "oa", "preempt", "doorbell", "mmio_remap")
"""TTM_PL_SYSTEM, _TT, _VRAM, then AMDGPU_PL_* (drivers/gpu/drm/amd/amdgpu/amdgpu_ttm.h)."""

NO_PLACEMENT = 0xFFFFFFFF
"""The driver's -1: the buffer has no memory yet, or none any more."""

# Of GFX9 and later: drivers/gpu/drm/amd/include/soc15_ih_clientid.h and ivsrcid/vmc/irqsrcs_vmc_1_0.h.
_CLIENT_VMC, _CLIENT_UTCL2 = 0x12, 0x1B
_SOURCE_FAULT = 0

_KFD_COLUMNS = {
    kind_of(event): {name: dtype for name, dtype in columns_of(event).items() if name not in columns_of(Event)}
    for event in KFD_EVENTS
}


class AmdgpuDecoder:
    """Fields become columns, and names and codes of memory text.

    Args:
        functions: what the manifest keeps of each kind's system calls.
    """

    def __init__(self, functions: Mapping[str, Sequence[str]]) -> None:
        self._functions = functions

    def decode(self, kind: str, records: Records) -> Batch:
        """Decode; names that are not UTF-8 are shown with replacement characters."""
        if kind in TABLE.kinds:
            return _system_calls(kind, records, self._functions.get(kind, ()))
        columns = _plain(records)
        if kind == BO_CREATE:
            columns["placement"] = _text(columns["placement"], _placement)
        elif kind == BO_MOVE:
            columns.update({side: _text(columns[side], _placement) for side in ("source", "target")})
        elif kind == INTERRUPT:
            _open_interrupt(columns)
        return Batch.from_records(kind, records, columns)


def _system_calls(kind: str, records: Records, recorded: Sequence[str]) -> Batch:
    found, labels = decode_syscalls(records, recorded)
    columns = {
        name: found.get(name, np.zeros(len(records))).astype(dtype) for name, dtype in _KFD_COLUMNS[kind].items()
    }
    return Batch.from_records(kind, records, columns, labels)


def _plain(records: Records) -> dict[str, Column]:
    """Every field behind the header, bytes as text."""
    columns = Batch.from_records("", records).columns
    return {name: _text(column, _decoded) if column.dtype.kind == "S" else column for name, column in columns.items()}


def _decoded(name: bytes) -> str:
    return name.decode(errors="replace")


def _placement(code: int) -> str:
    if code == NO_PLACEMENT:
        return "none"
    return PLACEMENTS[code] if code < len(PLACEMENTS) else f"placement {code}"


def _text(column: Column, say: Callable[..., str]) -> Column:
    """Values as text; there are few different ones."""
    unique, inverse = np.unique(column, return_inverse=True)
    texts = np.array([say(value) for value in unique.tolist()], object)
    return texts[inverse] if len(unique) else np.empty(0, object)


def _open_interrupt(columns: dict[str, Column]) -> None:
    words = columns.pop("data")
    columns.update({f"data{index}": np.ascontiguousarray(words[:, index]) for index in range(words.shape[1])})
    columns["page_fault"] = np.isin(columns["client"], (_CLIENT_VMC, _CLIENT_UTCL2)) & (
        columns["source"] == _SOURCE_FAULT
    )
