# SPDX-License-Identifier: Apache-2.0
"""From a wait of the API down to the interrupt that ended it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from plugins.nvidia.tests.story import Story

from fencepath import Analysis
from fencepath.report import JoinCount
from fencepath_nvidia.reports import InterruptsTable

WAITS = 53


def count_of(analysis: Analysis, rule: str) -> JoinCount:
    (count,) = (count for count in analysis.joins if count.rule == rule)
    return count


def edges_of(analysis: Analysis, rule: str) -> Counter[tuple[str, str, int]]:
    """(kind of the cause, kind of the effect, confidence) of a rule's edges: 0 exact, 1 bounded, 2 inferred."""
    edges = analysis.edges
    if rule not in edges.rules:
        return Counter()
    number = edges.rules.index(rule)
    return Counter(
        (analysis.table.locate(cause)[0], analysis.table.locate(effect)[0], confidence)
        for cause, effect, confidence, of in zip(
            edges.cause.tolist(), edges.effect.tolist(), edges.confidence.tolist(), edges.rule.tolist(), strict=True
        )
        if of == number
    )


def wait(story: Story, at: float, tid: int = 41, cpu: int = 2) -> None:
    """A blocking wait of 9 ms, ended by an interrupt on a CPU."""
    story.sync(tid, at, at + 9)
    story.poll(tid, at + 1, at + 8)
    story.irq(at + 6, at + 6.5, cpu)
    story.waking(at + 6.2, tid, cpu)


def test_every_blocking_wait_has_its_chain(tmp_path: Path) -> None:
    story = Story()
    for index in range(WAITS):
        wait(story, 10 * index)
    analysis = story.analysis(tmp_path)
    assert edges_of(analysis, "nvidia.wait_call") == {("cuda.event.synchronize", "nvidia.poll", 0): WAITS}
    assert edges_of(analysis, "nvidia.wake") == {("host.waking", "nvidia.poll", 0): WAITS}
    assert edges_of(analysis, "host.irq_wake") == {("host.irq", "host.waking", 0): WAITS}
    assert edges_of(analysis, "nvidia.wait_return") == {("nvidia.poll", "cuda.event.synchronize", 0): WAITS}
    for rule in ("nvidia.wait_call", "nvidia.wake", "nvidia.wait_return"):
        count = count_of(analysis, rule)
        assert (count.matched, count.unmatched, count.off) == (WAITS, 0, "")
    assert InterruptsTable().rows(analysis.view, []) == [
        {"vector": 63, "gpu": "", "interrupts": WAITS, "polls_ended": WAITS, "processes": 1}
    ]


def test_chain_is_of_one_wait(tmp_path: Path) -> None:
    story = Story()
    for at in (0, 10, 20):
        wait(story, at)
    analysis = story.analysis(tmp_path)
    edges, table = analysis.edges, analysis.table
    for name in ("nvidia.wait_call", "nvidia.wake", "nvidia.wait_return"):
        rows = (edges.rule == edges.rules.index(name)).nonzero()[0]
        # each within its own 10 ms
        assert (table.begin[edges.cause[rows]] // 10_000_000).tolist() == [0, 1, 2]
        assert (table.begin[edges.effect[rows]] // 10_000_000).tolist() == [0, 1, 2]


def test_interrupts_that_two_processes_share_are_never_exact(tmp_path: Path) -> None:
    story = Story()
    for index in range(7):
        wait(story, 20 * index, tid=41)
        wait(story, 20 * index + 10, tid=77)
    analysis = story.analysis(tmp_path)
    assert edges_of(analysis, "nvidia.wake") == {("host.waking", "nvidia.poll", 2): 14}
    assert InterruptsTable().rows(analysis.view, [])[0]["processes"] == 2


@pytest.mark.parametrize("how", ["thread", "other interrupt", "timer", "other cpu"])
def test_wake_ups_that_no_interrupt_of_the_driver_made_are_bounded(tmp_path: Path, how: str) -> None:
    story = Story()
    story.poll(41, 1, 8)
    if how == "thread":
        story.waking(6, 41, by=9)
    else:
        story.waking(6, 41, cpu=1)
    if how == "other interrupt":
        story.irq(5, 7, 1, name=b"nvme0q1")
    if how == "other cpu":
        story.irq(5, 7, 3)
    analysis = story.analysis(tmp_path)
    assert edges_of(analysis, "nvidia.wake") == {("host.waking", "nvidia.poll", 1): 1}


def test_polls_that_nothing_ended_have_no_cause(tmp_path: Path) -> None:
    story = Story()
    # timed out, though something woke the thread; came back at once; woken before and after
    story.poll(41, 1, 8, ready=0)
    story.waking(6, 41)
    story.poll(41, 9, 9.1)
    story.waking(8.9, 41)
    story.waking(9.2, 41)
    story.waking(9.05, 77)
    analysis = story.analysis(tmp_path)
    assert edges_of(analysis, "nvidia.wake") == {}
    assert count_of(analysis, "nvidia.wake").unmatched == 1


def test_the_last_wake_up_ends_a_poll(tmp_path: Path) -> None:
    story = Story()
    story.poll(41, 1, 8)
    for at in (2, 3, 6):
        story.irq(at, at + 0.5, 1)
        story.waking(at + 0.2, 41, 1)
    analysis = story.analysis(tmp_path)
    edges = analysis.edges
    (cause,) = edges.cause[edges.rule == edges.rules.index("nvidia.wake")]
    assert analysis.table.begin[cause] == 6_200_000


def test_polls_outside_of_calls_and_calls_that_spin(tmp_path: Path) -> None:
    story = Story()
    story.sync(41, 0, 4)
    story.poll(41, 5, 6)
    story.poll(77, 1, 2)
    # two polls in one call: the last one ends it
    story.sync(41, 10, 20)
    story.poll(41, 11, 12)
    story.poll(41, 13, 19)
    analysis = story.analysis(tmp_path)
    assert count_of(analysis, "nvidia.wait_call") == JoinCount(
        rule="nvidia.wait_call", matched=2, unmatched=2, ambiguous=0
    )
    returned = count_of(analysis, "nvidia.wait_return")
    assert (returned.matched, returned.unmatched) == (1, 0)
    edges = analysis.edges
    (cause,) = edges.cause[edges.rule == edges.rules.index("nvidia.wait_return")]
    assert analysis.table.begin[cause] == 13_000_000


def test_without_other_layers_rules_are_off_and_say_so(tmp_path: Path) -> None:
    story = Story()
    wait(story, 0)
    analysis = story.analysis(tmp_path, without=("cuda", "host"))
    assert count_of(analysis, "nvidia.wake").off == "host.waking>=1 was not recorded"
    assert count_of(analysis, "nvidia.wait_call").off == "cuda.event.synchronize>=1 was not recorded"
    assert InterruptsTable().rows(analysis.view, []) == []


def test_allocations_of_the_driver_within_calls_of_the_api(tmp_path: Path) -> None:
    story = Story()
    story.memory(1, 0xC1, 0xDE, 1, 4096)
    story.malloc(2, 5, 2 << 20, 0x7F00)
    story.memory(3, 0xC1, 0xDE, 2, 2 << 20)
    analysis = story.analysis(tmp_path)
    count = count_of(analysis, "nvidia.malloc")
    assert (count.matched, count.unmatched) == (1, 1)
