# SPDX-License-Identifier: Apache-2.0
"""Addresses of the kernel are never recorded: numbers stand for them, equal where they are equal, others in every recording."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from tests.core.live import live_layers
from tests.core.planted import alternative, hooks

from fencepath.events import U64, Batch, Event, KindInfo, Role
from fencepath.plugin import TracepointProbe
from fencepath.records import Records
from fencepath.tracepoints import Take, TracepointRecord

ASKED = (77_777, 88_888, 77_777, 0)
RECORD = TracepointRecord(
    kind="planted.asked",
    group="syscalls",
    event="sys_enter_getpgid",
    fields=(Take("pid", "u64", as_="who", identity=True),),
    in_task=True,
)


class Asked(Event, frozen=True, kw_only=True, tag="planted.asked"):
    """Somebody's process group is asked for."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)
    who: U64


class Decoder:
    def decode(self, kind: str, records: Records) -> Batch:
        return Batch.from_records(kind, records)


def recorded() -> list[int]:
    way = alternative(probes=(TracepointProbe(record=RECORD),), gives=(RECORD.kind,))
    with live_layers({"planted": hooks(kinds=(Asked,), alternatives=(way,), decoder=Decoder())}) as live:
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
