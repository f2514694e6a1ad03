# SPDX-License-Identifier: Apache-2.0
"""Joins: how plugins say which event caused which, without core knowing their vendor.

A :class:`JoinRule` is declarative and runs as a column join; a :class:`GraphRule` is the escape for semantics with state
(streams, CUDA events, graphs). Both give edges between activities; the path walk and the causal graph use nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from fencepath.entities import Entities
from fencepath.events import Batch, Category, Role
from fencepath.modules import Modules

__all__ = [
    "Confidence",
    "Derived",
    "EdgeBatch",
    "Events",
    "GraphRule",
    "JoinRule",
    "Order",
    "Pick",
    "Relation",
    "Select",
    "View",
]

Activities = npt.NDArray[np.int64]
"""Indices of activities, valid for one run of the engine."""


class Relation(enum.StrEnum):
    """Which causes are candidates for an effect, in begin and end times; an instant has begin = end."""

    CONTAINS = "contains"
    """cause.begin <= effect.begin <= cause.end"""
    LAST_BEFORE = "last_before"
    """cause.end <= effect.begin"""
    ENDS = "ends"
    """effect.begin <= cause.end <= effect.end"""
    SAME = "same"
    """No condition on time."""


class Pick(enum.StrEnum):
    """Which candidate is taken for an effect."""

    INNERMOST = "innermost"
    """The latest begin."""
    LATEST = "latest"
    """The latest end."""
    ALL = "all"


class Order(enum.StrEnum):
    """What an edge promises, as in scheduling theory."""

    FINISH_START = "finish_start"
    """The effect starts after the cause finished."""
    START_START = "start_start"
    """The effect starts after the cause started."""
    FINISH_FINISH = "finish_finish"
    """The effect ends after the cause finished."""


class Confidence(enum.StrEnum):
    """How sure an edge or a segment is."""

    EXACT = "exact"
    """By identifiers and measured times."""
    BOUNDED = "bounded"
    """By identifiers; a time is known as a bound only."""
    INFERRED = "inferred"
    """By nearness or one of several candidates."""


class Select(msgspec.Struct, frozen=True, kw_only=True):
    """Selects activities: all of a role, or all of a kind. Exactly one is given."""

    role: Role | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if (self.role is None) == (self.kind is None):
            raise ValueError("a select takes either a role or a kind")


class JoinRule(msgspec.Struct, frozen=True, kw_only=True):
    """A declarative join.

    Attributes:
        name: unique, ``<layer>.<noun>``; named by segments, edges and the report's counts.
        cause: candidates.
        effect: each gets the cause (or causes) that `pick` takes.
        on: keys that must be equal: a column both have, or (column of the cause, column of the effect).
        relation: see :class:`Relation`.
        pick: see :class:`Pick`.
        order: see :class:`Order`.
        confidence: of the edges; two equal candidates make it ``inferred``.
        gap: category of the time between cause and effect.
        requires: kinds of other plugins, ``drm.job.run>=1``; when one was not recorded the rule is off and the report
            says so.
    """

    name: str
    cause: Select
    effect: Select
    on: tuple[str | tuple[str, str], ...]
    relation: Relation
    pick: Pick = Pick.LATEST
    order: Order = Order.FINISH_START
    confidence: Confidence = Confidence.EXACT
    gap: Category = Category.UNEXPLAINED
    requires: tuple[str, ...] = ()


class EdgeBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Edges that one rule gave.

    Attributes:
        cause: activity indices, shape (n,).
        effect: activity indices, shape (n,).
        order: one for all.
        confidence: one for all.
        gap: category of the time between cause and effect.
        unmatched: effects for which no cause was found.
        ambiguous: effects for which several causes were equally good.
    """

    cause: Activities
    effect: Activities
    order: Order
    confidence: Confidence
    gap: Category
    unmatched: int = 0
    ambiguous: int = 0


class Events(Protocol):
    """All batches of a run, sorted by ``time_ns``, with entity columns filled."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds with at least one event."""
        ...

    def batch(self, kind: str) -> Batch:
        """All events of a kind, sorted by ``time_ns``; an empty batch if there are none."""
        ...

    @property
    def modules(self) -> Modules:
        """Whose code addresses are: executables and libraries of the recorded processes."""
        ...

    def facts(self, name: str) -> Sequence[Mapping[str, Any]]:
        """What was said of the machine while recording under a name, ``<layer>.<fact>``, oldest first."""
        ...

    def lost(self, *kinds: str) -> npt.NDArray[np.int64]:
        """Windows in which records of these kinds, or of a kind not known, were lost.

        Returns:
            Shape (n, 2): from and to, CLOCK_MONOTONIC in ns, ascending by begin; they may overlap.
        """
        ...


class View(Events, Protocol):
    """What a GraphRule sees: all events of the run, recorded and derived, and the activity each of them is."""

    def activities(self, kind: str) -> Activities:
        """Activity index of each row of :meth:`batch`."""
        ...

    @property
    def extent_ns(self) -> tuple[int, int]:
        """Begin of the first and end of the last event."""
        ...

    @property
    def error_ns(self) -> int:
        """Clock error: times closer than this are equal."""
        ...


@runtime_checkable
class GraphRule(Protocol):
    """A rule with state of its own. ``apply`` is called once, with everything."""

    @property
    def name(self) -> str:
        """Unique, ``<layer>.<noun>``."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Kinds without which the rule is off."""
        ...

    def apply(self, view: View) -> list[EdgeBatch]:
        """Return the edges. An exception isolates the rule; the report says so."""
        ...


@runtime_checkable
class Derived(Protocol):
    """Events that were not recorded but follow from those that were, such as the operations of a device, and their edges.

    One object serves one run of the engine: first :meth:`derive` is called, once, then :meth:`rules`, so that the rules can
    use what was worked out for the events. An exception in either isolates the plugin's derived kinds; the report says so.
    """

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that it makes; their :class:`fencepath.events.KindInfo` has ``derived=True``."""
        ...

    def derive(self, events: Events, entities: Entities) -> Sequence[Batch]:
        """Return the derived events, at most one batch a kind, each sorted by ``time_ns``.

        Batches have the columns of their event class and of every event: ``time_ns``, ``begin_ns``, ``tgid``, ``tid``,
        ``cpu``, ``flags``, and the entity columns ``process`` and ``thread``, which may be NO_ENTITY. Events whose times
        are an earliest begin and a latest end have ``Flags.BOUNDS``.
        """
        ...

    def rules(self) -> Sequence[GraphRule]:
        """Return the rules whose edges name derived events."""
        ...
