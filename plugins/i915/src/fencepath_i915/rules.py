# SPDX-License-Identifier: Apache-2.0
"""What causes what within the layer, and what the fences of the layer ``drm`` say of requests."""

from __future__ import annotations

from fencepath.events import Category
from fencepath.joins import Confidence, JoinRule, Order, Pick, Relation, Select
from fencepath_i915.kinds import ADD, RUN, WAIT

__all__ = ["RULES"]

_SIGNALED = "drm.fence.signaled"

# A fence is one request's for ever, so its number is enough. That a request is retired ends no wait: the waiter itself may
# retire it, after it was woken.
RULES = (
    JoinRule(
        name="i915.queue",
        cause=Select(kind=ADD),
        effect=Select(kind=RUN),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=Category.LAUNCH_QUEUE,
    ),
    JoinRule(
        name="i915.done",
        cause=Select(kind=RUN),
        effect=Select(kind=WAIT),
        on=("fence",),
        relation=Relation.ENDS,
        pick=Pick.LATEST,
        order=Order.FINISH_FINISH,
        gap=Category.FENCE_WAIT,
    ),
    # what lies between is the queue and the execution; only the low-level tracepoints tell them apart
    JoinRule(
        name="i915.complete",
        cause=Select(kind=ADD),
        effect=Select(kind=_SIGNALED),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        confidence=Confidence.BOUNDED,
        gap=Category.UNDECIDED,
        requires=(f"{ADD}>=1", f"{_SIGNALED}>=1"),
    ),
    JoinRule(
        name="i915.signal",
        cause=Select(kind=RUN),
        effect=Select(kind=_SIGNALED),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=Category.DRIVER,
        requires=(f"{RUN}>=1", f"{_SIGNALED}>=1"),
    ),
    JoinRule(
        name="i915.wake",
        cause=Select(kind=_SIGNALED),
        effect=Select(kind=WAIT),
        on=("fence",),
        relation=Relation.ENDS,
        pick=Pick.LATEST,
        order=Order.FINISH_FINISH,
        gap=Category.FENCE_WAIT,
        requires=(f"{_SIGNALED}>=1",),
    ),
)
