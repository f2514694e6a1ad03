# SPDX-License-Identifier: Apache-2.0
"""What causes what within the layer. Jobs are followed to their end, and to who waits for them, by the layer ``drm``."""

from __future__ import annotations

from fencepath.events import Category
from fencepath.joins import JoinRule, Order, Pick, Relation, Select
from fencepath_amdgpu.kinds import CS, FLUSH, PIPE_SYNC, RUN

__all__ = ["RULES"]

# A fence is one job's for ever. Of one that the kernel gave by the low halves of its name, the number comes again after 2^32
# jobs on a context: the latest submission before is the right one.
RULES = (
    JoinRule(
        name="amdgpu.queue",
        cause=Select(kind=CS),
        effect=Select(kind=RUN),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=Category.LAUNCH_QUEUE,
    ),
    # the thread that submits queues the job right after that
    JoinRule(
        name="amdgpu.job",
        cause=Select(kind=CS),
        effect=Select(kind="drm.job.queue"),
        on=("fence",),
        relation=Relation.LAST_BEFORE,
        pick=Pick.LATEST,
        order=Order.FINISH_START,
        gap=Category.DRIVER,
        requires=(f"{CS}>=1", "drm.job.queue>=1"),
    ),
    *(
        JoinRule(
            name=f"amdgpu.{noun}",
            cause=Select(kind=RUN),
            effect=Select(kind=kind),
            on=("fence",),
            relation=Relation.LAST_BEFORE,
            pick=Pick.LATEST,
            order=Order.FINISH_START,
            gap=Category.DRIVER,
        )
        for noun, kind in (("flush", FLUSH), ("pipe_sync", PIPE_SYNC))
    ),
)
