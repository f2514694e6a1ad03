# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

_SIMULATED = "simulated CUDA on the mock GPU driver"
_NVIDIA = "CUDA on NVIDIA"

LINKS = (
    StackLink(stack=_SIMULATED, link="call", state="seen"),
    StackLink(stack=_NVIDIA, link="call", state="seen"),
    StackLink(
        stack=_NVIDIA, link="queue", state="no", text="the order of streams and CUDA events instead, `bounded`, by cuda"
    ),
    StackLink(stack=_NVIDIA, link="execute", state="no", text="bounds from waits, by cuda"),
    StackLink(stack=_NVIDIA, link="signal", state="no", text="bounded by waits"),
)
