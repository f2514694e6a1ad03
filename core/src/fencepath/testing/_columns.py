# SPDX-License-Identifier: Apache-2.0
"""The requirement that columns of calls are filled by something."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fencepath._loader import LoadedPlugin
from fencepath.calls import CallTable
from fencepath.events import HEAD_COLUMNS, Batch, columns_of
from fencepath.plugin import CallProbe, Decoder
from fencepath.records import Flags, RecordLayout, Records
from fencepath.system import System
from fencepath.testing._records import decoders

__all__ = ["columns_are_given"]

_OF_EVERY_CALL = frozenset({"label", "function", "caller_ip", "entry_only", "returned", "result"})
_ROWS = 256


def columns_are_given(plugin: LoadedPlugin, system: System, seed: int = 1) -> None:
    """Each column of a kind of calls is given by a function of the table, or the decoder makes it of what they give.

    A misspelt one is 0 in every recording, and nothing else would say so. One that no function gives is refused if it is 0
    for calls of all functions with any arguments.
    """
    random = np.random.default_rng(seed)
    for way, decoder in decoders(plugin, system):
        for probe in way.alternative.probes:
            if isinstance(probe, CallProbe):
                for kind in probe.table.kinds:
                    _check_kind(plugin, probe.table, decoder({}), way.layouts[kind], random)


def _check_kind(
    plugin: LoadedPlugin, table: CallTable, decoder: Decoder, layout: RecordLayout, random: np.random.Generator
) -> None:
    kind = layout.kind
    event = plugin.kinds[kind]
    given = sorted(set(_given(table, kind)) - _OF_EVERY_CALL)
    known = {
        *HEAD_COLUMNS,
        *_OF_EVERY_CALL,
        *given,
        *(f"has_{name}" for name in given),
        *(k.column for k in event.info.keys),
    }
    doubtful = [name for name in columns_of(event) if name not in known]
    if not doubtful:
        return
    batch = decoder.decode(kind, _calls(table, layout, random))
    idle = [name for name in doubtful if _is_idle(batch, name)]
    assert not idle, (
        f"column {idle[0]} of {kind} is given by no function of the table (it gives {', '.join(given) or 'none'}), and the "
        "decoder leaves it 0"
    )


def _is_idle(batch: Batch, name: str) -> bool:
    return name not in batch or not np.any(batch[name].astype(bool))


def _given(table: CallTable, kind: str) -> Iterator[str]:
    for function in table.functions:
        if function.kind == kind:
            yield from (name for name, _ in function.columns)


def _calls(table: CallTable, layout: RecordLayout, random: np.random.Generator) -> Records:
    """Finished calls of all functions of a kind: with any words, and with small ones, as flags and enums are."""
    members = [index for index, function in enumerate(table.functions) if function.kind == layout.kind]
    rows = max(_ROWS, 8 * len(members))
    records: Records = random.integers(0, 256, (rows, layout.size_bytes), np.uint8).view(layout.dtype).reshape(-1)
    for name in ("args", "out", "result"):
        if name in (records.dtype.names or ()):
            records[name][::2] = random.integers(0, 4, records[name][::2].shape)
    records["flags"] = int(Flags.TASK)
    # each function with both sorts of words
    records["function"] = np.repeat(np.resize(members, (rows + 1) // 2), 2)[:rows]
    return records
