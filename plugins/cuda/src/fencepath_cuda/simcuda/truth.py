# SPDX-License-Identifier: Apache-2.0
"""What the simulated CUDA library and its workload say they did: the truth a recording is compared with.

Every time is CLOCK_MONOTONIC in nanoseconds. Nothing here comes from a tracer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Call", "Edge", "Job", "Note", "Op", "Truth", "read_truth"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One API call, as its function saw it: a probe on the function begins no later and ends no earlier.

    Attributes:
        number: from 1, in the order the calls began; runtime and driver calls share the numbers.
        name: exported name, such as ``cuMemAlloc_v2``.
        tid: thread that called.
        begin_ns: first thing the function did.
        end_ns: last thing it did.
        result: CUresult or cudaError_t.
        context: number of the context it worked on, never used again; None for none.
        context_handle: that context's handle as a number, used again for later contexts; None for none.
        outer: number of the runtime call it was made for, None if it was called by the program.
        op: id of the operation it submitted, None if none; of a graph launch, the first of ``arguments["ops"]``, which
            follow each other without a gap.
        waited_for: ids of the operations it waited for.
        arguments: the rest. Handles are hexadecimal text (``handle``: of the stream); ``stream``, ``event``, ``graph``,
            ``exec`` and ``pool`` are numbers that are never used again; ``node`` is the number of a node in its graph.
            A call that was captured has ``graph`` and ``node`` and no operation. Names of kernels are bytes as Latin-1.
    """

    number: int
    name: str
    tid: int
    begin_ns: int
    end_ns: int
    result: int
    context: int | None
    context_handle: int | None
    outer: int | None
    op: int | None
    waited_for: tuple[int, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """That an operation had to wait for another.

    Attributes:
        op: id of the operation waited for.
        why: ``stream`` (the one before in its stream, or each of the last ones of a graph), ``event`` (a CUDA event),
            ``legacy`` (the default stream), ``graph`` (a node of the same launch), ``exec`` (the launch before of the same
            executable graph, where no other reason covers it) or ``value`` (wrote the value in memory that it waited for).
            The operation of an edge ended before this one started, but for ``value``: before it ended.
    """

    op: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What an operation was for the mock GPU driver (``SIMCUDA_BACKEND=mockgpu``).

    Attributes:
        gpu: number of the device.
        ring: number of its ring.
        number: in the driver's own account, as those in `gathering`.
        context: of its finished fence.
        seqno: likewise.
        gathering: empty jobs that made several dependencies into one, as the driver takes two at most.
    """

    gpu: int
    ring: int
    number: int
    context: int
    seqno: int
    gathering: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One operation on the simulated device.

    Attributes:
        id: from 1, in the order of submission.
        kind: kernel, memcpy_htod, memcpy_dtoh, memcpy_dtod, memcpy_peer, memset, host_func, event_record, wait_event,
            mem_alloc, mem_free, prefetch, wait_value, write_value or, of a graph, empty.
        name: of a kernel, else None.
        bytes: of a copy, set or allocation, else 0.
        event: number of the CUDA event recorded or waited for, else None.
        context: number of the context.
        stream: number of the stream, N of the thread ``sim-stream-N``; of a graph, that of the launch.
        handle: the stream's handle as a number; used again for later streams.
        call: number of the call that submitted it.
        launch: the same number if that was a graph launch, else None.
        made_by: of a graph, number of the call that was captured or that added the node; after an update of the executable
            graph, in the graph that it was updated from. Else None.
        node: of a graph, number of the node in its graph by creation, from 0; else None.
        path: of a node in child graphs, the numbers of their nodes, outermost first.
        submit_ns: when it was queued.
        start_ns: when the device began it.
        end_ns: when the device ended it.
        done_ns: when a waiter could first see that; the difference is the simulated device's own delay.
        after: what it had to wait for.
        job: what it was for the driver below, None without one. Then the device's own times are in that driver's account:
            `start_ns` is when the operation could have begun, and `end_ns` the time of its finished fence, but for host functions
            and waits for values.
    """

    id: int
    kind: str
    name: str | None
    bytes: int
    event: int | None
    context: int
    stream: int
    handle: int
    call: int
    launch: int | None
    made_by: int | None
    node: int | None
    path: tuple[int, ...]
    submit_ns: int
    start_ns: int
    end_ns: int
    done_ns: int
    after: tuple[Edge, ...]
    job: Job | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something the workload wrote about itself.

    Attributes:
        what: ``mark.<function>``, ``host.<work>`` (computing), ``wait.<for what>`` or ``poll.<what>``.
        request: id string of the request, "" for none.
        tid: thread it happened on.
        begin_ns: before it.
        end_ns: after it.
        values: the rest.
    """

    what: str
    request: str
    tid: int
    begin_ns: int
    end_ns: int
    values: Mapping[str, Any]


@dataclass(kw_only=True)
class Truth:
    """Everything of one process.

    Attributes:
        pid: the process.
        calls: by begin.
        ops: by id; those that were not done when the process ended are missing.
        notes: by begin.
    """

    pid: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    ops: dict[int, Op] = field(default_factory=dict[int, Op])
    notes: list[Note] = field(default_factory=list[Note])

    def named(self, *names: str) -> list[Call]:
        """Return the calls of these functions, by begin."""
        return [call for call in self.calls if call.name in names]


def read_truth(path: Path) -> Truth:
    """Read a SIMCUDA_TRUTH file; a last line that was cut off is left out.

    Raises:
        ValueError: the file is of another format, or of more than one process.
    """
    truth = Truth()
    for line in _lines(path):
        kind = line.pop("type")
        if kind == "header":
            if line["format"] != "simcuda.truth/2" or truth.pid:
                raise ValueError(f"{path} is not the truth of one simulated process")
            truth.pid = line["pid"]
        elif kind == "call":
            truth.calls.append(_call(line))
        elif kind == "op":
            truth.ops[line["op"]] = _op(line)
        elif kind == "note":
            truth.notes.append(_note(line))
    truth.calls.sort(key=lambda call: call.number)
    truth.ops = dict(sorted(truth.ops.items()))
    truth.notes.sort(key=lambda note: note.begin_ns)
    return truth


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _call(line: dict[str, Any]) -> Call:
    return Call(
        number=line.pop("call"),
        name=line.pop("name"),
        tid=line.pop("tid"),
        begin_ns=line.pop("begin_ns"),
        end_ns=line.pop("end_ns"),
        result=line.pop("result"),
        context=line.pop("context", None),
        context_handle=int(handle, 16) if (handle := line.pop("context_handle", None)) else None,
        outer=line.pop("outer", None),
        op=line.pop("op", None),
        waited_for=tuple(line.pop("waited_for", ())),
        arguments=line,
    )


def _op(line: dict[str, Any]) -> Op:
    return Op(
        id=line["op"],
        kind=line["kind"],
        name=line.get("name"),
        bytes=line["bytes"],
        event=line.get("event"),
        context=line["context"],
        stream=line["stream"],
        handle=int(line["handle"], 16),
        call=line["call"],
        launch=line.get("launch"),
        made_by=line.get("made_by"),
        node=line.get("node"),
        path=tuple(line.get("path", ())),
        submit_ns=line["submit_ns"],
        start_ns=line["start_ns"],
        end_ns=line["end_ns"],
        done_ns=line["done_ns"],
        after=tuple(Edge(op=op, why=why) for op, why in line["after"]),
        job=_job(line) if "job" in line else None,
    )


def _job(line: dict[str, Any]) -> Job:
    context, seqno = line["fence"]
    return Job(
        gpu=line["gpu"],
        ring=line["ring"],
        number=line["job"],
        context=context,
        seqno=seqno,
        gathering=tuple(line.get("gathering", ())),
    )


def _note(line: dict[str, Any]) -> Note:
    return Note(
        what=line.pop("what"),
        request=line.pop("request"),
        tid=line.pop("tid"),
        begin_ns=line.pop("begin_ns"),
        end_ns=line.pop("end_ns"),
        values=line,
    )
