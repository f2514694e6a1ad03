# SPDX-License-Identifier: Apache-2.0
"""Runs the plugins' join rules, each isolated, and counts what they found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fencepath._engine.activities import ActivityTable
from fencepath._engine.derive import DerivedRules
from fencepath._engine.join import run_join
from fencepath._loader import Registry
from fencepath.joins import EdgeBatch, GraphRule, JoinRule, View
from fencepath.report import JoinCount

__all__ = ["missing_requirements", "run_rules"]


def run_rules(
    registry: Registry, view: View, table: ActivityTable, recorded: Sequence[str], derived: DerivedRules = ()
) -> tuple[list[tuple[str, EdgeBatch]], tuple[JoinCount, ...]]:
    """Run every rule of every plugin.

    Args:
        registry: plugins.
        view: batches with entity columns.
        table: activities of the view.
        recorded: kinds that the recording holds or could hold, and what is derived from them.
        derived: rules over derived events.

    Returns:
        Edges with the names of their rules, and one count a rule.
    """
    edges: list[tuple[str, EdgeBatch]] = []
    counts: list[JoinCount] = []
    for plugin, rule in (*registry.items("fencepath_rules"), *derived):
        if not any(kind in recorded for kind in plugin.kinds):
            continue  # nothing of this layer was asked for, so nothing of it is missing
        name = str(getattr(rule, "name", rule))
        failed = JoinCount(rule=name, matched=0, unmatched=0, ambiguous=0, off="the rule failed")
        count, found = registry.guard(
            plugin, f"rule {name}", partial(_run, rule, registry, view, table, recorded), (failed, [])
        )
        edges += [(name, batch) for batch in found]
        counts.append(count)
    return edges, tuple(counts)


def _run(
    rule: JoinRule | GraphRule, registry: Registry, view: View, table: ActivityTable, recorded: Sequence[str]
) -> tuple[JoinCount, list[EdgeBatch]]:
    missing = missing_requirements(rule.requires, recorded, registry)
    if missing:
        off = f"{', '.join(missing)} was not recorded"
        return JoinCount(rule=rule.name, matched=0, unmatched=0, ambiguous=0, off=off), []
    found = run_join(rule, table, view.error_ns) if isinstance(rule, JoinRule) else list(rule.apply(view))
    for batch in found:
        _check(batch, len(table))
    count = JoinCount(
        rule=rule.name,
        matched=sum(len(batch.cause) for batch in found),
        unmatched=sum(batch.unmatched for batch in found),
        ambiguous=sum(batch.ambiguous for batch in found),
    )
    return count, found


def _check(batch: EdgeBatch, activities: int) -> None:
    """Refuse indices that are none: they would break the engine later, when nobody could tell whose fault it was."""
    if len(batch.cause) != len(batch.effect):
        raise ValueError("an edge batch has as many causes as effects")
    for column in (batch.cause, batch.effect):
        if len(column) and (int(column.min()) < 0 or int(column.max()) >= activities):
            raise ValueError(f"an edge names an activity that does not exist; there are {activities}")


def missing_requirements(requires: Sequence[str], recorded: Sequence[str], registry: Registry) -> list[str]:
    """Return the requirements (``kind`` or ``kind>=version``) that do not hold."""
    missing = []
    for requirement in requires:
        kind, _, version = requirement.partition(">=")
        if kind not in recorded or (version and registry.kinds[kind].version < int(version)):
            missing.append(requirement)
    return missing
