# SPDX-License-Identifier: Apache-2.0
"""Addresses of kernel code and data by which bpf/jobs.c knows what a wake-up comes from, and what a fence stands for."""

from __future__ import annotations

from fencepath.system import KernelSymbols

__all__ = ["symbol_defines"]

_SIGNALLING = (
    "dma_fence_signal",
    "dma_fence_signal_locked",
    "dma_fence_signal_timestamp",
    "dma_fence_signal_timestamp_locked",
    "dma_fence_check_and_signal",
    "dma_fence_check_and_signal_locked",
)
"""Functions in which callbacks of a fence run, drivers/dma-buf/dma-fence.c of Linux 5.13 to 7.3."""

_NAMERS = {
    "DRM_CHAIN_NAME": "dma_fence_chain_get_driver_name",
    "DRM_ARRAY_NAME": "dma_fence_array_get_driver_name",
}
"""By which a fence is known to be a point of a timeline, or several merged ones. Functions, as many kernels list no data."""


def symbol_defines(symbols: KernelSymbols) -> dict[str, str]:
    """Return macros of bpf/jobs.c; fewer where the kernel does not show addresses. They hold for this boot only."""
    spans = symbols.spans((*_SIGNALLING, *_NAMERS.values()))
    ranges = [f"IN_RANGE({at:#x}ULL,{size:#x})" for name in _SIGNALLING for at, size in spans.get(name, ())]
    found = {"DRM_SIGNAL_RANGES": "|".join(ranges)} if ranges else {}
    return found | {macro: f"{spans[name][0][0]:#x}ULL" for macro, name in _NAMERS.items() if name in spans}
