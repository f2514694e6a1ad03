# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run on tiny sizes and count right. What they measure is never tested."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from benchmarks import calls, command, decode_loop, live, paths
from benchmarks.__main__ import measure
from benchmarks.drains import recording_rows, ring_rows
from benchmarks.page import markdown, table
from benchmarks.results import Result, Row, machine, parse_spread, row

from fencepath.analysis import Analysis
from fencepath.events import Category
from fencepath.recording import open_recording
from fencepath_cuda.simcuda import build

STEPS, REQUESTS = 23, 8


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "loop.fencepath"
    written = decode_loop.write_decode_loop(path, STEPS * decode_loop.EVENTS_A_STEP, REQUESTS)
    assert written == STEPS * decode_loop.EVENTS_A_STEP + 2 * REQUESTS + 3
    return path


class TestDecodeLoop:
    def test_a_step_has_the_events_it_says(self, loop: Path) -> None:
        recording = open_recording(loop)
        counts = {kind: len(recording.records(kind)) for kind in recording.kinds}
        assert counts["cuda.launch"] == STEPS * decode_loop.LAUNCHES
        assert counts["cuda.stream.synchronize"] == counts["host.irq"] == STEPS
        assert counts["mark.text"] == counts["mark.point"] == REQUESTS
        assert sum(counts.values()) == STEPS * decode_loop.EVENTS_A_STEP + 2 * REQUESTS + 3

    def test_no_thread_is_on_two_cpus_or_switched_in_twice(self, loop: Path) -> None:
        switches = open_recording(loop).records("host.switch")
        switches = switches[np.argsort(switches["time_ns"], kind="stable")]
        for tid in np.unique(switches["next_tid"]).tolist():
            gone, came = switches["tid"] == tid, switches["next_tid"] == tid
            states = np.where(came, 1, -1)[gone | came]
            assert tid == 0 or (np.diff(states) != 0).all(), tid

    def test_paths_change_threads_twice_a_step(self, loop: Path) -> None:
        found = Analysis(open_recording(loop))
        assert (len(found.requests), found.problems) == (REQUESTS, ())
        path = found.path(found.requests[-1]).columns
        threads = {found.entity_text(thread).split("/")[-1].split("@")[0] for thread in np.unique(path.thread).tolist()}
        assert {str(decode_loop.ENGINE), str(decode_loop.WORKER)} <= threads
        changes = int(np.count_nonzero(np.diff(path.thread)))
        steps = STEPS // (REQUESTS // decode_loop.IN_FLIGHT)
        assert 2 * steps <= changes <= 2 * steps + 4
        categories = {list(Category)[code] for code in np.unique(path.category).tolist()}
        assert {Category.API_CALL, Category.DEVICE_WAIT, Category.HOST_COMPUTE, Category.RUNQUEUE} <= categories
        assert Category.UNEXPLAINED not in categories


class TestPaths:
    def test_all_requests_are_walked(self, tmp_path: Path) -> None:
        path = tmp_path / "loop.fencepath"
        events = decode_loop.write_decode_loop(path, 0, paths.REQUESTS)
        result = paths.analyse(path)
        assert result["events"] == events
        assert result["segments"] > paths.REQUESTS
        assert result["paths_s"] > 0

    def test_the_wrong_number_of_requests_ends_it(self, loop: Path) -> None:
        with pytest.raises(SystemExit, match="8 requests"):
            paths.analyse(loop)


@pytest.mark.bpf
class TestCalls:
    def test_every_call_is_recorded(self) -> None:
        with contextlib.ExitStack() as made:
            bench = calls.Bench(made)
            for shape in calls.SHAPES:
                assert set(bench.costs(shape, "empty")) == set(calls.CLASSES)
                bench.costs(shape, "recorded")
            bench.check()

    def test_a_call_that_is_not_recorded_is_found(self) -> None:
        with contextlib.ExitStack() as made:
            bench = calls.Bench(made)
            bench._cookie += 1 << 32
            bench.costs("entry", "recorded")
            with pytest.raises(RuntimeError, match="0 of"):
                bench.check()


@pytest.mark.bpf
class TestLive:
    def test_every_launch_is_counted(self, tmp_path: Path) -> None:
        workload = build(tmp_path / "simcuda").workload
        path = tmp_path / "r.fencepath"
        recorded = command.record(path, [workload, "--threads", "2", "--launches", "1009", "--kernel-ns", "0"])
        rows = {row.what.split(" in ")[0]: row for row in live.rows_of(open_recording(path), recorded, [1.0])}
        lost = rows["events lost"]
        assert (lost.middle, lost.holds) == (0, True)
        assert lost.note == "the program made 2,018 launches, 2,018 are recorded"
        assert recorded.attached_s > 0

    def test_a_command_that_cannot_be_recorded_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="fencepath record ended"):
            command.record(tmp_path / "missing" / "r.fencepath", ["/nonexistent"])


def fixed(value: float, *, at_least: float | None = None, at_most: float | None = None) -> Row:
    return row("what", "s", [value], at_least=at_least, at_most=at_most)


class TestResults:
    def test_a_row_has_least_median_and_most(self) -> None:
        found = row("what", "s", [5, 2, 3])
        assert (found.least, found.middle, found.most, found.rounds, found.holds) == (2, 3, 5, 3, None)

    @pytest.mark.parametrize(
        ("made", "holds"),
        [
            (fixed(3, at_least=3), True),
            (fixed(2.9, at_least=3), False),
            (fixed(3, at_most=3), True),
            (fixed(3.1, at_most=3), False),
            (fixed(0, at_most=0), True),
        ],
    )
    def test_what_is_required(self, made: Row, holds: bool) -> None:
        assert made.holds is holds

    def test_texts_of_the_older_benchmarks_are_read(self) -> None:
        assert parse_spread("1,234.5 (least 3, most 6,000)") == (1234.5, 3.0, 6000.0)
        with pytest.raises(ValueError, match="not a spread"):
            parse_spread("fast")

    def test_rings_and_recordings_become_rows(self) -> None:
        text = "20,000,000 (least 10,000,000, most 30,000,000)"
        said = {
            "fencepath, records/s": text,
            "ratio to bcc": "10.0 (least 9.0, most 11.0)",
            "records a round": 7,
            "rounds": 3,
        }
        first, ratio = ring_rows(said)
        assert (first.least, first.middle, first.most, first.rounds, first.holds) == (10, 20, 30, 3, True)
        assert (ratio.what, ratio.middle) == ("ring to memory: fencepath over bcc", 10)

    def test_a_slow_recording_does_not_hold(self) -> None:
        said = {
            "ring rows to compressed folder, CPU us/event": "0.6 (least 0.5, most 0.7)",
            "ratio to the plain file": "3.0 (least 2.0, most 4.0)",
            "recording to arrays of each kind, M events/s": "4.0 (least 3.0, most 5.0)",
            "events a round": 11,
            "rounds": 3,
        }
        assert [found.holds for found in recording_rows(said)] == [False, None, False]


class TestPage:
    RESULT = Result(
        machine="a machine", quick=False, rows={"paths": [fixed(2.5, at_most=3), fixed(1234567.0, at_least=2e6)]},
        failed={"live": "no compiler"}, load=(3.0, 0.5),
    )  # fmt: skip

    def test_the_page_has_the_figures_of_the_run_and_no_others(self) -> None:
        page = markdown(self.RESULT)
        assert "| what | 2.5 | 2.5 | 2.5 | s | 1 | ≤ 3: holds |" in page
        assert "| what | 1,234,567 | 1,234,567 | 1,234,567 | s | 1 | ≥ 2,000,000: does not hold |" in page
        assert "Machine: a machine." in page
        assert "busy with other things" in page
        assert "- live: no compiler" in page

    def test_the_table_says_the_same(self) -> None:
        lines = table(self.RESULT).splitlines()
        assert lines[0] == "a machine"
        assert lines[-1] == "live: not measured: no compiler"
        assert sum("does not hold" in line for line in lines) == 1

    def test_this_machine_has_a_name(self) -> None:
        assert "Linux" in machine()

    def test_a_benchmark_that_fails_says_why(self) -> None:
        with pytest.raises(RuntimeError, match="No module named"):
            measure("nothing", quick=True)
