# SPDX-License-Identifier: Apache-2.0
"""What causes what within the layer. Jobs are followed to who waits for them by the layer ``drm``."""

from __future__ import annotations

from fencepath.events import Category
from fencepath.joins import JoinRule, Order, Pick, Relation, Select
from fencepath_xe.kinds import FENCE_SIGNAL, JOB_EXEC, JOB_RUN, TLB_SEND, TLB_SIGNAL

__all__ = ["RULES"]


def _next(name: str, cause: str, effect: str, gap: Category) -> JoinRule:
    """The latest cause with the fence's address before the effect: the address is another fence's only after this one's end."""
    return JoinRule(
        name=name,
        cause=Select(kind=cause),
        effect=Select(kind=effect),
        on=("fence_address",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=gap,
    )


RULES = (
    _next("xe.queue", JOB_EXEC, JOB_RUN, Category.LAUNCH_QUEUE),
    # what ran before on the same engine is in it: the time from the hand-over, not from the begin on the GPU
    _next("xe.run", JOB_RUN, FENCE_SIGNAL, Category.DEVICE_EXECUTION),
    _next("xe.tlb", TLB_SEND, TLB_SIGNAL, Category.DEVICE_WAIT),
)
