# SPDX-License-Identifier: Apache-2.0
"""Where the preempt count is, of what the kernel's types say in both shapes that kernels have."""

from __future__ import annotations

import pytest

from fencepath_host.preempt_count import defines_of

MEMBERS = {"task_struct.se": 128, "sched_entity.cfs_rq": 40, "cfs_rq.rq": 312}
HOT = {"pcpu_hot.current_task": 0, "pcpu_hot.preempt_count": 8}
VARIABLES = {"current_task": 64, "__preempt_count": 72, "runqueues": 4096, "other": 8}


def test_variables_of_their_own() -> None:
    assert defines_of(MEMBERS, VARIABLES) == {
        "HOST_TASK_CFS_RQ": 128 + 40,
        "HOST_CFS_RQ_RQ": 312,
        "HOST_RQ_TO_CURRENT": 64 - 4096,
        "HOST_RQ_TO_COUNT": 72 - 4096,
    }


def test_members_of_pcpu_hot() -> None:
    """6.2 to 6.14."""
    found = defines_of({**MEMBERS, **HOT}, {"runqueues": 128, "pcpu_hot": 1024})
    assert (found["HOST_RQ_TO_CURRENT"], found["HOST_RQ_TO_COUNT"]) == (896, 904)


@pytest.mark.parametrize("lacking", [*MEMBERS, "current_task", "__preempt_count", "runqueues"])
def test_nothing_is_guessed(lacking: str) -> None:
    members, variables = ({name: at for name, at in all_.items() if name != lacking} for all_ in (MEMBERS, VARIABLES))
    assert defines_of(members, variables) == {}


@pytest.mark.parametrize("lacking", HOT)
def test_nothing_is_guessed_of_pcpu_hot(lacking: str) -> None:
    members = {name: at for name, at in {**MEMBERS, **HOT}.items() if name != lacking}
    assert defines_of(members, {"runqueues": 128, "pcpu_hot": 1024}) == {}


def test_without_types_there_is_nothing() -> None:
    assert defines_of({}, {}) == {}
