# SPDX-License-Identifier: Apache-2.0
"""Kernels with names of any bytes, from the call to the report and to every export."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import polars as pl
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from plugins.cuda.tests.faults.programs.names import LAUNCHES, NAMES
from plugins.cuda.tests.faults.workbench import Bench, Recorded

from fencepath.export.spans import spans_of
from fencepath.records import Flags

pytestmark = pytest.mark.bpf

SHOWN = {
    "plain": "_Z6kernelPfi",
    "not UTF-8": r"caf\xe9 \xff\xfe\x80",
    "UTF-8": "caf\u00e9 \u6838\u5fc3 \U0001f680",
    "cut in a character": "c" * 382 + r"\xc3",
    "several lines": r"one\ntwo\r\nthree\tfour",
    "escape sequences": r"\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "control characters": r"\x01\x02\x7f\x9b31m",
    "markup": "[bold]<b>&amp;\"'{}%s[/bold]",
    "right to left": r"abc\u202edef\u2028ghi",
    "very long": "k" * 383,
}
"""What a name is shown as. One that is empty is none."""


@pytest.fixture(scope="module")
def named(bench: Bench) -> Recorded:
    found = bench.record(*bench.python("names", bench.library.libcuda))
    assert found.lost == 0
    return found


def exported(bench: Bench, named: Recorded, to: str, name: str) -> Path:
    path = named.folder / name
    done = bench.commands.run("export", named.path, "--to", to, "-o", path)
    assert done.code == 0, done.errors
    return path


def test_the_device_knows_the_same_names(named: Recorded) -> None:
    (truth,) = named.truths.values()
    asked = [call.arguments["name_asked"].encode("latin-1") for call in truth.named("cuModuleGetFunction")]
    assert sorted(asked) == sorted(NAMES.values())
    launched = [op.name.encode("latin-1") for op in truth.ops.values() if op.name is not None]
    assert {what: launched.count(name) for what, name in NAMES.items()} == LAUNCHES
    named.compared(truth.pid)


def test_names_are_recorded_as_they_were(named: Recorded) -> None:
    records = named.recording.records("cuda.module.kernel")
    texts = records["text"].tolist()
    assert sorted(texts) == sorted(name[:383] for name in NAMES.values())
    cut = {bytes(text) for text, flags in zip(texts, records["flags"].tolist(), strict=True) if flags & Flags.TRUNCATED}
    assert cut == {NAMES["very long"][:383], NAMES["cut in a character"][:383]}


def test_the_report_counts_launches_by_name(bench: Bench, named: Recorded) -> None:
    """One whose name is empty is not counted as the one that had its handle before."""
    done = bench.commands.run("report", named.path, "--json")
    assert (done.code, done.errors) == (0, "")
    rows: list[dict[str, Any]] = msgspec.json.decode(done.output)["layers"]["cuda"]["kernels"]["rows"]
    counts = {row["kernel"]: row["launches"] for row in rows}
    assert counts == {SHOWN.get(what, "not known"): count for what, count in LAUNCHES.items()}


def test_a_kernel_without_a_name_had_the_handle_of_one_with_a_name(named: Recorded) -> None:
    """Or the test before this one would show nothing."""
    rows = named.rows(name="cuModuleGetFunction")
    (nameless,) = [row["kernel"] for row in rows if not row["symbol"]]
    assert nameless in [row["kernel"] for row in rows if row["symbol"]]


def test_the_report_is_text_of_whole_lines(bench: Bench, named: Recorded) -> None:
    done = bench.commands.run("report", named.path)
    assert done.code == 0, done.errors
    unprintable = {one for one in done.output if unicodedata.category(one)[0] == "C" and one != "\n"}
    assert unprintable == set()
    for what in ("plain", "UTF-8", "several lines", "escape sequences", "markup"):
        (line,) = [line for line in done.output.splitlines() if line.startswith(SHOWN[what])]
        assert re.search(rf" {LAUNCHES[what]} ", f"{line} "), line


def test_parquet_has_the_names(bench: Bench, named: Recorded) -> None:
    folder = exported(bench, named, "parquet", "parquet")
    found = pl.read_parquet(folder / "cuda.module.kernel.parquet")["name"].to_list()
    assert sorted(found) == sorted(SHOWN.get(what, "") for what in NAMES)


def test_graphml_has_the_names(bench: Bench, named: Recorded) -> None:
    graph = nx.read_graphml(exported(bench, named, "graphml", "out.graphml"))
    names = [data["name"] for _, data in graph.nodes(data=True) if data.get("kind") == "cuda.operation"]
    assert {what: names.count(SHOWN.get(what, "kernel")) for what in NAMES} == LAUNCHES


def test_spans_have_the_names(named: Recorded) -> None:
    (request,) = named.analysis.requests
    spans = [span.attributes or {} for span in spans_of(named.analysis, request)]
    found = [span["cuda.kernel.name"] for span in spans if "cuda.kernel.name" in span]
    assert sorted(map(str, found)) == sorted(SHOWN.values())


def test_chrome_and_perfetto_can_be_read(bench: Bench, named: Recorded) -> None:
    events = msgspec.json.decode(exported(bench, named, "chrome", "out.json").read_bytes())["traceEvents"]
    launches = sum(LAUNCHES.values())
    assert sum(event["name"] == "cuLaunchKernel" for event in events) == launches
    trace = Trace.FromString(exported(bench, named, "perfetto", "out.pftrace").read_bytes())
    assert sum(packet.track_event.name == "cuLaunchKernel" for packet in trace.packet) == launches
