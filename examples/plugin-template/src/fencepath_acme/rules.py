# SPDX-License-Identifier: Apache-2.0
"""What causes what, as joins of columns."""

from __future__ import annotations

from fencepath.events import Category
from fencepath.joins import JoinRule, Order, Pick, Relation, Select

from fencepath_acme.events import DOORBELL, SUBMIT, WAIT

__all__ = ["RULES"]

RULES = (
    # Within the layer. A doorbell rings inside the call that submits: same thread, and the call is around it. The
    # doorbell cannot ring before the call began; more is not promised.
    JoinRule(
        name="acme.ring",
        cause=Select(kind=SUBMIT),
        effect=Select(kind=DOORBELL),
        on=("thread",),
        relation=Relation.CONTAINS,
        pick=Pick.INNERMOST,
        order=Order.START_START,
        gap=Category.API_CALL,
    ),
    # To another layer. A wait ends after the last wake-up of its thread within it; whoever woke it is where the path
    # goes on. libacme's devices are threads of the program, so that is the device. A wake-up by an interrupt has no
    # process (-1, which equals nothing) and one by another program has another: joining on `process` leaves both out.
    # Without the layer `host` the rule is off, and the report says so.
    JoinRule(
        name="acme.woken",
        cause=Select(kind="host.waking"),
        effect=Select(kind=WAIT),
        on=(("wakee_tid", "tid"), "process"),
        relation=Relation.ENDS,
        pick=Pick.LATEST,
        order=Order.FINISH_FINISH,
        gap=Category.DEVICE_WAIT,
        requires=("host.waking>=1",),
    ),
)
