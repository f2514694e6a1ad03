# SPDX-License-Identifier: Apache-2.0
"""What holds for the truth of every program, and how tests look into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from fencepath_cuda.simcuda.programs import Run
from fencepath_cuda.simcuda.truth import Call, Op, Truth

Interpret = Callable[..., list[Run]]


def check_truth(truth: Truth) -> None:
    """Check what holds for every program whose operations are all done."""
    calls = {call.number: call for call in truth.calls}
    assert [call.number for call in truth.calls] == list(range(1, len(calls) + 1))
    for op in truth.ops.values():
        check_op(truth, calls, op)
    check_order(truth)
    check_launches(truth, calls)
    for call in truth.calls:
        check_call(truth, calls, call)


def check_op(truth: Truth, calls: dict[int, Call], op: Op) -> None:
    call = calls[op.call]
    assert call.begin_ns <= op.submit_ns <= call.end_ns
    assert call.context == op.context
    assert op.submit_ns <= op.start_ns <= op.end_ns <= op.done_ns
    before = [truth.ops[edge.op] for edge in op.after if edge.why != "value"]
    assert all(other.id < op.id and other.end_ns <= op.start_ns for other in before)
    wrote = [truth.ops[edge.op] for edge in op.after if edge.why == "value"]
    assert all(other.kind == "write_value" and other.end_ns <= op.end_ns for other in wrote)
    if op.kind != "host_func":  # the device begins as soon as it may
        assert op.start_ns == max([op.submit_ns, *(other.end_ns for other in before)])
    assert (op.launch is None) == (op.made_by is None) == (op.node is None)
    assert op.launch in (None, op.call)


def check_order(truth: Truth) -> None:
    """Check that what is on a stream follows what was there, and a graph's roots and leaves stand for the graph."""
    last: defaultdict[int, set[int]] = defaultdict(set)
    for ops in by_call(truth.ops.values()):
        own = {op.id for op in ops}
        inside = {op.id: {edge.op for edge in op.after if edge.why == "graph"} for op in ops}
        for op in ops:
            on_stream = {edge.op for edge in op.after if edge.why == "stream"}
            assert on_stream == (set() if inside[op.id] else last[op.stream])
            assert inside[op.id] <= own
        last[ops[0].stream] = own.difference(*inside.values())


def check_launches(truth: Truth, calls: dict[int, Call]) -> None:
    """Check that the launches of one executable graph do not overlap, and what each made."""
    ended: dict[int, int] = {}
    for ops in by_call(truth.ops.values()):
        call = calls[ops[0].call]
        if ops[0].launch is None:
            assert len(ops) == 1
            assert call.op == ops[0].id
            continue
        assert [op.id for op in ops] == list(range(ops[0].id, ops[0].id + call.arguments["ops"]))
        assert call.op == ops[0].id
        assert all(calls[op.made_by or 0].begin_ns < call.begin_ns for op in ops)
        assert len({(op.path, op.node) for op in ops}) == len(ops)
        assert min(op.start_ns for op in ops) >= ended.get(call.arguments["exec"], 0)
        ended[call.arguments["exec"]] = max(op.end_ns for op in ops)


def check_call(truth: Truth, calls: dict[int, Call], call: Call) -> None:
    assert call.begin_ns <= call.end_ns
    assert all(truth.ops[op].done_ns <= call.end_ns for op in call.waited_for)
    assert call.op is None or not call.result
    if call.outer is not None:
        outer = calls[call.outer]
        assert outer.tid == call.tid
        assert outer.begin_ns <= call.begin_ns <= call.end_ns <= outer.end_ns


def by_call(ops: Iterable[Op]) -> list[list[Op]]:
    """Return operations by the call that submitted them, in the order of submission."""
    found: defaultdict[int, list[Op]] = defaultdict(list)
    for op in ops:
        found[op.call].append(op)
    return sorted(found.values(), key=lambda ops: ops[0].id)


def kernels(truth: Truth) -> dict[str, Op]:
    """Return kernels by name; every name was launched once."""
    found = {op.name: op for op in truth.ops.values() if op.name}
    assert len(found) == sum(op.kind == "kernel" for op in truth.ops.values())
    return found


def only(calls: list[Call]) -> Call:
    assert len(calls) == 1
    return calls[0]


def overlap(a: Op, b: Op) -> bool:
    return a.start_ns < b.end_ns and b.start_ns < a.end_ns


def edges(op: Op) -> set[tuple[int, str]]:
    return {(edge.op, edge.why) for edge in op.after}


def results(run: Run) -> list[int]:
    """Return what the steps of a run returned."""
    return [step.result for step in run.steps]
