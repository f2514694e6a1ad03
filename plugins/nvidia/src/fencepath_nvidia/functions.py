# SPDX-License-Identifier: Apache-2.0
"""Functions of NVIDIA's modules, where kernel probes are allowed: both halves of an interrupt, page faults, migrations.

Names and parameters: kernel-open/nvidia/nv.c, nv-mmap.c, nv-frontend.c and kernel-open/nvidia-uvm/uvm.c, uvm_va_block.h,
uvm_gpu_replayable_faults.c of NVIDIA/open-gpu-kernel-modules, tags 515.43.04 to 595.45.04. What is taken of them is the same in
all. Parameters that are structures of four bytes (uvm_processor_id_t, uvm_va_block_region_t) come in a register each.
"""

from __future__ import annotations

from fencepath.kernel_functions import FunctionRecord, FunctionValue, KernelFunction
from fencepath.plugin import Alternative, Detail, FunctionProbe, ProbeSet
from fencepath_nvidia.kinds import DRIVER_FAULT, DRIVER_IOCTL, DRIVER_MMAP, ISR, ISR_THREAD, UVM_MIGRATION, UVM_SERVICE

__all__ = ["FUNCTION_RECORDS", "PROBE_SETS"]

_RM, _UVM = "nvidia", "nvidia_uvm"

_HALF = (
    FunctionValue(name="irq", type="s32", argument=0),
    # of the same GPU both halves are given the same pointer, whatever the vector
    FunctionValue(name="gpu", type="u64", argument=1, identity=True),
)

_ISR = FunctionRecord(
    kind=ISR,
    # the first calls the second: one interrupt
    functions=(KernelFunction(("nvidia_isr_msix",), _RM), KernelFunction(("nvidia_isr",), _RM, within=0)),
    values=_HALF,
    result="s32",
    targets=False,
    in_task=False,
)
_ISR_THREAD = FunctionRecord(
    kind=ISR_THREAD,
    functions=(KernelFunction(("nvidia_isr_msix_kthread_bh",), _RM), KernelFunction(("nvidia_isr_kthread_bh",), _RM)),
    values=_HALF,
    result="s32",
    targets=False,
)
_IOCTL = FunctionRecord(
    kind=DRIVER_IOCTL,
    functions=(
        # the second up to 535
        KernelFunction(("nvidia_unlocked_ioctl", "nvidia_frontend_unlocked_ioctl"), _RM),
        KernelFunction(("uvm_unlocked_ioctl_entry",), _UVM),
    ),
    values=(FunctionValue(name="command", type="u32", argument=1),),
    result="s64",
)
_MMAP = FunctionRecord(
    kind=DRIVER_MMAP,
    functions=(
        # up to 535 the first, which calls the second
        KernelFunction(("nvidia_frontend_mmap", "nvidia_mmap"), _RM),
        KernelFunction(("uvm_mmap_entry",), _UVM),
    ),
    values=(
        FunctionValue(name="address", type="u64", argument=1, members=("vm_area_struct.vm_start",)),
        FunctionValue(name="end_address", type="u64", argument=1, members=("vm_area_struct.vm_end",)),
        FunctionValue(name="page_offset", type="u64", argument=1, members=("vm_area_struct.vm_pgoff",)),
    ),
    result="s32",
)
_FAULT = FunctionRecord(
    kind=DRIVER_FAULT,
    functions=(
        KernelFunction(("nvidia_fault",), _RM),
        # up to 575 the first is what the kernel calls; a function of the second name had other parameters then
        KernelFunction(("uvm_vm_fault_wrapper_entry", "uvm_vm_fault_entry"), _UVM),
    ),
    values=(
        FunctionValue(name="address", type="u64", argument=0, members=("vm_fault.address",)),
        FunctionValue(name="area", type="u64", argument=0, members=("vm_fault.vma", "vm_area_struct.vm_start")),
    ),
    result="u32",
)
_SERVICE = FunctionRecord(
    kind=UVM_SERVICE,
    functions=(
        KernelFunction(("uvm_parent_gpu_service_replayable_faults", "uvm_gpu_service_replayable_faults"), _UVM),
        KernelFunction(
            ("uvm_parent_gpu_service_non_replayable_fault_buffer", "uvm_gpu_service_non_replayable_fault_buffer"), _UVM
        ),
    ),
    values=(FunctionValue(name="gpu", type="u64", argument=0, identity=True),),
    targets=False,
)
_MIGRATION = FunctionRecord(
    kind=UVM_MIGRATION,
    functions=(
        # the first from 530 on, within the second
        KernelFunction(("uvm_va_block_make_resident_copy", "uvm_va_block_make_resident"), _UVM),
        KernelFunction(("uvm_va_block_make_resident_read_duplicate",), _UVM),
    ),
    values=(
        FunctionValue(name="block", type="u64", argument=0, identity=True),
        FunctionValue(name="destination", type="u32", argument=3),
        FunctionValue(name="region", type="u32", argument=4),
    ),
    result="u32",
    targets=False,
)


def _together(name: str, detail: Detail, *records: FunctionRecord) -> ProbeSet:
    """Records that are had together or not at all."""
    probes = tuple(FunctionProbe(record=record) for record in records)
    way = Alternative(probes=probes, gives=tuple(record.kind for record in records))
    return ProbeSet(name=name, detail=detail, alternatives=(way,))


PROBE_SETS = (
    _together("both halves of interrupts", "sync", _ISR, _ISR_THREAD),
    _together("time in the driver", "launch", _IOCTL, _MMAP),
    _together("page faults of threads", "launch", _FAULT),
    _together("page faults of GPUs", "launch", _SERVICE),
    _together("migrations", "launch", _MIGRATION),
)

FUNCTION_RECORDS = (_ISR, _ISR_THREAD, _IOCTL, _MMAP, _FAULT, _SERVICE, _MIGRATION)
