# SPDX-License-Identifier: Apache-2.0
"""Joining of jobs: queue, run, done, signal, dependencies and rings, each case by name."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from plugins.drm.tests.story import Jobs, Told, plugins

from fencepath.analysis import Analysis
from fencepath.records import Flags

TID = 7


def one_job(story: Jobs, job: int, at_ns: int, length_ns: int = 100, **fields: str) -> None:
    story.queue(at_ns, job, TID, **fields)
    story.run(at_ns + 10, job)
    story.done(at_ns + length_ns, job)


def test_a_job_has_its_ring_from_hand_over_to_done(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200)}
    assert told.edges("drm.execute") == {(1, 1)}
    for rule in ("drm.run", "drm.done", "drm.signal"):
        assert told.count(rule) == (1, 0, 0)
    assert told.texts("drm.job.execute", "ring") == ["drm.ring:0000:03:00.0/gfx"]
    assert told.texts("drm.job.execute", "gpu") == ["gpu:0000:03:00.0"]
    assert told.batch("drm.job.execute").labels[int(told.batch("drm.job.execute")["label"][0])] == "job on gfx"
    assert told.unmatched() == {}


def test_on_a_deep_ring_a_job_begins_when_the_one_before_is_done(tmp_path: Path) -> None:
    story = Jobs()
    for job, (queued, run, done) in enumerate([(100, 110, 200), (120, 130, 350), (140, 150, 360), (400, 410, 500)], 1):
        story.queue(queued, job, TID)
        story.run(run, job)
        story.done(done, job)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200), 2: (200, 350), 3: (350, 360), 4: (410, 500)}
    assert told.edges("drm.ring") == {(1, 2), (2, 3), (3, 4)}
    (ring,) = told.table("rings")
    assert (ring["busy_ns"], ring["jobs"]) == (250 + 90, 4)


def test_rings_of_one_name_on_two_devices_are_two(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100, 300)
    one_job(story, 2, 110, 100, dev="0000:04:00.0")
    told = story.analysed(tmp_path)
    assert told.edges("drm.ring") == set()
    assert told.spans("drm.job.execute") == {1: (110, 400), 2: (120, 210)}
    assert {row["device"] for row in told.table("rings")} == {"0000:03:00.0", "0000:04:00.0"}


def test_schedulers_tell_rings_of_one_name_apart(tmp_path: Path) -> None:
    story = Jobs()
    for job, scheduler in ((1, 0xFFFF888000000100), (2, 0xFFFF888000000200)):
        story.queue(100 + job, job, TID, dev="", scheduler=scheduler)
        story.run(110 + job, job)
        story.done(200 + job, job)
    told = story.analysed(tmp_path)
    assert told.edges("drm.ring") == set()
    assert sorted(set(told.texts("drm.job.queue", "ring"))) == ["drm.ring:-/gfx", "drm.ring:-/gfx#1"]


def test_without_its_name_a_device_is_known_by_the_ioctl(tmp_path: Path) -> None:
    story = Jobs()
    other = 8
    story.ioctl("drm.ioctl", 90, 130, TID, function=0, device=226 << 20 | 128, command=0xC0406440)
    story.ioctl("drm.ioctl", 90, 130, other, function=0, device=226 << 20 | 129, command=0xC0406440)
    story.queue(100, 1, TID, dev="")
    story.queue(101, 2, other, dev="")
    story.queue(150, 3, TID, dev="")
    told = story.analysed(tmp_path)
    assert told.texts("drm.job.queue", "gpu") == ["gpu:226:128", "gpu:226:129", ""]
    assert told.count("drm.submit_ioctl") == (2, 1, 0)


def test_where_jobs_overtake_each_context_is_a_ring(tmp_path: Path) -> None:
    """As on xe, where every queue is a scheduler with the name of its engine."""
    story = Jobs()
    for job, context in ((1, 5), (2, 7), (3, 5), (4, 7)):
        story.name(job, context, job)
    for job, run, done in ((1, 110, 400), (2, 120, 200), (3, 130, 500), (4, 140, 300)):
        story.queue(run - 5, job, TID, ring="rcs0")
        story.run(run, job)
        story.done(done, job)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 400), 2: (120, 200), 3: (400, 500), 4: (200, 300)}
    assert told.edges("drm.ring") == {(1, 3), (2, 4)}
    (ring,) = told.table("rings")
    assert ring["busy_ns"] == 500 - 110


def test_a_dependency_holds_a_job_up_until_its_signal(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100, 300, ring="sdma0")
    story.queue(120, 2, TID)
    story.depends(121, 2, on=1)
    story.run(450, 2)
    story.done(600, 2)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {2: (120, 401)}
    assert told.jobs("drm.job.hold", "dependency") == [1]
    assert told.edges("drm.dependency") == {(1, 2)}
    assert told.edges("drm.hold") == {(2, 2)}
    assert told.edges("drm.execute") == {(1, 1), (2, 2)}


def test_a_dependency_that_was_there_holds_nothing_up(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100, ring="sdma0")
    story.queue(300, 2, TID)
    story.depends(301, 2, on=1)
    story.run(310, 2)
    story.done(400, 2)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {}
    assert told.unmatched() == {}


@pytest.mark.parametrize("says", ["blocked", "dependency"])
def test_a_dependency_on_the_same_ring_is_there_when_it_was_handed_over(tmp_path: Path, says: str) -> None:
    story = Jobs()
    story.name(2, 7, 1)
    story.queue(100, 1, TID)
    story.queue(110, 2, TID)
    if says == "blocked":
        story.blocked(115, 2, on=1, scheduled=True)
    else:
        story.depends(115, 2, on=1)
    story.run(200, 1)
    story.run(210, 2)
    story.done(400, 1)
    story.done(500, 2)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {2: (110, 200)}
    assert told.edges("drm.dependency") == set()
    assert told.spans("drm.job.execute")[2] == (400, 500)
    if says == "blocked":
        assert told.batch("drm.job.blocked")["pipelined"].tolist() == [True]
        assert told.jobs("drm.job.blocked", "dependency") == [1]


def test_the_last_of_several_dependencies_binds(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100, 200, ring="a")
    one_job(story, 2, 100, 400, ring="b")
    story.queue(110, 3, TID)
    for on in (1, 2):
        story.depends(111, 3, on=on)
        story.blocked(112, 3, on=on)
    story.run(520, 3)
    story.done(600, 3)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {3: (110, 501)}
    assert told.jobs("drm.job.hold", "dependency") == [2]
    assert told.edges("drm.dependency") == {(1, 3), (2, 3)}


def test_a_dependency_on_a_fence_that_is_no_jobs(tmp_path: Path) -> None:
    story = Jobs()
    story.queue(100, 1, TID)
    story.depends_on_other(101, 1, 99, 3)
    story.signal_other(300, 99, 3)
    story.run(310, 1)
    story.done(400, 1)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {1: (100, 300)}
    assert told.texts("drm.job.hold", "dependency")[0].endswith("/99/3")
    assert told.edges("drm.dependency") == set()


def test_of_a_fence_that_nobody_saw_signalled_nothing_is_said(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    story.depends_on_other(101, 1, 99, 3)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.hold") == {}
    assert told.unmatched() == {"dependencies of which nothing says when they were there": 1}


def test_a_dependency_of_one_of_several_jobs_is_counted(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    story.depends(120, 1, on=9, candidates=2)
    told = story.analysed(tmp_path)
    assert told.unmatched() == {"dependencies that may be of several jobs": 1}
    assert told.count("drm.dependency") == (0, 1, 0)


def test_cancelled_jobs_end_with_their_fence(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    story.queue(120, 2, TID)
    story.signal(1_000, 2, tid=TID)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute").keys() == {1}
    (row,) = told.table("processes")
    assert (row["jobs"], row["cancelled"], row["not_ended"]) == (2, 1, 0)
    assert told.unmatched() == {"jobs that were cancelled before they ran": 1}


def test_a_job_that_never_ends_is_open(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    for job in (2, 3):
        story.queue(200 + job, job, TID)
        story.run(220 + job, job)
    story.queue(900, 4, TID)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200), 2: (222, 900)}
    flags = dict(zip(told.jobs("drm.job.execute"), told.batch("drm.job.execute")["flags"].tolist(), strict=True))
    assert flags == {1: 0, 2: int(Flags.OPEN)}
    assert told.unmatched() == {"jobs that had not ended": 3}


def test_an_end_that_was_lost_is_no_open_job(tmp_path: Path) -> None:
    """A later job of the ring is done, so this one must be, whenever that was."""
    story = Jobs()
    story.queue(100, 1, TID)
    story.run(110, 1)
    one_job(story, 2, 300)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {2: (310, 400)}
    assert told.unmatched() == {"jobs that ran and must have ended, of which no end was seen": 1}


def test_where_ends_were_lost_a_job_is_not_called_open(tmp_path: Path) -> None:
    story = Jobs()
    story.queue(100, 1, TID)
    story.run(110, 1)
    story.loss("drm.job.done", 150, 250, 3)
    one_job(story, 2, 300, ring="other")
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {2: (310, 400)}


def test_a_job_of_which_only_the_signal_was_seen_ends_there(tmp_path: Path) -> None:
    story = Jobs()
    story.queue(100, 1, TID)
    story.run(110, 1)
    story.signal(200, 1)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200)}


def test_a_job_whose_queueing_was_lost_has_no_ring_and_no_cause(tmp_path: Path) -> None:
    story = Jobs()
    story.run(110, 1)
    story.done(200, 1)
    one_job(story, 2, 300)
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200), 2: (310, 400)}
    assert told.count("drm.execute") == (1, 1, 0)
    assert told.unmatched() == {"jobs that ran, of which the queueing was not seen": 1}
    assert "drm.run" in {count.rule for count in told.analysis.joins if count.unmatched}


def test_a_job_that_was_submitted_again_after_a_reset_began_at_first(tmp_path: Path) -> None:
    story = Jobs()
    story.queue(100, 1, TID)
    story.run(110, 1)
    story.run(500, 1)
    story.done(600, 1)
    assert story.analysed(tmp_path).spans("drm.job.execute") == {1: (110, 600)}


def test_numbers_that_do_not_fit_in_32_bits(tmp_path: Path) -> None:
    """Fences that agree in their low halves: one is long done when the other is waited for."""
    story = Jobs()
    story.name(1, 9, 1)
    story.name(2, (1 << 32) + 9, 1)
    story.name(3, (1 << 33) + 9, (1 << 32) + 1)
    for job, begin in ((1, 100), (2, 1_000), (3, 2_000)):
        one_job(story, job, begin)
        story.fence_wait(begin + 50, begin + 120, TID, *story.fence(job))
    told = story.analysed(tmp_path)
    assert told.spans("drm.job.execute") == {1: (110, 200), 2: (1_010, 1_100), 3: (2_010, 2_100)}
    assert told.jobs("drm.fence.signaled") == [1, 2, 3]
    assert told.edges("drm.fence_wait") == {(1, 1), (2, 2), (3, 3)}
    assert f"/{(1 << 33) + 9}/{(1 << 32) + 1}" in told.texts("drm.fence.wait", "fence")[2]


def test_context_0_is_nobodys(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    story.depends_on_other(101, 1, 0, 0)
    story.signal_other(102, 0, 0)
    told = story.analysed(tmp_path)
    assert told.unmatched() == {}
    assert told.spans("drm.job.hold") == {}


def test_fences_have_the_boot_in_their_names(tmp_path: Path) -> None:
    story = Jobs()
    one_job(story, 1, 100)
    (text,) = story.analysed(tmp_path).texts("drm.job.queue", "fence")
    assert text == "fence:01234567-89ab-cdef-0123-456789abcdef/5/1"


def random_story(seed: int) -> Jobs:
    chance = random.Random(seed)
    story = Jobs(with_host=True)
    now = 0
    for job in range(1, 60):
        story.name(job, chance.choice([5, 7, 9, (1 << 32) + 5]), job)
        now += chance.randint(1, 50)
        kept = [chance.random() > 0.15 for _ in range(4)]
        if kept[0]:
            story.queue(now, job, chance.choice([7, 8]), ring=chance.choice("ab"), dev=chance.choice(["x", ""]))
        if kept[1]:
            story.run(now + chance.randint(0, 30), job)
        if kept[2]:
            story.done(now + chance.randint(30, 300), job, signaled=kept[3])
        if chance.random() < 0.5:
            story.depends(now + 1, job, on=chance.randint(1, 60))
        if chance.random() < 0.3:
            story.fence_wait(now, now + 200, 7, *story.fence(chance.randint(1, job)))
    return story


@pytest.mark.parametrize("seed", range(7))
def test_whatever_was_lost_nothing_goes_back_in_time(tmp_path: Path, seed: int) -> None:
    story = random_story(seed)
    told = story.analysed(tmp_path)
    for begin, end in told.spans("drm.job.execute").values():
        assert begin <= end
    edges = told.analysis.edges
    mine = [index for index, rule in enumerate(edges.rules) if rule.startswith("drm.")]
    backwards = [
        edges.rules[int(rule)] for rule, back in zip(edges.rule, edges.back, strict=True) if back and rule in mine
    ]
    assert backwards == []


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_records_arrive_does_not_matter(tmp_path: Path, seed: int) -> None:
    story = random_story(seed)
    straight = story.analysed(tmp_path)
    mixed = Told(Analysis(story.write(tmp_path / "mixed.fencepath", random.Random(seed)), plugins()), {})
    for kind in ("drm.job.execute", "drm.job.hold"):
        assert mixed.texts(kind, "fence") == straight.texts(kind, "fence")
        assert mixed.batch(kind)["begin_ns"].tolist() == straight.batch(kind)["begin_ns"].tolist()
    counts = [[count for count in told.analysis.joins if count.rule.startswith("drm.")] for told in (mixed, straight)]
    assert counts[0] == counts[1]
