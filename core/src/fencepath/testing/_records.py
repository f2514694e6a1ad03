# SPDX-License-Identifier: Apache-2.0
"""Requirements on records and on what a plugin makes of them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fencepath._loader import LoadedPlugin
from fencepath.entities import NO_ENTITY, Entities, EntityTracker
from fencepath.events import Batch, Role, columns_of
from fencepath.plugin import AttributeValue, Decoder
from fencepath.records import Field, RecordLayout, Records
from fencepath.system import System
from fencepath.testing._declared import Way, number, ways

__all__ = [
    "decoder_survives_random_bytes",
    "decoders",
    "keys_are_filled",
    "records_match_c_layout",
    "span_attributes_are_plain",
]

_ROWS = 40
_PROCESSES = 3


def records_match_c_layout(plugin: LoadedPlugin, system: System) -> None:
    """A C compiler gives every record's struct the offsets and the size that numpy uses, on every alternative.

    Raises:
        FileNotFoundError: there is no C compiler.
    """
    own = dict.fromkeys(
        layout
        for way in ways(plugin, system)
        for kind, layout in way.layouts.items()
        if kind not in way.written_by_core
    )
    if not own:
        return
    wanted = "".join(_layout_lines(layout) for layout in own)
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: install gcc")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "layout.c").write_text(_layout_program(list(own)))
        built = subprocess.run(
            [compiler, "-o", "layout", "layout.c"], cwd=folder, capture_output=True, text=True, check=False
        )
        reason = next((line for line in built.stderr.splitlines() if "error:" in line), built.stderr)
        assert built.returncode == 0, f"the C structs of the layouts do not compile; {reason}"
        seen = subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout
    differs = [pair for pair in zip(seen.splitlines(), wanted.splitlines(), strict=True) if pair[0] != pair[1]]
    assert not differs, (
        f"the C layout differs: C says '{differs[0][0].strip()}' where numpy uses '{differs[0][1].strip()}'; "
        f"use scalars, char[N] and arrays of at least one element\nC says\n{seen}numpy uses\n{wanted}"
    )


_HEADER_C = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t s8; typedef int16_t s16; typedef int32_t s32; typedef int64_t s64;
struct fp_header { u64 time_ns; u32 tgid, tid; u16 kind, cpu; u32 flags; };
int main(void) {
"""
_HEADER_FIELDS = 6


def _layout_program(layouts: Sequence[RecordLayout]) -> str:
    text = [_HEADER_C]
    for layout in layouts:
        struct = f"struct {layout.struct_name}"
        # in a block of its own: alternatives may record one kind in two layouts
        text += ["{", layout.c_struct(), f'printf("{layout.kind} %zu\\n", sizeof({struct}));']
        names = [field.name for field in layout.fields[_HEADER_FIELDS:]]
        text += [f'printf("  {name} %zu\\n", offsetof({struct}, {name}));' for name in names]
        text.append("}")
    return "\n".join([*text, "return 0; }", ""])


def _layout_lines(layout: RecordLayout) -> str:
    offsets = {str(name): field[1] for name, field in (layout.dtype.fields or {}).items()}
    names = [field.name for field in layout.fields[_HEADER_FIELDS:]]
    lines = [f"{layout.kind} {layout.size_bytes}", *(f"  {name} {offsets[name]}" for name in names)]
    return "\n".join(lines) + "\n"


def decoder_survives_random_bytes(plugin: LoadedPlugin, system: System, rounds: int = 50, seed: int = 1) -> None:
    """Records of any bytes are decoded to batches with the columns of their event class, at most one event a record.

    The records are read-only, as those of a recording may be; one batch is empty; and each layout is also tried with one
    field more than today's, as a later version would write it.
    """
    random = np.random.default_rng(seed)
    tried: set[tuple[RecordLayout, tuple[str, ...]]] = set()
    for way, decode in decoders(plugin, system):
        for kind, layout in way.layouts.items():
            functions = tuple(text for texts in way.functions.values() for text in texts)
            if (layout, functions) in tried:
                continue
            tried.add((layout, functions))
            later = (
                layout if kind in way.written_by_core else RecordLayout(kind, (*layout.fields, Field("later", "u64")))
            )
            for turn in range(rounds):
                used = later if turn % 4 == 3 else layout
                records = _random_records(used, random, 0 if turn == 0 else None)
                _try_decoding(plugin, partial(decode, {kind: used}), kind, records, f"round {turn} of seed {seed}")


def decoders(plugin: LoadedPlugin, system: System) -> Iterator[tuple[Way, Any]]:
    """Every way, with a function that makes the decoder of a recording made by it."""
    every = ways(plugin, system)
    base = {kind: layout for way in reversed(every) for kind, layout in way.layouts.items()}
    functions = {name: texts for way in reversed(every) for name, texts in way.functions.items()}
    for way in every:
        yield way, partial(_decoder, plugin, base | way.layouts, functions | way.functions)


def _decoder(
    plugin: LoadedPlugin,
    layouts: dict[str, RecordLayout],
    functions: Mapping[str, Sequence[str]],
    written: dict[str, RecordLayout],
) -> Decoder:
    decoder: Decoder | None = plugin.call("fencepath_decoder", layouts=number(layouts | written), functions=functions)
    assert decoder is not None, "the plugin records kinds, but has no fencepath_decoder that returns a decoder of them"
    assert hasattr(decoder, "decode"), f"fencepath_decoder returned {decoder!r}, which has no decode(kind, records)"
    return decoder


def _random_records(layout: RecordLayout, random: np.random.Generator, rows: int | None = None) -> Records:
    count = int(random.integers(1, _ROWS)) if rows is None else rows
    raw = random.integers(0, 256, (count, layout.size_bytes), np.uint8)
    records: Records = raw.view(layout.dtype).reshape(-1)
    if random.random() < 0.5 and "function" in (layout.dtype.names or ()):
        records["function"] = random.integers(0, 50, len(records))
    records.flags.writeable = False
    return records


def _try_decoding(plugin: LoadedPlugin, make: Any, kind: str, records: Records, where: str) -> None:
    event = plugin.kinds.get(kind)
    assert event is not None, f"{kind} is recorded, but fencepath_event_kinds does not list it"
    try:
        batch = make().decode(kind, records)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"{kind}: decode raised {type(error).__name__}: {error} for {len(records)} records of random bytes ({where}); it "
            "must not raise on any: decode what makes no sense as it is"
        ) from error
    assert isinstance(batch, Batch), f"{kind}: decode returned {batch!r}, not a Batch"
    assert batch.kind == kind, f"{kind}: decode returned a batch of {batch.kind}"
    assert len(batch) <= len(records), f"{kind}: {len(records)} records gave {len(batch)} events"
    _check_columns(
        batch, {name: dtype for name, dtype in columns_of(event).items() if name not in _key_columns(plugin, kind)}
    )
    assert sum(1 for _ in batch.events(event)) == len(batch)


def _key_columns(plugin: LoadedPlugin, kind: str) -> set[str]:
    return {key.column for key in plugin.kinds[kind].info.keys}


def _check_columns(batch: Batch, wanted: Mapping[str, np.dtype[Any]]) -> None:
    for name, column in batch.columns.items():
        assert len(column) == len(batch), f"{batch.kind}: column {name} has {len(column)} rows, not {len(batch)}"
    lacking = sorted(set(wanted) - set(batch.columns))
    assert not lacking, f"{batch.kind}: the batch lacks the columns {', '.join(lacking)} of its event class"
    for name, dtype in wanted.items():
        found = batch[name].dtype
        assert found == dtype, f"{batch.kind}: column {name} is {found}, and {dtype} in the event class"


def keys_are_filled(plugin: LoadedPlugin, system: System, seed: int = 1) -> None:
    """The entity tracker adds the key columns of each kind, survives records of any bytes, and names the right type."""
    keyed = [kind for kind, event in plugin.kinds.items() if event.info.keys]
    if not keyed and not plugin.implements("fencepath_entities"):
        return
    tracker: EntityTracker | None = plugin.call("fencepath_entities")
    assert tracker is not None, (
        f"{', '.join(keyed)} have keys, but no fencepath_entities returns a tracker that fills them"
    )
    entities = Entities()
    for process in range(_PROCESSES):
        entities.intern("process", (process,), f"process:{process}".__str__)
    for batch in _identified(plugin, system, seed):
        try:
            tracker.update(batch, entities)
        except Exception as error:
            raise AssertionError(
                f"{batch.kind}: the entity tracker raised {type(error).__name__}: {error} on random records"
            ) from error
        for key in plugin.kinds[batch.kind].info.keys:
            _check_key(batch, key.column, key.entity, entities)


def _identified(plugin: LoadedPlugin, system: System, seed: int) -> list[Batch]:
    """Batches of random records of every kind with processes and threads named, in the order of the engine.

    That is: kinds that are kept or of the role life first, and among them as ``fencepath_event_kinds`` lists them.
    """
    random = np.random.default_rng(seed)
    batches: dict[str, Batch] = {}
    for way, decode in decoders(plugin, system):
        for kind, layout in way.layouts.items():
            assert kind in plugin.kinds, f"{kind} is recorded, but fencepath_event_kinds does not list it"
            if kind not in batches:
                batches[kind] = decode({}).decode(kind, _random_records(layout, random))
    for batch in batches.values():
        rows = len(batch)
        batch.columns["time_ns"] = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(1000)
        batch.columns["begin_ns"] = batch.columns["time_ns"] - np.uint64(500)
        # a process of one thread each; events that no task made have neither
        batch.columns["process"] = random.integers(NO_ENTITY, _PROCESSES, rows)
        batch.columns["thread"] = batch.columns["process"].copy()
    early = {kind: event.info.keep or event.info.role is Role.LIFE for kind, event in plugin.kinds.items()}
    listed = [batches[kind] for kind in plugin.kinds if kind in batches]
    return sorted(listed, key=lambda batch: not early[batch.kind])


def _check_key(batch: Batch, column: str, entity: str, entities: Entities) -> None:
    assert column in batch, f"{batch.kind}: the entity tracker does not add the key column {column}"
    found = batch[column]
    assert found.dtype == np.int64, f"{batch.kind}: the key column {column} is {found.dtype}; entity ids are int64"
    assert len(found) == len(batch), f"{batch.kind}: the key column {column} has {len(found)} rows, not {len(batch)}"
    for number_ in np.unique(found[found != NO_ENTITY]).tolist():
        assert 0 <= number_ < len(entities), f"{batch.kind}: {column} has {number_}, which Entities did not give"
        type_ = entities.type_of(number_)
        assert type_ == entity, f"{batch.kind}: {column} names a {type_}, and its key is declared as a {entity}"


def span_attributes_are_plain(plugin: LoadedPlugin, system: System, seed: int = 1) -> None:
    """``fencepath_span_attributes`` gives texts, numbers and truth values for any row."""
    if not plugin.implements("fencepath_span_attributes"):
        return
    for batch in _identified(plugin, system, seed):
        for index in range(len(batch)):
            row: dict[str, AttributeValue] = {
                name: column[index : index + 1].tolist()[0] for name, column in batch.columns.items()
            }
            found = plugin.call("fencepath_span_attributes", kind=batch.kind, row=row)
            for name, value in (found or {}).items():
                plain = isinstance(name, str) and isinstance(value, str | bool | int | float)
                assert plain, f"{batch.kind}: the attribute {name!r} is {value!r}; spans take text, bool, int and float"
