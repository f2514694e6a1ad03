# SPDX-License-Identifier: Apache-2.0
"""The layer's tables of the report."""

from __future__ import annotations

from pathlib import Path

from plugins.drm.tests.story import IRQ, Jobs

TID, OTHER = 7, 8
FILE = 0xFFFF888001234000
MS = 1_000_000


def test_where_the_time_of_jobs_went(tmp_path: Path) -> None:
    story = Jobs()
    story.queue(100, 1, TID, client_id=4)
    story.run(300, 1)
    story.done(1_000, 1)
    story.queue(150, 2, OTHER, client_id=5, ring="sdma")
    story.depends(151, 2, on=1)
    story.run(1_200, 2)
    story.done(1_500, 2)
    story.fence_wait(1_100, 1_530, OTHER, *story.fence(2))
    told = story.analysed(tmp_path)
    rows = {row["client"]: row for row in told.table("processes")}
    assert {name: rows[4][name] for name in ("queue_ns", "dependency_ns", "execute_ns", "signal_to_wake_ns")} == {
        "queue_ns": 200,
        "dependency_ns": 0,
        "execute_ns": 700,
        "signal_to_wake_ns": 0,
    }
    assert {name: rows[5][name] for name in ("queue_ns", "dependency_ns", "execute_ns", "signal_to_wake_ns")} == {
        "queue_ns": 199,
        "dependency_ns": 851,
        "execute_ns": 300,
        "signal_to_wake_ns": 30,
    }
    rings = told.table("rings")
    assert [(row["ring"], row["busy_ns"]) for row in rings] == [("gfx", 700), ("sdma", 300)]
    extent = 1_530 - 100
    assert rings[0]["utilisation"] == 700 / extent


def test_jobs_of_a_request_are_those_its_process_queued_meanwhile(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    for job, (at_ns, pid) in enumerate([(50, 100), (200, 100), (300, 555), (1_100, 100)], 1):
        story.queue(at_ns, job, TID if pid == 100 else 99, pid=pid)
        story.run(at_ns + 1, job)
        story.done(at_ns + 11, job)
    (row,) = story.analysed(tmp_path).table("requests")
    assert (row["request"], row["jobs"], row["execute_ns"]) == ("r@100", 1, 10)


def test_the_hardware_time_of_a_frame_is_kept_apart_from_waiting_for_it(tmp_path: Path) -> None:
    story = Jobs()
    for seq, asked in ((11, 1 * MS), (12, 2 * MS)):
        story.add("drm.vblank.queued", asked, TID, file=FILE, crtc=0, seq=seq)
    for seq, hardware in ((11, 10 * MS), (12, 26 * MS)):
        story.add("drm.vblank.event", hardware + 50_000, 0, IRQ, vblank_ns=hardware, crtc=0, seq=seq, high_precision=1)
        story.add("drm.vblank.delivered", hardware + 70_000, 0, IRQ, file=FILE, crtc=0, seq=seq)
    # a page flip was not asked for, and of another pipe no blank was recorded
    story.add("drm.vblank.delivered", 30 * MS, 0, IRQ, file=FILE, crtc=1, seq=12)
    told = story.analysed(tmp_path)
    first, second = told.table("vblank")
    assert first == {
        "crtc": 0,
        "delivered": 2,
        "with_hardware_time": 2,
        "target_wait_mean_ns": (9 * MS + 24 * MS) // 2,
        "delivery_mean_ns": 70_000,
        "delivery_most_ns": 70_000,
    }
    assert (second["delivered"], second["with_hardware_time"], second["delivery_mean_ns"]) == (1, 0, None)
    assert told.count("drm.vblank") == (2, 1, 0)


def test_a_recording_without_a_job_has_empty_tables(tmp_path: Path) -> None:
    story = Jobs()
    story.request("r", 100, 1_000, TID)
    told = story.analysed(tmp_path)
    for name in ("rings", "processes", "requests", "vblank", "unmatched"):
        assert told.table(name) == []
