# SPDX-License-Identifier: Apache-2.0
"""Addresses of the kernel are never recorded: numbers stand for them, equal where they are equal, others in every recording."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

import pytest
from tests.core.live import live_layers

from fencepath.events import U64, Batch, Event, KindInfo, Role
from fencepath.plugin import API_VERSION, Alternative, LayerInfo, ProbeSet, TracepointProbe, hookimpl
from fencepath.records import Records
from fencepath.system import System
from fencepath.tracepoints import Take, TracepointRecord

ASKED = (77_777, 88_888, 77_777, 0)
RECORD = TracepointRecord(
    kind="who.asked",
    group="syscalls",
    event="sys_enter_getpgid",
    fields=(Take("pid", "u64", as_="who", identity=True),),
    in_task=True,
)


class Asked(Event, frozen=True, kw_only=True, tag="who.asked"):
    """Somebody's process group is asked for."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)
    who: U64


class Decoder:
    def decode(self, kind: str, records: Records) -> Batch:
        return Batch.from_records(kind, records)


class Layer:
    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(name="who", title="questions", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (Asked,)

    @hookimpl
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        way = Alternative(probes=(TracepointProbe(record=RECORD),), gives=(RECORD.kind,))
        return (ProbeSet(name="questions", detail="sync", alternatives=(way,)),)

    @hookimpl
    def fencepath_decoder(self, layouts: object, functions: object) -> Decoder:
        return Decoder()


def recorded() -> list[int]:
    with live_layers({"who": Layer()}) as live:
        live.targets.add(os.getpid())
        for pid in ASKED:
            if pid:
                with pytest.raises(ProcessLookupError):
                    os.getpgid(pid)
            else:
                os.getpgid(pid)
        numbers: list[int] = live.records(RECORD.kind)["who"].tolist()
    return numbers


@pytest.mark.bpf
def test_numbers_stand_for_addresses() -> None:
    first, second = recorded(), recorded()
    for one, other, again, none in (first, second):
        assert one == again != other
        assert none == 0
        assert not {one, other} & set(ASKED)
    assert first[:2] != second[:2]


def test_only_an_address_has_one() -> None:
    with pytest.raises(ValueError, match="is a u64"):
        Take("pid", "u32", identity=True)
