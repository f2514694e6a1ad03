# SPDX-License-Identifier: Apache-2.0
"""The requirement on BPF programs, with this kernel's compiler and verifier: it tries everything, and says what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.planted import LAYOUT, PING, PROGRAM, alternative, hooks, loaded, written

from fencepath._loader import load_plugins
from fencepath.calls import Arg, CallTable, Function
from fencepath.plugin import Alternative, BpfSource, CallProbe, SyscallProbes, TracepointProbe
from fencepath.syscalls import SyscallProbe, SyscallTable
from fencepath.system import System
from fencepath.testing import requirements, without_events
from fencepath.tracepoints import From, Take, TracepointRecord

pytestmark = pytest.mark.bpf

UNBOUNDED = PROGRAM.replace(
    "fp_submit(r);", "for (u32 i = 0; i < r->to; i++) r->to ^= *(u32 *)((char *)r + i);\n    fp_submit(r);"
)
LEAKY = PROGRAM.replace("fp_submit(r);", "")


@pytest.fixture
def here() -> System:
    return System.here("full")


def load(here: System, *alternatives: Alternative) -> int:
    return requirements.bpf_compiles_and_loads(loaded(hooks(alternatives=alternatives)), here)


def test_every_alternative_is_loaded(here: System, tmp_path: Path) -> None:
    assert load(here, alternative(), written(tmp_path)) == 2


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (LEAKY, "pings: the program on_ping of ping.c is refused (for signal:signal_generate): "),
        (UNBOUNDED, "pings: the program on_ping of ping.c is refused (for signal:signal_generate): "),
        (PROGRAM.replace("r->to", "r->too"), "pings: ping.c is refused (for signal:signal_generate): "),
        (PROGRAM.replace("on_ping", "on_pong"), "the program on_ping of ping.c is refused"),
        (PROGRAM.replace("signal_generate_to", "signal_generate_from"), "ping.c is refused"),
    ],
)
def test_a_source_that_is_refused(source: str, says: str, here: System, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        load(here, written(tmp_path, source))
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) > 1  # and the log


def test_a_fault_of_the_alternative_that_is_not_taken_here(here: System, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"pings \(alternative 2\): the program on_ping"):
        load(here, alternative(), written(tmp_path, LEAKY))


def test_a_fault_where_the_event_has_another_name(here: System, tmp_path: Path) -> None:
    """Only the program for the second event is faulty, and this kernel has the first."""
    record = TracepointRecord(
        kind=PING,
        group="signal",
        event="signal_generate",
        fields=(Take("pid", "u32", as_="to"), Take("code", "s32")),
        alternatives=(From("syscalls", "sys_enter_tgkill", (Take("pid", "u32", as_="to"),)),),
    )
    guard = "#if !FP_HAS_signal_generate_code\n#error no code\n#endif\n"
    (tmp_path / "ping.c").write_text(PROGRAM.replace("int on_ping", f"{guard}int on_ping"))
    way = alternative(
        probes=(TracepointProbe(record=record, program="on_ping"),),
        layouts=(LAYOUT,),
        bpf=BpfSource(path=tmp_path / "ping.c", tracepoints=(record,)),
    )
    with pytest.raises(AssertionError) as caught:
        load(here, way)
    assert "ping.c is refused (for syscalls:sys_enter_tgkill)" in str(caught.value)
    assert "no code" in str(caught.value)
    assert load(without_events(here, "syscalls:sys_enter_tgkill"), way) == 1


def test_nothing_is_possible(here: System) -> None:
    assert load(without_events(here, "signal:signal_generate"), alternative()) == 0


def test_calls_and_system_calls(here: System, tmp_path: Path) -> None:
    (tmp_path / "calls.c").write_text('#include "fp_calls.h"\n')
    table = CallTable("planted", ("libplanted.so",), [Function("planted_ping", PING, (Arg("to", 0, "u32"),))])
    calls = alternative(probes=(CallProbe(table=table),), bpf=BpfSource(path=tmp_path / "calls.c"))
    system_calls = alternative(probes=(SyscallProbes(table=SyscallTable((), (), (SyscallProbe(PING, "getppid"),))),))
    assert load(here, calls) == 3
    assert load(here, system_calls) == 2


@pytest.mark.parametrize(("layer", "programs"), [("mark", 1), ("process", 4)])
def test_the_layers_of_core(layer: str, programs: int, here: System) -> None:
    assert requirements.bpf_compiles_and_loads(load_plugins(entry_points=False).plugins[layer], here) >= programs
