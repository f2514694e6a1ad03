# SPDX-License-Identifier: Apache-2.0
"""Runs plugins' probe sets for the live tests of the layers: planned, compiled and attached as in a recording.

Records are kept in memory and decoded by the plugin itself; no recording is written.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import numpy as np

from fencepath._bpf.losses import Stage
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._loader import LoadedPlugin, Registry, load_plugins
from fencepath._record.plan import Plan, make_plan
from fencepath._record.programs import LoadedSet, load_set
from fencepath._record.rows import RowSplitter
from fencepath._record.targets import Targets
from fencepath.events import Batch
from fencepath.records import Records
from fencepath.system import System

__all__ = ["LiveLayers", "live_layers", "until"]

RING_BYTES = 17 << 20


class LiveLayers:
    """Attached layers.

    Attributes:
        plan: what is attached and what is not.
        shared: rings, loss counters and target sets of the programs.
        targets: adds to the sets of targets.
    """

    def __init__(
        self,
        registry: Registry,
        undo: contextlib.ExitStack,
        *,
        only: Sequence[str],
        all_processes: bool,
        self_tgid: int,
    ) -> None:
        system = System.here("full")
        self.plan: Plan = make_plan(registry, system, only or None)
        numbers = {kind: self.plan.layouts.number(kind) for kind in self.plan.layouts}
        shared = Shared(numbers, rings=Rings(RING_BYTES), all_processes=all_processes, self_tgid=self_tgid)
        self.shared = undo.enter_context(shared)
        self.targets = Targets(shared.tgids, shared.tids, self_tgid)
        self._splitter = RowSplitter(self.plan.layouts)
        self._records: dict[str, list[Records]] = defaultdict(list)
        self.loaded: list[LoadedSet] = []
        for planned in self.plan.sets:
            loaded = load_set(planned, shared.defines(), "full")
            undo.callback(loaded.close)
            loaded.attach()
            self.loaded.append(loaded)

    def drain(self) -> None:
        """Take out what is in the rings."""
        for batch in self.shared.rings.drain():
            for kind, records in self._splitter.split(batch):
                self._records[kind].append(records.copy())

    def detach(self) -> None:
        """Stop and take out what is left."""
        for loaded in self.loaded:
            loaded.detach()
        self.drain()

    def records(self, kind: str) -> Records:
        """All records of a kind so far, by time."""
        self.drain()
        parts = self._records.get(kind, [])
        found = np.concatenate([np.empty(0, self.plan.layouts[kind].dtype), *parts])
        return found[np.argsort(found["time_ns"], kind="stable")]

    def batch(self, kind: str) -> Batch:
        """The same, decoded by the plugin."""
        plugin = self._owner(kind)
        decoder = plugin.call("fencepath_decoder", layouts=self.plan.layouts, functions={})
        batch: Batch = decoder.decode(kind, self.records(kind))
        return batch

    def _owner(self, kind: str) -> LoadedPlugin:
        plugin = self.plan.registry.of_kind(kind)
        assert plugin is not None
        return plugin

    def lost(self) -> Mapping[tuple[str, str], int]:
        """What was counted as lost or faulty, by kind and stage."""
        names = {self.plan.layouts.number(kind): kind for kind in self.plan.layouts}
        counts = self.shared.losses.snapshot().sum(axis=0)
        found = {
            (names.get(number, ""), Stage(stage).name): int(counts[number, stage])
            for number, stage in zip(*np.nonzero(counts), strict=True)
            if stage != Stage.RECORDED
        }
        misses = {
            (name, "RECURSION"): count
            for loaded in self.loaded
            for name, count in loaded.bpf.recursion_misses().items()
            if count
        }
        return found | misses


@contextlib.contextmanager
def live_layers(
    extra: Mapping[str, object] | None = None,
    *,
    only: Iterable[str] = (),
    all_processes: bool = False,
    self_tgid: int = 0,
    missing: Sequence[tuple[str, str]] = (),
) -> Generator[LiveLayers]:
    """Attach core's own layers and `extra`.

    Args:
        extra: plugins by name; those that are installed are not looked at.
        only: layers to attach besides core's own; none means all of `extra`.
        all_processes: whether every process is a target.
        self_tgid: a process that never is, 0 for none.
        missing: what must be lacking here, as probe set and reason.
    """
    with contextlib.ExitStack() as undo:
        registry = load_plugins(extra, entry_points=False)
        assert not registry.problems
        live = LiveLayers(registry, undo, only=tuple(only), all_processes=all_processes, self_tgid=self_tgid)
        assert [(lacks.probe, lacks.why) for lacks in live.plan.missing] == list(missing)
        yield live


def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait for a condition to hold; fail after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
