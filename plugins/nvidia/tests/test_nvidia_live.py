# SPDX-License-Identifier: Apache-2.0
"""System calls and the kernel's log on this kernel: a program plays the driver's client on other device files and says what it did.

Those devices refuse its requests, so that the driver's own status is never written: that it is read from where it would be is seen
in the records, whether it is believed in the decoder's tests.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.core.live import live_layers, until
from tests.core.syscall_session import tracing

from fencepath._bpf.losses import Stage
from fencepath.events import Batch, Event
from fencepath.plugin import LayerInfo, ProbeSet, hookimpl
from fencepath.records import Flags, Layouts, Records
from fencepath.syscalls import DeviceClass, SyscallTable, decode_syscalls
from fencepath.system import System
from fencepath_nvidia import plugin as nvidia
from fencepath_nvidia.decoder import NOT_KNOWN, NvidiaDecoder
from fencepath_nvidia.errors import parse_line
from fencepath_nvidia.events import EVENTS
from fencepath_nvidia.kinds import ALLOC, CONTROL, IOCTL, LOG, MEMORY_ALLOC, MMAP
from fencepath_nvidia.requests import ioctl_table, mapping_table, wait_table

pytestmark = pytest.mark.bpf

RM, UVM = DeviceClass("nvidia", ("mem",), minors=(9, 9)), DeviceClass("nvidia-uvm", ("mem",), minors=(5, 5))
DEVICES = ("/dev/urandom", "/dev/zero")
TABLE = SyscallTable.merged([ioctl_table((580, 159, 4), RM, UVM), wait_table(RM), mapping_table(RM, UVM)])
FUNCTIONS = {kind: TABLE.recorded(kind) for kind in TABLE.kinds}

Rows = dict[str, object]
RING_BYTES = 64 << 20


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("nvidia") / "client"
    source = Path(__file__).with_name("client.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def started(client: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([client, *DEVICES, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate("\n", timeout=60)
    assert process.returncode == 0
    return output


def decoded(records: Mapping[str, Records]) -> Iterator[tuple[int, Rows]]:
    """Events of all kinds as rows, with their times."""
    for kind, found in records.items():
        batch = NvidiaDecoder(FUNCTIONS).decode(kind, found)
        for index in range(len(batch)):
            yield int(batch["time_ns"][index]), _row(batch, index)


def _row(batch: Batch, index: int) -> Rows:
    row: Rows = {name: column[index : index + 1].tolist()[0] for name, column in batch.columns.items()}
    return {**row, "kind": batch.kind, "label": batch.labels[int(batch["label"][index])]}


def said(output: str) -> Iterator[Rows]:
    """What the program said of its calls, as rows."""
    for line in output.splitlines():
        word, kind, label, *values = line.split()
        assert word == "CALL"
        row: Rows = {"kind": kind, "label": label.replace("|", " ")}
        for value in values:
            name, _, text = value.partition("=")
            row[name] = int(text) if text.lstrip("-").isdigit() else text
        yield row


def test_every_call_is_recorded_as_the_program_says(client: Path) -> None:
    with tracing(TABLE, all_processes=True) as session:
        process = started(client)
        output = finished(process)
        records = session.drained()
    truth = list(said(output))
    tgids = {process.pid, *(int(str(row["tgid"])) for row in truth if "tgid" in row)}
    own = {kind: found[np.isin(found["tgid"], list(tgids))] for kind, found in records.items()}
    rows = [row for _, row in sorted(decoded(own), key=lambda pair: pair[0])]
    assert [(row["kind"], row["label"]) for row in rows] == [(row["kind"], row["label"]) for row in truth]
    for row, expected in zip(rows, truth, strict=True):
        faulty = bool(expected.pop("faulty", 0))
        assert bool(int(str(row["flags"])) & Flags.READ_FAULT) is faulty, expected
        assert {name: row[name] for name in expected} == expected
        # refused, so that whatever stands in the structure is not the driver's
        assert row.get("rm_status", NOT_KNOWN) == NOT_KNOWN


def test_status_is_read_where_the_driver_writes_it(client: Path) -> None:
    with tracing(TABLE, all_processes=True) as session:
        process = started(client)
        finished(process)
        records = session.drained()
    for kind in (ALLOC, MEMORY_ALLOC):
        mine = records[kind][records[kind]["tgid"] == process.pid]
        columns, names = decode_syscalls(mine, FUNCTIONS[kind])
        rights = np.array([names[label] == "NV_ESC_RM_ALLOC" for label in columns["label"]])
        assert set(columns["rm_status"][rights].tolist()) == {0x1F}


def test_a_burst_of_calls_is_all_there(client: Path) -> None:
    count = 20011
    with tracing(TABLE, ring_bytes=RING_BYTES) as session:
        process = started(client, "burst", str(count))
        session.target(process.pid)
        finished(process)
        records = session.drained()[CONTROL]
        lost = {stage.name: session.lost(CONTROL, stage) for stage in Stage}
    batch = NvidiaDecoder(FUNCTIONS).decode(CONTROL, records)
    assert batch["control"].tolist() == list(range(count))
    assert {name for name, number in lost.items() if number} == {"RECORDED"}


def test_death_inside_a_call(client: Path) -> None:
    with tracing(TABLE) as session:
        process = started(client, "hang")
        session.target(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        if process.stdout.readline() != "hangs\n":
            process.communicate()
            pytest.skip("this kernel has no userfaultfd; boot one with CONFIG_USERFAULTFD")
        until(lambda: len(session.tracer.open_calls(0)) == 1)
        (held,) = NvidiaDecoder(FUNCTIONS).decode(IOCTL, session.tracer.open_calls(time.monotonic_ns()))["flags"]
        assert held & Flags.OPEN
        process.kill()
        process.communicate()
        records = session.drained()[IOCTL]
        assert len(session.tracer.open_calls(0)) == 0
    (row,) = (row for _, row in decoded({IOCTL: records}))
    assert (row["label"], row["tgid"], row["status"]) == ("ioctl type 0x52 number 0x00", process.pid, -14)


def test_processes_that_are_no_targets_leave_nothing(client: Path) -> None:
    with tracing(TABLE) as session:
        process = started(client)
        finished(process)
        records = session.drained()
    assert {kind: int((found["tgid"] == process.pid).sum()) for kind, found in records.items()} == dict.fromkeys(
        TABLE.kinds, 0
    )


def test_mappings_that_are_too_many_to_be_followed_are_counted() -> None:
    followed = 16384
    code = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "zero = os.open('/dev/zero', os.O_RDONLY)\n"
        "sys.stdin.readline()\n"
        f"for _ in range({followed + 7}): libc.mmap(None, ctypes.c_size_t(4096), 1, 2, zero, ctypes.c_long(0))\n"
    )
    with tracing(mapping_table(RM, UVM), ring_bytes=RING_BYTES) as session:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
        session.target(process.pid)
        process.communicate("\n")
        assert process.returncode == 0
        assert session.lost(MMAP, Stage.RECORDED) == followed + 7
        assert session.lost(MMAP, Stage.MAP_FULL) == 7


class LogAlone:
    """The layer without the tracepoints that only a loaded driver has."""

    @hookimpl
    def fencepath_layer(self) -> LayerInfo:
        """Say who it is."""
        return nvidia.fencepath_layer()

    @hookimpl
    def fencepath_event_kinds(self) -> Sequence[type[Event]]:
        """Return the kinds."""
        return EVENTS

    @hookimpl
    def fencepath_probes(self, system: System) -> Sequence[ProbeSet]:
        """Return the one probe set."""
        return [probe_set for probe_set in nvidia.fencepath_probes(system) if probe_set.name == "the kernel's log"]

    @hookimpl
    def fencepath_decoder(self, layouts: Layouts, functions: Mapping[str, Sequence[str]]) -> NvidiaDecoder:
        """Return the decoder."""
        return nvidia.fencepath_decoder(layouts, functions)


def test_lines_of_the_driver_in_the_kernels_log() -> None:
    lines = [
        "NVRM: Xid (PCI:0000:01:00): 4242, pid=4242, name=fencepath-test, Ch 00000008",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 4242, fencepath-test",
        "NVRM: " + "x" * 700,
    ]
    others = ["fencepath-test: nothing of the driver's", "fencepath-test: " + "y" * 48 + "NVRM: too far behind"]
    with live_layers({"nvidia": LogAlone()}) as live:
        for line in (lines[0], others[0], lines[1], others[1], lines[2]):
            Path("/dev/kmsg").write_text(f"<7>{line}\n")
        until(lambda: len(live.records(LOG)) >= len(lines))
        batch = live.batch(LOG)
    texts = [text for text in batch["text"].tolist() if "fencepath" in text or "SXid" in text or "xxx" in text]
    assert texts == [lines[0], lines[1], lines[2][:487]]
    truncated = (batch["flags"] & int(Flags.TRUNCATED)) != 0
    assert truncated.tolist()[-1]
    assert [parse_line(text)[0].code for text in texts[:2]] == [4242, 4242]
