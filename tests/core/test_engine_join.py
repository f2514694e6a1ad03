# SPDX-License-Identifier: Apache-2.0
"""Joins against an oracle that tries every pair, and what is counted."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepath._engine.activities import ActivityTable
from fencepath._engine.join import run_join
from fencepath.entities import NO_ENTITY, Entities
from fencepath.events import Batch, Category, KindInfo, Role
from fencepath.joins import Confidence, EdgeBatch, JoinRule, Order, Pick, Relation, Select

INFOS = {"t.cause": KindInfo(role=Role.CALL), "t.effect": KindInfo(role=Role.WAIT)}


class Row(NamedTuple):
    begin: int
    end: int
    key: int = 1


def batch(kind: str, rows: list[Row]) -> Batch:
    begin, end, key = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    zero = np.zeros(len(rows), np.int64)
    head = {"time_ns": end, "begin_ns": begin, "tgid": zero, "tid": zero, "cpu": zero, "flags": zero}
    return Batch(kind, {**head, "thread": zero, "key": key})


def table(causes: list[Row], effects: list[Row]) -> ActivityTable:
    rows = {"t.cause": causes, "t.effect": effects}
    return ActivityTable({kind: batch(kind, found) for kind, found in rows.items() if found}, INFOS, Entities())


def rule(
    relation: Relation, pick: Pick, *, same_kind: bool = False, confidence: Confidence = Confidence.EXACT
) -> JoinRule:
    effect = Select(kind="t.cause" if same_kind else "t.effect")
    return JoinRule(
        name="t.rule", cause=Select(kind="t.cause"), effect=effect, on=("key",), relation=relation, pick=pick,
        order=Order.FINISH_START, confidence=confidence, gap=Category.DRIVER,
    )  # fmt: skip


def is_candidate(relation: Relation, cause: Row, effect: Row) -> bool:
    return {
        Relation.CONTAINS: cause.begin <= effect.begin <= cause.end,
        Relation.LAST_BEFORE: cause.end <= effect.begin,
        Relation.ENDS: effect.begin <= cause.end <= effect.end,
        Relation.SAME: True,
    }[relation]


def contains(outer: Row, inner: Row) -> bool:
    return outer[:2] != inner[:2] and outer.begin <= inner.begin and inner.end <= outer.end


def oracle(
    relation: Relation, pick: Pick, causes: list[Row], effects: list[Row], error_ns: int, *, same_kind: bool
) -> list[tuple[set[int], set[int]]]:
    """For each effect the acceptable choices, and those that are as good as the choice without being it."""
    result: list[tuple[set[int], set[int]]] = []
    for number, effect in enumerate(effects):
        candidates = [
            index
            for index, cause in enumerate(causes)
            if cause.key == effect.key != NO_ENTITY and is_candidate(relation, cause, effect)
            if not (same_kind and index == number)
        ]
        time = {index: causes[index].begin if pick is Pick.INNERMOST else causes[index].end for index in candidates}
        best = {index for index in candidates if time[index] == max(time.values())}
        near = {index for index in candidates if max(time.values()) - time[index] <= error_ns}
        if relation is Relation.CONTAINS and pick is Pick.INNERMOST and best:
            shortest = min(causes[index].end for index in best)
            best = {index for index in best if causes[index].end == shortest}
            chosen = causes[min(best)]
            near = best | {index for index in near if not contains(causes[index], chosen)}
        result.append((best, near))
    return result


def edges_of(batches: list[EdgeBatch], effects: int, first_effect: int) -> list[dict[Confidence, set[int]]]:
    found: list[dict[Confidence, set[int]]] = [{} for _ in range(effects)]
    for edges in batches:
        for cause, effect in zip(edges.cause.tolist(), edges.effect.tolist(), strict=True):
            found[effect - first_effect].setdefault(edges.confidence, set()).add(cause)
    return found


times = st.integers(0, 30)
intervals = st.tuples(times, st.integers(0, 12), st.sampled_from([NO_ENTITY, 1, 1, 2])).map(
    lambda t: Row(t[0], t[0] + t[1], t[2])
)
rows = st.lists(intervals, max_size=14)


def in_time_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.end)


@pytest.mark.parametrize(("relation", "pick"), list(product(Relation, (Pick.INNERMOST, Pick.LATEST))))
@settings(max_examples=120, deadline=None)
@given(causes=rows, effects=rows, error_ns=st.sampled_from([0, 0, 2]), same_kind=st.booleans())
def test_each_effect_gets_the_cause_that_the_oracle_picks(
    relation: Relation, pick: Pick, causes: list[Row], effects: list[Row], error_ns: int, same_kind: bool
) -> None:
    causes, effects = in_time_order(causes), in_time_order(causes if same_kind else effects)
    activities = table(causes, [] if same_kind else effects)
    found = run_join(rule(relation, pick, same_kind=same_kind), activities, error_ns)
    expected = oracle(relation, pick, causes, effects, error_ns, same_kind=same_kind)
    first_effect = 0 if same_kind else len(causes)
    for (best, near), edges in zip(expected, edges_of(found, len(effects), first_effect), strict=True):
        if not best:
            assert edges == {}
        elif near == best and len(best) == 1:
            assert edges == {Confidence.EXACT: best}
        else:
            (confidence, causes_found), *others = edges.items()
            assert not others
            assert confidence is Confidence.INFERRED
            assert len(causes_found) == 2
            assert causes_found <= near | best
            assert causes_found & best
    keyed = [effect.key != NO_ENTITY for effect in effects]
    alone = [not best for best, _ in expected]
    assert sum(edges.unmatched for edges in found) == sum(key and no for key, no in zip(keyed, alone, strict=True))
    assert sum(edges.ambiguous for edges in found) == sum(len(near | best) > 1 for best, near in expected)


@pytest.mark.parametrize("relation", list(Relation))
@settings(max_examples=60, deadline=None)
@given(causes=rows, effects=rows)
def test_all_gives_every_candidate(relation: Relation, causes: list[Row], effects: list[Row]) -> None:
    causes, effects = in_time_order(causes), in_time_order(effects)
    (edges,) = run_join(rule(relation, Pick.ALL), table(causes, effects), 0)
    expected = {
        (c, len(causes) + e)
        for (c, cause), (e, effect) in product(enumerate(causes), enumerate(effects))
        if cause.key == effect.key != NO_ENTITY and is_candidate(relation, cause, effect)
    }
    pairs = list(zip(edges.cause.tolist(), edges.effect.tolist(), strict=True))
    assert len(pairs) == len(expected)
    assert set(pairs) == expected
    keyed = sum(effect.key != NO_ENTITY for effect in effects)
    assert edges.unmatched == keyed - len({effect for _, effect in expected})


def test_the_inner_of_two_calls_that_began_together_is_the_cause_and_nothing_is_ambiguous() -> None:
    activities = table([Row(10, 20), Row(10, 40)], [Row(15, 15)])
    (edges,) = run_join(rule(Relation.CONTAINS, Pick.INNERMOST), activities, 0)
    assert edges.cause.tolist() == [0]


def test_two_equal_candidates_are_both_kept_as_inferred_and_counted() -> None:
    activities = table([Row(10, 20), Row(12, 20)], [Row(30, 30)])
    sure, doubtful = run_join(rule(Relation.LAST_BEFORE, Pick.LATEST), activities, 0)
    assert len(sure.cause) == 0
    assert sorted(doubtful.cause.tolist()) == [0, 1]
    assert doubtful.confidence is Confidence.INFERRED
    assert doubtful.ambiguous == 1


def test_several_keys_must_all_be_equal_and_names_may_differ() -> None:
    causes, effects = batch("t.cause", [Row(0, 1, 1), Row(0, 2, 2)]), batch("t.effect", [Row(5, 5, 9), Row(5, 6, 9)])
    causes.columns["left"] = np.array([7, 8])
    effects.columns["right"] = np.array([8, 7])
    effects.columns["key"] = np.array([2, 2])
    activities = ActivityTable({"t.cause": causes, "t.effect": effects}, INFOS, Entities())
    both = JoinRule(
        name="t.both", cause=Select(role=Role.CALL), effect=Select(role=Role.WAIT), on=("key", ("left", "right")),
        relation=Relation.LAST_BEFORE,
    )  # fmt: skip
    (edges,) = run_join(both, activities, 0)
    assert list(zip(edges.cause.tolist(), edges.effect.tolist(), strict=True)) == [(1, 2)]
    assert edges.unmatched == 1


def test_a_kind_without_the_key_matches_nothing() -> None:
    causes, effects = batch("t.cause", [Row(0, 1)]), batch("t.effect", [Row(5, 5)])
    del causes.columns["key"]
    activities = ActivityTable({"t.cause": causes, "t.effect": effects}, INFOS, Entities())
    (edges,) = run_join(rule(Relation.LAST_BEFORE, Pick.LATEST), activities, 0)
    assert (len(edges.cause), edges.unmatched) == (0, 1)


def test_a_join_of_many_rows_takes_no_pairs() -> None:
    """Every effect has every cause as a candidate here: 10^10 pairs if they were made."""
    count = 100_000
    causes = [Row(i, i) for i in range(count)]
    activities = table(causes, [Row(count + i, count + i) for i in range(count)])
    for relation, pick in product((Relation.LAST_BEFORE, Relation.SAME), (Pick.INNERMOST, Pick.LATEST)):
        (edges,) = run_join(rule(relation, pick), activities, 0)
        assert set(edges.cause.tolist()) == {count - 1}


def test_no_causes_at_all() -> None:
    activities = table([], [Row(1, 1)])
    (edges,) = run_join(rule(Relation.SAME, Pick.LATEST), activities, 0)
    assert (len(edges.cause), edges.unmatched) == (0, 1)
