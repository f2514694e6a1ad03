# SPDX-License-Identifier: Apache-2.0
"""Rules between recorded calls alone; those over what the device did are made by :mod:`fencepath_cuda.model`."""

from __future__ import annotations

from fencepath.events import Category
from fencepath.joins import Confidence, JoinRule, Order, Pick, Relation, Select

__all__ = ["RUNTIME_RULES"]

RUNTIME = "cuda.runtime.call"
WRAPPED = (
    "cuda.launch",
    "cuda.graph.launch",
    "cuda.host_func",
    "cuda.memcpy",
    "cuda.memcpy.async",
    "cuda.memset",
    "cuda.malloc",
    "cuda.free",
    "cuda.event.record",
    "cuda.event.synchronize",
    "cuda.stream.wait_event",
    "cuda.stream.synchronize",
    "cuda.context.synchronize",
)
"""Driver calls that a recorded runtime function makes."""

RUNTIME_RULES = tuple(
    JoinRule(
        name=f"cuda.runtime.{kind.removeprefix('cuda.')}",
        cause=Select(kind=RUNTIME),
        effect=Select(kind=kind),
        on=("thread",),
        relation=Relation.CONTAINS,
        pick=Pick.INNERMOST,
        order=Order.START_START,
        confidence=Confidence.EXACT,
        gap=Category.API_CALL,
        requires=(RUNTIME,),
    )
    for kind in WRAPPED
)
"""A runtime call and the driver calls inside it. What is unmatched came to the driver past the shared libcudart."""
