# SPDX-License-Identifier: Apache-2.0
"""Declares the layer ``amdgpu``, of which nothing is built yet."""

from __future__ import annotations

from fencepath.plugin import API_VERSION, LayerInfo, hookimpl

__all__ = ["fencepath_layer"]


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say what the layer will cover and that it records nothing yet."""
    return LayerInfo(
        name="amdgpu",
        title="command submission, memory moves and faults of amdgpu and amdkfd",
        version="0.1.0",
        api=API_VERSION,
        status="nothing is recorded yet: comes with the DRM layers",
    )
