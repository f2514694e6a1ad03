# SPDX-License-Identifier: Apache-2.0
"""Generated programs and accessors on the running kernel: what they record is what the processes did."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from fencepath._bpf.attach import attach_tracepoint
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.rings import Rings
from fencepath._bpf.shared import Shared
from fencepath._bpf.sys import ProgramType
from fencepath.errors import MachineError
from fencepath.records import Flags, Records
from fencepath.tracepoints import (
    Always,
    CurrentIsTarget,
    FieldIsTarget,
    Filter,
    LiveTracepoints,
    Resolved,
    Take,
    TracepointFormat,
    TracepointRecord,
    accessors_header,
    generate_program,
    parse_format,
    program_name,
)

pytestmark = pytest.mark.bpf


class Recorder:
    """Generated programs for some records, attached; no recorder of the project's is involved."""

    def __init__(
        self,
        *records: TracepointRecord,
        source: str = "",
        programs: dict[str, str] | None = None,
        rings: Rings | None = None,
    ) -> None:
        self._records = records
        kinds = {record.kind: number for number, record in enumerate(records, 3)}
        self._numbers = kinds
        self.shared = Shared(kinds, rings=rings or Rings(4 << 20), self_tgid=0)
        live = LiveTracepoints()
        self.resolved = [found for record in records if isinstance(found := record.resolve(live), Resolved)]
        assert len(self.resolved) == len(records)
        text = '#include "fencepath.h"\n#include "fp_tracepoints.h"\n'
        text += "".join(record.layout.c_struct() for record in records) + source
        if programs is None:
            text += "".join(
                generate_program(found, record.layout) for found, record in zip(self.resolved, records, strict=True)
            )
        headers = {"fp_tracepoints.h": accessors_header(self.resolved)}
        self.object = BpfObject(text, defines=self.shared.defines(), headers=headers)
        self._links = [
            attach_tracepoint(
                self.object.load((programs or {}).get(found.kind, program_name(found)), ProgramType.TRACEPOINT),
                found.format.group,
                found.format.event,
            )
            for found in self.resolved
        ]

    def target(self, pid: int, *tids: int) -> None:
        self.shared.tgids.update(struct.pack("I", pid), bytes(4))
        for tid in tids or (pid,):
            self.shared.tids.update(struct.pack("I", tid), bytes(4))

    def records(self) -> dict[str, Records]:
        rows: dict[str, list[bytes]] = {record.kind: [] for record in self._records}
        names = {number: kind for kind, number in self._numbers.items()}
        for batch in self.shared.rings.drain():
            for row in batch.rows:
                rows[names[int.from_bytes(row[16:18].tobytes(), "little")]].append(row.tobytes())
        return {record.kind: self._decode(record, rows[record.kind]) for record in self._records}

    @staticmethod
    def _decode(record: TracepointRecord, rows: list[bytes]) -> Records:
        size = record.layout.size_bytes
        return np.frombuffer(b"".join(row[:size] for row in rows), dtype=record.layout.dtype)

    def close(self) -> None:
        for link in self._links:
            link.close()
        self.object.close()
        self.shared.close()


@contextlib.contextmanager
def recording(
    *records: TracepointRecord, source: str = "", programs: dict[str, str] | None = None, rings: Rings | None = None
) -> Generator[Recorder, None, None]:
    recorder = Recorder(*records, source=source, programs=programs, rings=rings)
    try:
        yield recorder
    finally:
        recorder.close()


@contextlib.contextmanager
def waiting_shell(recorder: Recorder, script: str, *arguments: str) -> Generator[subprocess.Popen[bytes], None, None]:
    """Start a shell, make it a target once its own exec is over, and let it go on with `script`."""
    command = ["/bin/sh", "-c", f"echo; read x; {script}", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n"
        recorder.target(process.pid)
        process.stdin.write(b"\n")
        yield process
        process.wait()
    finally:
        process.kill()
        process.communicate()


def exec_record(size: int, *when: Filter) -> TracepointRecord:
    fields = (Take("filename", f"char[{size}]"), Take("pid", "u32"), Take("old_pid", "u32"))
    return TracepointRecord("host.exec", "sched", "sched_process_exec", fields, when=when, in_task=True)


SWITCH = TracepointRecord(
    "host.switch",
    "sched",
    "sched_switch",
    (
        Take("prev_pid", "u32"),
        Take("prev_state", "s64"),
        Take("prev_comm", "char[16]"),
        Take("next_pid", "u32"),
        Take("next_comm", "char[8]"),
        Take("next_prio", "s32"),
    ),
    when=(FieldIsTarget("prev_pid"), FieldIsTarget("next_pid")),
    in_task=True,
)
NEW_TASK = TracepointRecord(
    "host.task",
    "task",
    "task_newtask",
    (Take("pid", "u32"), Take("comm", "char[16]"), Take("clone_flags", "u64"), Take("oom_score_adj", "s16")),
)
IRQ = TracepointRecord(
    "host.irq", "irq", "irq_handler_entry", (Take("irq", "s32"), Take("name", "char[32]")), when=(Always(),)
)


def test_exec_is_recorded_with_its_file_name() -> None:
    with recording(exec_record(64, CurrentIsTarget())) as recorder:
        begin = time.monotonic_ns()
        with waiting_shell(recorder, "exec /bin/sleep 0") as process:
            pass
        end = time.monotonic_ns()
        records = recorder.records()["host.exec"]
    assert [(r["filename"], r["pid"], r["old_pid"], r["tgid"], r["tid"]) for r in records] == [
        (b"/bin/sleep", process.pid, process.pid, process.pid, process.pid)
    ]
    assert begin < records["time_ns"][0] < end
    assert records["flags"][0] == Flags.TASK
    assert records["cpu"][0] < (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("size", "extra", "cut"), [(64, -1, False), (64, 0, True), (8, 9, True), (200, -1, False), (200, 0, True)]
)
def test_text_that_does_not_fit_is_cut_and_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, extra: int, cut: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "./x"
    length = size + extra if size >= 64 else len(name) + 20
    name += "y" * (length - len(name))
    shutil.copy("/bin/true", name)
    with recording(exec_record(size, CurrentIsTarget())) as recorder:
        for _ in range(3):
            with waiting_shell(recorder, 'exec "$0"', name):
                pass
        records = recorder.records()["host.exec"]
    assert [r["filename"] for r in records] == [name.encode()[: size - 1]] * 3
    assert all(bool(r["flags"] & Flags.TRUNCATED) is cut for r in records)


def test_memory_of_an_older_record_does_not_shine_through() -> None:
    """A ring of one page wraps after 30 records, so that short names lie where long ones were."""
    long_name, short_name = "/bin/../bin/../bin/../bin/../bin/true", "/bin/true"
    with recording(exec_record(64, CurrentIsTarget()), rings=Rings(4096, (128,))) as recorder:
        capacity = recorder.shared.rings.sizes[128] // (128 + 8)
        found: list[bytes] = []
        for name, count in ((long_name, capacity), (short_name, 7)):
            for _ in range(count):
                with waiting_shell(recorder, f"exec {name}"):
                    pass
            found += [bytes(name) for name in recorder.records()["host.exec"]["filename"]]
    assert found == [long_name.encode()] * capacity + [short_name.encode()] * 7


def test_switches_of_a_thread_are_its_own() -> None:
    with recording(SWITCH) as recorder:
        with waiting_shell(recorder, "for i in 1 2 3 4 5 6 7; do sleep 0.003; done; read x") as process:
            assert process.stdin is not None
            time.sleep(0.2)
            process.stdin.write(b"\n")
        records = recorder.records()["host.switch"]
    away, back = records[records["prev_pid"] == process.pid], records[records["next_pid"] == process.pid]
    assert len(away) + len(back) == len(records)
    # It waits for each of the 7 children, and for the second line.
    assert len(away) >= 8
    assert abs(len(away) - len(back)) <= 1
    assert set(away["prev_comm"]) == {b"sh"}
    assert set(back["next_comm"]) == {b"sh"}
    # The record is the leaving thread's; states are bits of TASK_* and 0 means preempted.
    assert (away["tid"] == process.pid).all()
    assert {int(s) for s in away["prev_state"]} <= {0, 1, 2, 16, 32, 64, 128, 256}
    assert set(back["next_prio"]) == {120 + os.getpriority(os.PRIO_PROCESS, 0)}


def test_text_in_an_array_is_cut_and_flagged_where_the_record_is_shorter(tmp_path: Path) -> None:
    path = shutil.copy("/bin/sleep", tmp_path / "elevenchars")
    with recording(SWITCH) as recorder:
        process = subprocess.Popen([path, "10"])
        recorder.target(process.pid)
        for _ in range(50):
            time.sleep(0.01)
            os.kill(process.pid, 19)
            os.kill(process.pid, 18)
        process.kill()
        process.wait()
        records = recorder.records()["host.switch"]
    into = records[(records["next_pid"] == process.pid) & (records["prev_pid"] != process.pid)]
    named = into[into["next_comm"] == b"elevenc"]
    assert len(named) > 3
    assert (named["flags"] & Flags.TRUNCATED != 0).all()
    out = records[records["prev_comm"] == b"elevenchars"]
    assert len(out) > 3
    assert not (out[[len(bytes(c)) < 8 for c in out["next_comm"]]]["flags"] & Flags.READ_FAULT).any()


def test_new_threads_have_their_flags_and_signed_fields() -> None:
    tids: list[int] = []

    def body() -> None:
        tids.append(threading.get_native_id())

    adjust = Path(f"/proc/{os.getpid()}/oom_score_adj")
    before = adjust.read_text()
    with recording(NEW_TASK) as recorder:
        recorder.target(os.getpid(), threading.get_native_id())
        adjust.write_text("17")
        try:
            for _ in range(11):
                thread = threading.Thread(target=body)
                thread.start()
                thread.join()
        finally:
            adjust.write_text(before)
        records = recorder.records()["host.task"]
    assert list(records["pid"]) == tids
    assert set(records["oom_score_adj"]) == {17}
    clone_thread, clone_vm = 0x10000, 0x100
    assert (records["clone_flags"] & (clone_thread | clone_vm) == clone_thread | clone_vm).all()
    comm = Path(f"/proc/{os.getpid()}/comm").read_text().strip().encode()
    assert set(records["comm"]) == {comm}


def test_interrupts_have_their_handlers_name(tmp_path: Path) -> None:
    with recording(IRQ) as recorder:
        # Asks the disk; a machine without one still has network and timer interrupts in a second.
        for _ in range(20):
            with (tmp_path / "written").open("wb", buffering=0) as file:
                file.write(b"x")
                os.fsync(file.fileno())
            time.sleep(0.05)
        records = recorder.records()["host.irq"]
    listed = {
        line.split(":")[0].strip(): {name.strip() for name in line.split()[-1].split(",")}
        | set(line.replace(",", " ").split())
        for line in Path("/proc/interrupts").read_text().splitlines()
        if line.split(":")[0].strip().isdigit()
    }
    assert len(records) > 0
    for irq, name in {(int(r["irq"]), bytes(r["name"]).decode()) for r in records}:
        assert name in listed[str(irq)]
    # Nothing says whose interrupt it was.
    assert not (records["flags"] & Flags.TASK).any()


def test_accessors_in_a_plugins_own_program() -> None:
    record = TracepointRecord(
        "host.fork",
        "sched",
        "sched_process_fork",
        (Take("parent_pid", "u32"), Take("child_pid", "u32"), Take("nothing", "u32", optional=True)),
    )
    source = """
    int own(void *ctx)
    {
        struct fp_host_fork *r;
        if (!fp_target_tid(FP_FIELD_sched_process_fork_parent_pid(ctx)))
            return 0;
        r = FP_RESERVE(struct fp_host_fork, FP_KIND_HOST_FORK);
        if (!r)
            return 0;
        fp_fill(&r->h, FP_KIND_HOST_FORK, FP_TASK);
        r->parent_pid = FP_FIELD_sched_process_fork_parent_pid(ctx);
        r->child_pid = FP_FIELD_sched_process_fork_child_pid(ctx);
        r->nothing = FP_FIELD_sched_process_fork_nothing(ctx) + 41 + FP_HAS_sched_process_fork_nothing
            + FP_HAS_sched_process_fork_child_pid;
        fp_submit(r);
        return 0;
    }
    """
    with recording(record, source=source, programs={"host.fork": "own"}) as recorder:
        recorder.target(os.getpid(), threading.get_native_id())
        children = [subprocess.Popen(["true"]) for _ in range(5)]
        for child in children:
            child.wait()
        records = recorder.records()["host.fork"]
    assert list(records["child_pid"]) == [child.pid for child in children]
    assert set(records["nothing"]) == {42}


def test_user_text_of_a_system_call(tmp_path: Path) -> None:
    record = TracepointRecord(
        "host.open",
        "syscalls",
        "sys_enter_openat",
        (Take("dfd", "s64"), Take("filename", "char[128]"), Take("flags", "u32", as_="open_flags")),
        in_task=True,
    )
    path = tmp_path / "opened"
    with recording(record) as recorder:
        recorder.target(os.getpid())
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
        recorder.shared.tgids.delete(struct.pack("I", os.getpid()))
        records = recorder.records()["host.open"]
    (found,) = (r for r in records if r["filename"] == str(path).encode())
    assert found["dfd"] == -100
    assert found["open_flags"] == os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC


def test_every_kind_of_accessor_is_taken_by_the_verifier() -> None:
    """Made-up formats: what this kernel's events do not have. The programs are loaded and never attached."""
    lines = [
        "u32 odd;\toffset:10;\tsize:4;\tsigned:0;",
        "u64 numbers[5];\toffset:16;\tsize:40;\tsigned:0;",
        "__data_loc u64[] dynamic;\toffset:56;\tsize:4;\tsigned:0;",
        "__rel_loc char[] relative;\toffset:60;\tsize:4;\tsigned:0;",
        "const char * pointed;\toffset:64;\tsize:8;\tsigned:0;",
        "char short_text[6];\toffset:72;\tsize:6;\tsigned:0;",
    ]
    text = "name: made\nID: 1\nformat:\n" + "".join(f"\tfield:{line}\n" for line in lines)
    takes = (
        Take("odd", "u64"),
        Take("numbers", "u64[4]", narrow=True),
        Take("numbers", "u64[7]", as_="more"),
        Take("dynamic", "u64[3]"),
        Take("dynamic", "u64[40]", as_="long_dynamic"),
        Take("relative", "char[13]"),
        Take("pointed", "char[100]"),
        Take("short_text", "char[16]"),
        Take("absent_text", "char[9]", optional=True),
        Take("absent_number", "s8", optional=True),
    )
    record = TracepointRecord("a.made", "g", "made", takes)

    class Made(LiveTracepoints):
        def format(self, group: str, event: str) -> TracepointFormat:
            return parse_format(text, group)

    found = record.resolve(Made())
    assert isinstance(found, Resolved)
    assert found.absent == ("absent_text", "absent_number")
    source = (
        '#include "fencepath.h"\n#include "fp_tracepoints.h"\n'
        + record.layout.c_struct()
        + generate_program(found, record.layout)
    )
    with (
        Shared({"a.made": 1}, rings=Rings(4 << 20)) as shared,
        BpfObject(source, defines=shared.defines(), headers={"fp_tracepoints.h": accessors_header([found])}) as program,
    ):
        assert program.load(program_name(found), ProgramType.TRACEPOINT) >= 0


def test_every_event_of_this_kernel_parses() -> None:
    live = LiveTracepoints()
    read = sum(live.format(group, event) is not None for group in live.groups() for event in live.events(group))
    assert read > 500


def test_tracefs_elsewhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepath._tracepoints.sources.TRACEFS_PATHS", (tmp_path / "none",))
    with pytest.raises(MachineError, match="not mounted"):
        LiveTracepoints()
