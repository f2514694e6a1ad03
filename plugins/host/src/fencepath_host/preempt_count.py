# SPDX-License-Identifier: Apache-2.0
"""Where the kernel keeps the preempt count of a CPU, from its BTF: it tells a task's own wake-ups from an interrupt's.

On x86-64 the count is a per-CPU variable. A kernel without CONFIG_KALLSYMS_ALL tells nobody the address of its
variables, so the way goes by what can be reached: the current task leads to the run queue of its CPU
(``task_struct.se.cfs_rq->rq``, with CONFIG_FAIR_GROUP_SCHED), which is a per-CPU variable too, ``runqueues``, and BTF
says how far the others are from it. The BPF program believes an address only if the variable of the current task, found
by the same way, holds the current task.

The count is ``__preempt_count``; from 6.2 to 6.14 it was a member of ``pcpu_hot`` (commits 64701838bf05, 46e8fff6d45f).
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepath.kernel_types import KernelTypes

__all__ = ["defines_of", "preempt_count_defines"]

_QUEUE = "runqueues"
_MEMBERS = (
    "task_struct.se",
    "sched_entity.cfs_rq",
    "cfs_rq.rq",
    "pcpu_hot.current_task",
    "pcpu_hot.preempt_count",
)


def preempt_count_defines() -> dict[str, int]:
    """Return offsets in bytes as macros for host.c; none of them if the kernel does not say all."""
    types = KernelTypes()
    return defines_of(types.offsets(_MEMBERS), types.variables(_QUEUE))


def defines_of(members: Mapping[str, int], variables: Mapping[str, int]) -> dict[str, int]:
    """Return the macros, as :func:`preempt_count_defines`.

    Args:
        members: byte offsets of those that the kernel's structures have.
        variables: byte offsets of those in the section of per-CPU variables.
    """
    try:
        if "pcpu_hot" in variables:
            current = variables["pcpu_hot"] + members["pcpu_hot.current_task"]
            count = variables["pcpu_hot"] + members["pcpu_hot.preempt_count"]
        else:
            current, count = variables["current_task"], variables["__preempt_count"]
        return {
            "HOST_TASK_CFS_RQ": members["task_struct.se"] + members["sched_entity.cfs_rq"],
            "HOST_CFS_RQ_RQ": members["cfs_rq.rq"],
            "HOST_RQ_TO_CURRENT": current - variables[_QUEUE],
            "HOST_RQ_TO_COUNT": count - variables[_QUEUE],
        }
    except KeyError:
        return {}
