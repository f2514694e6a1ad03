# SPDX-License-Identifier: Apache-2.0
"""What layers read of the target processes while they are recorded, kept as facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fencepath._loader import LoadedPlugin, Registry
from fencepath.plugin import ProcessWatch
from fencepath.system import System

__all__ = ["ProcessFacts"]

HOOK = "fencepath_process_facts"

_Facts = Iterable[tuple[str, Mapping[str, Any]]]


class ProcessFacts:
    """The watches of those layers of which something is recorded.

    Args:
        registry: the plugins; one that raises is noted there, and the rest goes on.
        layers: those that are asked.
        system: this machine.
        note: keeps a fact.
    """

    def __init__(
        self,
        registry: Registry,
        layers: Iterable[LoadedPlugin],
        system: System,
        note: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._registry = registry
        self._note = note
        wanted = {plugin.name for plugin in layers}
        self._watches: list[tuple[LoadedPlugin, ProcessWatch]] = [
            (plugin, watch) for plugin, watch in registry.collect(HOOK, system=system) if plugin.name in wanted
        ]

    def look(self, targets: Callable[[], Sequence[int]]) -> None:
        """Let each watch look at the processes that are targets now."""
        if self._watches:
            pids = sorted(targets())
            for plugin, watch in self._watches:
                self._keep(plugin, partial(watch.look, pids))

    def end(self) -> None:
        """Keep what is left; nothing is looked at after that."""
        watches, self._watches = self._watches, []
        for plugin, watch in watches:
            self._keep(plugin, watch.end)

    def _keep(self, plugin: LoadedPlugin, facts: Callable[[], _Facts]) -> None:
        for name, data in self._registry.guard(plugin, HOOK, lambda: list(facts()), []):
            self._note(f"{plugin.name}.{name}", data)
