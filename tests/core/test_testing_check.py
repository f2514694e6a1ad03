# SPDX-License-Identifier: Apache-2.0
"""``fencepath check-plugin``: functions looked up in libraries that a compiler built, and formats saved from this kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.core.planted import PING, alternative, hooks, loaded
from tests.core.test_testing_kit import PLUGIN, install

from fencepath.calls import CallTable, Function
from fencepath.errors import UsageError
from fencepath.plugin import BpfSource, CallProbe, Check
from fencepath.system import System
from fencepath.testing._libraries import functions_are_in_libraries

LIBRARY = """
int planted_open(void) { return 0; }
int planted_close(void) { return 0; }
"""
IFUNC = """
static int one(void) { return 1; }
static void *choose(void) { return one; }
int planted_close(void) __attribute__((ifunc("choose")));
int planted_open(void) { return 0; }
"""


@pytest.fixture
def machine(tmp_path: Path) -> System:
    empty = tmp_path / "formats"
    empty.mkdir()
    return System.from_formats(empty, detail="full")


def build(folder: Path, source: str, name: str = "libplanted.so.1", *flags: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(source)
    options = flags or ("-shared", "-fPIC")
    subprocess.run(["cc", *options, "-o", folder / name, folder / "source.c"], check=True)
    return folder / name


def look_up(machine: System, folder: Path, functions: tuple[Function, ...], *libraries: Path) -> Check:
    source = BpfSource(path=folder / "calls.c")
    source.path.write_text('#include "fp_calls.h"')
    table = CallTable("planted", ("libplanted.so", "libplanted.so.*"), functions)
    plugin = loaded(hooks(alternatives=(alternative(probes=(CallProbe(table=table),), gives=(PING,), bpf=source),)))
    (check,) = functions_are_in_libraries(plugin, machine, libraries)
    return check


OPEN, CLOSE = Function("planted_open", PING, api="doors"), Function("planted_close", PING, api="doors")
MISSPELT = Function("planted_clsoe", PING, api="doors")
RENAMED = Function("planted_close_v2", PING, aliases=("planted_close",), api="doors")
WINDOW = Function("planted_pane", PING, api="windows")


def test_all_are_there(machine: System, tmp_path: Path) -> None:
    library = build(tmp_path / "lib", LIBRARY)
    check = look_up(machine, tmp_path, (OPEN, RENAMED), library)
    assert (check.verdict, check.evidence) == ("ok", f"2 of 2 functions are in {library}")


def test_a_misspelt_symbol(machine: System, tmp_path: Path) -> None:
    library = build(tmp_path / "lib", LIBRARY)
    check = look_up(machine, tmp_path, (OPEN, MISSPELT), library)
    assert check.verdict == "degrade"
    assert (
        check.evidence == f"1 of 2 functions are in {library}; not there: planted_clsoe (did you mean planted_close?)"
    )


def test_the_wrong_library(machine: System, tmp_path: Path) -> None:
    library = build(tmp_path / "lib", "int other(void) { return 0; }")
    check = look_up(machine, tmp_path, (OPEN, CLOSE), library)
    assert check.verdict == "degrade"
    assert check.evidence.endswith("not there: planted_open, planted_close")


def test_a_function_that_cannot_be_probed(machine: System, tmp_path: Path) -> None:
    check = look_up(machine, tmp_path, (OPEN, CLOSE), build(tmp_path / "lib", IFUNC))
    assert "planted_close (an IFUNC, which has no one place to probe)" in check.evidence


def test_an_api_whose_library_is_not_there(machine: System, tmp_path: Path) -> None:
    check = look_up(machine, tmp_path, (OPEN, WINDOW), build(tmp_path / "lib", LIBRARY))
    assert (check.verdict, "nothing of the API windows is there" in check.evidence) == ("warn", True)


def test_a_program_with_the_library_in_it(machine: System, tmp_path: Path) -> None:
    program = build(tmp_path / "bin", LIBRARY + "int main(void) { return planted_open(); }", "program", "-O0")
    assert look_up(machine, tmp_path, (OPEN, CLOSE), program).verdict == "ok"


def test_the_library_that_the_loader_would_find(
    machine: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build(tmp_path / "lib", LIBRARY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    assert str(library) in look_up(machine, tmp_path, (OPEN, CLOSE)).evidence


def test_a_library_that_is_not_here(machine: System, tmp_path: Path) -> None:
    check = look_up(machine, tmp_path, (OPEN,))
    assert (check.verdict, "name one by --library PATH" in check.evidence) == ("warn", True)


def test_a_file_that_is_no_library(machine: System, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for path in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(UsageError, match="cannot be looked into"):
            look_up(machine, tmp_path, (OPEN,), path)


# Saving formats.


def save(folder: Path, environ: Mapping[str, str], *options: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "fencepath", "check-plugin", "solo", "--json", *options]
    done = subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


ELSEWHERE = PLUGIN.replace(
    'fields=(Take("pid", "u32", as_="to"),))',
    'fields=(Take("pid", "u32", as_="to"),), needs=("sched:sched_waking.pid",), alternatives=(From("nowhere", "at_all", ()),))',
).replace("import Take,", "import From, Take,")


@pytest.mark.bpf
def test_saved_formats_are_those_that_the_plugin_asks_for(tmp_path: Path) -> None:
    """And the plugin says of them what it says of this kernel."""
    environ, formats = install(tmp_path, ELSEWHERE), tmp_path / "formats"
    code, said = save(tmp_path, environ, "--save-formats", str(formats))
    assert code == 0
    assert said == {"saved": ["sched:sched_waking", "signal:signal_generate"], "absent": ["nowhere:at_all"]}
    found = sorted(str(path.relative_to(formats)) for path in formats.rglob("*.format"))
    assert found == ["sched/sched_waking.format", "signal/signal_generate.format"]
    code, checks = save(tmp_path, environ, "--formats", str(formats))
    (rings,) = (check for check in checks if check["name"] == "probe set rings")
    assert (code, rings["evidence"]) == (0, "possible by signal:signal_generate")


FUNCTIONS = PLUGIN.replace(
    "probes=(TracepointProbe(record=RING),)",
    'probes=(FunctionProbe(record=FunctionRecord(kind="solo.ring", functions=(KernelFunction(("kernel_restarts", "kernel_restart")),),'
    ' values=(FunctionValue(name="to", type="u32", argument=0),))),)',
)


@pytest.mark.bpf
@pytest.mark.parametrize("bundle", [False, True])
def test_kernel_functions_are_saved_too(tmp_path: Path, bundle: bool) -> None:
    """And elsewhere they are what this kernel has, whether or not functions can be probed here."""
    imports = "from fencepath.kernel_functions import FunctionRecord, FunctionValue, KernelFunction\n"
    imports += "from fencepath.plugin import FunctionProbe\n"
    environ = install(tmp_path, FUNCTIONS.replace("\n\n", f"\n{imports}\n", 1))
    formats = tmp_path / "saved" / "here.formats" if bundle else tmp_path / "formats"
    code, said = save(tmp_path, environ, "--save-formats", str(formats))
    assert (code, said) == (0, {"saved": ["kernel_restart()"], "absent": ["kernel_restarts()"]})
    symbols = tmp_path / "saved" / "here.symbols.txt" if bundle else formats / "symbols.txt"
    assert symbols.read_text() == "0000000000000000 t kernel_restart\n"
    code, checks = save(tmp_path, environ, "--formats", str(formats))
    (rings,) = (check for check in checks if check["name"] == "probe set rings")
    assert (code, rings["evidence"]) == (0, "possible by kernel_restart()")


def test_saving_is_not_checking(tmp_path: Path) -> None:
    code, said = save(tmp_path, install(tmp_path), "--save-formats", "a", "--formats", "b")
    assert (code, "--save-formats checks nothing" in said) == (2, True)


# Showing a layer.


def test_a_layer_is_shown_with_the_columns_to_join_on() -> None:
    command = [sys.executable, "-m", "fencepath", "plugins", "process"]
    shown = subprocess.run(
        command, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=True
    ).stdout
    (fork,) = (line.split() for line in shown.splitlines() if line.startswith("process.fork "))
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    (layer,) = json.loads(told)["plugins"]
    columns = layer["columns"]["process.fork"]
    assert columns
    assert [word.rstrip(",") for word in fork[2:]] == columns
    assert "and every kind: thread, process, time_ns, " in shown
