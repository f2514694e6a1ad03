# SPDX-License-Identifier: Apache-2.0
"""What the model says of a simulated device is true of it: bounds hold, and so does every edge that is not inferred."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plugins.cuda.tests.story import Edge, Run, Story
from plugins.cuda.tests.threads import Program, recorded


def false_claims(program: Program, story: Story, run: Run) -> list[str]:
    """What is said of operations that really ran, and is wrong. Of one that did not, nothing can be."""
    ran, calls = program.device.ran, {call.number: call for call in program.calls}
    claims = [edge for rule in run.rules for edge in run.edges(rule) if edge.confidence != "inferred"]
    wrong = [
        str(edge)
        for edge in claims
        if {edge.cause, edge.effect} <= {*ran, *_calls(story)} and not _holds(edge, program)
    ]
    for span in run.spans():
        truth = ran.get(span.name)
        if truth and (span.earliest > truth.start or -1 < span.latest < truth.end):
            wrong.append(f"{span} but {truth} of {calls[span.name[0]]}")
    return wrong


def _calls(story: Story) -> set[tuple[int, ...]]:
    return {(call.number,) for call in story.calls}


def _holds(edge: Edge, program: Program) -> bool:
    ran, calls = program.device.ran, program.calls
    if edge.order == "start_start":
        return calls[edge.cause[0]].begin <= ran[edge.effect].start
    if edge.order == "finish_start":
        return ran[edge.cause].end <= ran[edge.effect].start
    return ran[edge.cause].end <= calls[edge.effect[0]].end


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize(("contexts", "attached"), [(False, False), (False, True), (True, False)])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 48), calls=st.integers(5, 90))
@example(seed=12797, calls=74)  # a stream that is made again, unseen, and does not block then
@example(seed=14524, calls=81)
def test_nothing_false_is_said_for_sure(contexts: bool, attached: bool, lossy: bool, seed: int, calls: int) -> None:
    # A CUDA event or a graph of which nothing is known is taken to be of no account for others: nothing says that it is.
    program = Program(Random(seed), contexts=contexts, plain=attached or lossy)
    program.run(calls)
    story = recorded(program, attached=attached, lossy=lossy)
    assert false_claims(program, story, story.run()) == []
