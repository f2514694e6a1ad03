# SPDX-License-Identifier: Apache-2.0
"""Runs a :class:`JoinRule` as a column join: for each effect the cause that the rule's relation and pick choose.

An activity is never its own cause.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fencepath._engine.activities import ActivityTable
from fencepath._engine.candidates import CauseIndex
from fencepath.entities import NO_ENTITY
from fencepath.joins import Activities, Confidence, EdgeBatch, JoinRule, Pick, Relation, Select

__all__ = ["run_join"]

Ints = npt.NDArray[np.int64]


def run_join(rule: JoinRule, table: ActivityTable, error_ns: int) -> list[EdgeBatch]:
    """Return the edges of `rule`: one batch with the rule's confidence, one ``inferred`` for ambiguous choices.

    A call of which only the begin is known contains an effect by a bound for its end: those edges are ``bounded``.
    """
    causes, effects = _select(rule.cause, table), _select(rule.effect, table)
    cause_key, effect_key = _keys(rule, table, causes, effects)
    causes, cause_key = causes[cause_key >= 0], cause_key[cause_key >= 0]
    keyed = effect_key >= 0
    sure, unsure, found = _match(rule, table, causes, cause_key, effects[keyed], effect_key[keyed], error_ns)
    unmatched = int(np.count_nonzero(keyed)) - found
    bounded = _is_bounded(rule, table, sure)
    edges = [_edges(rule, sure[~bounded], rule.confidence, unmatched, 0)]
    if bounded.any():
        edges.append(_edges(rule, sure[bounded], Confidence.BOUNDED, 0, 0))
    if len(unsure):
        edges.append(_edges(rule, unsure, Confidence.INFERRED, 0, len(np.unique(unsure[:, 1]))))
    return edges


def _is_bounded(rule: JoinRule, table: ActivityTable, pairs: Ints) -> npt.NDArray[np.bool_]:
    """Which pairs are only known to belong together because a bound for the cause's end says so."""
    if rule.relation is not Relation.CONTAINS or rule.confidence is not Confidence.EXACT:
        return np.zeros(len(pairs), np.bool_)
    bounded: npt.NDArray[np.bool_] = table.confidence[pairs[:, 0]] > 0
    return bounded


def _edges(rule: JoinRule, pairs: Ints, confidence: Confidence, unmatched: int, ambiguous: int) -> EdgeBatch:
    return EdgeBatch(
        cause=pairs[:, 0], effect=pairs[:, 1], order=rule.order, confidence=confidence, gap=rule.gap,
        unmatched=unmatched, ambiguous=ambiguous,
    )  # fmt: skip


def _select(select: Select, table: ActivityTable) -> Activities:
    if select.kind is not None:
        return table.of_kind(select.kind)
    assert select.role is not None
    return table.of_role(select.role)


def _keys(rule: JoinRule, table: ActivityTable, causes: Activities, effects: Activities) -> tuple[Ints, Ints]:
    """One code per combination of key values; -1 where a key names nothing."""
    cause_columns: list[Ints] = []
    effect_columns: list[Ints] = []
    for item in rule.on:
        cause_name, effect_name = (item, item) if isinstance(item, str) else item
        cause_columns.append(table.column(cause_name, causes))
        effect_columns.append(table.column(effect_name, effects))
    code = np.zeros(len(causes) + len(effects), np.int64)
    missing = np.zeros(len(code), bool)
    for left, right in zip(cause_columns, effect_columns, strict=True):
        both = np.concatenate([left, right])
        missing |= both == NO_ENTITY
        _, column = np.unique(both, return_inverse=True)
        code = code * (int(column.max(initial=0)) + 1) + column
        _, code = np.unique(code, return_inverse=True)
    code[missing] = -1
    return code[: len(causes)], code[len(causes) :]


def _match(
    rule: JoinRule,
    table: ActivityTable,
    causes: Activities,
    cause_key: Ints,
    effects: Activities,
    effect_key: Ints,
    error_ns: int,
) -> tuple[Ints, Ints, int]:
    """Pairs (cause, effect) that are sure, pairs that are ambiguous, and how many effects found a cause."""
    none = np.empty((0, 2), np.int64)
    if not len(causes) or not len(effects):
        return none, none, 0
    if rule.pick is Pick.ALL:
        pairs = _every(rule, table, causes, cause_key, effects, effect_key)
        return pairs, none, len(np.unique(pairs[:, 1]))
    index = CauseIndex(rule, table, causes, cause_key)
    chosen, rival = index.choose(effects, effect_key, error_ns)
    hit = chosen >= 0
    unsure = hit & (rival >= 0)
    sure = hit & ~unsure
    pairs = np.stack([index.causes[chosen[sure]], effects[sure]], axis=1)
    doubtful = np.concatenate(
        [np.stack([index.causes[which[unsure]], effects[unsure]], axis=1) for which in (chosen, rival)]
    )
    return pairs, doubtful, int(np.count_nonzero(hit))


def _every(
    rule: JoinRule, table: ActivityTable, causes: Activities, cause_key: Ints, effects: Activities, effect_key: Ints
) -> Ints:
    """All pairs of equal key that satisfy the relation."""
    order = np.argsort(cause_key, kind="stable")
    causes, cause_key = causes[order], cause_key[order]
    first = np.searchsorted(cause_key, effect_key, "left")
    count = np.searchsorted(cause_key, effect_key, "right") - first
    effect = np.repeat(effects, count)
    offset = np.arange(len(effect)) - np.repeat(np.cumsum(count) - count, count)
    cause = causes[np.repeat(first, count) + offset]
    cb, ce, eb, ee = table.begin[cause], table.end[cause], table.begin[effect], table.end[effect]
    keep = {
        Relation.CONTAINS: (cb <= eb) & (eb <= ce),
        Relation.LAST_BEFORE: ce <= eb,
        Relation.ENDS: (eb <= ce) & (ce <= ee),
        Relation.SAME: np.ones(len(cause), np.bool_),
    }[rule.relation] & (cause != effect)
    return np.stack([cause[keep], effect[keep]], axis=1)
