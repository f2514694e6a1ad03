# SPDX-License-Identifier: Apache-2.0
"""Join rules over recorded events: from the call to the queue, and from there to the signal."""

from __future__ import annotations

from collections.abc import Sequence

from fencepath.events import Category, Role
from fencepath.joins import Confidence, JoinRule, Order, Pick, Relation, Select

__all__ = ["RULES"]


def _around_queue(name: str, cause: Select, gap: Category, requires: Sequence[str] = ()) -> JoinRule:
    """What a thread was in when it queued a job."""
    return JoinRule(
        name=name,
        cause=cause,
        effect=Select(kind="drm.job.queue"),
        on=("thread",),
        relation=Relation.CONTAINS,
        pick=Pick.INNERMOST,
        order=Order.START_START,
        gap=gap,
        requires=tuple(requires),
    )


def _next(name: str, cause: str, effect: str, gap: Category) -> JoinRule:
    """One step of a job's life to the next, by its fence."""
    return JoinRule(
        name=name,
        cause=Select(kind=cause),
        effect=Select(kind=effect),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        confidence=Confidence.EXACT,
        gap=gap,
        requires=(cause, effect),
    )


RULES: tuple[JoinRule, ...] = (
    _around_queue("drm.submit", Select(role=Role.CALL), Category.API_CALL),
    _around_queue("drm.submit_transfer", Select(role=Role.TRANSFER), Category.API_CALL),
    _around_queue("drm.submit_ioctl", Select(role=Role.SUBMIT), Category.DRIVER, ("drm.ioctl",)),
    _next("drm.run", "drm.job.queue", "drm.job.run", Category.LAUNCH_QUEUE),
    _next("drm.done", "drm.job.run", "drm.job.done", Category.DEVICE_EXECUTION),
    _next("drm.signal", "drm.job.done", "drm.fence.signaled", Category.DRIVER),
    JoinRule(
        name="drm.wake",
        cause=Select(kind="drm.fence.signaled"),
        effect=Select(kind="drm.fence.wait"),
        on=("fence",),
        relation=Relation.ENDS,
        pick=Pick.LATEST,
        order=Order.FINISH_FINISH,
        gap=Category.FENCE_WAIT,
        requires=("drm.fence.wait", "drm.fence.signaled"),
    ),
    JoinRule(
        name="drm.vblank",
        cause=Select(kind="drm.vblank.queued"),
        effect=Select(kind="drm.vblank.delivered"),
        on=("file", "crtc", "seq"),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=Category.FENCE_WAIT,
        requires=("drm.vblank.queued",),
    ),
)
"""What a rule leaves unmatched is counted in the report: a cancelled job's signal has no ``drm.job.done`` before it, and
neither has that of a fence which is no job's."""
