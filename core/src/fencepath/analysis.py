# SPDX-License-Identifier: Apache-2.0
"""From a recording to requests, paths and graphs: the engine's public face.

from fencepath import Analysis, open_recording
analysis = Analysis(open_recording("run.fencepath"))
for request in analysis.requests:
    path = analysis.path(request)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fencepath._engine.activities import ActivityTable
from fencepath._engine.derive import derive
from fencepath._engine.edges import EdgeTable
from fencepath._engine.graph import build_graph
from fencepath._engine.load import load
from fencepath._engine.rules import run_rules
from fencepath._engine.runstate import RunStates
from fencepath._engine.timeline import Timelines
from fencepath._engine.view import EngineView
from fencepath._engine.walk import PathColumns, Walker
from fencepath._loader import Registry, load_plugins
from fencepath.entities import NO_ENTITY
from fencepath.errors import UsageError
from fencepath.events import Batch, Role
from fencepath.joins import EdgeBatch, View
from fencepath.modules import Modules
from fencepath.plugin import FindingRule, TableRule
from fencepath.recording import Recording
from fencepath.report import Finding, JoinCount, LayerTable, Report
from fencepath.requests import Request, RequestSource

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Analysis", "Path"]

CLOCK_ERROR_NS = 0
"""All records of one host are stamped by one clock, CLOCK_MONOTONIC, which the kernel keeps consistent between CPUs."""


class Path(NamedTuple):
    """The critical path of a request, as columns.

    Attributes:
        request: whose.
        target: ``end``, ``first_token`` or ``token:N``.
        end_ns: the target's time, CLOCK_MONOTONIC.
        columns: segments, ascending; their lengths add up to ``end_ns - request.start_ns`` exactly.
    """

    request: Request
    target: str
    end_ns: int
    columns: PathColumns


class Analysis:
    """All that can be said of a recording.

    Args:
        recording: from :func:`fencepath.open_recording`.
        registry: plugins; None loads the installed ones.
        without: layers to leave out as if they had not been recorded.

    Attributes:
        modules: executables and libraries of the recorded processes.
    """

    def __init__(self, recording: Recording, registry: Registry | None = None, without: Sequence[str] = ()) -> None:
        self.recording = recording
        self.registry = registry if registry is not None else load_plugins()
        self.without = tuple(without)
        self._loaded = load(recording, self.registry, without)
        self.modules = Modules(recording)
        self._derived_rules = derive(self._loaded, self.registry, recording, self.modules)
        self.table = ActivityTable(self._loaded.batches, self._loaded.infos, self._loaded.entities)
        self.view = EngineView(
            self._loaded.batches,
            self.table,
            CLOCK_ERROR_NS,
            self.registry.events,
            recording.loss,
            self.modules,
            recording.facts(),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong while reading: isolated plugins, kinds without a plugin."""
        return tuple(dict.fromkeys((*self._loaded.problems, *map(str, self.registry.problems))))

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """All requests, by start."""
        found: list[Request] = []
        for plugin, source in self.registry.items("fencepath_requests"):
            found += self.registry.guard(plugin, "requests", partial(_requests_of, source, self.view), [])
        return tuple(sorted(found, key=lambda request: (request.start_ns, request.end_ns, request.key)))

    @cached_property
    def _rules(self) -> tuple[list[tuple[str, EdgeBatch]], tuple[JoinCount, ...]]:
        return run_rules(self.registry, self.view, self.table, tuple(self._loaded.infos), self._derived_rules)

    @property
    def joins(self) -> tuple[JoinCount, ...]:
        """What each rule found."""
        return self._rules[1]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the plugins think a user should know."""
        found: list[Finding] = []
        for plugin, rule in self.registry.items("fencepath_findings"):
            mine = {kind: batch for kind, batch in self._loaded.batches.items() if kind in plugin.kinds}
            found += self.registry.guard(plugin, "findings", partial(_findings_of, rule, mine), [])
        return tuple(found)

    def tables(self, requests: Sequence[Request]) -> dict[str, dict[str, LayerTable]]:
        """Return the plugins' own tables over some requests, by layer and name."""
        found: dict[str, dict[str, LayerTable]] = {}
        for plugin, rule in self.registry.items("fencepath_tables"):
            if any(kind in self._loaded.infos for kind in plugin.kinds):
                make = partial(_table_of, rule, self.view, requests)
                table = self.registry.guard(plugin, f"table {rule.name}", make, None)
                if table is not None:
                    found.setdefault(plugin.name, {})[rule.name] = table
        return found

    @cached_property
    def edges(self) -> EdgeTable:
        """All edges."""
        return EdgeTable(self._rules[0], self.table, CLOCK_ERROR_NS)

    @cached_property
    def _states(self) -> RunStates:
        switches = [kind for kind, info in self._loaded.infos.items() if info.role is Role.RUN_STATE]
        used = {kind for kind, info in self._loaded.infos.items() if info.role in (Role.RUN_STATE, Role.WAKE)}
        # a loss of which the kind is not known may have been one of theirs
        used.add("")
        lost = [(row.from_ns, row.to_ns) for row in self.recording.loss if row.kind in used and row.count]
        states = RunStates(observed=bool(switches), lost=lost, followed=self._followed())
        threads = self._loaded.processes.threads
        if switches:
            births = self._loaded.processes.births
            states.add_births(np.array([b[0] for b in births.values()], np.int64), np.array(list(births), np.int64))
        for kind, batch in self._loaded.batches.items():
            role = self._loaded.infos[kind].role
            times = batch["time_ns"].astype(np.int64)
            if role is Role.RUN_STATE:
                states.add_switches(
                    times,
                    threads(batch["prev_tid"], times),
                    batch["prev_state"] == 0,
                    threads(batch["next_tid"], times),
                )
            elif role is Role.WAKE:
                states.add_wakes(times, threads(batch["wakee_tid"], times), self.table.of_kind(kind))
        return states

    def _followed(self) -> frozenset[int]:
        """Threads of targets. A thread of another process is only ever seen waking a target's, or sharing a CPU with it."""
        scheduler = (Role.RUN_STATE, Role.WAKE)
        own = [kind for kind, info in self._loaded.infos.items() if info.role not in scheduler]
        seen = [self._loaded.batches[kind]["thread"] for kind in own if kind in self._loaded.batches]
        return self._loaded.processes.known_threads | frozenset(
            np.unique(np.concatenate(seen)).tolist() if seen else ()
        )

    @cached_property
    def walker(self) -> Walker:
        """The walker over all requests."""
        timelines = Timelines(self.table, self._states)
        return Walker(self.table, self.edges, timelines, self._states, self._birth, CLOCK_ERROR_NS)

    def _birth(self, thread: int) -> tuple[int, int] | None:
        found = self._loaded.processes.births.get(thread)
        if found is None:
            return None
        time_ns, parent = found
        return time_ns, int(self._loaded.processes.threads(np.array([parent]), np.array([time_ns]))[0])

    def request(self, name: str) -> Request:
        """Find a request by id or key.

        Raises:
            UsageError: none, or several with that key.
        """
        found = [request for request in self.requests if name in (request.id, request.key)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(f"no request {name}; `fencepath report` without --request lists them")
        raise UsageError(
            f"{len(found)} requests are called {name}; name one by its id: {', '.join(r.id for r in found)}"
        )

    def path(self, request: Request, target: str = "end") -> Path:
        """Walk the critical path of a request.

        Args:
            request: one of :attr:`requests`.
            target: ``end``, ``first_token`` or ``token:N``.

        Raises:
            UsageError: the target is not known of this request.
        """
        end_ns = _target_ns(request, target)
        columns = self.walker.path(request.end_thread, request.start_ns, end_ns)
        return Path(request, target, end_ns, columns)

    def graph(self, request: Request, target: str = "end") -> nx.MultiDiGraph[str]:
        """Return the causal graph around a request: nodes are activity ids, edge keys are rules."""
        path = self.path(request, target)
        threads = np.unique(np.append(path.columns.thread, [request.start_thread, request.end_thread]))
        return build_graph(
            self.table,
            self.edges,
            threads[threads != NO_ENTITY],
            request.start_ns,
            path.end_ns,
            frozenset(path.columns.activity[path.columns.activity >= 0].tolist()),
        )

    def report(self, requests: Sequence[Request] | None = None, target: str = "end") -> Report:
        """Build the report of some requests, or of all."""
        from fencepath._engine.reporting import build_report

        return build_report(self, self.requests if requests is None else requests, target)

    def entity_text(self, entity: int) -> str:
        """Stable text of an entity id of this run."""
        return self._loaded.entities.text(entity)

    @cached_property
    def thread_names(self) -> dict[str, str]:
        """Names the kernel knew threads by, by the thread's text."""
        return {self.entity_text(thread): name for thread, name in self._loaded.processes.names.items() if name}


def _requests_of(source: RequestSource, view: View) -> list[Request]:
    return list(source.requests(view))


def _findings_of(rule: FindingRule, batches: Mapping[str, Batch]) -> list[Finding]:
    return list(rule.findings(batches))


def _table_of(rule: TableRule, view: View, requests: Sequence[Request]) -> LayerTable:
    return LayerTable(title=rule.title, rows=tuple(dict(row) for row in rule.rows(view, requests)))


def _target_ns(request: Request, target: str) -> int:
    if target == "end":
        return request.end_ns
    if target == "first_token":
        if request.first_token_ns is None:
            raise UsageError(f"request {request.key} has no token marks, so its first token is not known; use --to end")
        return request.first_token_ns
    kind, _, index = target.partition(":")
    if kind == "token" and index.isdigit():
        found = request.token_ns.get(int(index))
        if found is None:
            raise UsageError(f"request {request.key} has no mark of token {index}")
        return found
    raise UsageError(f"unknown target {target!r}; use end, first_token or token:N")
