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

__all__ = ["Call", "Edge", "Note", "Op", "Truth", "read_truth"]


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
        outer: number of the runtime call it was made for, None if it was called by the program.
        op: id of the operation it submitted, None if none; of a graph launch, the first of ``arguments["ops"]``.
        waited_for: ids of the operations it waited for.
        arguments: the rest; handles are hexadecimal text, ``stream`` and ``event`` numbers that are never used again.
    """

    number: int
    name: str
    tid: int
    begin_ns: int
    end_ns: int
    result: int
    outer: int | None
    op: int | None
    waited_for: tuple[int, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """That an operation had to wait for another.

    Attributes:
        op: id of the operation waited for.
        why: ``stream`` (the one before in its stream), ``event`` (a CUDA event) or ``legacy`` (the default stream).
    """

    op: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One operation on the simulated device.

    Attributes:
        id: from 1, in the order of submission.
        kind: kernel, memcpy_htod, memcpy_dtoh, memcpy_dtod, memset, host_func, event_record or wait_event.
        name: of a kernel, else None.
        bytes: of a copy or memset, else 0.
        context: number of the context.
        stream: number of the stream, N of the thread ``sim-stream-N``.
        handle: the stream's handle as a number; used again for later streams.
        call: number of the call that submitted it.
        submit_ns: when it was queued.
        start_ns: when the device began it.
        end_ns: when the device ended it.
        done_ns: when a waiter could first see that; the difference is the simulated device's own delay.
        after: what it had to wait for.
    """

    id: int
    kind: str
    name: str | None
    bytes: int
    context: int
    stream: int
    handle: int
    call: int
    submit_ns: int
    start_ns: int
    end_ns: int
    done_ns: int
    after: tuple[Edge, ...]


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
            if line["format"] != "simcuda.truth/1" or truth.pid:
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
        context=line["context"],
        stream=line["stream"],
        handle=int(line["handle"], 16),
        call=line["call"],
        submit_ns=line["submit_ns"],
        start_ns=line["start_ns"],
        end_ns=line["end_ns"],
        done_ns=line["done_ns"],
        after=tuple(Edge(op=op, why=why) for op, why in line["after"]),
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
