# SPDX-License-Identifier: Apache-2.0
"""Saves the tracepoint formats and kernel functions that a plugin asks for, to see elsewhere what it would do on this kernel."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from fencepath._loader import load_plugins
from fencepath.errors import UsageError
from fencepath.plugin import FunctionProbe, SyscallProbes
from fencepath.system import System
from fencepath.testing._declared import Way, records_of, ways
from fencepath.tracepoints import LiveTracepoints, TracepointFormat, TracepointSource, bundle_name, write_bundle

__all__ = ["save_formats"]


class _Asked:
    """A kernel that notes which events it is asked for."""

    def __init__(self, kernel: TracepointSource) -> None:
        self._kernel = kernel
        self.names: set[tuple[str, str]] = set()

    def format(self, group: str, event: str) -> TracepointFormat | None:
        self.names.add((group, event))
        return self._kernel.format(group, event)

    def groups(self) -> tuple[str, ...]:
        return self._kernel.groups()

    def events(self, group: str) -> tuple[str, ...]:
        return self._kernel.events(group)


def save_formats(
    layer: str, folder: Path, kernel: LiveTracepoints | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write ``FOLDER/<group>/<event>.format``, or a bundle, for every event that an installed plugin may use.

    Kernel functions that it asks for go into ``symbols.txt`` in the folder, or ``NAME.symbols.txt`` beside the bundle, as lines of kallsyms
    without addresses.

    Args:
        layer: the plugin's.
        folder: is made if it is not there. If it is called ``NAME.formats`` or ``NAME.formats.gz``, one file is made instead.
        kernel: where formats are; by default the running kernel.

    Returns:
        Names of what was saved, and of what this kernel does not have: ``group:event``, and ``name()`` of a function.

    Raises:
        UsageError: no such layer.
        MachineError: tracefs may not be read.
    """
    registry = load_plugins()
    if layer not in registry.plugins:
        raise UsageError(f"no layer {layer} was loaded; there are {', '.join(sorted(registry.plugins))}")
    plugin = registry.plugins[layer]
    live = kernel if kernel is not None else LiveTracepoints()
    asked = _Asked(live)
    system = System(
        tracepoints=asked, architecture=platform.machine(), kernel=os.uname().release, detail="full", live=True
    )
    every = ways(plugin, system)
    # the hook itself may have asked for some
    names = set(asked.names)
    for way in every:
        for record in records_of(way.alternative):
            for source in record.sources:
                names |= {(source.group, source.event), *map(_event_of, (*source.needs, *source.without))}
        names |= {
            ("syscalls", f"sys_{side}_{syscall}")
            for probe in way.alternative.probes
            if isinstance(probe, SyscallProbes)
            for syscall in probe.table.syscalls
            for side in ("enter", "exit")
        }
    texts = {f"{group}:{event}": text for group, event in sorted(names) if (text := _text(live, group, event))}
    _save(folder, texts)
    there, absent = _functions(every, system)
    if there:
        file = _symbols_file(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"0000000000000000 t {line}\n" for line in there.values()))
    events = [f"{group}:{event}" for group, event in sorted(names)]
    saved = (*texts, *(f"{name}()" for name in there))
    return saved, (*(name for name in events if name not in texts), *(f"{name}()" for name in absent))


def _functions(ways: list[Way], system: System) -> tuple[dict[str, str], list[str]]:
    """Functions that this kernel has, with their modules as in kallsyms, and those that it does not have."""
    there: dict[str, str] = {}
    absent: list[str] = []
    for way in ways:
        for probe in way.alternative.probes:
            if not isinstance(probe, FunctionProbe):
                continue
            for name in (name for function in probe.record.functions for name in function.names):
                if system.symbols.has(name):
                    module = system.symbols.module_of(name)
                    there[name] = f"{name}\t[{module}]" if module else name
                elif name not in absent:
                    absent.append(name)
    return there, absent


def _symbols_file(folder: Path) -> Path:
    name = bundle_name(folder)
    return folder.with_name(f"{name}.symbols.txt") if name else folder / "symbols.txt"


def _event_of(need: str) -> tuple[str, str]:
    """The event of ``group:event`` or ``group:event.field``."""
    group, _, event = need.partition(":")
    return group, event.partition(".")[0]


def _text(kernel: LiveTracepoints, group: str, event: str) -> str:
    try:
        return (kernel.root / group / event / "format").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _save(folder: Path, texts: dict[str, str]) -> None:
    if bundle_name(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_bundle(folder, texts)
        return
    for name, text in texts.items():
        group, _, event = name.partition(":")
        path = folder / group / f"{event}.format"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
