# SPDX-License-Identifier: Apache-2.0
"""The conformance class, the marker, the fixtures and ``fencepath check-plugin``, as a plugin's author uses them.

A plugin is installed by putting its module and its metadata in a folder on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fencepath import Analysis
from fencepath._builtin.events import MARK_LAYOUTS
from fencepath._builtin.marks import Op
from fencepath.records import Flags, Records
from fencepath.testing import FakeClock, RecordingFrom, SystemFrom, without_events
from fencepath.testing.check import check_layer

PLUGIN = '''
"""A layer with one kind."""

from collections.abc import Sequence
from typing import ClassVar

from fencepath.events import U32, Batch, Event, KindInfo, Role
from fencepath.plugin import API_VERSION, Alternative, LayerInfo, ProbeSet, TracepointProbe, hookimpl
from fencepath.tracepoints import Take, TracepointRecord

RING = TracepointRecord(kind="solo.ring", group="signal", event="signal_generate", fields=(Take("pid", "u32", as_="to"),))


class Ring(Event, frozen=True, kw_only=True, tag="solo.ring"):
    """A signal is sent."""

    info: ClassVar[KindInfo] = KindInfo(role=Role.SUBMIT)

    to: U32


class RingDecoder:
    def decode(self, kind, records):
        return Batch.from_records(kind, records)


@hookimpl
def fencepath_layer():
    return LayerInfo(name="solo", title="signals", version="1", api=API_VERSION)


@hookimpl
def fencepath_event_kinds():
    return (Ring,)


@hookimpl
def fencepath_probes(system):
    way = Alternative(probes=(TracepointProbe(record=RING),), gives=("solo.ring",))
    return (ProbeSet(name="rings", detail="sync", alternatives=(way,)),)


@hookimpl
def fencepath_decoder(layouts, functions):
    return RingDecoder()
'''
TESTS = """
from pathlib import Path

from fencepath.testing import PluginConformance


class TestConformance(PluginConformance):
    layer = "solo"
    readme = Path(__file__).with_name("README.md")
"""
README = "`solo.ring`\n\n" + "".join(
    f"## {name}\n\nA thing.\n\n" for name in ("What it sees", "Needs", "Costs", "Caveats", "Join keys")
)
REQUIREMENTS = 13
"""Tests of the conformance class."""


def install(folder: Path, plugin: str = PLUGIN) -> Mapping[str, str]:
    """Make the plugin and its tests, and return the environment in which it is installed."""
    (folder / "solo.py").write_text(plugin)
    about = folder / "solo-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: solo\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fencepath.plugins]\nsolo = solo\n")
    (folder / "test_solo.py").write_text(TESTS)
    (folder / "README.md").write_text(README)
    path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run_tests(folder: Path, environ: Mapping[str, str], *options: str) -> tuple[int, str]:
    strict = ["-q", "-ra", "-W", "error", "--strict-markers", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *strict, *options]
    done = subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.bpf
def test_a_sound_plugin_conforms(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, install(tmp_path))
    assert (code, f"{REQUIREMENTS} passed" in output) == (0, True), output


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "def fencepath_probes(",
            "def fencepath_probs(",
            "there is no hook fencepath_probs; did you mean fencepath_probes?",
        ),
        ("RingDecoder()", "None", "has no fencepath_decoder that returns a decoder of them"),
        ('name="solo"', 'name="duo"', "layer solo did not load"),
    ],
)
def test_a_faulty_plugin_does_not(before: str, after: str, says: str, tmp_path: Path) -> None:
    assert before in PLUGIN
    code, output = run_tests(tmp_path, install(tmp_path, PLUGIN.replace(before, after)), "-k", "not bpf")
    assert code == 1
    assert says in output


NOBODY = "import os\nos.geteuid = lambda: 1000\n"


def test_without_root_only_what_needs_it_is_skipped(tmp_path: Path) -> None:
    environ = install(tmp_path)
    (tmp_path / "conftest.py").write_text(NOBODY)
    code, output = run_tests(tmp_path, {**environ, "FENCEPATH_REQUIRE_BPF": "0"})
    assert (code, f"{REQUIREMENTS - 1} passed, 1 skipped" in output) == (0, True), output
    assert "needs root; FENCEPATH_REQUIRE_BPF=1 turns this skip into a failure" in output


def test_what_is_required_and_cannot_run_fails(tmp_path: Path) -> None:
    environ = install(tmp_path)
    (tmp_path / "conftest.py").write_text(NOBODY)
    code, output = run_tests(tmp_path, {**environ, "FENCEPATH_REQUIRE_BPF": "1"}, "-k", "bpf")
    assert code == 1
    assert "FENCEPATH_REQUIRE_BPF=1 but needs root" in output


def check(folder: Path, environ: Mapping[str, str], *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Run ``fencepath check-plugin solo``; verdict and evidence by name of the check."""
    command = [sys.executable, "-m", "fencepath", "check-plugin", "solo", "--json", *options]
    done = subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, {row["name"]: (row["verdict"], row["evidence"]) for row in json.loads(done.stdout)}


@pytest.mark.bpf
def test_check_plugin_on_this_machine(tmp_path: Path) -> None:
    code, checks = check(tmp_path, install(tmp_path))
    assert code == 0, checks
    assert {verdict for verdict, _ in checks.values()} == {"ok"}
    assert checks["BPF compiles and loads"][1] == "1 programs"
    assert checks["probe set rings"][1] == "possible by signal:signal_generate"


@pytest.mark.parametrize("saved", [True, False])
def test_check_plugin_with_saved_formats(saved: bool, tmp_path: Path) -> None:
    """Of the other kernel only the plugin's own events were saved; what core needs is not asked for."""
    environ = install(tmp_path)
    formats = tmp_path / "other"
    (formats / "signal").mkdir(parents=True)
    if saved:
        (formats / "signal" / "signal_generate.format").write_text(FORMAT)
    code, checks = check(tmp_path, environ, "--formats", str(formats))
    assert code == 0, checks
    verdict, evidence = checks["probe set rings"]
    if saved:
        assert (verdict, evidence) == ("ok", "possible by signal:signal_generate")
    else:
        assert (verdict, "signal:signal_generate: no " in evidence) == ("degrade", True)


FORMAT = """name: signal_generate
ID: 9
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;
\tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;

print fmt: "sig=%d", REC->sig
"""


def test_check_plugin_says_what_to_mend(tmp_path: Path) -> None:
    faulty = PLUGIN.replace("return Batch.from_records(kind, records)", "return 1 / 0")
    code, checks = check(tmp_path, install(tmp_path, faulty))
    assert code == 1
    verdict, evidence = checks["decoder survives random bytes"]
    assert (verdict, "decode raised ZeroDivisionError" in evidence) == ("refuse", True)
    assert checks["columns, keys, span attributes"][0] == "warn"
    assert [name for name, (verdict, _) in checks.items() if verdict == "refuse"] == ["decoder survives random bytes"]


def test_check_plugin_of_a_kind_that_is_not_listed(tmp_path: Path) -> None:
    """What follows from it is not said again by others."""
    code, checks = check(tmp_path, install(tmp_path, PLUGIN.replace("return (Ring,)", "return ()")))
    assert code == 1
    assert {name: evidence for name, (verdict, evidence) in checks.items() if verdict == "refuse"} == {
        "probes are data": "rings: gives solo.ring, which fencepath_event_kinds does not list"
    }
    assert checks["rules, records, decoder, keys, programs, probe sets"][0] == "warn"


def test_check_plugin_of_a_hook_that_raises(tmp_path: Path) -> None:
    faulty = PLUGIN.replace("    way = Alternative", "    raise KeyError('no such card')\n    way = Alternative")
    code, checks = check(tmp_path, install(tmp_path, faulty))
    assert code == 1
    assert checks["probes are data"] == ("refuse", "a hook raised KeyError: 'no such card'")
    assert [name for name, (verdict, _) in checks.items() if verdict == "refuse"] == ["probes are data"]


def test_check_plugin_of_one_that_does_not_load(tmp_path: Path) -> None:
    code, checks = check(tmp_path, install(tmp_path, PLUGIN.replace("def fencepath_probes(", "def fencepath_probs(")))
    assert code == 1
    assert checks == {"hooks are known": ("refuse", "there is no hook fencepath_probs; did you mean fencepath_probes?")}


def test_check_layer_of_the_installed_ones() -> None:
    assert [each.name for each in check_layer("drm") if each.verdict == "refuse"] == []


def test_recording_from(recording_from: RecordingFrom) -> None:
    layout = MARK_LAYOUTS[0]
    marks: Records = np.zeros(2, layout.dtype)
    marks["time_ns"], marks["op"] = (1000, 4000), (Op.REQUEST_BEGIN, Op.REQUEST_END)
    marks["request"], marks["flags"] = 7, int(Flags.TASK)
    (request,) = Analysis(recording_from({layout: marks})).requests
    assert (request.start_ns, request.end_ns, request.number) == (1000, 4000, 7)


def test_system_from_and_without_events(system_from: SystemFrom, tmp_path: Path) -> None:
    (tmp_path / "signal").mkdir()
    (tmp_path / "signal" / "signal_generate.format").write_text(FORMAT)
    system = system_from(tmp_path)
    assert system.tracepoints.events("signal") == ("signal_generate",)
    without = without_events(system, "signal:signal_generate")
    assert without.tracepoints.format("signal", "signal_generate") is None
    assert without.tracepoints.events("signal") == ()
    assert without.tracepoints.groups() == ("signal",)


def test_a_fake_clock_drifts_as_told() -> None:
    clock = FakeClock("device", offset_ns=500, drift_ppm=100)
    clock.advance(1_000_000_000)
    sample = clock.sample()
    assert sample.value_ns == 1_000_000_000 + 500 + 100_000
    assert sample.before_ns < clock.now_ns < sample.after_ns
