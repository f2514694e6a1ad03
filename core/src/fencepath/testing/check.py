# SPDX-License-Identifier: Apache-2.0
"""``fencepath check-plugin``: the requirements as checks, for whoever has no tests yet or wants another kernel's formats."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from fencepath._loader import LoadedPlugin, PluginProblem, load_plugins
from fencepath._record.plan import PlannedSet
from fencepath.errors import FencepathError, UsageError
from fencepath.plugin import ENTRY_POINT_GROUP, Check, Verdict
from fencepath.system import System
from fencepath.testing import requirements
from fencepath.testing._declared import Way, ways
from fencepath.testing._libraries import functions_are_in_libraries
from fencepath.tracepoints import bundle_name

__all__ = ["check_layer"]


def check_layer(name: str, formats: Path | None = None, libraries: Sequence[Path] = ()) -> list[Check]:
    """Check an installed plugin.

    Args:
        name: its layer.
        formats: folder, or bundle, of saved tracefs formats; None checks against this machine. As root its programs are compiled and
            loaded too, with the formats of the one and the verifier of this machine.
        libraries: files in which the functions of its call table are looked up; by default what this machine's loader finds.

    Raises:
        UsageError: no such layer, no such folder, or a library that is no ELF file.
    """
    if formats is not None and not formats.is_dir() and not (formats.is_file() and bundle_name(formats)):
        raise UsageError(f"no folder {formats}; it should hold <group>/<event>.format files, or be a file NAME.formats")
    registry = load_plugins()
    broken = [problem for problem in registry.problems if problem.plugin == name]
    if broken:
        return _broken(name, broken)
    if name not in registry.plugins:
        raise UsageError(f"no layer {name}; there are {', '.join(sorted(registry.plugins))}")
    plugin = registry.plugins[name]
    system = System.from_formats(formats, detail="full") if formats is not None else System.here("full")
    checks = _declarations(plugin, system)
    if _refused(checks):
        return [*checks, _later("rules, records, decoder, keys, programs, probe sets")]
    checks.append(_run("rules name known kinds", lambda: requirements.rules_name_known_kinds(plugin, registry)))
    checks += _decoding(plugin, system)
    checks += functions_are_in_libraries(plugin, system, libraries)
    if os.geteuid() == 0:
        checks.append(_run("BPF compiles and loads", lambda: _programs(plugin, system)))
    return [*checks, *_probe_sets(plugin, system)]


def _declarations(plugin: LoadedPlugin, system: System) -> list[Check]:
    """What all other checks build on."""
    return [
        *(
            _run("imports without root", partial(requirements.imports_without_root, point.module))
            for point in _points(plugin.name)
        ),
        _run("kinds are well formed", lambda: requirements.kinds_are_well_formed(plugin)),
        _run("probes are data", lambda: requirements.probes_are_data(plugin, system)),
    ]


def _decoding(plugin: LoadedPlugin, system: System) -> list[Check]:
    checks = [
        _run("records match the C layout", lambda: requirements.records_match_c_layout(plugin, system)),
        _run("decoder survives random bytes", lambda: requirements.decoder_survives_random_bytes(plugin, system)),
    ]
    if _refused(checks[1:]):
        return [*checks, _later("columns, keys, span attributes")]
    return [
        *checks,
        _run("columns are given", lambda: requirements.columns_are_given(plugin, system)),
        _run("keys are filled", lambda: requirements.keys_are_filled(plugin, system)),
        _run("span attributes are plain", lambda: requirements.span_attributes_are_plain(plugin, system)),
    ]


def _refused(checks: Iterable[Check]) -> bool:
    return any(check.verdict == "refuse" for check in checks)


def _later(names: str) -> Check:
    """Instead of checks that would only say again, in other words, what one before them said."""
    return Check(name=names, verdict="warn", evidence="not looked at yet: mend what is refused above first")


def _points(name: str) -> importlib.metadata.EntryPoints:
    return importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)


def _broken(name: str, problems: list[PluginProblem]) -> list[Check]:
    """Say why a plugin did not load. Where it is a hook, the requirement on hooks says better what to mend."""
    if not any(problem.stage == "import" for problem in problems):
        hooks = [_run("hooks are known", partial(_hooks, point)) for point in _points(name)]
        if _refused(hooks):
            return hooks
    return [Check(name=problem.stage, verdict="refuse", evidence=problem.message) for problem in problems]


def _hooks(point: importlib.metadata.EntryPoint) -> None:
    requirements.hooks_are_known(point.load())


def _programs(plugin: LoadedPlugin, system: System) -> str:
    loaded = requirements.bpf_compiles_and_loads(plugin, system)
    return f"{loaded} programs" if loaded else "nothing is possible there, so nothing was tried"


def _probe_sets(plugin: LoadedPlugin, system: System) -> Iterator[Check]:
    """Which alternative of each probe set the machine has, and why not one before it."""
    found: dict[str, Check] = {}
    lacking: dict[str, list[str]] = {}
    for way in ways(plugin, system):
        name = f"probe set {way.probe_set.name}"
        if name in found:
            continue
        planned = way.resolve(plugin, system)
        if isinstance(planned, str):
            lacking.setdefault(name, []).append(f"{way.name}: {planned}")
            continue
        found[name] = _possible(name, way, planned, lacking.get(name, []))
    for name, whys in lacking.items():
        found.setdefault(
            name, Check(name=name, verdict="degrade", evidence="; ".join(whys), cost="it is not recorded there")
        )
    yield from found.values()


def _possible(name: str, way: Way, planned: PlannedSet, lacking: list[str]) -> Check:
    events = [program.resolved for program in planned.programs]
    names = [event.name for event in events]
    names += [f"{function}()" for resolved in planned.functions for function in resolved.present]
    said = [f"possible by {', '.join(dict.fromkeys(names))}" if names else "possible"]
    said += [f"{event.name} does not give {', '.join(event.absent)}" for event in events if event.absent]
    said += [f"instead of {why}" for why in (*lacking, *(why for event in events for why in event.why_not))]
    loses = way.alternative.loses
    verdict: Verdict = "degrade" if loses else "ok"
    return Check(name=name, verdict=verdict, evidence="; ".join(said), cost=loses)


def _run(name: str, action: Callable[[], str | None]) -> Check:
    try:
        evidence = action() or "yes"
    except AssertionError as error:
        return Check(name=name, verdict="refuse", evidence=str(error))
    except (FencepathError, OSError) as error:
        return Check(name=name, verdict="refuse", evidence=f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - a plugin's hook may raise anything
        return Check(name=name, verdict="refuse", evidence=f"a hook raised {type(error).__name__}: {error}")
    return Check(name=name, verdict="ok", evidence=evidence)
