# SPDX-License-Identifier: Apache-2.0
"""A layer whose functions are in a library of ours, programs that call it, and recordings of them made in this process."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fencepath._loader import load_plugins
from fencepath._record.plan import make_plan
from fencepath._record.recorder import Options, Recorder
from fencepath.calls import Arg, CallTable, Function, Out
from fencepath.events import S32, U64, Event, KindInfo, Role
from fencepath.modules import CodeAddresses, CodeUse, HandedOut, Registration
from fencepath.plugin import API_VERSION, Alternative, BpfSource, CallProbe, LayerInfo, ProbeSet, hookimpl
from fencepath.recording import Recording, open_recording
from fencepath.system import System

__all__ = ["SHARED", "SOURCES", "TABLE", "USE", "Driven", "asked", "build", "compile_to", "record"]

SOURCES = Path(__file__).parent / "code"
_MARKED = (Arg("mark", 0), Arg("number", 1))

TABLE = CallTable(
    "give",
    ("libgiving.so",),
    [
        Function("give_work", "give.call", _MARKED, detail="sync"),
        Function("give_rest", "give.rest", _MARKED, detail="sync"),
        Function("give_other", "give.rest", _MARKED, detail="full"),
        Function("give_launch", "give.launch", (Arg("stub", 0), Arg("times", 1)), detail="sync"),
        Function("give_address", "give.address", (Arg("version", 2),), out=(Out("address", 1),), detail="sync"),
    ],
)


class Call(Event, frozen=True, kw_only=True, tag="give.call"):
    info = KindInfo(role=Role.CALL)
    mark: U64
    result: S32


class Rest(Event, frozen=True, kw_only=True, tag="give.rest"):
    info = KindInfo(role=Role.CALL)
    mark: U64


class Launch(Event, frozen=True, kw_only=True, tag="give.launch"):
    info = KindInfo(role=Role.CALL)
    stub: U64


class Address(Event, frozen=True, kw_only=True, tag="give.address"):
    info = KindInfo(role=Role.CALL)
    address: U64


asked: list[dict[str, Any]] = []


def handed_out(row: Mapping[str, Any]) -> str | None:
    """The functions are asked for in this order: hidden_work, hidden_rest, hidden_other."""
    asked.append(dict(row))
    return {2: "give_work"}.get(row["version"], ("give_rest", "give_other")[len(asked) % 2])


USE = CodeUse(
    addresses=(CodeAddresses("give.launch", ("stub",)),),
    registrations=(Registration("give_register", address=1, name=3),),
    handed_out=(HandedOut("give.address", "address", handed_out),),
)


def plugin(source: Path, use: CodeUse) -> ModuleType:
    """The layer, with what it says of code."""

    @hookimpl
    def fencepath_layer() -> LayerInfo:
        return LayerInfo(name="give", title="a library that hands out functions", version="1", api=API_VERSION)

    @hookimpl
    def fencepath_event_kinds() -> Sequence[type[Event]]:
        return (Call, Rest, Launch, Address)

    @hookimpl
    def fencepath_probes(system: System) -> Sequence[ProbeSet]:
        probes = (CallProbe(table=TABLE, code=use),)
        calls = Alternative(probes=probes, gives=TABLE.kinds, bpf=BpfSource(path=source))
        return (ProbeSet(name="calls", detail="sync", alternatives=(calls,)),)

    module = ModuleType("give")
    vars(module).update({name: value for name, value in locals().items() if name.startswith("fencepath_")})
    return module


def compile_to(target: Path, source: str, *flags: str) -> Path:
    """Compile a source of ``code/`` beside the libraries that it is linked to."""
    words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", str(SOURCES / source), *flags]
    subprocess.run([*words, f"-L{target.parent}", "-Wl,-rpath,$ORIGIN", "-o", target], check=True)
    return target


SHARED = ("-shared", "-fPIC", "-Wl,--build-id=sha1")


def build(folder: Path) -> Path:
    """Compile the libraries and the program."""
    compile_to(folder / "libgiving.so", "giving.c", *SHARED, "-Wl,-soname,libgiving.so")
    compile_to(folder / "libfirst.so", "caller.c", *SHARED, "-lgiving", "-Wl,-soname,libfirst.so.1")
    compile_to(folder / "libsecond.so", "caller.c", *SHARED, "-lgiving")
    compile_to(folder / "libkernels.so", "kernels.c", *SHARED, "-lgiving", "-s")
    compile_to(folder / "program", "program.c", "-lgiving", "-ldl")
    return folder


class Driven:
    """A program, which goes on when what it has done so far has been looked at: it says a word and its pid, and waits."""

    LOOKS = 3

    def __init__(self, *words: str | Path) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self._output, self._input = self.process.stdout, self.process.stdin
        self._left = 0
        self.lines: list[list[str]] = [self._read()]
        self.pid = self.process.pid

    def _read(self) -> list[str]:
        """A line that ends a step; others are taken note of."""
        while True:
            words = self._output.readline().decode().split()
            if not words or words[0] != "hidden":
                return words
            self.lines.append(words)

    def ended(self) -> bool:
        """What the recorder asks again and again."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._input.write(b"\n")
        elif select.select([self._output], [], [], 0)[0]:
            line = self._read()
            if not line:
                return True
            self.lines.append(line)
            self._left = self.LOOKS
        return False

    def go(self) -> None:
        """Let it begin."""
        self._input.write(b"\n")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()
        self._input.close()


def record(folder: Path, program: Driven, use: CodeUse = USE) -> Recording:
    """Record a program, which waits for its first line, to its end, and open the recording."""
    source = folder / "calls.c"
    source.write_text('#include "fp_calls.h"\n')
    registry = load_plugins({"give": plugin(source, use)}, entry_points=False)
    assert not registry.problems
    system = System.here("sync")
    try:
        with Recorder(folder / "r", make_plan(registry, system), system, Options(detail="sync")) as recorder:
            recorder.add(program.pid)
            program.go()
            recorder.run(program.ended)
    finally:
        program.end()
    return open_recording(folder / "r")
