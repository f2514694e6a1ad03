# SPDX-License-Identifier: Apache-2.0
"""Programs on a tracepoint itself, and not on its record."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from tests.core.live import live_layers

from fencepath._bpf.attach import attach_raw_tracepoint
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.sys import ProgramType
from fencepath.errors import AttachError
from fencepath.events import U64, Batch, Event, KindInfo, Role
from fencepath.plugin import API_VERSION, Alternative, BpfSource, LayerInfo, ProbeSet, TracepointProbe, hookimpl
from fencepath.records import HEADER, Field, RecordLayout, Records
from fencepath.system import System
from fencepath.tracepoints import Take, TracepointRecord

pytestmark = pytest.mark.bpf

SIGNALS = 7
SOURCE = """
#include "fp_records.h"
#include "fp_tracepoints.h"

/* Arguments: int sig, ... */
int on_signal(void *ctx) {
    struct fp_raw_signal *r;

    if (!fp_is_target())
        return 0;
    r = FP_RESERVE(struct fp_raw_signal, FP_KIND_RAW_SIGNAL);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_RAW_SIGNAL, FP_TASK);
    r->number = FP_RAW_ARGUMENT(ctx, 0);
    fp_submit(r);
    return 0;
}
"""
LAYOUT = RecordLayout("raw.signal", (*HEADER, Field("number", "u64")))


class Signal(Event, frozen=True, kw_only=True, tag="raw.signal"):
    """A signal is sent."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.ERROR)
    number: U64


class Decoder:
    def decode(self, kind: str, records: Records) -> Batch:
        return Batch.from_records(kind, records)


class Layer:
    def __init__(self, source: Path, event: str) -> None:
        record = TracepointRecord("raw.signal", "signal", event, (Take("sig", "s32"),))
        probe = TracepointProbe(record=record, program="on_signal", raw=True)
        self._way = Alternative(
            probes=(probe,), gives=("raw.signal",), layouts=(LAYOUT,), bpf=BpfSource(path=source, tracepoints=(record,))
        )

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        return LayerInfo(name="raw", title="signals", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        return (Signal,)

    @hookimpl
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        return (ProbeSet(name="signals", detail="sync", alternatives=(self._way,)),)

    @hookimpl
    def fencepath_decoder(self, layouts: object, functions: object) -> Decoder:
        return Decoder()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "raw.c"
    path.write_text(SOURCE)
    return path


def test_arguments_are_read_and_every_event_is_seen(source: Path) -> None:
    with live_layers({"raw": Layer(source, "signal_generate")}) as live:
        live.targets.add(os.getpid())
        for _ in range(SIGNALS):
            os.kill(os.getpid(), signal.SIGCONT)
        records = live.records("raw.signal")
    assert records["number"].tolist() == [signal.SIGCONT] * SIGNALS
    assert set(records["tgid"].tolist()) == {os.getpid()}


def test_a_tracepoint_that_is_not_there() -> None:
    with BpfObject("int nothing(void *ctx) { return 0; }") as empty:
        program = empty.load("nothing", ProgramType.RAW_TRACEPOINT)
        with pytest.raises(AttachError, match="no such tracepoint"):
            attach_raw_tracepoint(program, "signal_of_nobody")
