# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

LINKS = tuple(
    StackLink(stack=stack, link="wake", state="seen", text="wake-ups of threads")
    for stack in ("CUDA on NVIDIA", "simulated CUDA on the mock GPU driver")
)
