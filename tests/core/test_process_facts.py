# SPDX-License-Identifier: Apache-2.0
"""Layers look at the target processes while they are recorded, and what they say is kept."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fencepath._loader import Registry, load_plugins
from fencepath._record.plan import make_plan
from fencepath._record.process_facts import ProcessFacts
from fencepath._record.recorder import Options, Recorder
from fencepath.events import U32, Event, KindInfo, Role
from fencepath.plugin import API_VERSION, Alternative, LayerInfo, ProbeSet, TracepointProbe, hookimpl
from fencepath.recording import Recording, open_recording
from fencepath.system import System
from fencepath.tracepoints import Take, TracepointRecord

Facts = Iterable[tuple[str, Mapping[str, Any]]]
WAKE = TracepointRecord(
    kind="looker.waking", group="sched", event="sched_waking", fields=(Take("pid", "u32", as_="wakee_tid"),)
)


class Waking(Event, frozen=True, kw_only=True, tag="looker.waking"):
    """A thread is woken."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAKE)
    wakee_tid: U32


class Watch:
    """Says which processes it was asked about."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, ...]] = []
        self.ended = 0

    def look(self, pids: Sequence[int]) -> Facts:
        self.looks.append(tuple(pids))
        yield "look", {"pids": list(pids), "number": len(self.looks)}

    def end(self) -> Facts:
        self.ended += 1
        return [("end", {"looks": len(self.looks)})]


class Raising(Watch):
    """Raises at its second look."""

    def look(self, pids: Sequence[int]) -> Facts:
        yield from super().look(pids)
        if len(self.looks) == 2:
            raise LookupError("no such file")


def layer(watch: Watch, name: str = "looker", *, probes: bool = True) -> object:
    class Layer:
        @hookimpl
        def fencepath_layer(self) -> LayerInfo:
            return LayerInfo(name=name, title="", version="1", api=API_VERSION)

        @hookimpl
        def fencepath_event_kinds(self) -> Sequence[type[Event]]:
            return (Waking,) if probes else ()

        @hookimpl
        def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
            way = Alternative(probes=(TracepointProbe(record=WAKE),), gives=(WAKE.kind,))
            return (ProbeSet(name="wakes", detail="sync", alternatives=(way,)),) if probes else ()

        @hookimpl
        def fencepath_process_facts(self, system: System) -> Watch:
            return watch

    return Layer()


def registry_of(**layers: object) -> Registry:
    registry = load_plugins(layers, entry_points=False)
    assert registry.problems == []
    return registry


class Kept:
    """The facts of watches, without a recording."""

    def __init__(self, registry: Registry, folder: Path, *names: str) -> None:
        self.facts: list[tuple[str, Mapping[str, Any]]] = []
        plugins = [registry.plugins[name] for name in names]
        self.watched = ProcessFacts(
            registry, plugins, System.from_formats(folder, detail="sync"), lambda name, data: self.facts.append((name, data))
        )  # fmt: skip

    def look(self, *pids: int) -> None:
        self.watched.look(lambda: pids)


def test_facts_are_named_by_their_layer_and_pids_ascend(tmp_path: Path) -> None:
    kept = Kept(registry_of(looker=layer(Watch())), tmp_path, "looker")
    kept.look(7, 3)
    kept.watched.end()
    assert kept.facts == [("looker.look", {"pids": [3, 7], "number": 1}), ("looker.end", {"looks": 1})]


def test_after_the_end_nothing_is_looked_at(tmp_path: Path) -> None:
    watch = Watch()
    kept = Kept(registry_of(looker=layer(watch)), tmp_path, "looker")
    kept.watched.end()
    kept.look(7)
    kept.watched.end()
    assert (watch.looks, watch.ended) == ([], 1)


def test_targets_are_not_asked_for_where_no_layer_looks(tmp_path: Path) -> None:
    watch = Watch()
    kept = Kept(registry_of(looker=layer(watch)), tmp_path)
    kept.watched.look(lambda: pytest.fail("nobody asked"))
    kept.watched.end()
    assert (watch.looks, watch.ended) == ([], 0)


def test_a_watch_that_raises_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    watch, other = Raising(), Watch()
    registry = registry_of(looker=layer(watch), other=layer(other, "other", probes=False))
    kept = Kept(registry, tmp_path, "looker", "other")
    for _ in range(3):
        kept.look(7)
    (problem,) = registry.problems
    assert str(problem) == "plugin looker failed at fencepath_process_facts: LookupError: no such file"
    assert [data["number"] for name, data in kept.facts if name == "looker.look"] == [1, 3]
    assert [data["number"] for name, data in kept.facts if name == "other.look"] == [1, 2, 3]


def recorded(folder: Path, seconds: float, **layers: object) -> tuple[int, Recording]:
    """Record a process that does nothing and is ended after some time, and a little beyond that."""
    registry, system = registry_of(**layers), System.here("sync")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            plan = make_plan(registry, system)
            assert not plan.missing
            with Recorder(folder / "r", plan, system, Options(detail="sync")) as recorder:
                recorder.add(process.pid)
                end_ns = time.monotonic_ns() + int(seconds * 1e9)
                recorder.run(lambda: time.monotonic_ns() > end_ns)
        finally:
            process.kill()
    return process.pid, open_recording(folder / "r")


@pytest.mark.bpf
def test_a_recorder_lets_layers_look_at_its_targets(tmp_path: Path) -> None:
    watch, idle = Watch(), Watch()
    pid, recording = recorded(tmp_path, 2.5, looker=layer(watch), idle=layer(idle, "idle", probes=False))
    looks = [fact.data for fact in recording.facts("looker.look")]
    # at the begin, each second, and before the end
    assert 4 <= len(looks) <= 5
    assert [look["pids"] for look in looks] == [[pid]] * len(looks)
    assert [fact.data for fact in recording.facts("looker.end")] == [{"looks": len(looks)}]
    assert (idle.looks, idle.ended) == ([], 0), "nothing of that layer is recorded"
