# SPDX-License-Identifier: Apache-2.0
"""Errors: lines of every shape that the driver writes, rubbish, and each error once however often it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugins.nvidia.tests.calls import TABLE, Calls, row_of

from fencepath import Analysis
from fencepath.events import Batch
from fencepath.records import RecordLayout, Records
from fencepath.requests import Request
from fencepath.testing import RecordingFrom
from fencepath_nvidia.errors import Occurrence, merged, parse_line
from fencepath_nvidia.events import LOG_LAYOUT, Error
from fencepath_nvidia.findings import ErrorFinding
from fencepath_nvidia.kinds import CONTROL, ERROR
from fencepath_nvidia.reports import ErrorsTable
from fencepath_nvidia.tables import read_rows
from fencepath_nvidia.tracepoints import SXID_RECORD, XID_RECORD
from fencepath_nvidia.xids import describe

MS = 1_000_000
FALLEN = "GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Occurrence(time_ns=0, code=79, gpu="0000:01:00", message=FALLEN, by_log=True),
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 1)",
            Occurrence(
                time_ns=0,
                code=13,
                gpu="0000:3b:00",
                pid=1234,
                program="python3",
                message="Graphics SM Warp Exception on (GPC 0, TPC 1)",
                by_log=True,
            ),
        ),
        (
            "NVRM: Xid (PCI:0001:AF:00 GPU-I:02 GPU-CI:00): 31, pid=77, name=a b (c), Ch 00000008, intr 00000000",
            Occurrence(
                time_ns=0,
                code=31,
                gpu="0001:af:00",
                gpu_instance=2,
                pid=77,
                program="a b (c)",
                message="Ch 00000008, intr 00000000",
                by_log=True,
            ),
        ),
        # 570 and later leave the process out if there is none
        (
            "NVRM: Xid (PCI:0000:01:00): 45, Ch 00000010, errorString CTX SWITCH, caused by previous Xid 31",
            Occurrence(
                time_ns=0,
                code=45,
                gpu="0000:01:00",
                message="Ch 00000010, errorString CTX SWITCH, caused by previous Xid 31",
                by_log=True,
            ),
        ),
        # older than 515: no PCI, no process
        (
            "NVRM: Xid (0000:01:00): 48, An uncorrectable double bit error",
            Occurrence(time_ns=0, code=48, gpu="0000:01:00", message="An uncorrectable double bit error", by_log=True),
        ),
        (
            "[ 12.345] NVRM: Xid (PCI:00000000:01:00.0): 62, pid=5, name=x",
            Occurrence(time_ns=0, code=62, gpu="0000:01:00", pid=5, program="x", by_log=True),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 30 egress non-posted PRIV error",
            Occurrence(
                time_ns=0,
                code=12028,
                gpu="0000:c1:00",
                of_switch=True,
                message="Non-fatal, Link 30 egress non-posted PRIV error",
                by_log=True,
            ),
        ),
        (
            "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
            Occurrence(
                time_ns=0,
                code=0,
                gpu="0000:01:00",
                message="NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
                by_log=True,
            ),
        ),
    ],
)
def test_lines_of_every_shape(line: str, expected: Occurrence) -> None:
    assert parse_line(line) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
        "NVRM: GPU at PCI:0000:01:00: GPU-a8c8a6f4-1111-2222-3333-444455556666",
        # split before its number, and its rest
        "NVRM: Xid (PCI:0000:01:00): ",
        "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:01): 79, x",
        "NVRM: Xid (PCI:0000:01:00): -3, x",
        "NVRM: Xid (PCI:0000:01:00): 99999999999999999999, x",
        "NVRM: Xid \0\xff\n(PCI:",
    ],
)
def test_lines_that_tell_of_no_error(line: str) -> None:
    assert parse_line(line) == []


def test_lines_that_the_kernel_merged() -> None:
    text = "NVRM: Xid (PCI:0000:01:00): 63, Row Remapper\nNVRM: Xid (PCI:0000:02:00): 94, pid=9, name=x, Contained"
    assert [(each.code, each.gpu, each.pid) for each in parse_line(text)] == [
        (63, "0000:01:00", 0),
        (94, "0000:02:00", 9),
    ]


@given(st.text(alphabet=st.sampled_from("NVRM: SXid(PCI:0af.), GPU-I'<>pidname=fallen off the bus\n\0"), max_size=200))
def test_no_line_is_too_strange(text: str) -> None:
    for each in parse_line(text):
        assert 0 <= each.code < 1 << 32
        assert 0 <= each.pid < 1 << 32


def line(time_ns: int, code: int, gpu: str = "0000:01:00", pid: int = 0) -> Occurrence:
    return Occurrence(time_ns=time_ns, code=code, gpu=gpu, pid=pid, message="line", by_log=True)


def raised(time_ns: int, code: int, gpu: str = "0000:01:00") -> Occurrence:
    return Occurrence(time_ns=time_ns, code=code, gpu=gpu, message="event", by_tracepoint=True)


def test_line_and_tracepoint_are_one_error() -> None:
    (error,) = merged([line(10 * MS, 31, pid=7)], [raised(11 * MS, 31)])
    assert (error.pid, error.message, error.by_log, error.by_tracepoint) == (7, "event", True, True)


def test_errors_that_come_again_are_as_many_as_came() -> None:
    lines = [line(at * MS, 31) for at in (10, 20, 30)]
    # one line was split, one tracepoint lost
    events = [raised(at * MS, 31) for at in (11, 31, 41)]
    found = merged(lines, events)
    assert len(found) == 3
    found = merged(lines, [raised(at * MS, 31) for at in (2011, 2031)])
    assert len(found) == 5
    assert [each.time_ns for each in found] == sorted(each.time_ns for each in found)


def test_errors_of_other_gpus_and_codes_are_others() -> None:
    lines = [line(10 * MS, 31), line(10 * MS, 45)]
    assert len(merged(lines, [raised(11 * MS, 31, "0000:02:00"), raised(11 * MS, 13)])) == 4
    switch = Occurrence(time_ns=10 * MS, code=31, gpu="0000:01:00", of_switch=True, by_tracepoint=True)
    assert len(merged(lines, [switch])) == 3


def test_lost_gpu_is_told_once() -> None:
    lines = [line(10 * MS, 79), line(11 * MS, 0), line(12 * MS, 0)]
    assert [each.code for each in merged(lines, [raised(13 * MS, 79)])] == [79]
    assert [each.code for each in merged(lines[1:], [])] == [0]
    assert [each.code for each in merged([line(10 * MS, 0, "0000:01:00"), line(11 * MS, 0, "0000:02:00")], [])] == [
        0,
        0,
    ]


def test_codes_are_described() -> None:
    assert describe(79).severity == "fatal"
    assert "reboot" in describe(79).advice
    assert describe(31).name == "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT"
    unknown = describe(4242)
    assert (unknown.name, unknown.severity, unknown.meaning) == ("", "", "")
    codes = [int(row["code"]) for row in read_rows("xid.csv")]
    assert codes == sorted(set(codes))
    assert {row["severity"] for row in read_rows("xid.csv")} == {"fatal", "error", "warn", "info"}
    # whatever the catalogue says to do is explained
    assert all("catalogue" not in describe(code).advice for code in (8, 13, 45, 48, 54, 63, 74, 78, 79, 151, 154, 159))


def texts(layout: RecordLayout, rows: list[dict[str, Any]]) -> Records:
    made = np.zeros(len(rows), layout.dtype)
    for record, row in zip(made, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return made


def analysed(recording_from: RecordingFrom) -> Analysis:
    calls = Calls(tgid=1234)
    calls.add(row_of("NV_ESC_RM_CONTROL", "control"), 5 * MS)
    lines: list[dict[str, Any]] = [
        {"time_ns": 10 * MS, "cpu": 3, "text": b"NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=python3, Ch 00000008"},
        {"time_ns": 50 * MS, "cpu": 1, "text": b"NVRM: loading NVIDIA UNIX Open Kernel Module"},
        {"time_ns": 60 * MS, "cpu": 1, "text": b"NVRM: Xid (PCI:0000:02:00): 4242, \xff\xfe"},
    ]
    events: list[dict[str, Any]] = [
        {"time_ns": 11 * MS, "cpu": 3, "code": 31, "dev": b"0000:01:00.0", "message": b"Ch 00000008, MMU Fault"},
        {"time_ns": 12 * MS, "cpu": 3, "code": 45, "dev": b"0000:01:00.0", "message": b"Ch 00000008"},
        {"time_ns": 12 * MS, "cpu": 3, "code": 7, "dev": b"what", "message": b""},
    ]
    switches: list[dict[str, Any]] = [{"time_ns": 20 * MS, "code": 11001, "dev": b"0000:c1:00.0", "message": b"x"}]
    records: Mapping[RecordLayout, Records] = {
        LOG_LAYOUT: texts(LOG_LAYOUT, lines),
        XID_RECORD.layout: texts(XID_RECORD.layout, events),
        SXID_RECORD.layout: texts(SXID_RECORD.layout, switches),
        calls_layout(CONTROL): calls.records(CONTROL),
    }
    return Analysis(recording_from(records, functions={CONTROL: TABLE.recorded(CONTROL)}))


def calls_layout(kind: str) -> RecordLayout:
    from fencepath.syscalls import syscall_layout

    return syscall_layout(kind)


def test_errors_of_a_recording(recording_from: RecordingFrom) -> None:
    analysis = analysed(recording_from)
    assert analysis.problems == ()
    batch = analysis.view.batch(ERROR)
    events = list(batch.events(Error))
    assert [(e.code, e.gpu, e.of_switch, e.by_tracepoint, e.by_log) for e in events] == [
        (31, "0000:01:00", False, True, True),
        (45, "0000:01:00", False, True, False),
        (7, "what", False, True, False),
        (11001, "0000:c1:00", True, True, False),
        (4242, "0000:02:00", False, False, True),
    ]
    assert (events[0].pid, events[0].program) == (1234, "python3")
    process = analysis.view.batch(CONTROL)["process"][0]
    assert batch["process"].tolist() == [process, -1, -1, -1, -1]


def test_errors_are_found_and_attached_to_requests(recording_from: RecordingFrom) -> None:
    analysis = analysed(recording_from)
    requests = [
        Request(key="early", number=1, start_ns=0, end_ns=10 * MS),
        Request(key="late", number=2, start_ns=10 * MS, end_ns=55 * MS),
    ]
    rows = ErrorsTable().rows(analysis.view, requests)
    assert [row["requests"] for row in rows] == ["early, late", "late", "late", "late", ""]
    assert "not mapped" in str(rows[0]["meaning"])
    findings = {finding.title for finding in analysis.findings if finding.rule == "nvidia.error"}
    assert "SXid 11001 on NVSwitch 0000:c1:00" in findings
    assert "Xid 4242 on GPU 0000:02:00" in findings
    assert any(
        title.startswith("Xid 31 on GPU 0000:01:00, in a channel of process 1234 (python3): ") for title in findings
    )


def test_errors_that_repeat_are_one_finding() -> None:
    dtypes: dict[str, list[object]] = {
        "code": [13, 13, 0],
        "of_switch": [False] * 3,
        "gpu": ["0000:01:00"] * 3,
        "pid": [5] * 3,
        "program": [""] * 3,
        "message": ["first", "second", "lost"],
    }
    head = {name: np.arange(3) for name in ("time_ns", "begin_ns", "tgid", "tid", "cpu", "flags")}
    batch = Batch(ERROR, {**head, **{name: np.array(values, object) for name, values in dtypes.items()}})
    many, lost = ErrorFinding().findings({ERROR: batch})
    assert many.title.startswith("Xid 13 on GPU 0000:01:00 2 times, in a channel of process 5: ")
    assert many.detail.startswith("first (error); ")
    assert (lost.title, lost.detail) == ("the driver lost GPU 0000:01:00", "lost")
    assert list(ErrorFinding().findings({})) == []
