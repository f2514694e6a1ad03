# SPDX-License-Identifier: Apache-2.0
"""Decoding, rules and choice of probes of the layer ``host``, without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fencepath._engine.activities import ActivityTable
from fencepath._engine.join import run_join
from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, columns_of, kind_of
from fencepath.joins import Confidence, JoinRule, Order
from fencepath.plugin import Alternative, TracepointProbe
from fencepath.records import Flags, RecordLayout, Records
from fencepath.system import System
from fencepath.tracepoints import Resolved
from fencepath_host import plugin
from fencepath_host.decoder import HostDecoder
from fencepath_host.events import IRQ, IRQ_LAYOUT, SWITCH, SWITCH_LAYOUT, WAKING, WAKING_LAYOUT, Irq, Switch, Waking

LAYOUTS = {layout.kind: layout for layout in (SWITCH_LAYOUT, WAKING_LAYOUT, IRQ_LAYOUT)}
FORMATS = Path(__file__).with_name("formats")
TASK = int(Flags.TASK)


def records(layout: RecordLayout, rows: Sequence[Mapping[str, int | bytes]]) -> Records:
    made = np.zeros(len(rows), layout.dtype)
    for record, row in zip(made, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return made


@pytest.mark.parametrize(
    ("raw", "state"),
    [(0, 0), (0x100, 0), (1, 1), (2, 2), (0x80, 0x80), (0x20, 0x20), (0x101, 0)],
)
def test_a_preempted_thread_is_still_runnable(raw: int, state: int) -> None:
    row = {"tid": 5, "next_tid": 7, "prev_state": raw, "prev_prio": 255}
    batch = HostDecoder().decode(SWITCH, records(SWITCH_LAYOUT, [row]))
    (event,) = batch.events(Switch)
    assert (event.prev_tid, event.next_tid, event.prev_state, event.prev_prio) == (5, 7, state, 255)


def test_who_wakes() -> None:
    rows = [{"tid": 5, "cpu": 3, "wakee_tid": 7, "flags": TASK}, {"tid": 5, "cpu": 3, "wakee_tid": 7}]
    by_thread, by_interrupt = HostDecoder().decode(WAKING, records(WAKING_LAYOUT, rows)).events(Waking)
    assert (by_thread.interrupt_cpu, by_interrupt.interrupt_cpu) == (-1, 3)


def test_names_of_interrupts() -> None:
    rows: list[dict[str, int | bytes]] = [
        {"irq": 9, "name": b"virtio1-req.0", "begin_ns": 1},
        {"irq": -1, "name": b"\xff" * 28},
        {"name": b"virtio1-req.0"},
    ]
    events = list(HostDecoder().decode(IRQ, records(IRQ_LAYOUT, rows)).events(Irq))
    assert [event.name for event in events] == ["virtio1-req.0", "�" * 28, "virtio1-req.0"]
    assert [event.irq for event in events] == [9, -1, 0]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 1009])
def test_any_bytes_are_decoded(layout: RecordLayout, count: int) -> None:
    raw = np.random.default_rng(count).integers(0, 256, count * layout.size_bytes, np.uint8).tobytes()
    batch = HostDecoder().decode(layout.kind, np.frombuffer(raw, layout.dtype))
    event_type = {kind_of(event): event for event in (Switch, Waking, Irq)}[layout.kind]
    assert {name: batch[name].dtype for name in columns_of(event_type)} == columns_of(event_type)
    assert len(list(batch.events(event_type))) == count


def _table(batches: Mapping[str, Batch]) -> ActivityTable:
    for batch in batches.values():
        for column in ("thread", "process"):
            batch.columns[column] = np.full(len(batch), NO_ENTITY)
    return ActivityTable(batches, {kind_of(event): event.info for event in (Switch, Waking, Irq)}, Entities())


def test_an_interrupt_is_the_cause_of_the_wake_ups_in_it() -> None:
    irqs = [
        {"begin_ns": 100, "time_ns": 200, "cpu": 0, "irq": 1},
        {"begin_ns": 150, "time_ns": 260, "cpu": 1, "irq": 2},
        {"begin_ns": 300, "time_ns": 400, "cpu": 0, "irq": 3},
    ]
    wakes = [
        {"time_ns": 160, "cpu": 0, "wakee_tid": 7},
        {"time_ns": 160, "cpu": 1, "wakee_tid": 8},
        {"time_ns": 250, "cpu": 0, "wakee_tid": 9},
        {"time_ns": 350, "cpu": 0, "wakee_tid": 7, "flags": TASK},
    ]
    decoder = HostDecoder()
    rows = {IRQ: records(IRQ_LAYOUT, irqs), WAKING: records(WAKING_LAYOUT, wakes)}
    table = _table({kind: decoder.decode(kind, found) for kind, found in rows.items()})
    (rule,) = plugin.fencepath_rules()
    assert isinstance(rule, JoinRule)
    (edges,) = run_join(rule, table, 0)
    assert (edges.cause - table.of_kind(IRQ)[0]).tolist() == [0, 1]
    assert (edges.effect - table.of_kind(WAKING)[0]).tolist() == [0, 1]
    assert (edges.order, edges.confidence) == (Order.START_START, Confidence.EXACT)


def _possible(formats: str) -> list[tuple[Alternative, dict[str, Resolved]]]:
    """The alternatives that a machine has in full, best first, with what their programs read."""
    system = System.from_formats(FORMATS / formats)
    (probe_set,) = plugin.fencepath_probes(system)
    found: list[tuple[Alternative, dict[str, Resolved]]] = []
    for alternative in probe_set.alternatives:
        probes = [probe for probe in alternative.probes if isinstance(probe, TracepointProbe)]
        resolved = {probe.program: probe.record.resolve(system.tracepoints) for probe in probes}
        there = {program: record for program, record in resolved.items() if isinstance(record, Resolved)}
        if len(there) == len(alternative.probes):
            found.append((alternative, there))
    return found


def test_fields_are_found_by_name() -> None:
    """In 5.10 sched_waking has a field ``success`` before the CPU; the file is that of 6.18 with this field added."""
    best, programs = _possible("success_field")[0]
    bindings = programs["on_waking"].bindings
    assert {bound.take.target: bound.field.offset for bound in bindings if bound.field} == {
        "wakee_tid": 24,
        "target_cpu": 36,
    }
    assert set(best.gives) == set(LAYOUTS)
    assert not best.loses


def test_without_interrupts_the_rest_is_recorded_and_the_loss_is_said() -> None:
    ((only, programs),) = _possible("without_irq")
    assert only.gives == (SWITCH, WAKING)
    assert set(programs) == {"on_switch", "on_waking"}
    assert only.bpf is not None
    assert only.bpf.defines["HOST_INTERRUPTS"] == 0
    assert "interrupts" in only.loses


def test_checks_say_what_is_missing() -> None:
    checks = {check.name: check for check in plugin.fencepath_checks(System.from_formats(FORMATS / "without_irq"))}
    assert checks["tracepoint sched:sched_switch"].verdict == "ok"
    assert checks["tracepoint irq:irq_handler_entry"].verdict == "degrade"
    assert "no group irq" in checks["tracepoint irq:irq_handler_entry"].evidence
