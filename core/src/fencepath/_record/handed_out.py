# SPDX-License-Identifier: Apache-2.0
"""Functions that a library hands out by address (``cuGetProcAddress``): where that is no symbol, they are attached by offset.

A probe is put where a symbol is. An address that a library gives out may lie elsewhere, and calls through it would go by
unseen. So each such call is looked at, and what went by until its function had a probe is in the loss table.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fencepath._libraries import MappedLibrary
from fencepath._record.declared_code import LayerCode
from fencepath._record.mappings import CodeMappings
from fencepath._record.plan import MissingSet
from fencepath._record.uprobes import UprobeAttacher
from fencepath.calls import CallTable
from fencepath.modules import HandedOut
from fencepath.records import Records

__all__ = ["HandedOutFunctions"]

LIMIT = 65_536
"""Most distinct addresses that are looked at; a program asks for some hundred."""


class _Given(NamedTuple):
    """An address that was handed out, and the call that did."""

    pid: int
    address: int
    time_ns: int
    source: tuple[CallTable, HandedOut]
    row: Mapping[str, Any]


class HandedOutFunctions:
    """Looks at calls that hand out functions.

    Args:
        codes: what the layers say.
        mappings: what the targets have mapped.
        uprobes: attaches.
        gap: called with the stage ``attach_gap``, begin and end in ns of CLOCK_MONOTONIC, the kind of the calls that may be
            missing in between, and 0, as how many they are cannot be known.
    """

    def __init__(
        self,
        codes: Iterable[LayerCode],
        mappings: CodeMappings,
        uprobes: UprobeAttacher,
        gap: Callable[[str, int, int, str, int], None],
    ) -> None:
        self._mappings = mappings
        self._uprobes = uprobes
        self._gap = gap
        self._sources: dict[str, list[tuple[CallTable, HandedOut]]] = defaultdict(list)
        for table, use in codes:
            for declared in use.handed_out:
                self._sources[declared.kind].append((table, declared))
        self._seen: dict[int, set[int]] = defaultdict(set)
        self._looked_at = 0
        self._waiting: list[tuple[_Given, bool]] = []

    def take(self, kind: str, records: Records) -> None:
        """Collect the addresses in records of a kind."""
        for table, declared in self._sources.get(kind, ()):
            columns = table.decode(kind, records, table.recorded)
            for at in np.flatnonzero(columns[declared.address] != 0).tolist():
                pid, address = int(columns.records["tgid"][at]), int(columns[declared.address][at])
                if address in self._seen[pid] or self._looked_at >= LIMIT:
                    continue
                self._seen[pid].add(address)
                self._looked_at += 1
                row = {name: column[at].item() for name, column in columns.items()}
                time_ns = int(columns.records["time_ns"][at])
                self._waiting.append((_Given(pid, address, time_ns, (table, declared), row), False))

    def forget(self, pid: int) -> None:
        """Take addresses of a process for new ones, after it became another program, or ended."""
        self._seen.pop(pid, None)

    def attach(self) -> None:
        """Attach what has no probe; to be called after maps were looked at.

        An address in a mapping that has not been seen gets one more chance at the next call.
        """
        waiting, self._waiting = self._waiting, []
        found: dict[tuple[str, MappedLibrary], list[_Given]] = defaultdict(list)
        for given, again in waiting:
            mapped = self._mappings.find(given.pid, given.address)
            if mapped is not None and mapped.mapping.is_file:
                found[given.source[0].layer, mapped.mapping].append(given)
            elif mapped is None and not again:
                self._waiting.append((given, True))
        for (layer, library), given_there in found.items():
            self._attach(layer, library, {given.address: given for given in given_there})

    def _attach(self, layer: str, library: MappedLibrary, given: Mapping[int, _Given]) -> None:
        functions: dict[int, str] = {}
        for address in self._uprobes.without_probe(layer, library, given):
            name = self._name_of(given[address])
            if name is not None:
                functions[address] = name
        if not functions:
            return
        if self._uprobes.stopped:
            attached = dict.fromkeys(functions, time.monotonic_ns())
        else:
            attached = self._uprobes.attach_at(layer, library, functions)
        for address, attached_ns in attached.items():
            table = given[address].source[0]
            kind = table.functions[table.index(functions[address])].kind
            self._gap("attach_gap", given[address].time_ns, attached_ns, kind, 0)

    def _name_of(self, given: _Given) -> str | None:
        """Ask the plugin which function of its table was handed out; what it does wrong must not end the recording."""
        table, declared = given.source
        try:
            name = declared.function(given.row)
            return name if name is None else table.functions[table.index(name)].name
        except Exception as error:  # noqa: BLE001 - a plugin's, of any kind
            why = f"the function for addresses handed out by {declared.kind} failed: {type(error).__name__}: {error}"
            missed = MissingSet(table.layer, "functions", why)
            if missed not in self._uprobes.missing:
                self._uprobes.missing.append(missed)
            return None
