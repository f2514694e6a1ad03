# SPDX-License-Identifier: Apache-2.0
"""Loads plugins one by one and isolates those that fail.

pluggy's own entry-point loader lets one failing import abort all, and one raising hook aborts a fanned-out call; here
every plugin is loaded, registered and called by itself.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import isroutine
from typing import Any, TypeVar

import msgspec
import pluggy

from fencepath._stacks import wrong_links
from fencepath.errors import PluginError
from fencepath.events import Event, KindInfo, kind_of
from fencepath.plugin import API_VERSION, ENTRY_POINT_GROUP, PROJECT, LayerInfo, LayerSpecs

__all__ = ["LoadedPlugin", "PluginProblem", "Registry", "load_plugins"]

T = TypeVar("T")
D = TypeVar("D")


class PluginProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin, or one hook of it, that was isolated.

    Attributes:
        plugin: entry point or layer name.
        stage: import, register, or the hook or step that raised.
        message: what happened.
        distribution: where it comes from, "" if not known.
    """

    plugin: str
    stage: str
    message: str
    distribution: str = ""

    def __str__(self) -> str:
        return f"plugin {self.plugin} failed at {self.stage}: {self.message}"


class LoadedPlugin:
    """One plugin that can be called.

    Attributes:
        info: who it is.
        kinds: its event classes by kind.
        distribution: name and version of the distribution it came in, "" if not known.
        module: the object that implements the hooks.
    """

    def __init__(self, manager: pluggy.PluginManager, module: object, distribution: str) -> None:
        self._manager = manager
        self.module = module
        self.distribution = distribution
        self.kinds: dict[str, type[Event]] = {}
        info = self.call("fencepath_layer")
        if not isinstance(info, LayerInfo):
            raise PluginError(str(module), "register", "fencepath_layer must return a LayerInfo")
        self.info = info

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.info.name

    def implements(self, hook: str) -> bool:
        """Whether the plugin has an implementation of `hook`."""
        return bool(self._implementations(hook).get_hookimpls())

    def call(self, hook: str, **arguments: Any) -> Any:
        """Call one hook of this plugin alone; None if it does not implement it. Exceptions pass."""
        results = self._implementations(hook)(**arguments)
        return results[0] if results else None

    def _implementations(self, hook: str) -> pluggy.HookCaller:
        others = [plugin for plugin in self._manager.get_plugins() if plugin is not self.module]
        return self._manager.subset_hook_caller(hook, remove_plugins=others)


class Registry:
    """All plugins that loaded, by layer, and the problems of those that did not."""

    def __init__(self, plugins: Iterable[LoadedPlugin] = (), problems: Iterable[PluginProblem] = ()) -> None:
        self.plugins: dict[str, LoadedPlugin] = {plugin.name: plugin for plugin in plugins}
        self.problems: list[PluginProblem] = list(problems)
        self.kinds: dict[str, KindInfo] = {}
        self.events: dict[str, type[Event]] = {}
        for plugin in self.plugins.values():
            self.events.update(plugin.kinds)
            self.kinds.update({kind: event.info for kind, event in plugin.kinds.items()})

    def of_kind(self, kind: str) -> LoadedPlugin | None:
        """The plugin that owns a kind."""
        for plugin in self.plugins.values():
            if kind in plugin.kinds:
                return plugin
        return None

    def guard(self, plugin: LoadedPlugin, stage: str, action: Callable[[], T], default: D) -> T | D:
        """Run `action`; if it raises, note the problem and return `default`."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - a plugin's fault must not end the run
            self.note(plugin, stage, _say(error))
            return default

    def note(self, plugin: LoadedPlugin, stage: str, message: str) -> None:
        """Note a problem of a plugin, once."""
        problem = PluginProblem(plugin=plugin.name, stage=stage, message=message, distribution=plugin.distribution)
        if problem not in self.problems:
            self.problems.append(problem)

    def collect(self, hook: str, **arguments: Any) -> list[tuple[LoadedPlugin, Any]]:
        """Call a hook plugin by plugin; those that raise or do not implement it are left out."""
        found = []
        for plugin in self.plugins.values():
            if plugin.implements(hook):
                result = self.guard(plugin, hook, partial(plugin.call, hook, **arguments), None)
                if result is not None:
                    found.append((plugin, result))
        return found

    def items(self, hook: str, **arguments: Any) -> list[tuple[LoadedPlugin, Any]]:
        """Call a hook that returns several things plugin by plugin, and return the things one by one."""
        found: list[tuple[LoadedPlugin, Any]] = []
        for plugin, result in self.collect(hook, **arguments):
            found += [(plugin, item) for item in self.guard(plugin, hook, partial(list[Any], result), [])]
        return found

    def only(self, layers: Iterable[str]) -> Registry:
        """A registry with the given layers alone; core's own stay."""
        wanted = {*layers, *CORE_LAYERS}
        return Registry([plugin for name, plugin in self.plugins.items() if name in wanted], self.problems)


CORE_LAYERS = ("process", "mark")
CORE_DISTRIBUTION = "fencepath"


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def load_plugins(extra: Mapping[str, object] | None = None, *, entry_points: bool = True) -> Registry:
    """Load core's own layers, those of the entry-point group ``fencepath.plugins``, and `extra`.

    Args:
        extra: further plugin objects by name, as tests use.
        entry_points: look for installed plugins.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(LayerSpecs)
    problems: list[PluginProblem] = []
    loaded: list[LoadedPlugin] = []
    for name, distribution, load in _sources(extra or {}, entry_points=entry_points):
        try:
            plugin = _register(manager, name, load(), distribution)
        except PluginError as error:
            message = str(error).removeprefix(f"plugin {error.plugin} failed at {error.stage}: ")
            problems.append(PluginProblem(plugin=name, stage=error.stage, message=message, distribution=distribution))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any import can fail in any way, or try to exit
            problems.append(PluginProblem(plugin=name, stage="import", message=_say(error), distribution=distribution))
        else:
            loaded.append(plugin)
    return Registry(_without_doubles(loaded, problems), problems)


def _sources(extra: Mapping[str, object], *, entry_points: bool) -> Iterable[tuple[str, str, Callable[[], object]]]:
    from fencepath._builtin import plugin as builtin

    for name, module in builtin.LAYERS.items():
        yield name, CORE_DISTRIBUTION, partial(_itself, module)
    if entry_points:
        for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
            distribution = f"{point.dist.name} {point.dist.version}" if point.dist else ""
            yield point.name, distribution, point.load
    for name, module in extra.items():
        yield name, "", partial(_itself, module)


def _itself(module: object) -> object:
    return module


def _register(manager: pluggy.PluginManager, name: str, module: object, distribution: str) -> LoadedPlugin:
    if manager.is_registered(module):
        raise PluginError(name, "register", "it is already registered under another name; remove one of the two")
    try:
        # Two plugins may have one entry-point name; the layer's name decides, so the manager gets a name of its own.
        manager.register(module, name=f"{name} {id(module):x}")
        _check_hooks(manager, module, name)
        plugin = LoadedPlugin(manager, module, distribution)
        _check_layer(plugin)
    except Exception as error:
        if manager.is_registered(module):
            manager.unregister(module)
        if isinstance(error, PluginError):
            raise
        raise PluginError(name, "register", _say(error)) from error
    return plugin


def _check_hooks(manager: pluggy.PluginManager, module: object, name: str) -> None:
    hooks = [hook for hook in dir(module) if hook.startswith("fencepath_") and isroutine(getattr(module, hook))]
    unknown = [hook for hook in hooks if not hasattr(LayerSpecs, hook)]
    if unknown:
        raise PluginError(
            name, "register", f"no such hook: {', '.join(unknown)}; see the hook reference for their names"
        )
    unmarked = [hook for hook in hooks if not hasattr(getattr(module, hook), f"{PROJECT}_impl")]
    if unmarked:
        raise PluginError(name, "register", f"{', '.join(unmarked)} would never be called; add @hookimpl")
    if not manager.subset_hook_caller(
        "fencepath_layer", [p for p in manager.get_plugins() if p is not module]
    ).get_hookimpls():
        raise PluginError(name, "register", "fencepath_layer is not implemented")


def _check_layer(plugin: LoadedPlugin) -> None:
    major, minor = plugin.info.api
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        ours = ".".join(map(str, API_VERSION))
        raise PluginError(
            plugin.name,
            "register",
            f"written for plugin API {major}.{minor}, this fencepath has {ours}; install a matching version",
        )
    for wrong in wrong_links(plugin.info.links):
        raise PluginError(plugin.name, "register", wrong)
    for event_type in plugin.call("fencepath_event_kinds") or ():
        kind = kind_of(event_type)
        if not kind.startswith(plugin.name + "."):
            raise PluginError(
                plugin.name,
                "register",
                f"kind {kind} does not begin with the layer's name; call it {plugin.name}.<noun>",
            )
        if kind in plugin.kinds:
            raise PluginError(plugin.name, "register", f"kind {kind} is declared twice")
        plugin.kinds[kind] = event_type


def _without_doubles(loaded: list[LoadedPlugin], problems: list[PluginProblem]) -> list[LoadedPlugin]:
    """Two plugins with one layer name are both refused: which one was meant cannot be known. Core's own layers stay."""
    names = [plugin.name for plugin in loaded]
    own = [plugin for plugin in loaded if plugin.distribution == CORE_DISTRIBUTION]
    kept = own + [plugin for plugin in loaded if plugin not in own and names.count(plugin.name) == 1]
    for plugin in loaded:
        if plugin in kept:
            continue
        others = [other.distribution or "?" for other in loaded if other.name == plugin.name and other is not plugin]
        reserved = plugin.name in CORE_LAYERS
        message = (
            "the layer name is one of fencepath's own; choose another"
            if reserved
            else f"another plugin ({', '.join(others)}) has the same layer name; uninstall one of them"
        )
        problems.append(
            PluginProblem(plugin=plugin.name, stage="register", message=message, distribution=plugin.distribution)
        )
    return kept
