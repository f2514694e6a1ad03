# SPDX-License-Identifier: Apache-2.0
"""Declares the layer ``drm``, of which nothing is built yet."""

from __future__ import annotations

from fencepath.plugin import API_VERSION, LayerInfo, hookimpl

__all__ = ["fencepath_layer"]


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say what the layer will cover and that it records nothing yet."""
    return LayerInfo(
        name="drm",
        title="jobs, fences and vblank of the kernel's GPU scheduler, on any DRM driver",
        version="0.1.0",
        api=API_VERSION,
        status="nothing is recorded yet: gpu_scheduler, dma_fence and vblank events come with the DRM layers",
    )
