# SPDX-License-Identifier: Apache-2.0
"""Which links of a path the layer gives on which stack, for the support matrix."""

from __future__ import annotations

from fencepath.plugin import StackLink

__all__ = ["LINKS"]

_STACK = "CUDA on NVIDIA"

LINKS = (
    StackLink(stack=_STACK, link="submit", state="no", text="a launch makes no system call"),
    StackLink(
        stack=_STACK,
        link="wake",
        state="seen",
        text="the interrupt and the poll of CUDA's helper thread; a wait that spins has none",
    ),
)
