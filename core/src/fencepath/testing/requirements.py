# SPDX-License-Identifier: Apache-2.0
"""What every plugin must satisfy, one function a requirement; each raises AssertionError with what to mend."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fencepath._loader import LoadedPlugin, Registry
from fencepath._record.plan import DETAILS, PlannedSet, make_plan
from fencepath._record.programs import recorded_functions, records_header
from fencepath.events import HEAD_COLUMNS, Batch, columns_of
from fencepath.joins import GraphRule, JoinRule
from fencepath.plugin import Decoder, ProbeSet
from fencepath.records import Layouts, RecordLayout, Records
from fencepath.system import System

__all__ = [
    "README_SECTIONS",
    "bpf_compiles_and_loads",
    "decoder_survives_random_bytes",
    "imports_without_root",
    "kinds_are_well_formed",
    "probes_are_data",
    "readme_has_sections",
    "records_match_c_layout",
    "rules_name_known_kinds",
]

README_SECTIONS = ("What it sees", "Needs", "Costs", "Caveats", "Join keys")


def kinds_are_well_formed(plugin: LoadedPlugin) -> None:
    """Event classes have fixed-width columns, and every key is a column that a tracker can fill."""
    for kind, event in plugin.kinds.items():
        columns = columns_of(event)
        assert tuple(columns)[: len(HEAD_COLUMNS)] == HEAD_COLUMNS, f"{kind}: derive the class from fencepath.events.Event"
        assert event.info.version >= 1, f"{kind}: versions begin with 1"
        names = [key.column for key in event.info.keys]
        assert len(set(names)) == len(names), f"{kind}: a key is named twice"
        clash = set(names) & {"thread", "process"}
        assert not clash, f"{kind}: the keys {', '.join(sorted(clash))} are every event's already"


def probes_are_data(plugin: LoadedPlugin, system: System) -> None:
    """``fencepath_probes`` returns probe sets whose alternatives give only declared kinds, with a layout for each."""
    names: list[str] = []
    for probe_set in probe_sets(plugin, system):
        assert isinstance(probe_set, ProbeSet), f"fencepath_probes returned {probe_set!r}, not a ProbeSet"
        assert probe_set.detail in DETAILS, f"{probe_set.name}: unknown detail {probe_set.detail!r}"
        assert probe_set.alternatives, f"{probe_set.name}: a probe set needs at least one alternative"
        names.append(probe_set.name)
        for alternative in probe_set.alternatives:
            unknown = sorted(set(alternative.gives) - set(plugin.kinds))
            assert not unknown, f"{probe_set.name}: gives {', '.join(unknown)}, which fencepath_event_kinds does not list"
            if alternative.bpf is not None:
                assert alternative.bpf.path.is_file(), f"{probe_set.name}: no BPF source {alternative.bpf.path}"
    assert len(set(names)) == len(names), "two probe sets have one name"


def probe_sets(plugin: LoadedPlugin, system: System) -> tuple[ProbeSet, ...]:
    """Probe sets of a plugin; none if it has no such hook."""
    return tuple(plugin.call("fencepath_probes", system=system) or ())


def planned_sets(plugin: LoadedPlugin, system: System) -> tuple[tuple[PlannedSet, ...], Layouts]:
    """What of a plugin is possible on a machine, at full detail, with layouts."""
    plan = make_plan(Registry([plugin]), system)
    return tuple(planned for planned in plan.sets if planned.plugin is plugin), plan.layouts


def records_match_c_layout(plugin: LoadedPlugin, system: System) -> None:
    """A C compiler gives every record's struct the offsets and the size that numpy uses.

    Raises:
        FileNotFoundError: there is no C compiler.
    """
    planned, layouts = planned_sets(plugin, system)
    own = [layout for one in planned for layout in one.layouts if not _is_call(one, layout)]
    if not own:
        return
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: install gcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "layout.c")
        source.write_text(_layout_program(planned, layouts, own))
        subprocess.run([compiler, "-o", f"{folder}/layout", str(source)], check=True)
        seen = subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout
    wanted = "".join(_layout_lines(layout) for layout in own)
    assert seen == wanted, f"the C layout differs:\nC says\n{seen}\nnumpy uses\n{wanted}"


def _is_call(planned: PlannedSet, layout: RecordLayout) -> bool:
    return any(layout.kind in table.kinds for table in planned.tables)


_HEADER_C = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t s8; typedef int16_t s16; typedef int32_t s32; typedef int64_t s64;
struct fp_header { u64 time_ns; u32 tgid, tid; u16 kind, cpu; u32 flags; };
"""


def _layout_program(planned: tuple[PlannedSet, ...], layouts: Layouts, own: list[RecordLayout]) -> str:
    text = [_HEADER_C]
    for one in planned:
        text.append(records_header(one).replace('#include "fencepath.h"\n', ""))
    text.append("int main(void) {")
    for layout in own:
        struct = f"struct {layout.struct_name}"
        text.append(f'printf("{layout.kind} %zu\\n", sizeof({struct}));')
        names = [field.name for field in layout.fields[6:]]
        text += [f'printf("  {name} %zu\\n", offsetof({struct}, {name}));' for name in names]
    return "\n".join([*text, "return 0; }", ""])


def _layout_lines(layout: RecordLayout) -> str:
    fields = layout.dtype.fields
    assert fields is not None
    lines = [f"{layout.kind} {layout.size_bytes}", *(f"  {f.name} {fields[f.name][1]}" for f in layout.fields[6:])]
    return "\n".join(lines) + "\n"


def bpf_compiles_and_loads(plugin: LoadedPlugin, system: System) -> None:
    """Everything that is possible on this machine compiles, and the verifier accepts every program. Needs root."""
    from fencepath._bpf.attach import uprobe_attach_method
    from fencepath._bpf.rings import Rings
    from fencepath._bpf.shared import Shared
    from fencepath._bpf.sys import ProgramType
    from fencepath._record.programs import load_set
    from fencepath.calls import EntryState
    from fencepath.tracepoints import program_name

    planned, layouts = planned_sets(plugin, system)
    numbers = {kind: layouts.number(kind) for kind in layouts}
    with Shared(numbers, rings=Rings(8 << 20)) as shared, EntryState(layouts, 64) as entries:
        for one in planned:
            loaded = load_set(one, {**shared.defines(), **entries.defines()}, "full")
            try:
                for program in one.programs:
                    loaded.bpf.load(program.program or program_name(program.resolved), ProgramType.TRACEPOINT)
                for call in (call for table in one.tables for call in table.programs()):
                    for name in (call.entry, call.exit, call.once):
                        loaded.bpf.load(name, ProgramType.UPROBE, uprobe_attach_method().attach_type)
            finally:
                loaded.close()


def decoder_survives_random_bytes(plugin: LoadedPlugin, system: System, rounds: int = 50, seed: int = 1) -> None:
    """Records of any bytes are decoded to batches with the columns of their event class, as many rows as records."""
    planned, layouts = planned_sets(plugin, system)
    kinds = [layout.kind for one in planned for layout in one.layouts]
    if not kinds:
        return
    functions = recorded_functions(planned)
    decoder: Decoder = plugin.call("fencepath_decoder", layouts=layouts, functions=functions)
    assert decoder is not None, "the plugin records kinds but has no fencepath_decoder"
    random = np.random.default_rng(seed)
    for kind in kinds:
        columns = columns_of(plugin.kinds[kind])
        for _ in range(rounds):
            records = _random_records(layouts[kind], random)
            batch = decoder.decode(kind, records)
            _check_batch(batch, kind, records, set(columns) - {key.column for key in plugin.kinds[kind].info.keys})


def _random_records(layout: RecordLayout, random: np.random.Generator) -> Records:
    raw = random.integers(0, 256, (int(random.integers(0, 40)), layout.size_bytes), np.uint8)
    records: Records = raw.view(layout.dtype).reshape(-1)
    if len(records) and random.random() < 0.5 and "function" in (layout.dtype.names or ()):
        records["function"] = random.integers(0, 50, len(records))
    return records


def _check_batch(batch: Batch, kind: str, records: Records, wanted: set[str]) -> None:
    assert batch.kind == kind, f"{kind}: decode returned a batch of {batch.kind}"
    assert len(batch) <= len(records), f"{kind}: {len(records)} records gave {len(batch)} events"
    for name, column in batch.columns.items():
        assert len(column) == len(batch), f"{kind}: column {name} has {len(column)} rows, not {len(batch)}"
    lacking = sorted(wanted - set(batch.columns))
    assert not lacking, f"{kind}: the batch lacks the columns {', '.join(lacking)} of its event class"


def rules_name_known_kinds(plugin: LoadedPlugin, registry: Registry) -> None:
    """Rules are named for the layer, and kinds they name are the plugin's own or listed in ``requires``."""
    names: list[str] = []
    for rule in plugin.call("fencepath_rules") or ():
        assert isinstance(rule, JoinRule | GraphRule), f"{rule!r} is neither a JoinRule nor a GraphRule"
        assert rule.name.startswith(plugin.name + "."), f"rule {rule.name}: call it {plugin.name}.<noun>"
        names.append(rule.name)
        required = {requirement.partition(">=")[0] for requirement in rule.requires}
        for kind in _kinds_of(rule):
            assert kind in plugin.kinds or kind in required, f"rule {rule.name}: {kind} is not a kind of this layer; add it to requires"
        for requirement in required:
            known = requirement in registry.kinds or requirement.split(".")[0] not in registry.plugins
            assert known, f"rule {rule.name} requires {requirement}, which its layer does not have"
    assert len(set(names)) == len(names), "two rules have one name"


def _kinds_of(rule: JoinRule | GraphRule) -> Iterator[str]:
    if isinstance(rule, JoinRule):
        yield from (select.kind for select in (rule.cause, rule.effect) if select.kind is not None)


def imports_without_root(module: str) -> None:
    """The plugin's module is imported by an unprivileged user, with its hooks that do no I/O called."""
    code = f"""
import os
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
import importlib
module = importlib.import_module({module!r})
module.fencepath_layer()
if hasattr(module, 'fencepath_event_kinds'): module.fencepath_event_kinds()
if hasattr(module, 'fencepath_rules'): module.fencepath_rules()
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"importing {module} as an unprivileged user failed:\n{done.stderr}"


def readme_has_sections(readme: Path) -> None:
    """The README has the sections that users look for, each with something in it."""
    text = readme.read_text()
    for section in README_SECTIONS:
        match = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert match, f"{readme.name} has no section '## {section}'"
        assert match[1].strip(), f"{readme.name}: the section '{section}' is empty"


