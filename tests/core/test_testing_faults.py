# SPDX-License-Identifier: Apache-2.0
"""Faults planted in a plugin: each is caught by the requirement it breaks, and the message says what to mend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.core.planted import PING, RING, PingDecoder, alternative, hooks, ids, loaded, registry_of, rule, written

from fencepath._loader import load_plugins
from fencepath.calls import Arg, CallTable, Function, Out
from fencepath.events import S32, U64, Batch, Column, Event, Key, KindInfo, Role, columns_of
from fencepath.joins import Select
from fencepath.plugin import BpfSource, CallProbe, SyscallProbes, TracepointProbe, hookimpl
from fencepath.records import HEADER, Field, RecordLayout, Records
from fencepath.syscalls import SyscallProbe, SyscallTable
from fencepath.system import System
from fencepath.testing import requirements


@pytest.fixture
def machine(tmp_path: Path) -> System:
    """A machine without tracepoints: nothing here depends on what is there."""
    empty = tmp_path / "formats"
    empty.mkdir()
    return System.from_formats(empty, detail="full")


def test_a_sound_plugin_passes(machine: System, tmp_path: Path) -> None:
    plugin = hooks(alternatives=(alternative(), written(tmp_path)), rules=(rule(),))
    found = loaded(plugin)
    requirements.hooks_are_known(plugin)
    requirements.kinds_are_well_formed(found)
    requirements.probes_are_data(found, machine)
    requirements.records_match_c_layout(found, machine)
    requirements.decoder_survives_random_bytes(found, machine)
    requirements.keys_are_filled(found, machine)
    requirements.span_attributes_are_plain(found, machine)
    requirements.rules_name_known_kinds(found, registry_of(plugin))


@pytest.mark.parametrize("layer", ["mark", "process"])
def test_the_layers_of_core_pass(layer: str, machine: System) -> None:
    registry = load_plugins(entry_points=False)
    found = registry.plugins[layer]
    requirements.hooks_are_known(found.module)
    requirements.kinds_are_well_formed(found)
    requirements.probes_are_data(found, machine)
    requirements.records_match_c_layout(found, machine)
    requirements.decoder_survives_random_bytes(found, machine)
    requirements.rules_name_known_kinds(found, registry)


# Hooks.


def _misspelt(sytem: System) -> object: ...


def _with_default(system: System | None = None) -> object: ...


def _without() -> object: ...


def _unmarked() -> object: ...


@pytest.mark.parametrize(
    ("name", "hook", "says"),
    [
        ("fencepath_prob", hookimpl(_without), "there is no hook fencepath_prob; did you mean fencepath_probes?"),
        ("fencepath_zzz", hookimpl(_without), "there is no hook fencepath_zzz; the hooks are "),
        (
            "fencepath_checks",
            hookimpl(_misspelt),
            "fencepath_checks asks for sytem, but fencepath_checks gives system; ",
        ),
        ("fencepath_checks", hookimpl(_with_default), "asks for system with a default"),
        ("fencepath_requests", _unmarked, "fencepath_requests would never be called; put @hookimpl"),
    ],
)
def test_a_faulty_hook(name: str, hook: Callable[..., object], says: str) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.hooks_are_known(hooks(others={name: hook}))
    assert says in str(caught.value)


def test_a_plugin_that_does_not_say_who_it_is() -> None:
    plugin = hooks()
    delattr(plugin, "fencepath_layer")
    with pytest.raises(AssertionError, match="fencepath_layer is not implemented"):
        requirements.hooks_are_known(plugin)


# Importing.


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("open('/sys/kernel/tracing/events/enable').close()", "it opens /sys/kernel/tracing/events/enable"),
        ("from pathlib import Path; Path('/proc/kallsyms').read_text()", "it opens /proc/kallsyms"),
        ("import subprocess; subprocess.run(['true'])", "it calls subprocess.Popen"),
        ("import os; os.setuid(0); os.mkdir('/sys/kernel/x')", "Error"),
        ("import sys, types; sys.modules['bcc'] = types.ModuleType('bcc')", "it imports bcc"),
        ("raise RuntimeError('no gpu here')", "no gpu here"),
    ],
)
def test_a_plugin_that_needs_root_to_be_imported(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _importable(tmp_path, monkeypatch, f"{body}\n{_LAYER}")
    with pytest.raises(AssertionError) as caught:
        requirements.imports_without_root("planted_module")
    assert "importing planted_module as an unprivileged user failed" in str(caught.value)
    assert says in str(caught.value).splitlines()[0]
    assert "do it in fencepath_probes or fencepath_checks" in str(caught.value)


def test_a_hook_that_opens_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _importable(
        tmp_path, monkeypatch, _LAYER + "def fencepath_rules():\n    return open('/proc/self/status').readlines()\n"
    )
    with pytest.raises(AssertionError, match="it opens /proc/self/status"):
        requirements.imports_without_root("planted_module")


def test_a_plugin_that_does_nothing_when_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _importable(tmp_path, monkeypatch, _LAYER)
    requirements.imports_without_root("planted_module")


_LAYER = "def fencepath_layer(): ...\n"


def _importable(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (folder / "planted_module.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    for parent in (folder, *folder.parents):
        # pytest's folders are private, and nobody is to read this one
        if parent.stat().st_uid == 0 and parent.name.startswith(("pytest", "test")):
            parent.chmod(0o755)


# Kinds and probe sets.


class Text(Event, frozen=True, kw_only=True, tag="planted.text"):
    """A field of no fixed width."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    value: float


class Undocumented(Event, frozen=True, kw_only=True, tag="planted.undocumented"):
    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)


class Nameless(Event, frozen=True, kw_only=True, tag="planted.nameless"):
    """Says nothing of its role."""


class Waking(Event, frozen=True, kw_only=True, tag="planted.waking"):
    """Lacks what its role needs."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.WAKE)


class Taken(Event, frozen=True, kw_only=True, tag="planted.taken"):
    """Calls a key as the engine does."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(Key("thread", "planted.thread"),))


class Twice(Event, frozen=True, kw_only=True, tag="planted.twice"):
    """Names a key twice."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL, keys=(Key("a", "planted.a"), Key("a", "planted.b")))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Text, "planted.text: a field of an event must be a fixed-width integer"),
        (Undocumented, "planted.undocumented: say in a docstring what one event is"),
        (Waking, "planted.waking: a kind with the role wake needs the columns wakee_tid"),
        (Taken, "planted.taken: the keys thread are every event's already"),
        (Twice, "planted.twice: a key is named twice"),
    ],
)
def test_a_faulty_kind(kind: type[Event], says: str) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.kinds_are_well_formed(loaded(hooks(kinds=(kind,))))
    assert says in str(caught.value)


def test_a_kind_without_a_role(machine: System) -> None:
    """Refused when it is loaded already; the requirement is for classes that are looked at without loading."""
    found = loaded(hooks())
    found.kinds["planted.nameless"] = Nameless
    with pytest.raises(AssertionError, match=r"planted\.nameless: the class says nothing of its role"):
        requirements.kinds_are_well_formed(found)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gives": (PING, "planted.pong")}, "gives planted.pong, which fencepath_event_kinds does not list"),
        ({"gives": ()}, "records planted.ping, which is not in gives"),
        ({"probes": (), "gives": (PING,)}, "gives planted.ping, but there is no layout for it"),
        ({"probes": (), "gives": ()}, "no probe set gives planted.ping, which fencepath_event_kinds lists"),
    ],
)
def test_a_faulty_alternative(changed: dict[str, Any], says: str, machine: System) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.probes_are_data(loaded(hooks(alternatives=(alternative(**changed),))), machine)
    assert says in str(caught.value)


def test_a_bpf_source_that_was_left_out_of_the_wheel(tmp_path: Path, machine: System) -> None:
    way = written(tmp_path)
    (tmp_path / "ping.c").unlink()
    with pytest.raises(AssertionError, match=r"there is no BPF source .*ping\.c; is it in the wheel\?"):
        requirements.probes_are_data(loaded(hooks(alternatives=(way,))), machine)


def test_an_alternative_without_alternatives(machine: System) -> None:
    with pytest.raises(AssertionError, match="pings: a probe set needs at least one alternative"):
        requirements.probes_are_data(loaded(hooks(alternatives=())), machine)


def _calls(*functions: str) -> CallTable:
    return CallTable("planted", ("libplanted.so",), [Function(name, PING) for name in functions])


def test_call_tables(tmp_path: Path, machine: System) -> None:
    source = BpfSource(path=tmp_path / "calls.c")
    source.path.write_text('#include "fp_calls.h"')
    one, two = (
        alternative(probes=(CallProbe(table=_calls(name)),), bpf=source) for name in ("planted_open", "planted_close")
    )
    requirements.probes_are_data(loaded(hooks(alternatives=(one, one))), machine)
    with pytest.raises(AssertionError, match="two call tables: a recording keeps the functions of one table a layer"):
        requirements.probes_are_data(loaded(hooks(alternatives=(one, two))), machine)
    bare = alternative(probes=one.probes)
    with pytest.raises(AssertionError, match=r"it has no BPF source; give it one that includes fp_calls\.h"):
        requirements.probes_are_data(loaded(hooks(alternatives=(bare,))), machine)


def test_system_calls_among_other_probes(machine: System) -> None:
    table = SyscallTable((), (), (SyscallProbe(PING, "getppid"),))
    mixed = alternative(probes=(SyscallProbes(table=table), TracepointProbe(record=RING)))
    with pytest.raises(AssertionError, match="system calls cannot be mixed with other probes"):
        requirements.probes_are_data(loaded(hooks(alternatives=(mixed,))), machine)


# Layouts.


class Wider(RecordLayout, frozen=True):
    """Its C struct is not the one that numpy reads."""

    def c_struct(self) -> str:
        return super().c_struct().replace("u32 to", "u64 to")


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (
            Wider(PING, (*HEADER, Field("to", "u32"), Field("more", "u32"))),
            "the C layout differs: C says 'planted.ping 40' where numpy uses 'planted.ping 32'",
        ),
        (RecordLayout(PING, (*HEADER, Field("register", "u32"))), "the C structs of the layouts do not compile"),
    ],
)
def test_a_layout_that_differs(layout: RecordLayout, says: str, machine: System) -> None:
    """The second alternative has it: what only another kernel takes is looked at too."""
    faulty = alternative(probes=(), layouts=(layout,))
    with pytest.raises(AssertionError) as caught:
        requirements.records_match_c_layout(loaded(hooks(alternatives=(alternative(), faulty))), machine)
    assert says in str(caught.value)


# Decoders.


class Raises(PingDecoder):
    """Believes what a field says."""

    def decode(self, kind: str, records: Records) -> Batch:
        names = ["a", "b"]
        for row in records:
            names[int(row["to"])]
        return super().decode(kind, records)


class Lacks(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        return Batch.from_records(kind, records)


class Widens(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        batch = super().decode(kind, records)
        batch.columns["to"] = batch.columns["to"].astype(np.int64)
        return batch


class Uneven(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        batch = super().decode(kind, records)
        batch.columns["to"] = np.zeros(len(batch) + 1, np.uint32)
        return batch


class Renames(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        return super().decode("planted.pong", records)


class Invents(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        return super().decode(kind, np.concatenate([records, records[:1]]))


class Writes(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        records["to"] += 1
        return super().decode(kind, records)


class NeedsRows(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        records["to"].max()
        return super().decode(kind, records)


class KnowsToday(PingDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        if records.dtype != RING.layout.dtype:
            raise ValueError("not today's")
        return super().decode(kind, records)


@pytest.mark.parametrize(
    ("decoder", "says"),
    [
        (Raises(), "planted.ping: decode raised IndexError: list index out of range for"),
        (Lacks(), "planted.ping: the batch lacks the columns wakee_tid of its event class"),
        (Widens(), "planted.ping: column to is int64, and uint32 in the event class"),
        (Uneven(), "planted.ping: column to has 1 rows, not 0"),
        (Renames(), "planted.ping: decode returned a batch of planted.pong"),
        (Invents(), "records gave"),
        (Writes(), "planted.ping: decode raised ValueError: output array is read-only"),
        (NeedsRows(), "for 0 records of random bytes"),
        (object(), "which has no decode(kind, records)"),
    ],
)
def test_a_faulty_decoder(decoder: object, says: str, machine: System) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.decoder_survives_random_bytes(loaded(hooks(decoder=decoder)), machine)
    assert says in str(caught.value)


def test_a_decoder_that_knows_only_todays_records(machine: System) -> None:
    with pytest.raises(AssertionError, match=r"planted\.ping: decode raised ValueError: not today's"):
        requirements.decoder_survives_random_bytes(loaded(hooks(decoder=KnowsToday())), machine)


def test_a_kind_that_is_recorded_and_not_declared(machine: System) -> None:
    with pytest.raises(AssertionError, match=r"planted\.ping is recorded, but fencepath_event_kinds does not list it"):
        requirements.decoder_survives_random_bytes(loaded(hooks(kinds=())), machine)


# Columns of calls.


class Open(Event, frozen=True, kw_only=True, tag="planted.open"):
    """A door is opened. The column `far` is worked out of another."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    door: U64
    result: S32
    knobs: U64
    far: bool


DOORS = CallTable(
    "planted",
    ("libplanted.so",),
    (
        Function("planted_open", "planted.open", (Arg("door", 0), Arg("knobs", 1)), out=(Out("key", 2),)),
        Function("planted_open_wide", "planted.open", (Arg("door", 0),)),
    ),
)


class DoorDecoder:
    """As decoders do: what the class has and the table does not give is 0."""

    def decode(self, kind: str, records: Records) -> Batch:
        calls = DOORS.decode(kind, records, DOORS.recorded)
        found: dict[str, Column] = {**calls, "far": calls["door"] > 1000}
        columns = {
            name: np.ascontiguousarray(found.get(name, np.zeros(len(calls.records))), dtype)
            for name, dtype in columns_of(Open).items()
            if name not in columns_of(Event)
        }
        return Batch.from_records(kind, calls.records, columns)


class MisspeltOpen(Event, frozen=True, kw_only=True, tag="planted.open"):
    """A door is opened; `knobs` is misspelt."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.CALL)

    door: U64
    nobs: U64


class MisspeltDecoder(DoorDecoder):
    def decode(self, kind: str, records: Records) -> Batch:
        batch = super().decode(kind, records)
        batch.columns["nobs"] = np.zeros(len(batch), np.uint64)
        return batch


def _doors(kind: type[Event], decoder: object, folder: Path) -> Any:
    source = BpfSource(path=folder / "calls.c")
    source.path.write_text('#include "fp_calls.h"')
    way = alternative(probes=(CallProbe(table=DOORS),), gives=("planted.open",), bpf=source)
    return loaded(hooks(kinds=(kind,), alternatives=(way,), decoder=decoder))


def test_columns_that_functions_give_or_the_decoder_makes(machine: System, tmp_path: Path) -> None:
    requirements.columns_are_given(_doors(Open, DoorDecoder(), tmp_path), machine)


def test_a_column_that_nothing_gives(machine: System, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.columns_are_given(_doors(MisspeltOpen, MisspeltDecoder(), tmp_path), machine)
    says = "column nobs of planted.open is given by no function of the table (it gives door, key, knobs)"
    assert str(caught.value).startswith(says)


# Keys and attributes.


class Forgets:
    def update(self, batch: Batch, entities: object) -> None: ...


class Stumbles:
    def update(self, batch: Batch, entities: object) -> None:
        raise KeyError("to")


class Mistakes:
    def update(self, batch: Batch, entities: Any) -> None:
        batch.columns["door"] = ids(len(batch))
        batch.columns["door"][:] = entities.intern("planted.window", (1,), lambda: "planted.window:1")


class Makes:
    def update(self, batch: Batch, entities: object) -> None:
        batch.columns["door"] = ids(len(batch)) + 1000


class Narrows:
    def update(self, batch: Batch, entities: object) -> None:
        batch.columns["door"] = ids(len(batch)).astype(np.int32)


@pytest.mark.parametrize(
    ("tracker", "says"),
    [
        (Forgets(), "planted.ping: the entity tracker does not add the key column door"),
        (Stumbles(), "planted.ping: the entity tracker raised KeyError: 'to' on random records"),
        (Mistakes(), "planted.ping: door names a planted.window, and its key is declared as a planted.door"),
        (Makes(), "planted.ping: door has 999, which Entities did not give"),
        (Narrows(), "planted.ping: the key column door is int32; entity ids are int64"),
    ],
)
def test_a_faulty_tracker(tracker: object, says: str, machine: System) -> None:
    with pytest.raises(AssertionError) as caught:
        requirements.keys_are_filled(loaded(hooks(tracker=tracker)), machine)
    assert says in str(caught.value)


def test_keys_that_nobody_fills(machine: System) -> None:
    plugin = hooks()
    delattr(plugin, "fencepath_entities")
    with pytest.raises(AssertionError, match=r"planted\.ping have keys, but no fencepath_entities returns a tracker"):
        requirements.keys_are_filled(loaded(plugin), machine)


def test_an_attribute_that_no_span_can_hold(machine: System) -> None:
    with pytest.raises(AssertionError, match=r"the attribute 'planted\.list' is"):
        requirements.span_attributes_are_plain(loaded(hooks(attributes={"planted.list": [1, 2]})), machine)


# Rules.


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": "again"}, "rule again: call it planted.<noun>"),
        ({"cause": Select(kind="process.fork")}, 'add "process.fork>=1" to requires'),
        ({"cause": Select(kind="planted.pong")}, "its cause planted.pong is not a kind of this layer"),
        (
            {"requires": ("process.frok>=1",), "cause": Select(kind="process.frok")},
            "requires process.frok, which the layer process does not have; it has process.exec",
        ),
        ({"requires": ("process.fork>=9",)}, "requires process.fork>=9, but version 1 is the newest"),
        ({"requires": ("process.fork>=new",)}, "write process.fork>=new as kind>=version"),
        ({"on": ("dor",)}, "planted.ping (cause) has no column dor; it has thread, process, door"),
        ({"on": (("door", "dor"),)}, "planted.ping (effect) has no column dor"),
        (
            {"cause": Select(kind="process.fork"), "requires": ("process.fork>=1",), "on": (("child", "to"),)},
            "process.fork (cause) has no column child",
        ),
        (
            {"cause": Select(kind="mark.text"), "requires": ("mark.text>=1",), "on": (("text", "to"),)},
            "text is text; join on numbers or entities",
        ),
    ],
)
def test_a_faulty_rule(changed: dict[str, Any], says: str) -> None:
    registry = registry_of(hooks(rules=(rule(**changed),)))
    with pytest.raises(AssertionError) as caught:
        requirements.rules_name_known_kinds(registry.plugins["planted"], registry)
    assert says in str(caught.value)


def test_a_rule_to_a_layer_that_is_not_installed() -> None:
    """It is off until it is."""
    registry = registry_of(hooks(rules=(rule(cause=Select(kind="absent.job"), requires=("absent.job>=3",)),)))
    requirements.rules_name_known_kinds(registry.plugins["planted"], registry)


def test_two_rules_of_one_name() -> None:
    registry = registry_of(hooks(rules=(rule(), rule())))
    with pytest.raises(AssertionError, match="two rules have one name"):
        requirements.rules_name_known_kinds(registry.plugins["planted"], registry)


def test_something_that_is_no_rule() -> None:
    registry = registry_of(hooks(rules=("planted.again",)))
    with pytest.raises(AssertionError, match=r"'planted\.again' is neither a JoinRule nor a GraphRule"):
        requirements.rules_name_known_kinds(registry.plugins["planted"], registry)


# README.

_SECTIONS = "".join(f"## {section}\n\nSomething.\n\n" for section in requirements.README_SECTIONS)


def test_a_readme_with_all_sections(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# planted\n\n{_SECTIONS}")
    requirements.readme_has_sections(readme)


@pytest.mark.parametrize("section", requirements.README_SECTIONS)
def test_a_section_that_is_missing_or_empty(section: str, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(_SECTIONS.replace(f"## {section}\n", "## Other\n"))
    with pytest.raises(AssertionError, match=f"README.md has no section '## {section}'"):
        requirements.readme_has_sections(readme)
    readme.write_text(_SECTIONS.replace(f"## {section}\n\nSomething.\n", f"## {section}\n"))
    with pytest.raises(AssertionError, match=f"README.md: the section '{section}' is empty"):
        requirements.readme_has_sections(readme)


def test_no_readme(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="there is no README at"):
        requirements.readme_has_sections(tmp_path / "README.md")


def test_a_readme_that_names_the_kinds(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(
        "## What it sees\n\n`planted.ping` of a `planted.door`, see `planted.again`.\n\n## Needs\n\n`planted.pong` is not there.\n"
    )
    requirements.readme_names_kinds(readme, loaded(hooks(rules=(rule(),))))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "## What it sees\n\nplanted.ping without backticks\n",
            "README.md does not name planted.ping; say in backticks",
        ),
        (
            "## What it sees\n\n`planted.ping` and `planted.pong`\n\n## Needs\n",
            "README.md names planted.pong under 'What it sees', which is no kind of this layer; it has planted.ping",
        ),
    ],
)
def test_a_readme_that_does_not(text: str, says: str, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(AssertionError) as caught:
        requirements.readme_names_kinds(readme, loaded(hooks()))
    assert says in str(caught.value)


def test_keys_of_a_kind_that_is_not_listed(machine: System) -> None:
    """The cause is named, not the dictionary that lacks it."""
    with pytest.raises(AssertionError, match=r"planted\.ping is recorded, but fencepath_event_kinds does not list it"):
        requirements.keys_are_filled(loaded(hooks(kinds=())), machine)
