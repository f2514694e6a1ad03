# SPDX-License-Identifier: Apache-2.0
"""Who waited for which job: in the kernel for its fence, or asleep until its signal."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins.drm.tests.story import Jobs

from fencepath.events import Category
from fencepath_drm.sleeps import LONGEST_NS

TID, OTHER, IDLE = 7, 8, 0
MS = 1_000_000


def job(story: Jobs, number: int, begin: int, end: int, tid: int = TID, cpu: int = 0) -> None:
    story.queue(begin, number, tid)
    story.run(begin + 10, number)
    story.done(end, number, cpu=cpu)


def test_a_wait_for_a_fence_ends_with_its_job(tmp_path: Path) -> None:
    story = Jobs()
    job(story, 1, 100, 500)
    story.fence_wait(150, 520, TID, *story.fence(1))
    story.fence_wait(600, 610, OTHER, *story.fence(1))
    told = story.analysed(tmp_path)
    assert told.edges("drm.fence_wait") == {(1, 1)}
    assert told.count("drm.fence_wait") == (2, 0, 0)
    assert told.count("drm.wake") == (1, 1, 0)
    (row,) = told.table("processes")
    assert row["signal_to_wake_ns"] == 20


def test_a_wait_that_was_given_up_has_no_edge(tmp_path: Path) -> None:
    story = Jobs()
    job(story, 1, 100, 500)
    story.fence_wait(150, 300, TID, *story.fence(1))
    told = story.analysed(tmp_path)
    assert told.edges("drm.fence_wait") == set()
    assert told.count("drm.fence_wait") == (0, 0, 0)


def test_a_wait_for_a_fence_that_is_no_jobs_is_counted(tmp_path: Path) -> None:
    story = Jobs()
    job(story, 1, 100, 500)
    story.fence_wait(150, 520, TID, 50, 3)
    told = story.analysed(tmp_path)
    assert told.count("drm.fence_wait") == (0, 1, 0)
    assert told.unmatched() == {"waits for fences that are no recorded job's": 1}


def test_a_sleeper_is_joined_to_the_signal_that_woke_it(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500, cpu=3)
    story.leaves(200, TID, cpu=1)
    story.woken(510, TID, cpu=3)
    story.enters(600, TID, cpu=1)
    told = story.analysed(tmp_path)
    assert told.spans("drm.fence.sleep") == {1: (200, 510)}
    assert told.batch("drm.fence.sleep")["tid"].tolist() == [TID]
    assert told.edges("drm.fence_sleep") == {(1, 1)}


def test_not_on_another_cpu_not_with_another_thread_not_much_later_and_not_before(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500, cpu=3)
    for tid, (time_ns, cpu, current) in enumerate(
        [(510, 2, IDLE), (520, 3, OTHER), (501 + LONGEST_NS + 1, 3, IDLE), (490, 3, IDLE)], 20
    ):
        story.leaves(200, tid, cpu=1)
        story.woken(time_ns, tid, current=current, cpu=cpu)
    assert story.analysed(tmp_path).spans("drm.fence.sleep") == {}


def test_of_two_signals_the_last_before_the_wake_up(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    job(story, 2, 110, 520)
    for tid, woken in ((TID, 510), (OTHER, 530)):
        story.leaves(200, tid)
        story.woken(woken, tid)
    told = story.analysed(tmp_path)
    assert dict(zip(told.batch("drm.fence.sleep")["tid"].tolist(), told.jobs("drm.fence.sleep"), strict=True)) == {
        TID: 1,
        OTHER: 2,
    }


def test_a_point_of_a_timeline_stands_for_the_job_signalled_right_before(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    story.signal_other(520, 50, 1)
    story.leaves(200, TID)
    story.woken(530, TID)
    assert story.analysed(tmp_path).spans("drm.fence.sleep") == {1: (200, 530)}


def test_what_the_signal_says_is_exact_and_nearness_is_not_asked(tmp_path: Path) -> None:
    """The thread that it did not wake was woken by something else, however near."""
    story = Jobs(with_host=True)
    job(story, 1, 100, 500, cpu=3)
    for tid in (TID, OTHER):
        story.leaves(200, tid, cpu=1)
        story.woken(510, tid, cpu=3)
    story.wakes(509, TID, *story.fence(1), cpu=3)
    told = story.analysed(tmp_path)
    assert told.spans("drm.fence.sleep") == {1: (200, 509)}
    assert told.batch("drm.fence.sleep")["tid"].tolist() == [TID]
    assert told.confidences("drm.fence_sleep") == {"exact"}


def test_nearness_is_inferred(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    story.leaves(200, TID)
    story.woken(510, TID)
    assert story.analysed(tmp_path).confidences("drm.fence_sleep") == {"inferred"}


def test_a_fence_that_stands_for_nothing_known_is_told_by_nearness(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    story.leaves(200, TID)
    story.wakes(530, TID, 50, 1)
    told = story.analysed(tmp_path)
    assert told.spans("drm.fence.sleep") == {1: (200, 530)}
    assert told.confidences("drm.fence_sleep") == {"inferred"}


def test_a_point_of_a_timeline_is_there_when_all_before_it_are(tmp_path: Path) -> None:
    """Point 2 has a job that is done at once, but has to wait for point 1; point 3 for its own."""
    story = Jobs(with_host=True)
    for number, end in ((1, 5_000), (2, 2_000), (3, 9_000)):
        job(story, number, number * 100, end, tid=OTHER)
        story.stands_for(number * 100 + 1, (50, number), story.fence(number), point=True, prev=number - 1)
    story.stands_for(400, (51, 3), story.fence(2), point=True)
    for point, end in ((2, 5_100), (3, 9_100)):
        story.leaves(1_000 + point, 20 + point)
        story.wakes(end, 20 + point, 50, point)
    story.fence_wait(1_000, 2_500, TID, 51, 3)
    told = story.analysed(tmp_path)
    sleeps = dict(zip(told.batch("drm.fence.sleep")["tid"].tolist(), told.jobs("drm.fence.sleep"), strict=True))
    assert sleeps == {22: 1, 23: 3}
    assert told.confidences("drm.fence_sleep") == {"exact"}
    assert told.count("drm.fence_wait") == (1, 0, 0)


ELSEWHERE = (1 << 64) - 1
"""In place of the point before: a fence that is no point of the timeline."""


@pytest.mark.parametrize(
    ("prev", "confidence"),
    [((0, 1), "exact"), ((0, 0), "inferred"), ((7, 1), "inferred"), ((ELSEWHERE, 1), "inferred")],
)
def test_of_a_timeline_with_points_that_were_not_seen_nothing_is_exact(
    prev: tuple[int, int], confidence: str, tmp_path: Path
) -> None:
    """One that was made before the recording may be what held the point up."""
    story = Jobs(with_host=True)
    for number in (1, 2):
        job(story, number, number * 100, number * 1_000, tid=OTHER)
        story.stands_for(number * 100 + 1, (50, number), story.fence(number), point=True, prev=prev[number - 1])
    story.leaves(500, TID)
    story.wakes(2_010, TID, 50, 2)
    told = story.analysed(tmp_path)
    assert told.jobs("drm.fence.sleep") == [2]
    assert told.confidences("drm.fence_sleep") == {confidence}


def test_a_point_that_was_there_from_the_begin_holds_up_nothing(tmp_path: Path) -> None:
    """The kernel has a fence of context 0 for it; and what is recorded twice is the same."""
    story = Jobs(with_host=True)
    story.stands_for(90, (50, 1), (0, 0), point=True)
    job(story, 1, 100, 1_000, tid=OTHER)
    for time_ns in (110, 111):
        story.stands_for(time_ns, (50, 2), story.fence(1), point=True, prev=1)
    story.leaves(500, TID)
    story.wakes(1_010, TID, 50, 2)
    assert story.analysed(tmp_path).confidences("drm.fence_sleep") == {"exact"}


def test_a_merged_fence_is_there_with_the_last_of_its_members(tmp_path: Path) -> None:
    """One of the members is a point of a timeline; of one with a member that is not known nothing is said."""
    story = Jobs(with_host=True)
    for number, end in ((1, 5_000), (2, 7_000), (3, 6_000)):
        job(story, number, number * 100, end, tid=OTHER)
    story.stands_for(400, (50, 1), story.fence(2), point=True)
    for member in (story.fence(1), (50, 1), story.fence(3)):
        story.stands_for(7_010, (60, 1), member, point=False)
    for member in (story.fence(1), (99, 9)):
        story.stands_for(7_020, (61, 1), member, point=False)
    story.fence_wait(1_000, 7_100, TID, 60, 1)
    story.fence_wait(1_000, 7_200, OTHER, 61, 1)
    told = story.analysed(tmp_path)
    assert told.count("drm.fence_wait") == (1, 1, 0)
    assert told.edges("drm.fence_wait") == {(2, 0)}


def test_who_was_awake_did_not_sleep(tmp_path: Path) -> None:
    """It left its CPU, but went on before the signal; the wake-up finds it about to sleep again."""
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    story.leaves(150, TID)
    story.enters(200, TID)
    story.woken(510, TID)
    assert story.analysed(tmp_path).spans("drm.fence.sleep") == {}


def test_what_the_kernel_says_of_a_wait_is_not_said_again(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    job(story, 1, 100, 500)
    story.fence_wait(150, 600, TID, *story.fence(1))
    story.leaves(200, TID)
    story.woken(510, TID)
    story.enters(590, TID)
    told = story.analysed(tmp_path)
    assert told.spans("drm.fence.sleep") == {}
    assert told.edges("drm.fence_wait") == {(1, 1)}


def test_the_path_of_a_request_goes_through_the_device(tmp_path: Path) -> None:
    """What bound last was another thread's job; each stretch has its reason, and all add up."""
    story = Jobs(with_host=True)
    story.request("r", 1_000, 20_000, TID)
    story.enters(900, TID)
    story.call("launch", 2_000, 3_000, TID)
    story.ioctl("drm.ioctl", 2_200, 2_800, TID, function=0, device=226 << 20 | 128, command=0xC0406440)
    story.queue(2_500, 2, TID)
    story.queue(1_500, 1, OTHER, ring="sdma")
    story.run(1_600, 1)
    story.done(6_000, 1)
    story.depends(2_600, 2, on=1)
    story.run(6_500, 2)
    story.done(15_000, 2)
    story.leaves(4_000, TID)
    story.woken(15_100, TID)
    story.enters(15_300, TID)
    told = story.analysed(tmp_path)
    (request,) = told.analysis.report().requests
    found = [(s.start_ns, s.end_ns, s.category, s.activity, s.rule) for s in request.path.segments]
    assert found == [
        (1_000, 1_500, Category.HOST_COMPUTE, "", None),
        (1_500, 1_600, Category.LAUNCH_QUEUE, "job on sdma", "drm.execute"),
        (1_600, 6_000, Category.DEVICE_EXECUTION, "job on sdma", None),
        (6_000, 6_001, Category.DEPENDENCY, "drm.job.hold", "drm.dependency"),
        (6_001, 6_500, Category.LAUNCH_QUEUE, "job on gfx", "drm.execute"),
        (6_500, 15_000, Category.DEVICE_EXECUTION, "job on gfx", None),
        (15_000, 15_100, Category.FENCE_WAIT, "drm.fence.sleep", "drm.fence_sleep"),
        (15_100, 15_300, Category.RUNQUEUE, "", None),
        (15_300, 20_000, Category.HOST_COMPUTE, "", None),
    ]
    assert request.path.violations == ()
    assert sum(request.path.by_category_ns.values()) == 19_000
    (row,) = told.table("requests")
    assert (row["jobs"], row["dependency_ns"], row["execute_ns"]) == (2, 3_501, 4_400 + 8_500)


def test_without_a_dependency_the_path_goes_back_to_the_call(tmp_path: Path) -> None:
    story = Jobs(with_host=True)
    story.request("r", 1_000, 20_000, TID)
    story.enters(900, TID)
    story.call("launch", 2_000, 3_000, TID)
    story.ioctl("drm.ioctl", 2_200, 2_800, TID, function=0, device=226 << 20 | 128, command=0xC0406440)
    job(story, 2, 2_500, 15_000)
    story.leaves(4_000, TID)
    story.woken(15_100, TID)
    story.enters(15_300, TID)
    (request,) = story.analysed(tmp_path).analysis.report().requests
    found = [(s.start_ns, s.end_ns, s.category, s.activity) for s in request.path.segments]
    assert found == [
        (1_000, 2_000, Category.HOST_COMPUTE, ""),
        (2_000, 2_200, Category.API_CALL, "launch"),
        (2_200, 2_500, Category.DRIVER, "ioctl 0x40"),
        (2_500, 2_510, Category.LAUNCH_QUEUE, "job on gfx"),
        (2_510, 15_000, Category.DEVICE_EXECUTION, "job on gfx"),
        (15_000, 15_100, Category.FENCE_WAIT, "drm.fence.sleep"),
        (15_100, 15_300, Category.RUNQUEUE, ""),
        (15_300, 20_000, Category.HOST_COMPUTE, ""),
    ]
