# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a report."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.core.synthetic import Story, served_requests

from fencepath._render.request import _bar
from fencepath._render.text import render_report
from fencepath._render.words import FILLS, MEANINGS, duration, fills_of, listed, share
from fencepath._text import no_group
from fencepath.analysis import Analysis
from fencepath.events import Category
from fencepath.joins import Confidence
from fencepath.report import (
    Finding,
    JoinCount,
    LayerTable,
    LossEntry,
    Milestones,
    PathReport,
    Report,
    RequestReport,
    Segment,
    Violation,
)
from fencepath.requests import RequestState

THREAD = "thread:process:b/1@2#0/7@3"


def shown(report: Report, width: int = 100, *, colour: bool = False) -> str:
    file = io.StringIO()
    render_report(report, Console(file=file, width=width, force_terminal=colour, highlight=False))
    return file.getvalue()


def lines(report: Report, width: int = 100) -> list[str]:
    return [line.rstrip() for line in shown(report, width).splitlines()]


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return served_requests().analysis(tmp_path)


SNAPSHOT = """\
toyhost, kernel 6.99.0: 32 events of mark, sched and toy

2 requests: median 1.000 ms, slowest 10.000 ms
all together: device_execution 62%, host_compute 22%, launch_queue 7%, api_call 7%

request   duration  first token  where its time went
chat-1   10.000 ms     5.500 ms  device_execution 68%, host_compute 22%, launch_queue 8%, runqueue …
chat-2    1.000 ms               api_call 80%, host_compute 20%

The slowest: chat-1, 10.000 ms, first token after 5.500 ms

▓▓▓▓▓▓▓▓▓▓░▒▒▒▒██████████████████████████████████▓▓▓▓▓▓▓▒▒▒▒██████████████████████████████████▓▓▓▓▓▓
0                                                      ^ first token                       10.000 ms

   category                time   share  not exact  what it means
█  device_execution    6.800 ms   68.0%             the device ran what was waited for
▓  host_compute        2.250 ms   22.5%             the thread ran its own code
▒  launch_queue      800.000 µs    8.0%             work waited to be started
░  runqueue           90.000 µs    0.9%             could run, waited for a CPU
▚  driver             60.000 µs    0.6%     100.0%  in the kernel's driver
   sum                10.000 ms  100.0%

What it spent most time in, on its path
name  layer  times      in all  share
gemm  toy        2    7.600 ms  76.0%
wait  toy        2  100.000 µs   1.0%

Its critical path: each line waited for the one above it
at, ms  for, ms  phase    thread        mostly
 0.000    1.000  queue    frontend 202  host_compute      then woke engine 201
 1.000    0.050  prefill  engine 201    runqueue
 1.050    0.050  prefill  engine 201    host_compute
 1.100    0.400  prefill                launch_queue      gemm
 1.500    3.400  prefill                device_execution  gemm
 4.900    0.030  prefill  engine 201    runqueue          wait; with driver 33%; bounded
 4.930    0.020  prefill  engine 201    driver            wait; bounded
 4.950    0.050  prefill  engine 201    host_compute
 5.000    0.600  decode   engine 201    host_compute
 5.600    0.400  decode                 launch_queue      gemm
 6.000    3.400  decode                 device_execution  gemm
 9.400    0.030  decode   engine 201    runqueue          wait; with driver 33%; bounded
 9.430    0.020  decode   engine 201    driver            wait; bounded
 9.450    0.450  decode   engine 201    host_compute
 9.900    0.100           engine 201    host_compute
20 segments in 15 lines; --json has them all

Where layers did not fit together
rule      matched  without a cause  several causes
toy.ring        1                1
the first of a chain has no cause; many without one mean that a layer lost or lacks events"""


def test_the_whole_of_it(analysis: Analysis) -> None:
    assert "\n".join(lines(analysis.report())) == SNAPSHOT


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal_and_times_are_never_cut(analysis: Analysis, width: int) -> None:
    text = shown(analysis.report(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    if width >= 60:
        for time in ("6.800 ms", "800.000 µs", "1.500", "3.400", "68.0%"):
            assert time in text


def test_colours_only_where_there_are_any(analysis: Analysis) -> None:
    assert "\x1b" not in shown(analysis.report())
    assert "\x1b[34m" in shown(analysis.report(), colour=True)


def test_one_request_has_no_table_of_all(analysis: Analysis) -> None:
    found = lines(analysis.report([analysis.request("chat-2")]))
    assert found[2] == "Request chat-2, 1.000 ms"
    assert not any("requests:" in line for line in found)


def test_a_path_to_the_first_token_says_so(analysis: Analysis) -> None:
    report = analysis.report([analysis.request("chat-1")], "first_token")
    assert lines(report)[2] == "Request chat-1, 5.500 ms to first token"


def path(*segments: Segment, **more: Any) -> PathReport:
    start, end = (segments[0].start_ns, segments[-1].end_ns) if segments else (0, 0)
    spent: dict[Category, int] = {}
    for segment in segments:
        spent[segment.category] = spent.get(segment.category, 0) + segment.duration_ns
    facts: dict[str, Any] = {
        "target": "end", "start_ns": start, "end_ns": end, "segments": segments, "by_category_ns": spent,
        "by_confidence_ns": {Confidence.EXACT: end - start}, "unexplained_ns": 0, "undecided_ns": 0,
        "not_observed_ns": 0, "lost_events": 0,
    }  # fmt: skip
    return PathReport(**(facts | more))


def request(key: str, found: PathReport, state: RequestState = RequestState.COMPLETE) -> RequestReport:
    return RequestReport(
        id=f"{key}@{found.start_ns}", key=key, trace_id="", start_ns=found.start_ns, end_ns=found.end_ns,
        state=state, milestones=Milestones(), path=found,
    )  # fmt: skip


def report(*requests: RequestReport, **more: Any) -> Report:
    recording = {"host": "h", "kernel": "k", "events": {"toy.call": 1}, "layers": {}, "threads": {THREAD: "worker"}}
    facts: dict[str, Any] = {"recording": recording, "loss": (), "requests": requests, "joins": ()}
    return Report(**(facts | more))


def segment(begin: int, end: int, category: Category = Category.HOST_COMPUTE, **more: Any) -> Segment:
    facts: dict[str, Any] = {"start_ns": begin, "end_ns": end, "category": category, "entities": (THREAD,)}
    return Segment(**(facts | more))


def test_many_requests_the_slowest_first_with_quantiles_of_nearest_rank() -> None:
    many = [request(f"r{number}", path(segment(0, number * 1000))) for number in range(1, 101)]
    found = lines(report(*many))
    assert found[2] == "100 requests: median 50.000 µs, p95 95.000 µs, slowest 100.000 µs"
    table = found[found.index("request    duration  where its time went") :]
    assert [line.split()[0] for line in table[1:13]] == [f"r{number}" for number in range(100, 88, -1)]
    assert table[13] == "and 88 faster ones; --request ID shows one in full, --json all"
    assert "The slowest: r100, 100.000 µs" in found


def test_of_a_few_requests_no_p95_is_said() -> None:
    found = lines(report(*(request(f"r{number}", path(segment(0, number))) for number in range(1, 20))))
    assert found[2] == "19 requests: median 10 ns, slowest 19 ns"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RequestState.OPEN, "it had not ended when the recording did"),
        (RequestState.BEGIN_UNKNOWN, "it began before the recording did"),
    ],
)
def test_a_request_of_which_an_end_is_missing(state: RequestState, words: str) -> None:
    found = lines(report(request("r", path(segment(0, 1000)), state)))
    assert found[2] == f"Request r, 1.000 µs; {words}"
    both = lines(report(request("r", path(segment(0, 1000)), state), request("s", path(segment(0, 10)))))
    assert any(line.startswith(f"r ({state.replace('_', ' ')})") for line in both)


def test_no_requests_at_all() -> None:
    assert lines(report()) == ["h, kernel k: 1 event of toy"]


def test_a_request_of_no_length() -> None:
    assert "Request r, 0 ns" in lines(report(request("r", path())))


def test_names_are_never_markup() -> None:
    odd = "[bold]x[/bold]"
    found = shown(report(request(odd, path(segment(0, 1000, activity=odd, layer="toy", activity_id="1")))))
    assert found.count(odd) == 3


def test_what_was_not_seen_is_said_in_plain_words() -> None:
    found = path(
        segment(0, 600), segment(600, 900, Category.NOT_OBSERVED), segment(900, 950, Category.UNEXPLAINED),
        segment(950, 1000, Category.UNDECIDED), not_observed_ns=300, unexplained_ns=50, undecided_ns=50,
        lost_events=5, violations=(Violation("toy.done", 7), Violation("toy.done", 2000)),
    )  # fmt: skip
    whole = report(
        request("r", found),
        loss=(
            LossEntry(stage="ring", kind="toy.call", cpu=0, from_ns=0, to_ns=9, count=3),
            LossEntry(stage="ring", kind="toy.call", cpu=1, from_ns=0, to_ns=9, count=4),
            LossEntry(stage="ring", kind="", cpu=1, from_ns=0, to_ns=9, count=1),
            LossEntry(stage="ended_unseen", kind="", cpu=1, from_ns=0, to_ns=9, count=9),
            LossEntry(stage="attach_gap", kind="", cpu=1, from_ns=0, to_ns=9, count=9),
        ),
        joins=(
            JoinCount(rule="toy.done", matched=0, unmatched=0, ambiguous=0, off="drm.job was not recorded"),
            JoinCount(rule="drm.done", matched=0, unmatched=0, ambiguous=0, off="drm.job was not recorded"),
        ),
        problems=("plugin toy failed at import: no",),
    )
    whole.recording["layers"] = {
        "toy": {
            "version": "1",
            "missing": [
                {"probe": "libtoy:open", "why": "no such symbol"},
                {
                    "probe": "jobs",
                    "why": f"toy.a cannot be recorded: t:a: {no_group('toys')}; t:b: {no_group('games')}",
                },
                {"probe": "ends", "why": f"t:c: {no_group('toys')}; t:d: no such event"},
            ],
        }
    }
    whole.recording["cut"] = True
    whole.recording["damage"] = ["segments/000001: 7 bytes"]
    text = lines(whole)
    assert text[text.index("What was not seen") + 1 :] == [
        "- 300 ns of r (30.0%) belongs to layers that were not recorded",
        "- 50 ns of r (5.0%) is explained by nothing that was recorded",
        "- 50 ns of r (5.0%) is bounded but cannot be told apart",
        "- 5 records lost while r was served: its path may lack what they said",
        "- 2 edges in r would go back in time, by up to 2.000 µs, and so did not count",
        "- the recording was cut: what came after the break is missing",
        "- damaged: segments/000001: 7 bytes",
        "- 7 toy.call records lost (ring)",
        "- 1 record lost (ring)",
        "- 1 short-lived process ended before their libraries could be looked at",
        "- a library was mapped before its probes were there; calls in between were not recorded",
        "- toy: libtoy:open: no such symbol",
        "- toy: ends: t:c: no group toys (is its module loaded?); t:d: no such event",
        "- no driver with tracepoints of games, toys was loaded",
        "- rule toy.done is off: drm.job was not recorded",
        "- plugin toy failed at import: no",
    ]


def test_when_all_was_seen_nothing_is_said_about_it() -> None:
    text = shown(report(request("r", path(segment(0, 1000)))))
    assert "not seen" not in text
    assert "fit together" not in text


def test_layers_tables_have_names_times_and_sizes() -> None:
    rows: tuple[dict[str, str | int | float | bool | None], ...] = (
        {
            "pid": 41_000,
            "place": "gpu",
            "device": None,
            "peak_bytes": 3 << 29,
            "grown_bytes": -2048,
            "in_calls_ns": 1_500,
        },
        {"pid": 7, "place": None, "device": None, "peak_bytes": 1023, "grown_bytes": 0, "in_calls_ns": 2},
    )
    found = lines(report(layers={"toy": {"memory": LayerTable(title="Memory of toys", rows=rows)}}))
    assert [line.split() for line in found[found.index("Memory of toys") + 1 :]] == [
        ["pid", "place", "peak", "grown", "in", "calls"],
        ["41000", "gpu", "1.5", "GiB", "-2.0", "KiB", "1.500", "µs"],
        ["7", "1023", "B", "0", "B", "2", "ns"],
    ]


def test_findings_are_printed() -> None:
    found = lines(report(findings=(Finding(rule="toy.slow", title="Slow toy", detail="Wind it up."),)))
    assert found[-2:] == ["Slow toy", "Wind it up."]


def test_a_long_path_is_a_short_list_that_ends_where_the_path_does() -> None:
    other = THREAD.replace("/7@", "/8@")
    segments = [
        segment(
            i * 100, i * 100 + 100, [Category.API_CALL, Category.DRIVER, Category.HOST_COMPUTE][i % 3],
            entities=(THREAD if i < 3000 else other,), rule="core.wake" if i == 2999 else None,
        )
        for i in range(6000)
    ]  # fmt: skip
    found = lines(report(request("r", path(*segments))))
    start = next(number for number, line in enumerate(found) if line.startswith("at, ms"))
    stop = next(number for number, line in enumerate(found) if "segments in" in line)
    assert stop - start - 1 <= 24
    assert "then woke thread 8" in "\n".join(found[start:stop])
    at, length, *_ = found[stop - 1].split()
    assert round((float(at) + float(length)) * 1e6) == 600_000


def test_ambiguous_choices_are_marked() -> None:
    text = shown(report(request("r", path(segment(0, 10, ambiguous=True, confidence=Confidence.INFERRED)))))
    assert "inferred; one of several that fit" in text


def test_the_bar_gives_each_cell_to_what_took_most_of_it() -> None:
    one = request(
        "r", path(segment(0, 40), segment(40, 46, Category.DRIVER), segment(46, 100, Category.DEVICE_WAIT))
    )  # fmt: skip
    order = [Category.DEVICE_WAIT, Category.HOST_COMPUTE, Category.DRIVER]
    assert _bar(one, fills_of(order), 10).plain == "▓▓▓▓▒█████"
    assert len(_bar(one, fills_of(order), 97).plain) == 97


def test_a_bar_is_full_even_if_the_path_has_fewer_nanoseconds_than_cells() -> None:
    one = request("r", path(segment(0, 3), segment(3, 7, Category.DRIVER)))
    assert len(_bar(one, fills_of([Category.DRIVER, Category.HOST_COMPUTE]), 100).plain) == 100


def test_every_category_has_a_meaning_and_the_first_ones_a_fill_of_their_own() -> None:
    assert set(MEANINGS) == set(Category)
    fills = fills_of(Category)
    assert len(set(list(fills.values())[: len(FILLS)])) == len(FILLS)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.000 µs"), (1_234_567, "1.235 ms"), (61_000_000_000, "61.000 s")],
)
def test_durations(time_ns: int, text: str) -> None:
    assert duration(time_ns) == text


def test_shares() -> None:
    assert [share(*pair) for pair in ((1, 3), (0, 5), (1, 10**6), (5, 5), (3, 0))] == [
        "33.3%", "0.0%", "<0.1%", "100.0%", "0.0%",
    ]  # fmt: skip


def test_lists_of_words() -> None:
    assert [listed(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_an_open_call_is_named(tmp_path: Path) -> None:
    story = Story()
    story.request("hang", 100, None, 7)
    story.call("forever", 200, 5_000_000, 7)
    assert any("forever" in line for line in lines(story.analysis(tmp_path).report()))
