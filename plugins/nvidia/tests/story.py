# SPDX-License-Identifier: Apache-2.0
"""Recordings of threads that call the API, the driver and the scheduler, made by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from plugins.nvidia.tests.api_layer import FREE_LAYOUT, MALLOC_LAYOUT, SYNC_LAYOUT, ApiLayer
from plugins.nvidia.tests.calls import CTL, TABLE, TASK, UVM_DEVICE, Calls, row_of

from fencepath import Analysis
from fencepath._loader import load_plugins
from fencepath.records import HEADER, RecordLayout, Records
from fencepath.syscalls import syscall_layout
from fencepath.testing import write_recording
from fencepath_host import plugin as host
from fencepath_host.events import IRQ_LAYOUT, SWITCH_LAYOUT, WAKING_LAYOUT
from fencepath_nvidia import plugin as nvidia
from fencepath_nvidia.functions import FUNCTION_RECORDS
from fencepath_nvidia.kinds import ALLOC, DRIVER_FAULT, ISR, ISR_THREAD, MEMORY_ALLOC, UVM_MIGRATION, UVM_SERVICE

__all__ = ["MS", "Story"]

MS = 1_000_000
_EXIT_LAYOUT = RecordLayout("process.exit", HEADER)
_FUNCTIONS = {record.kind: record.layout for record in FUNCTION_RECORDS}


class Story:
    """Collects events; times are ms."""

    def __init__(self) -> None:
        self.calls = Calls()
        self._rows: dict[RecordLayout, list[Mapping[str, Any]]] = defaultdict(list)

    def poll(self, tid: int, begin: float, end: float, *, tgid: int = 0, ready: int = 1) -> None:
        self.calls.add(
            row_of("poll"),
            int(end * MS),
            {"count": 1, "timeout_ms": 0xFFFFFFFF, "revents": 1},
            took_ns=int((end - begin) * MS),
            tid=tid,
            tgid=tgid or tid,
            status=ready,
        )

    def sync(self, tid: int, begin: float, end: float, tgid: int = 0) -> None:
        self._add(SYNC_LAYOUT, end, begin, tid=tid, tgid=tgid or tid, flags=TASK)

    def waking(self, at: float, wakee: int, cpu: int = 0, *, by: int = 0) -> None:
        """A wake-up, in an interrupt unless a thread makes it."""
        self._add(WAKING_LAYOUT, at, wakee_tid=wakee, cpu=cpu, tid=by, tgid=by, flags=TASK if by else 0)

    def irq(self, begin: float, end: float, cpu: int = 0, irq: int = 63, name: bytes = b"nvidia") -> None:
        self._add(IRQ_LAYOUT, end, begin, irq=irq, cpu=cpu, name=name)

    def isr(
        self, begin: float, end: float, *, gpu: int = 7, irq: int = 63, threaded: bool = True, function: int = 0
    ) -> None:
        """The first half of an interrupt."""
        self._add(_FUNCTIONS[ISR], end, begin, gpu=gpu, irq=irq, result=2 if threaded else 1, function=function)

    def half(self, begin: float, end: float, *, tid: int, gpu: int = 7, irq: int = 63) -> None:
        """The second half of an interrupt, in a thread."""
        who = {"tid": tid, "tgid": tid, "flags": TASK}
        self._add(_FUNCTIONS[ISR_THREAD], end, begin, **who, gpu=gpu, irq=irq, result=1)

    def fault(self, begin: float, end: float, address: int, *, uvm: bool = True, tid: int = 41) -> None:
        """A page that a thread wanted."""
        who = {"tid": tid, "tgid": tid, "flags": TASK}
        self._add(
            _FUNCTIONS[DRIVER_FAULT], end, begin, **who, address=address, area=address & ~0xFFFF, function=int(uvm)
        )

    def service(self, begin: float, end: float, *, tid: int = 900) -> None:
        """Page faults of a GPU."""
        self._add(_FUNCTIONS[UVM_SERVICE], end, begin, tid=tid, tgid=tid, flags=TASK, gpu=9)

    def migration(self, begin: float, end: float, first: int, behind: int, *, to: int, tid: int = 900) -> None:
        """Pages that are copied."""
        who = {"tid": tid, "tgid": tid, "flags": TASK}
        where = {"block": 5, "destination": to, "region": behind << 16 | first}
        self._add(_FUNCTIONS[UVM_MIGRATION], end, begin, **who, **where)

    def malloc(
        self, begin: float, end: float, size: int, address: int, *, place: int = 1, result: int = 0, tgid: int = 41
    ) -> None:
        who = {"tid": tgid, "tgid": tgid, "flags": TASK}
        memory = {"address": address, "place": place, "result": result, "returned": 1, "bytes": size}
        self._add(MALLOC_LAYOUT, end, begin, **who, **memory)

    def api_free(self, at: float, address: int, *, place: int = 1, tgid: int = 41) -> None:
        who = {"tid": tgid, "tgid": tgid, "flags": TASK}
        self._add(FREE_LAYOUT, at, at, **who, address=address, place=place, returned=1)

    def client(self, at: float, client: int, tgid: int = 41) -> None:
        row = row_of("NV_ESC_RM_ALLOC", "object_class", kind=ALLOC)
        self._call(row.name, ALLOC, at, tgid, object_class=0x41, object=client)

    def device(self, at: float, client: int, handle: int, device_id: int, tgid: int = 41) -> None:
        values = {"client": client, "parent": client, "object": handle, "object_class": 0x80, "device_id": device_id}
        self.calls.add(row_of("NV_ESC_RM_ALLOC", "device_id"), int(at * MS), values, tgid=tgid, tid=tgid)

    def memory(
        self,
        at: float,
        client: int,
        parent: int,
        handle: int,
        size: int,
        *,
        object_class: int = 0x40,
        rm_status: int = 0,
        tgid: int = 41,
    ) -> None:
        values = {
            "client": client,
            "parent": parent,
            "object": handle,
            "object_class": object_class,
            "size_bytes": size,
            "rm_status": rm_status,
        }
        self._call("NV_ESC_RM_ALLOC", MEMORY_ALLOC, at, tgid, **values)

    def free(self, at: float, client: int, handle: int, tgid: int = 41) -> None:
        self._call("NV_ESC_RM_FREE", "", at, tgid, client=client, object=handle)

    def dup(self, at: float, client: int, parent: int, handle: int, source: tuple[int, int], tgid: int = 41) -> None:
        values = {"client": client, "parent": parent, "object": handle}
        where = {"source_client": source[0], "source_object": source[1]}
        self._call("NV_ESC_RM_DUP_OBJECT", "", at, tgid, **values, **where)

    def mmap(self, at: float, address: int, size: int, *, uvm: bool = True, tgid: int = 41) -> None:
        device = UVM_DEVICE if uvm else CTL
        values = {"length_bytes": size}
        self.calls.add(row_of("mmap"), int(at * MS), values, status=address, device=device, tgid=tgid, tid=tgid)

    def munmap(self, at: float, address: int, *, uvm: bool = True, tgid: int = 41) -> None:
        device = UVM_DEVICE if uvm else CTL
        self.calls.add(row_of("munmap"), int(at * MS), {"address": address}, device=device, tgid=tgid, tid=tgid)

    def exit(self, at: float, tgid: int, tid: int = 0) -> None:
        self._add(_EXIT_LAYOUT, at, tgid=tgid, tid=tid or tgid, flags=TASK)

    def analysis(self, folder: Path, without: tuple[str, ...] = ()) -> Analysis:
        """Write it as a recording and analyse that."""
        registry = load_plugins({"nvidia": nvidia, "host": host, "cuda": ApiLayer()}, entry_points=False)
        assert registry.problems == []
        layouts = [IRQ_LAYOUT, WAKING_LAYOUT, SWITCH_LAYOUT, SYNC_LAYOUT, MALLOC_LAYOUT, FREE_LAYOUT, _EXIT_LAYOUT]
        records = {layout: _records(layout, self._rows[layout]) for layout in layouts}
        records |= {syscall_layout(kind): self.calls.records(kind) for kind in TABLE.kinds}
        records |= {layout: _records(layout, self._rows[layout]) for layout in _FUNCTIONS.values()}
        functions = {kind: TABLE.recorded(kind) for kind in TABLE.kinds}
        functions |= {
            record.kind: tuple(function.names[0] for function in record.functions) for record in FUNCTION_RECORDS
        }
        analysis = Analysis(
            write_recording(folder / "story.fencepath", records, functions=functions, registry=registry),
            registry,
            without,
        )
        assert analysis.problems == ()
        return analysis

    def _call(self, name: str, kind: str, at: float, tgid: int, **values: int) -> None:
        self.calls.add(row_of(name, *values, kind=kind), int(at * MS), values, tgid=tgid, tid=tgid)

    def _add(self, layout: RecordLayout, at: float, begin: float | None = None, **fields: Any) -> None:
        times = {"time_ns": int(at * MS)} | ({} if begin is None else {"begin_ns": int(begin * MS)})
        self._rows[layout].append({**times, **fields})


def _records(layout: RecordLayout, rows: list[Mapping[str, Any]]) -> Records:
    made = np.zeros(len(rows), layout.dtype)
    for record, row in zip(made, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return made
