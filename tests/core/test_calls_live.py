# SPDX-License-Identifier: Apache-2.0
"""Call programs on this kernel: a program says what it called, and the recording must say the same."""

from __future__ import annotations

import struct
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from fencepath._bpf.attach import FORCE_VARIABLE, Link, UprobeMethod, attach_uprobes, uprobe_attach_method
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.losses import Stage
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.calls import TEXT_BYTES, Arg, CallTable, DecodedCalls, End, EntryState, Function, Out, Read, Text
from fencepath.errors import MachineError
from fencepath.records import Flags, Layouts, Records

pytestmark = pytest.mark.bpf

WORD = 2**64 - 1
SOURCES = Path(__file__).parent / "calls"


def words(count: int) -> tuple[Arg, ...]:
    return tuple(Arg("abcdefghijk"[slot], slot, "s64") for slot in range(count))


def extent(name: str, slot: int) -> tuple[Arg, ...]:
    """The arguments of a struct of three u32 that is passed by value."""
    return Arg(f"{name}_x", slot, "u32"), Arg(f"{name}_y", slot, "u32", 32), Arg(f"{name}_z", slot + 1, "u32")


NODES = (Arg("count", 1), Arg("a", 2), *(Arg(f"node_{index}", 3 + index) for index in range(4)))

TABLE = CallTable(
    "demo",
    ("libcalls.so",),
    [
        Function("call_one", "demo.plain", words(1), result="s64"),
        Function("call_six", "demo.plain", words(6), result="s64"),
        Function("call_nine", "demo.launch", words(9), result="s64"),
        Function("call_eleven", "demo.many", words(11), result="s64"),
        Function(
            "call_narrow", "demo.narrow", (Arg("a", 0, "s32"), Arg("b", 1, "u8"), Arg("c", 2, "s16")), result="s64"
        ),
        Function(
            "call_launch",
            "demo.launch",
            (Arg("code", 0), *extent("grid", 1), *extent("block", 3), Arg("shared", 6), Arg("stream", 7)),
        ),
        Function(
            "call_launch_config",
            "demo.launch",
            (
                Arg("code", 1),
                *extent("grid", 2),
                Arg("block_x", 3, "u32", 32),
                Arg("block_y", 4, "u32"),
                Arg("block_z", 4, "u32", 32),
                Arg("shared", 5, "u32"),
                Arg("stream", 6),
            ),
            reads=(Read(0, 0, 5, 2),),
        ),
        Function("call_create", "demo.create", (Arg("options", 1, "u32"),), out=(Out("handle", 0),)),
        Function("call_sizes", "demo.create", (Arg("fail", 2, "s64"),), out=(Out("narrow", 0, 4, 4), Out("wide", 1))),
        Function("call_recurse", "demo.plain", words(1), result="s64"),
        Function("call_outer", "demo.plain", words(1), result="s64"),
        Function("call_inner", "demo.plain", words(1), result="s64"),
        Function("call_jump", "demo.plain", words(1), result="s64"),
        Function("call_landed", "demo.plain", words(1), result="s64"),
        Function("call_hop", "demo.plain", words(1), result="s64"),
        Function("call_hot", "demo.hot", words(1), result="", hot=True),
        Function("call_around", "demo.plain", words(1), result="s64"),
        Function("call_leap", "demo.leap", (Arg("value", 1),), result=""),
        Function("call_wait", "demo.wait", (Arg("fd", 0, "s32"),), result="s64"),
        Function(
            "call_look",
            "demo.look",
            (Arg("a", 1), Arg("grid_x", 2, "u32")),
            reads=(Read(0, 0, 5, 2),),
            result="s64",
        ),
        Function("call_give", "demo.look", (Arg("a", 1),), out=(Out("handle", 0),), result="s64"),
        Function("call_name", "demo.name", (Arg("a", 2),), out=(Out("handle", 0),), result="s64", text=Text("name", 1)),
        Function("call_name_hot", "demo.name", (Arg("a", 1),), result="s64", hot=True, text=Text("name", 0)),
        Function("call_rename", "demo.name", (Arg("a", 1),), result="s64", text=Text("name", 0, 4)),
        Function("call_name_unread", "demo.name", (Arg("a", 1),), result="s64", text=Text("name", 0)),
        Function("call_nodes", "demo.nodes", NODES, (Read(0, 0, 4, 3, 1),), result="s64"),
        Function("call_nodes_hot", "demo.nodes", NODES, (Read(0, 0, 4, 3, 1),), result="s64", hot=True),
        Function("call_end", "demo.wait", words(1), result=""),
        Function("call_become", "demo.wait", (), result=""),
    ],
)
NUMBERS = {kind: number for number, kind in enumerate(TABLE.kinds, 3)}
LAYOUTS = Layouts({layout.kind: layout for layout in TABLE.layouts()}, NUMBERS)


class Truth(NamedTuple):
    """A line of the program's output."""

    function: str
    tid: int
    before_ns: int
    after_ns: int
    result: int
    caller: str
    values: tuple[int, ...]


class Symbols:
    """Functions of an ELF file: where they are in it, and which one holds an address."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            elf: Any = ELFFile(file)
            functions = [
                s for s in elf.get_section_by_name(".symtab").iter_symbols() if s["st_info"]["type"] == "STT_FUNC"
            ]
            # Without the compiler's second names (call_recurse.localalias).
            named = [symbol for symbol in functions if symbol["st_size"] and "." not in symbol.name]
            self.ranges = {symbol.name: (int(symbol["st_value"]), int(symbol["st_size"])) for symbol in named}
            self.offsets = {name: next(elf.address_offsets(start)) for name, (start, _) in self.ranges.items()}

    def holding(self, address: int) -> str | None:
        return next((name for name, (start, size) in self.ranges.items() if start < address <= start + size), None)


class Built(NamedTuple):
    program: Path
    library: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("calls")
    common = ["gcc", "-O2", "-g", "-Wall", "-Werror", f"-I{SOURCES}"]
    library, program = folder / "libcalls.so", folder / "program"
    subprocess.run([*common, "-fPIC", "-shared", "-o", library, SOURCES / "library.c"], check=True)
    link = [f"-L{folder}", "-lcalls", f"-Wl,-rpath,{folder}", "-lpthread"]
    subprocess.run([*common, "-o", program, SOURCES / "program.c", *link], check=True)
    return Built(program, library)


class Recorder:
    """All of a recording's BPF side for the test's table."""

    def __init__(self, library: Path, method: UprobeMethod, max_entries: int = 1024) -> None:
        self.shared = Shared(NUMBERS)
        self.entries = EntryState(LAYOUTS, max_entries)
        defines = {**self.shared.defines(), **self.entries.defines()}
        headers = {"fp_calls.h": TABLE.bpf_header()}
        self.bpf = BpfObject('#include "fp_calls.h"\n', defines=defines, headers=headers)
        self.links: list[Link] = []
        self._library, self._method, self._offsets = library, method, Symbols(library).offsets

    def attach(self) -> None:
        """Returns first, so that every entry seen has its return seen."""
        for program in TABLE.programs():
            both = [index for index in program.functions if not TABLE.functions[index].entry_only]
            once = [index for index in program.functions if TABLE.functions[index].entry_only]
            self._attach(program.exit, both, returning=True)
            self._attach(program.entry, both, returning=False)
            self._attach(program.once, once, returning=False)

    def _attach(self, name: str, functions: Sequence[int], *, returning: bool) -> None:
        if not functions:
            return
        program = self.bpf.load(name, ProgramType.UPROBE, self._method.attach_type)
        offsets = [self._offsets[TABLE.functions[index].name] for index in functions]
        cookies = [TABLE.cookie(index, NUMBERS[TABLE.functions[index].kind]) for index in functions]
        link = attach_uprobes(program, self._library, offsets, cookies, returning=returning, method=self._method)
        self.links.append(link)

    def target(self, tgid: int) -> None:
        self.shared.tgids.update(tgid.to_bytes(4, "little"), bytes(4))

    def drain(self) -> dict[str, Records]:
        """Return the records in the rings, by kind."""
        found: dict[str, list[Records]] = defaultdict(list)
        for batch in self.shared.rings.drain():
            heads = batch.rows[:, 24 - 8 : 24 - 6].copy().view("<u2")[:, 0]
            for kind, number in NUMBERS.items():
                rows = batch.rows[heads == number]
                if len(rows):
                    dtype = LAYOUTS[kind].dtype
                    found[kind].append(np.ascontiguousarray(rows[:, : dtype.itemsize]).view(dtype)[:, 0])
        return {kind: np.concatenate(parts) for kind, parts in found.items()}

    def lost(self) -> dict[tuple[str, Stage], int]:
        """Return the counters that are not 0, RECORDED left out."""
        counts = self.shared.losses.snapshot().sum(axis=0)
        stages = [stage for stage in Stage if stage is not Stage.RECORDED]
        every = {(kind, stage): int(counts[number, stage]) for kind, number in NUMBERS.items() for stage in stages}
        return {key: count for key, count in every.items() if count}

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.bpf.close()
        self.entries.close()
        self.shared.close()


class Run:
    """The program, started and waiting, then gone through its phases."""

    def __init__(self, built: Built, mode: str) -> None:
        self.process = subprocess.Popen([built.program, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.files = {str(built.library): Symbols(built.library), "program": Symbols(built.program)}
        self.bases: dict[str, int] = {}
        self.truth: list[Truth] = []
        self.read_until("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_until(self, last: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *rest = line.split()
            if word == last:
                return
            if word == "module":
                self.bases[rest[0]] = int(rest[1])
            else:
                tid, before_ns, after_ns, result = (int(number) for number in rest[:4])
                values = tuple(int(number) & WORD for number in rest[5:])
                self.truth.append(Truth(word, tid, before_ns, after_ns, result, rest[4], values))
        pytest.fail(f"the program ended ({self.process.wait()}) before it said {last}")

    def go(self, until: str = "done") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("x")
        self.process.stdin.flush()
        self.read_until(until)

    def caller(self, address: int) -> str | None:
        found = [symbols.holding(address - self.bases[name]) for name, symbols in self.files.items()]
        return next((name for name in found if name), None)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., tuple[Recorder, Run]]

# By perf events, the kernel takes a tenth of a second to take each probe off.
each_method = pytest.mark.parametrize("start", list(UprobeMethod), indirect=True, ids=lambda method: method.value)


@pytest.fixture
def start(request: pytest.FixtureRequest, built: Built, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that attaches to a waiting program, as this machine takes it unless told otherwise."""
    opened: list[Recorder | Run] = []
    if asked := getattr(request, "param", None):
        monkeypatch.setenv(FORCE_VARIABLE, asked.value)
    try:
        method = uprobe_attach_method()
    except MachineError as error:
        if asked is None:
            raise
        pytest.skip(f"this kernel does not attach so: {error}")

    def begin(mode: str, max_entries: int = 1024) -> tuple[Recorder, Run]:
        recorder = Recorder(built.library, method, max_entries)
        opened.append(recorder)
        run = Run(built, mode)
        opened.append(run)
        recorder.target(run.pid)
        recorder.attach()
        return recorder, run

    yield begin
    for thing in opened:
        if isinstance(thing, Run):
            thing.end()
    for thing in opened:
        if isinstance(thing, Recorder):
            thing.close()


def text_of(length: int) -> bytes:
    """What program.c fills a text with."""
    return bytes(1 + (7 * index + length) % 255 for index in range(length))


def rows_of(function: Function, columns: DecodedCalls) -> list[tuple[Any, ...]]:
    """Return (begin_ns, time_ns, tid, result, caller_ip, values) of each call of a function, in order of begin."""
    names = [*(arg.name for arg in function.args), *(out.name for out in function.out)]
    mine = np.flatnonzero(columns["function"] == TABLE.index(function.name))
    for name in names:
        assert columns.has(name)[mine].all(), f"{function.name} lacks {name}"
    values = [tuple(int(columns[name][row]) & WORD for name in names) for row in mine]
    head = columns.records[mine]
    fixed = zip(
        head["begin_ns"].tolist(),
        head["time_ns"].tolist(),
        head["tid"].tolist(),
        columns["result"][mine].tolist(),
        columns["caller_ip"][mine].tolist(),
        strict=True,
    )
    return sorted((*row, value) for row, value in zip(fixed, values, strict=True))


def compare(run: Run, recorded: dict[str, Records], without: Sequence[str] = ()) -> None:
    """Require that the records are the truth, call by call."""
    decoded = {kind: TABLE.decode(kind, records, TABLE.recorded) for kind, records in recorded.items()}
    for function in TABLE.functions:
        if function.name in without:
            continue
        truth = sorted(line for line in run.truth if line.function == function.name)
        rows = rows_of(function, decoded[function.kind]) if function.kind in decoded else []
        said = Counter((line.tid, line.result, line.caller, line.values) for line in truth)
        seen = Counter((tid, result, run.caller(ip), values) for _, _, tid, result, ip, values in rows)
        assert seen == said, function.name
        by_call: dict[Any, list[Truth]] = defaultdict(list)
        for line in sorted(truth, key=lambda line: line.before_ns):
            by_call[line.tid, line.values].append(line)
        for begin_ns, time_ns, tid, _, _, values in rows:
            line = by_call[tid, values].pop(0)
            assert line.before_ns <= begin_ns <= time_ns <= line.after_ns, function.name


class TestReturningCalls:
    @each_method
    def test_every_call_is_recorded_as_it_was(self, start: Start) -> None:
        """Names, threads, arguments, out values, results, callers and times, of 4 threads."""
        recorder, run = start("work")
        run.go()
        recorded = recorder.drain()
        compare(run, recorded, without=("call_leap",))
        assert len({line.tid for line in run.truth}) == 4
        assert set(recorder.lost()) <= {("demo.leap", Stage.OVERWRITTEN)}
        for records in recorded.values():
            assert (records["flags"] & Flags.TASK).all()
            assert (records["tgid"] == run.pid).all()

    def test_entry_only_calls_say_so(self, start: Start) -> None:
        recorder, run = start("work")
        run.go()
        records = recorder.drain()["demo.hot"]
        columns = TABLE.decode("demo.hot", records, TABLE.recorded)
        assert columns["entry_only"].all()
        assert not columns["returned"].any()
        assert not columns.has("result").any()
        assert (records["begin_ns"] == records["time_ns"]).all()

    @each_method
    def test_memory_that_cannot_be_read_is_flagged_and_no_memory_is_not(self, start: Start) -> None:
        recorder, run = start("look")
        run.go()
        records = recorder.drain()["demo.look"]
        columns = TABLE.decode("demo.look", records, TABLE.recorded)
        calls = columns["a"].tolist()
        assert dict(zip(calls, columns["result"].tolist(), strict=True)) == {100: 700, 101: 707, 102: 1122, 103: 1133}
        faults = (records["flags"] & Flags.READ_FAULT) != 0
        assert sorted(np.array(calls)[faults].tolist()) == [100, 103]
        assert not columns.has("grid_x").any()
        assert not columns.has("handle").any()
        assert recorder.lost() == {("demo.look", Stage.READ_FAULT): 2}

    @each_method
    def test_texts_are_copied_to_their_nul(self, start: Start) -> None:
        """Any bytes, of 0 to 5000 bytes, each up to the end of what is mapped; and those that cannot be read."""
        recorder, run = start("names")
        run.go()
        recorded = recorder.drain()
        records = recorded["demo.name"]
        columns = TABLE.decode("demo.name", records, TABLE.recorded)
        assert columns["name"].dtype == np.dtype(f"S{TEXT_BYTES}")
        rows = zip(columns["function"].tolist(), columns["a"].tolist(), strict=True)
        found = {(TABLE.functions[function].name, a): row for row, (function, a) in enumerate(rows)}
        assert len(found) == len(records) == 2 * 20 + 5
        for (function, a), row in found.items():
            if function in ("call_name", "call_name_hot"):
                text, cut = text_of(a)[: TEXT_BYTES - 1], a >= TEXT_BYTES
                assert columns["name"][row] == text, (function, a)
                assert bool(records["flags"][row] & Flags.TRUNCATED) == cut, (function, a)
                assert columns.has("name")[row]
        assert columns["handle"][found["call_name", 391]] == 0xABC0000000000000 | 391
        assert columns["entry_only"][found["call_name_hot", 391]]
        # at return, and cut to the room that it has
        assert columns["name"][found["call_rename", 17]] == b"Xef"
        assert records["flags"][found["call_rename", 17]] & Flags.TRUNCATED
        unread = [found["call_name_unread", a] for a in (1, 2, 3, 4)]
        assert columns["name"][unread].tolist() == [b"", b"", b"", b"fine"]
        assert columns.has("name")[unread].tolist() == [False, False, False, True]
        assert (records["flags"][unread] & Flags.READ_FAULT).tolist() == [0, Flags.READ_FAULT, Flags.READ_FAULT, 0]
        assert not (records["flags"][unread] & Flags.TRUNCATED).any()
        assert recorder.lost() == {("demo.name", Stage.READ_FAULT): 2}

    def test_an_array_is_read_as_far_as_it_goes(self, start: Start) -> None:
        recorder, run = start("names")
        run.go()
        records = recorder.drain()["demo.nodes"]
        columns = TABLE.decode("demo.nodes", records, TABLE.recorded)
        assert len(records) == 2 * 8 + 1
        assert not (records["flags"] & Flags.READ_FAULT).any()
        for row, count in enumerate(columns["count"].tolist()):
            words = [1000 * count + index if index < count else 0 for index in range(4)]
            assert [columns[f"node_{index}"][row] for index in range(4)] == words
            assert [bool(columns.has(f"node_{index}")[row]) for index in range(4)] == [i < count for i in range(4)]

    def test_other_processes_leave_nothing(self, start: Start, built: Built) -> None:
        recorder, _ = start("work")
        other = Run(built, "work")
        other.go()
        other.end()
        assert recorder.drain() == {}
        assert recorder.lost() == {}


class TestOpenCalls:
    @each_method
    def test_a_call_is_open_until_its_record_replaces_it(self, start: Start) -> None:
        recorder, run = start("hold")
        run.go(until="held")
        assert recorder.drain() == {}
        now_ns = time.monotonic_ns()
        opened = recorder.entries.open_calls(now_ns)["demo.wait"]
        assert recorder.entries.abandoned().counts == {}
        assert recorder.entries.open_calls(now_ns, least_ns=10**12) == {}
        run.go()
        returned = recorder.drain()["demo.wait"]
        for name in ("tgid", "tid", "function", "begin_ns", "caller_ip", "args"):
            assert opened[name].tolist() == returned[name].tolist(), name
        assert opened["flags"].tolist() == [Flags.OPEN | Flags.TASK]
        assert opened["time_ns"].tolist() == [now_ns]
        assert not TABLE.decode("demo.wait", opened, TABLE.recorded)["returned"].any()
        compare(run, {"demo.wait": returned})
        assert recorder.entries.open_calls(time.monotonic_ns()) == {}

    def test_what_a_thread_leaves_behind_is_found(self, start: Start) -> None:
        """A thread ended inside a call; two longjmps past every probed frame, the second in the place of the first."""
        recorder, run = start("leave")
        run.go()
        (end_line,) = [line for line in run.truth if line.function == "call_end"]
        now_ns = time.monotonic_ns()
        assert {kind: len(rows) for kind, rows in recorder.entries.open_calls(now_ns).items()} == {
            "demo.wait": 1,
            "demo.leap": 1,
        }
        assert recorder.lost() == {("demo.leap", Stage.OVERWRITTEN): 1}
        # A thread of that id which ended before the call began is another one.
        stale = recorder.entries.abandoned(threads={end_line.tid: end_line.before_ns})
        deadline = time.monotonic() + 10
        while not stale.counts and time.monotonic() < deadline:
            # where the thread's stack is can be seen only once it sleeps
            time.sleep(0.01)
            stale = recorder.entries.abandoned(threads={end_line.tid: end_line.before_ns})
        assert stale.counts == {(End.UNWOUND, "demo.leap"): 1}
        gone = recorder.entries.abandoned(threads={end_line.tid: now_ns})
        assert gone.counts == {(End.EXIT, "demo.wait"): 1}
        (record,) = gone.records["demo.wait"]
        assert (record["tid"], record["time_ns"], record["args"][0]) == (end_line.tid, now_ns, 11)
        assert recorder.entries.abandoned(threads={end_line.tid: now_ns}).counts == {}

    def test_a_call_inside_one_that_returned_is_unwound(self, start: Start) -> None:
        recorder, run = start("work")
        run.go()
        recorded = recorder.drain()
        leaps = [line for line in run.truth if line.function == "call_leap"]
        assert "demo.leap" not in recorded
        opened = recorder.entries.open_calls(time.monotonic_ns())
        overwritten = recorder.lost().get(("demo.leap", Stage.OVERWRITTEN), 0)
        assert len(opened["demo.leap"]) + overwritten == len(leaps) == 4 * 41
        abandoned = recorder.entries.abandoned(returned=recorded.values())
        assert abandoned.counts == {(End.UNWOUND, "demo.leap"): len(leaps) - overwritten}
        assert recorder.entries.open_calls(time.monotonic_ns()) == {}

    def test_a_call_that_becomes_another_program_has_ended(self, start: Start) -> None:
        recorder, run = start("exec")
        run.go(until="ready")
        now_ns = time.monotonic_ns()
        gone = recorder.entries.abandoned(processes={run.pid: now_ns})
        assert gone.counts == {(End.EXIT, "demo.wait"): 1}
        (record,) = gone.records["demo.wait"]
        assert TABLE.functions[record["function"]].name == "call_become"
        assert record["tid"] != run.pid


class TestLoss:
    def test_a_full_map_is_counted_call_by_call(self, start: Start) -> None:
        recorder, run = start("work", max_entries=2)
        run.go()
        recorded = recorder.drain()
        lost = recorder.lost()
        full = sum(count for (_, stage), count in lost.items() if stage is Stage.MAP_FULL)
        told = Counter(TABLE.functions[TABLE.index(line.function)].kind for line in run.truth)
        assert full > 0
        for kind, records in recorded.items():
            assert len(records) + lost.get((kind, Stage.MAP_FULL), 0) == told[kind], kind
            assert lost.get((kind, Stage.NO_ENTRY), 0) == lost.get((kind, Stage.MAP_FULL), 0), kind

    def test_entries_are_used_again_and_no_more_are_kept_than_allowed(self, start: Start) -> None:
        recorder, run = start("work", max_entries=128)
        run.go()
        recorded = recorder.drain()
        compare(run, recorded, without=("call_leap",))
        assert not any(stage is Stage.MAP_FULL for _, stage in recorder.lost())
        state = recorder.entries._state[0]
        kept = int(state["inserted"] - state["deleted"])
        assert kept == len(list(recorder.entries._entries.items()))
        # A quarter; each of the 4 threads may have gone one beyond, and left one longjmp behind.
        assert 32 - 4 <= kept <= 32 + 8
        assert int(state["inserted"]) < len(run.truth)
        ended = recorder.entries.abandoned(processes={run.pid: time.monotonic_ns()})
        assert set(ended.counts) <= {(End.EXIT, "demo.leap")}
        assert list(recorder.entries._entries.items()) == []
        assert int(state["inserted"] - state["deleted"] - state["deleted_by_user"]) == 0

    def test_a_return_whose_entry_was_not_seen_is_counted(self, start: Start) -> None:
        recorder, run = start("hold")
        recorder.shared.tgids.delete(run.pid.to_bytes(4, "little"))
        run.go(until="held")
        recorder.target(run.pid)
        run.go()
        assert recorder.drain() == {}
        assert recorder.lost() == {("demo.wait", Stage.NO_ENTRY): 1}


def stack_bytes(instructions: bytes) -> int:
    """Return how far below the frame pointer (r10) a program reaches."""
    lowest, copy_of_frame = 0, -1
    for code, registers, offset, immediate in struct.iter_unpack("=BBhi", instructions):
        to, source = registers & 15, registers >> 4
        memory = {1: source, 2: to, 3: to}.get(code & 7)
        if memory == 10:
            lowest = min(lowest, offset)
        if code == 0x07 and to == copy_of_frame:
            lowest = min(lowest, immediate)
        copy_of_frame = to if code == 0xBF and source == 10 else -1
    return -lowest


class TestPrograms:
    def test_no_program_needs_a_stack_of_its_own(self, built: Built) -> None:
        """At most 48 bytes: the kernel gives 64, rounded up to 16, a stack for each CPU, which preemption corrupts."""
        recorder = Recorder(built.library, UprobeMethod.PERF)
        try:
            for program in TABLE.programs():
                for name in (program.entry, program.exit, program.once):
                    code = recorder.bpf.instructions(name)
                    assert 24 <= stack_bytes(code) <= 48, name
        finally:
            recorder.close()
