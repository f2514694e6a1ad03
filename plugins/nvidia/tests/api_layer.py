# SPDX-License-Identifier: Apache-2.0
"""A layer ``cuda`` with the few kinds and columns that the layer ``nvidia`` looks at, for recordings made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fencepath.events import S32, U8, U64, Batch, Event, KindInfo, Role
from fencepath.plugin import API_VERSION, LayerInfo, hookimpl
from fencepath.records import INTERVAL, Field, Layouts, RecordLayout, Records

__all__ = ["FREE_LAYOUT", "MALLOC_LAYOUT", "SYNC_LAYOUT", "ApiLayer"]

_RESULT = (Field("result", "s32"), Field("returned", "u32"))
_MEMORY = (*_RESULT, Field("address", "u64"), Field("place", "u64"))
SYNC_LAYOUT = RecordLayout("cuda.event.synchronize", (*INTERVAL, *_RESULT))
MALLOC_LAYOUT = RecordLayout("cuda.malloc", (*INTERVAL, *_MEMORY, Field("bytes", "u64")))
FREE_LAYOUT = RecordLayout("cuda.free", (*INTERVAL, *_MEMORY))


class Sync(Event, frozen=True, kw_only=True, tag="cuda.event.synchronize"):
    """A wait."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAIT)

    result: S32


class Malloc(Event, frozen=True, kw_only=True, tag="cuda.malloc"):
    """An allocation."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    result: S32
    returned: bool
    address: U64
    place: U8
    bytes: U64


class Free(Event, frozen=True, kw_only=True, tag="cuda.free"):
    """Its end."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.MEMORY)

    result: S32
    returned: bool
    address: U64
    place: U8


class _Decoder:
    def decode(self, kind: str, records: Records) -> Batch:
        return Batch.from_records(kind, records)


class ApiLayer:
    """The plugin."""

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        """Say who it is."""
        return LayerInfo(name="cuda", title="a few calls", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        """Return the kinds."""
        return (Sync, Malloc, Free)

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> _Decoder:
        """Return the decoder."""
        del layouts, functions
        return _Decoder()
