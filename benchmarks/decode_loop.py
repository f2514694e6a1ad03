# SPDX-License-Identifier: Apache-2.0
"""Writes a recording of an LLM decode loop that never ran, of any size, with the layouts of the installed layers.

An engine thread and a worker thread take turns and wake one another. The worker makes 440 launches on one stream, a copy
on another with a CUDA event between them, a copy back and a wait that blocks until an interrupt. The engine wakes the
handler threads of the four requests in flight. Threads of a pool come and go on other CPUs, and the worker is preempted
now and then. A step is 551 events, and a request's path changes threads twice in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fencepath._builtin.events import MARK_LAYOUTS, MARK_POINT, MARK_TEXT, PROCESS_LAYOUTS
from fencepath._builtin.marks import Op
from fencepath.mark import request_id_hash
from fencepath.recording import KindInfo, RecordingWriter, new_manifest
from fencepath.records import Flags, RecordLayout, Records
from fencepath_cuda.functions import TABLE
from fencepath_host.events import IRQ_LAYOUT, SWITCH_LAYOUT, WAKING_LAYOUT

__all__ = ["EVENTS_A_STEP", "IN_FLIGHT", "write_decode_loop"]

Ints = npt.NDArray[np.int64]

PID, ENGINE, WORKER, HANDLER, POOL = 1000, 1001, 1002, 1100, 1200
LAUNCHES, PREEMPTIONS, POOL_SLICES, IN_FLIGHT = 440, 12, 30, 4
STEP_NS, START_NS = 1_300_000, 10**15
EVENTS_A_STEP = LAUNCHES + 5 + 2 + 2 * PREEMPTIONS + 2 * POOL_SLICES + 2 + 6 + 3 * IN_FLIGHT
COMPUTE, COPY, EVENT = 0x5555_0000, 0x5555_1000, 0x6666_0000
BLOCKED, RUNNABLE = 1, 0
STEPS_AT_ONCE = 200

LAYOUTS: Mapping[str, RecordLayout] = {
    layout.kind: layout
    for layout in (*TABLE.layouts(), *MARK_LAYOUTS, *PROCESS_LAYOUTS, SWITCH_LAYOUT, WAKING_LAYOUT, IRQ_LAYOUT)
}
NUMBERS = {kind: number for number, kind in enumerate(LAYOUTS, 1)}


def write_decode_loop(path: Path, events: int, requests: int) -> int:
    """Write the recording and return how many events it has.

    Args:
        path: folder to make.
        events: about how many; there are whole steps, and at least one a request.
        requests: a multiple of :data:`IN_FLIGHT`, so that as many are always in flight.
    """
    steps = max(events // EVENTS_A_STEP, requests // IN_FLIGHT)
    kinds = {
        kind: KindInfo(number=NUMBERS[kind], layer=kind.split(".")[0], fields=layout.fields)
        for kind, layout in LAYOUTS.items()
    }
    manifest = new_manifest(kinds, functions={"cuda": TABLE.recorded})
    written = 0
    kept = (MARK_TEXT, "cuda.stream.create", "cuda.event.create")
    with RecordingWriter(path, manifest, kept_kinds=kept) as writer:
        for fact in _facts():
            writer.fact(*fact)
        for kind, records in (*_beginning(), *_requests(requests, steps)):
            writer.append(kind, records)
            written += len(records)
        for first in range(0, steps, STEPS_AT_ONCE):
            for kind, records in _steps(np.arange(first, min(first + STEPS_AT_ONCE, steps))):
                writer.append(kind, records)
                written += len(records)
            writer.tick(START_NS + first * STEP_NS)
    return written


def _facts() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "process", {"pid": PID, "start_ticks": PID, "time_ns": 0}
    handlers, pool = range(HANDLER, HANDLER + IN_FLIGHT), range(POOL, POOL + POOL_SLICES)
    for tid in (PID, ENGINE, WORKER, *handlers, *pool):
        yield "thread", {"pid": PID, "tid": tid, "start_ticks": tid, "time_ns": 0, "name": f"thread-{tid}"}


def _records(kind: str, time_ns: Ints, tid: Ints | int, flags: Flags = Flags.TASK, cpu: Ints | int = 0) -> Records:
    records: Records = np.zeros(len(time_ns), LAYOUTS[kind].dtype)
    records["time_ns"], records["tgid"], records["tid"] = time_ns, PID, tid
    records["kind"], records["cpu"], records["flags"] = NUMBERS[kind], cpu, int(flags)
    return records


def _calls(name: str, begin_ns: Ints, length_ns: int, arguments: Mapping[str, int]) -> tuple[str, Records]:
    """Calls of the worker thread; those of hot functions have no end, as in a recording."""
    index = TABLE.index(name)
    function = TABLE.functions[index]
    flags = Flags.TASK | Flags.ENTRY_ONLY if function.entry_only else Flags.TASK
    records = _records(function.kind, begin_ns if function.entry_only else begin_ns + length_ns, WORKER, flags)
    records["begin_ns"], records["function"], records["caller_ip"] = begin_ns, index, 0x7F00_0000_1234
    for argument in function.args:
        records["args"][:, argument.slot] = arguments.get(argument.name, 1)
    for position, _ in enumerate(function.out):
        records["out"][:, position] = arguments["made"]
    return function.kind, records


def _beginning() -> Iterator[tuple[str, Records]]:
    for at, made in enumerate((COMPUTE, COPY)):
        yield _calls("cuStreamCreate", np.array([START_NS - 9000 + 2000 * at]), 1000, {"made": made})
    yield _calls("cuEventCreate", np.array([START_NS - 2000]), 1000, {"made": EVENT})


def _requests(requests: int, steps: int) -> Iterator[tuple[str, Records]]:
    """Begin and end of every request: one after the other in each of the slots, all of one length."""
    rounds = requests // IN_FLIGHT
    starts = np.linspace(0, steps, rounds + 1).astype(np.int64)
    for slot in range(IN_FLIGHT):
        begin = _records(MARK_TEXT, START_NS + starts[:-1] * STEP_NS + 10 * slot, HANDLER + slot)
        end = _records(MARK_POINT, START_NS + starts[1:] * STEP_NS - 10 - 10 * slot, HANDLER + slot)
        for row in range(rounds):
            key = f"request-{row * IN_FLIGHT + slot}"
            begin["request"][row] = end["request"][row] = request_id_hash(key)
            begin["text"][row, : len(key)] = np.frombuffer(key.encode(), np.uint8)
            begin["len"][row] = len(key)
        begin["op"], end["op"] = int(Op.REQUEST_BEGIN), int(Op.REQUEST_END)
        yield MARK_TEXT, begin
        yield MARK_POINT, end


def _steps(numbers: Ints) -> Iterator[tuple[str, Records]]:
    at = START_NS + numbers * STEP_NS

    def every(offsets: Sequence[int] | Ints) -> Ints:
        return (at[:, None] + np.asarray(offsets, np.int64)[None, :]).ravel()

    yield _calls("cuMemcpyHtoDAsync_v2", every([1000]), 1500, {"bytes": 4096, "stream_handle": COPY})
    yield _calls("cuEventRecord", every([3000]), 500, {"event_handle": EVENT, "stream_handle": COPY})
    yield _calls("cuStreamWaitEvent", every([4000]), 500, {"event_handle": EVENT, "stream_handle": COMPUTE})
    launches = every(10_000 + 2000 * np.arange(LAUNCHES))
    launches += np.random.default_rng(int(numbers[0])).integers(0, 900, len(launches))
    yield _calls("cuLaunchKernel", launches, 0, {"kernel": 0x7777_0000, "stream_handle": COMPUTE})
    yield _calls("cuMemcpyDtoHAsync_v2", every([900_000]), 2000, {"bytes": 256, "stream_handle": COMPUTE})
    yield _calls("cuStreamSynchronize", every([903_000]), 197_000, {"stream_handle": COMPUTE})
    yield _switches(every([905_000]), WORKER, 0, BLOCKED)
    yield _interrupts(every([1_090_000]))
    yield _wakes(every([1_091_000]), 0, WORKER, Flags(0))
    yield _switches(every([1_095_000]), 0, WORKER, RUNNABLE)
    lost = 30_500 + 70_000 * np.arange(PREEMPTIONS)
    yield _switches(every(lost), WORKER, 0, RUNNABLE)
    yield _switches(every(lost + 5000), 0, WORKER, RUNNABLE)
    pool = np.tile(POOL + np.arange(POOL_SLICES), len(at))
    yield _switches(every(7000 + 40_000 * np.arange(POOL_SLICES)), 0, pool, RUNNABLE, cpu=1)
    yield _switches(every(27_000 + 40_000 * np.arange(POOL_SLICES)), pool, 0, BLOCKED, cpu=1)
    yield from _turns(every)
    yield from _tokens(every, len(at))


def _turns(every: Any) -> Iterator[tuple[str, Records]]:
    yield _wakes(every([1_100_500]), WORKER, ENGINE, Flags.TASK)
    yield _switches(every([1_102_000]), WORKER, 0, BLOCKED)
    yield _switches(every([1_105_000]), 0, ENGINE, RUNNABLE)
    yield _wakes(every([1_290_000]), ENGINE, WORKER, Flags.TASK)
    yield _switches(every([1_292_000]), ENGINE, 0, BLOCKED)
    yield _switches(every([1_295_000]), 0, WORKER, RUNNABLE)


def _tokens(every: Any, steps: int) -> Iterator[tuple[str, Records]]:
    handlers = np.tile(HANDLER + np.arange(IN_FLIGHT), steps)
    base = 1_110_000 + 3000 * np.arange(IN_FLIGHT)
    yield _wakes(every(base), ENGINE, handlers, Flags.TASK)
    yield _switches(every(base + 10_000), 0, handlers, RUNNABLE, cpu=2)
    yield _switches(every(base + 40_000), handlers, 0, BLOCKED, cpu=2)


def _switches(time_ns: Ints, before: Ints | int, after: Ints | int, state: int, cpu: int = 0) -> tuple[str, Records]:
    flags = Flags.TASK if np.any(np.asarray(before) != 0) else Flags(0)
    records = _records(SWITCH_LAYOUT.kind, time_ns, before, flags, cpu)
    records["next_tid"], records["prev_state"] = after, state
    return SWITCH_LAYOUT.kind, records


def _wakes(time_ns: Ints, waker: int, wakee: Ints | int, flags: Flags) -> tuple[str, Records]:
    records = _records(WAKING_LAYOUT.kind, time_ns, waker, flags)
    records["wakee_tid"] = wakee
    return WAKING_LAYOUT.kind, records


def _interrupts(begin_ns: Ints) -> tuple[str, Records]:
    records = _records(IRQ_LAYOUT.kind, begin_ns + 2000, 0, Flags(0))
    records["begin_ns"], records["irq"], records["name"] = begin_ns, 31, b"nvidia"
    return IRQ_LAYOUT.kind, records
