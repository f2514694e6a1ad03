# SPDX-License-Identifier: Apache-2.0
"""``fencepath check-plugin``: the requirements as checks, for whoever has no tests yet or wants another kernel's formats."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fencepath._loader import load_plugins
from fencepath._record.plan import make_plan
from fencepath.errors import FencepathError, UsageError
from fencepath.plugin import Check
from fencepath.system import System
from fencepath.testing import requirements

__all__ = ["check_layer"]


def check_layer(name: str, formats: Path | None = None) -> list[Check]:
    """Check an installed plugin.

    Args:
        name: its layer.
        formats: folder of saved tracefs formats; None checks against this machine, and loads its programs if this is root.

    Raises:
        UsageError: no such layer, or no such folder.
    """
    if formats is not None and not formats.is_dir():
        raise UsageError(f"no folder {formats}; it should hold <group>/<event>.format files")
    registry = load_plugins()
    broken = [problem for problem in registry.problems if problem.plugin == name]
    if broken:
        return [Check(name=problem.stage, verdict="refuse", evidence=problem.message) for problem in broken]
    if name not in registry.plugins:
        raise UsageError(f"no layer {name}; there are {', '.join(sorted(registry.plugins))}")
    plugin = registry.plugins[name]
    system = System.from_formats(formats, detail="full") if formats is not None else System.here("full")
    checks = [
        _run("kinds are well formed", lambda: requirements.kinds_are_well_formed(plugin)),
        _run("rules name known kinds", lambda: requirements.rules_name_known_kinds(plugin, registry)),
        _run("probes are data", lambda: requirements.probes_are_data(plugin, system)),
        _run("records match the C layout", lambda: requirements.records_match_c_layout(plugin, system)),
        _run("decoder survives random bytes", lambda: requirements.decoder_survives_random_bytes(plugin, system)),
    ]
    if formats is None and os.geteuid() == 0:
        checks.append(_run("BPF compiles and loads", lambda: requirements.bpf_compiles_and_loads(plugin, system)))
    plan = make_plan(registry, system, [name])
    checks += [Check(name=f"probe set {p.probe_set.name}", verdict="ok", evidence="possible") for p in plan.sets if p.plugin is plugin]
    checks += [Check(name=f"probe set {m.probe}", verdict="degrade", evidence=m.why) for m in plan.missing if m.layer == name]
    return checks


def _run(name: str, action: Callable[[], None]) -> Check:
    try:
        action()
    except AssertionError as error:
        return Check(name=name, verdict="refuse", evidence=str(error))
    except (FencepathError, OSError) as error:
        return Check(name=name, verdict="refuse", evidence=f"{type(error).__name__}: {error}")
    return Check(name=name, verdict="ok", evidence="yes")
