# SPDX-License-Identifier: Apache-2.0
"""Where the kernel keeps the return addresses that return probes have replaced, from its BTF.

A function that is jumped to from one with a return probe finds the probe's trampoline as its return address. What it
would have found is in the task: ``task_struct.utask->return_instances->orig_ret_vaddr``; ``stack`` beside it says which
place on the stack was replaced (kernel/events/uprobes.c).
"""

from __future__ import annotations

from pathlib import Path

from fencepath._bpf.btf import BTF_FOLDER, KernelTypes

__all__ = ["return_defines"]

_WANTED = {
    "FP_TASK_UTASK": "task_struct.utask",
    "FP_UTASK_RETURNS": "uprobe_task.return_instances",
    "FP_RETURN_ADDRESS": "return_instance.orig_ret_vaddr",
    "FP_RETURN_STACK": "return_instance.stack",
}


def return_defines(folder: Path = BTF_FOLDER) -> dict[str, int]:
    """Return the byte offsets as macros for calls.h; none of them if the kernel does not say all."""
    offsets = KernelTypes(folder=folder).offsets(_WANTED.values())
    return {macro: offsets[member] for macro, member in _WANTED.items()} if len(offsets) == len(_WANTED) else {}
