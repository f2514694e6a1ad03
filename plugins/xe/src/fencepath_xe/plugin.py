# SPDX-License-Identifier: Apache-2.0
"""Declares the layer ``xe``, of which nothing is built yet."""

from __future__ import annotations

from fencepath.plugin import API_VERSION, LayerInfo, hookimpl

__all__ = ["fencepath_layer"]


@hookimpl
def fencepath_layer() -> LayerInfo:
    """Say what the layer will cover and that it records nothing yet."""
    return LayerInfo(
        name="xe",
        title="jobs, queues and memory of Intel's xe driver",
        version="0.1.0",
        api=API_VERSION,
        status="nothing is recorded yet: comes with the DRM layers",
    )
