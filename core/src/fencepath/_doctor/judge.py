# SPDX-License-Identifier: Apache-2.0
"""Puts together what is read and what is said of it, for ``doctor`` and for ``record``."""

from __future__ import annotations

import msgspec

from fencepath._doctor import access, kernel, probes, target
from fencepath._doctor.capture import capture_compiler, capture_costs, capture_machine
from fencepath._doctor.layers import Asked, layer_checks, live_layer_checks, system_of
from fencepath._doctor.libraries import call_tables, count_functions, installed_libraries, mapped_libraries
from fencepath._doctor.processes import capture_process
from fencepath._doctor.state import MachineState
from fencepath._doctor.verdicts import Rule
from fencepath._loader import Registry, load_plugins
from fencepath.plugin import Check, Detail

__all__ = ["RULES", "examine", "judge", "judge_layers", "look"]

RULES: tuple[Rule, ...] = (*kernel.RULES, *access.RULES, *probes.RULES, *target.RULES)
"""All of core's rules, in the order in which their checks are shown."""


def look(pid: int | None = None) -> MachineState:
    """Capture what ``record`` needs to know before it attaches: no compiler, no plugins, no costs.

    Raises:
        UsageError: `pid` is no running process.
    """
    process = capture_process(pid) if pid is not None else None
    return msgspec.structs.replace(capture_machine(), process=process)


def examine(pid: int | None = None, *, detail: Detail = "full") -> tuple[MachineState, list[tuple[str, Check]]]:
    """Capture everything that ``doctor`` looks at, and judge it.

    Args:
        pid: also look at this process.
        detail: which functions are looked up.

    Returns:
        The state, and (layer or ``core``, check), core's first.

    Raises:
        UsageError: `pid` is no running process.
    """
    state = look(pid)
    registry = load_plugins()
    asked = live_layer_checks(registry) if state.tracepoints.root else Asked([], state.tracepoints, {}, {}, {})
    tables = call_tables(registry)
    found = installed_libraries(tables, detail) if pid is None else mapped_libraries(tables, pid, detail)
    state = msgspec.structs.replace(
        state,
        bcc=capture_compiler(),
        tracepoints=asked.tracepoints,
        symbols=asked.symbols,
        modules=asked.modules,
        traceable=asked.traceable,
        costs=capture_costs() if state.uprobes is not None and state.uprobes.works else None,
        functions=count_functions(tables, detail),
        libraries=tuple(found),
    )
    return state, [*(("core", check) for check in judge(state)), *asked.checks]


def judge(state: MachineState) -> list[Check]:
    """Return what core's rules say of a state."""
    return [check for rule in RULES for check in rule(state)]


def judge_layers(state: MachineState, registry: Registry | None = None) -> list[tuple[str, Check]]:
    """Return what the installed layers say of a captured state: by its tracepoints and symbols alone."""
    if not state.tracepoints.root:
        return []
    return list(layer_checks(load_plugins() if registry is None else registry, system_of(state)))
